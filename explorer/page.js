const $ = id => document.getElementById(id);
const meta = name => document.querySelector(`meta[name="storefront-${name}"]`).content;
const base = new URL(meta("base") || ".", location.href);
if (!base.pathname.endsWith("/")) base.pathname += "/";
$("where").firstChild.textContent = base.href.replace(/\/$/, "");

// make returns an element with these properties (or, for aria- and the like, attributes) and children.
function make(name, properties, ...children) {
	const e = document.createElement(name);
	for (const [k, v] of Object.entries(properties || {})) {
		if (k in e) e[k] = v; else e.setAttribute(k, v);
	}
	e.append(...children);
	return e;
}
const on = (id, does) => $(id).addEventListener("click", async () => {
	if ($(id).getAttribute("aria-busy")) return; // one click, one time
	$(id).setAttribute("aria-busy", "true");
	try { await does(); } finally { $(id).removeAttribute("aria-busy"); }
});
// say puts the outcome where the eyes are, and where a screen reader hears of it.
function say(id, text) {
	$(id).textContent = text;
	$("live").textContent = text;
}
// A random key, also where crypto.randomUUID is missing because the page did not come over TLS.
const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map(b => b.toString(16).padStart(2, "0")).join("");
const bytes = n => n === 1 ? "1 byte" : n.toLocaleString("en") + " bytes";
const count = (n, what) => n + " " + what + (n === 1 ? "" : "s");

// Exchanges and their log

const exchanges = [];
let pending = 0;
const encode = s => encodeURIComponent(s).replace(/[!'()*]/g, c => "%" + c.charCodeAt(0).toString(16).toUpperCase());

// extra returns the headers that go with every request.
const extra = () => $("extra").value.split("\n").filter(l => l.trim()).map(line => {
	const at = line.indexOf(":");
	return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
});

// valueOf returns the value of a header in a list of names and values.
const valueOf = (list, name) => (list.find(([n]) => n.toLowerCase() === name) || [])[1];

// send sends a request, logs what went over the wire, and returns it. The path is
// relative to the service; query and headers are lists of name and value, and a body is
// JSON unless the headers say otherwise.
async function send({method = "GET", path, query = [], headers = [], body}) {
	const own = extra();
	const all = [...headers, ...own];
	const has = name => valueOf(all, name) !== undefined;
	if (body !== undefined && !has("content-type")) all.push(["Content-Type", "application/json"]);
	// A browser that is to ask past its own cache sends this anyway; saying so makes the log true.
	const isRead = method === "GET" || method === "HEAD";
	if (isRead && !has("cache-control")) all.push(["Cache-Control", "no-cache"]);
	const url = new URL(base.origin + base.pathname + path + (query.length ? "?" + query.map(([n, v]) => encode(n) + "=" + encode(v)).join("&") : ""));
	const target = url.pathname + url.search; // without dot segments, which no browser sends
	const x = {method, path, target, query, headers: all, masked: own.map(([n]) => n), body, cookies: $("cookies").checked, started: new Date(), status: 0, answer: [], text: "", bytes: 0};
	const before = performance.now();
	pending++;
	try {
		const sent = new Headers();
		for (const [n, v] of all) sent.append(n, v);
		const request = new Request(url, {
			method, headers: sent, body, cache: isRead ? "no-store" : "default", redirect: "manual", credentials: x.cookies ? "same-origin" : "omit", signal: AbortSignal.timeout(40e3),
		});
		x.headers = all.filter(([n]) => request.headers.has(n)); // without those that the browser does not let a page send
		x.sent = true;
		const response = await fetch(request);
		if (response.type === "opaqueredirect") throw new Error("the service redirects, and browsers do not show where to");
		const received = await response.arrayBuffer();
		x.status = response.status;
		x.reason = response.statusText;
		x.answer = [...response.headers];
		x.bytes = received.byteLength;
		x.text = new TextDecoder().decode(received);
		try { x.json = JSON.parse(x.text); } catch { /* an answer need not be JSON */ }
	} catch (err) {
		x.failure = (x.sent ? "No answer: " : "Not sent: ") + String(err.message || err).replace(/\.$/, "");
	}
	x.ms = performance.now() - before;
	x.header = name => valueOf(x.answer, name);
	const entry = performance.getEntriesByName(url.href).findLast(e => e.startTime >= before - 1);
	x.protocol = (entry && entry.nextHopProtocol || "HTTP").toUpperCase().replace(/^H2$/, "HTTP/2").replace(/^H3$/, "HTTP/3");
	if (!--pending) performance.clearResourceTimings();
	exchanges.push(x);
	log(x);
	return x;
}

const quote = s => "'" + s.replaceAll("'", `'\\''`) + "'";
// curl returns the request as a command, for a shell. What was typed into a field for
// headers may be a secret, and is a variable there.
function curl(x) {
	let line = "curl -i";
	if (x.method === "HEAD") line = "curl -I";
	else if (x.method !== (x.body === undefined ? "GET" : "POST")) line += " -X " + x.method;
	const parts = [line + " " + quote(base.origin + x.target)];
	for (const [n, v] of x.headers) parts.push("-H " + (x.masked.includes(n) ? `"${n}: $${n.toUpperCase().replace(/[^A-Z0-9]/g, "_")}"` : quote(v.trim() ? n + ": " + v : n + ";")));
	if (x.cookies) parts.push('-b "$COOKIE"');
	if (x.body !== undefined) parts.push((x.body.startsWith("@") ? "--data-raw " : "-d ") + quote(x.body));
	return parts.join(" \\\n  ");
}
const wireName = n => n.replace(/(^|-)[a-z]/g, c => c.toUpperCase());
const cut = (s, n) => s.length <= n ? s : s.slice(0, n) + ` … (${s.length.toLocaleString("en")} characters in all)`;
const chip = x => make("span", {className: "chip s" + Math.floor(x.status / 100)}, x.status ? String(x.status) : "none");
// faultsOf returns the faults of a problem; what a wrapper answers may have others, or none.
const faultsOf = x => x.json && Array.isArray(x.json.errors) ? x.json.errors.filter(f => f && f.detail) : [];
const faultLines = faults => faults.map(f => make("p", {className: "fault"}, f.detail));
const size = x => x.status === 304 || !x.bytes ? "no body" : bytes(x.bytes);
// note says in a word what is special about an answer.
function note(x) {
	if (x.header("idempotent-replayed")) return "replayed";
	if (x.header("cache-status") && x.header("age")) return "from memory";
	const type = x.status >= 400 && x.json && x.json.type;
	return typeof type === "string" ? type.replace(/^urn:problem-type:storefront:|^about:blank$/, "") : "";
}
function wire(x) {
	if (x.failure) return x.failure;
	return `${x.protocol} ${x.status} ${x.reason || ""}`.trim() + "\n" + x.answer.map(([n, v]) => wireName(n) + ": " + v).join("\n") + (x.text ? "\n\n" + cut(x.text, 20000) : "");
}
function log(x) {
	const request = make("pre", {tabIndex: 0, role: "group", "aria-label": "Request"}, cut(curl(x), 2000));
	const copy = make("button", {type: "button"}, "Copy");
	copy.addEventListener("click", async () => {
		try {
			await navigator.clipboard.writeText(curl(x));
			say("live", "Copied.");
			copy.textContent = "Copied";
		} catch { // not allowed: let the user copy what is selected
			request.textContent = curl(x);
			getSelection().selectAllChildren(request);
			copy.textContent = "Selected";
		}
	});
	const took = (x.ms < 10 ? x.ms.toFixed(1) : Math.round(x.ms)) + " ms";
	const details = make("details", {open: true},
		make("summary", {}, chip(x), " ", make("code", {}, x.method + " " + cut(x.target, 300)), " ",
			make("span", {className: "meta"}, [took, size(x), note(x)].filter(s => s).join(" · "))),
		make("div", {className: "what"}, "Request", copy), request,
		make("div", {className: "what"}, "Answer"),
		make("pre", {tabIndex: 0, role: "group", "aria-label": "Answer"}, wire(x)));
	const item = make("li", {}, details);
	const newest = $("log").firstChild;
	if (newest.className === "empty") newest.remove();
	else newest.firstChild.open = false;
	$("log").prepend(item);
	$("log").scrollTop = 0;
	while ($("log").children.length > 500) $("log").lastChild.remove();
	if (exchanges.length > 500) exchanges.shift();
	$("clear").disabled = $("export").disabled = false;
}
on("clear", () => {
	exchanges.length = 0;
	$("log").replaceChildren(make("li", {className: "empty"}, "Nothing was sent since it was cleared."));
	$("clear").disabled = $("export").disabled = true;
	say("live", "The log is empty.");
	$("log").focus();
});
// The export is an HTTP Archive, which the developer tools of browsers open.
on("export", () => {
	const pairs = (list, masked = []) => list.map(([name, value]) => ({name, value: masked.includes(name) ? "REDACTED" : value}));
	const entries = exchanges.map(x => ({
		startedDateTime: x.started.toISOString(), time: x.ms,
		request: {
			method: x.method, url: base.origin + x.target, httpVersion: x.protocol, cookies: [], headers: pairs(x.headers, x.masked), queryString: pairs(x.query), headersSize: -1, bodySize: -1,
			...(x.body !== undefined && {postData: {mimeType: valueOf(x.headers, "content-type"), text: x.body}}),
		},
		response: {
			status: x.status, statusText: x.reason || "", httpVersion: x.protocol, cookies: [], headers: pairs(x.answer), redirectURL: "", headersSize: -1, bodySize: x.header("content-encoding") ? -1 : x.bytes,
			content: {size: x.bytes, mimeType: x.header("content-type") || "", text: x.text}, ...(x.failure && {comment: x.failure}),
		},
		cache: {}, timings: {send: 0, wait: x.ms, receive: 0},
	}));
	const har = {log: {version: "1.2", creator: {name: "storefront explorer", version: "1"}, entries}};
	const url = URL.createObjectURL(new Blob([JSON.stringify(har, null, "\t")], {type: "application/json"}));
	make("a", {href: url, download: "storefront.har"}).click();
	setTimeout(() => URL.revokeObjectURL(url), 60000);
	say("live", count(entries.length, "exchange") + " exported.");
});

// Problems: the faults beside what they are about

function reasonOf(x) {
	if (x.failure) return x.failure;
	return x.status + (x.json && x.json.title ? ", " + x.json.title : "");
}
// parts returns what a request has: the kind and name that a fault would give, and the value.
function parts(x) {
	const list = x.query.map(([n, v]) => ({kind: "parameter", name: n, value: v}));
	for (const [n, v] of x.headers) list.push({kind: "header", name: n, value: x.masked.includes(n) ? "…" : v});
	if (x.body === undefined) return list;
	try {
		const body = JSON.parse(x.body);
		for (const n of Object.keys(body)) list.push({kind: "pointer", name: "#/" + n, value: JSON.stringify(body[n])});
	} catch {
		list.push({kind: "pointer", name: "the body", value: cut(x.body, 200)});
	}
	return list;
}
const isAbout = (fault, part) => fault[part.kind] !== undefined && (part.kind === "header" ? fault.header.toLowerCase() === part.name.toLowerCase() : fault[part.kind] === part.name);
const kinds = {parameter: "query", header: "header", pointer: "body"};
function outcome(x) {
	const p = x.json && typeof x.json === "object" ? x.json : {};
	if (x.status < 400 && !x.failure) {
		return [make("h4", {}, chip(x), x.header("idempotent-replayed") ? "The order that this key has created" : "Done"), make("pre", {}, x.json ? JSON.stringify(x.json, null, 2) : x.text || "There is no body.")];
	}
	const rows = parts(x);
	const faults = faultsOf(x);
	for (const f of faults) {
		const kind = Object.keys(kinds).find(k => f[k] !== undefined);
		if (kind && !rows.some(r => isAbout(f, r))) rows.push({kind, name: f[kind], value: undefined});
	}
	const general = faults.filter(f => !rows.some(r => isAbout(f, r)));
	const columns = ["Part", "Sent", ...(faults.length > general.length ? ["What is wrong with it"] : [])];
	const body = make("tbody", {}, ...rows.map(r => make("tr", {}, ...[
		make("td", {}, make("code", {}, r.name), " ", make("small", {}, kinds[r.kind])),
		make("td", {}, r.value === undefined ? make("em", {}, "not sent") : make("code", {}, cut(r.value, 200))),
		make("td", {}, ...faultLines(faults.filter(f => isAbout(f, r)))),
	].slice(0, columns.length))));
	const also = [["Programs go by ", p.type], ["The server’s log has it under ", p.instance], ["Allow: ", x.header("allow")], ["Accept: ", x.header("accept")], ["Retry-After: ", x.header("retry-after")]];
	return [
		make("h4", {}, chip(x), p.title || x.reason || (x.sent ? "No answer" : "Not sent")),
		make("p", {}, make("code", {}, `${x.method} ${cut(x.target, 200)}`)),
		make("p", {}, p.detail || x.failure || ""),
		...faultLines(general),
		...(rows.length ? [make("table", {}, make("thead", {}, make("tr", {}, ...columns.map(t => make("th", {scope: "col"}, t)))), body)] : []),
		...also.filter(([, v]) => v).map(([t, v]) => make("p", {}, t, make("code", {}, v))),
	];
}

// Tabs

const tabs = [...document.querySelectorAll("[role=tab]")];
function choose(tab, focus) {
	for (const t of tabs) {
		t.setAttribute("aria-selected", t === tab);
		t.tabIndex = t === tab ? 0 : -1;
		$(t.getAttribute("aria-controls")).hidden = t !== tab;
	}
	if (focus) tab.focus();
	history.replaceState(null, "", "#" + tab.getAttribute("aria-controls"));
}
for (const tab of tabs) {
	tab.addEventListener("click", () => choose(tab));
	tab.addEventListener("keydown", e => {
		const i = tabs.indexOf(tab), n = tabs.length;
		const to = {ArrowRight: (i + 1) % n, ArrowLeft: (i + n - 1) % n, Home: 0, End: n - 1}[e.key];
		if (to === undefined) return;
		e.preventDefault();
		choose(tabs[to], true);
	});
}
// The fragment is for the tabs alone.
document.querySelector(".skip").addEventListener("click", e => {
	e.preventDefault();
	$("main").focus();
});
const asked = tabs.find(t => "#" + t.getAttribute("aria-controls") === location.hash);
if (asked) choose(asked);

// Orders

let orders; // the key that was begun, and what is ordered with it
// The body is as it was typed: digits are a number, and anything else is shown what it is told.
const orderBody = (item, qty) => `{"item":${JSON.stringify(item)},"qty":${/^-?\d+$/.test(qty) ? qty : JSON.stringify(qty)}}`;
const order = (body, ...headers) => ({method: "POST", path: "v1/orders", headers, body});
const post = (key, body) => send(order(body, ["Idempotency-Key", key]));
const idOf = x => x.json && x.json.id || "no ID";
function tried(of, what, x) {
	if (of !== orders) return; // another key was begun meanwhile
	const back = x.status === 201
		? [make("code", {}, idOf(x)), x.header("idempotent-replayed") ? " the same order, replayed" : " created"]
		: [reasonOf(x), ...faultLines(faultsOf(x))];
	$("tries").tBodies[0].append(make("tr", {}, make("td", {}, what), make("td", {}, chip(x)), make("td", {}, ...back)));
	const box = $("tries").parentNode;
	box.scrollTop = box.scrollHeight;
}
// begin begins with the key that was typed, or else with a new one.
function begin() {
	const typed = $("key").value;
	if (!typed || orders && orders.key === typed) $("key").value = newKey();
	const item = $("item").value, qty = $("qty").value.trim();
	orders = {key: $("key").value, item, qty, body: orderBody(item, qty), n: 0};
	$("tries").tBodies[0].replaceChildren();
	return orders;
}
// unknown says that nobody can tell, by this answer, whether the order was created.
const unknown = x => x.sent && (!x.status || x.status >= 500 || x.status === 409);
const refused = x => `${reasonOf(x)}. ` + (unknown(x) ? "It may have been created or not: Retry finds out, and creates it at most once." : "A refused request does not use up its key.");
// tell says what came of a request, unless another key was begun meanwhile.
function tell(of, text) {
	if (of === orders) say("orders-said", text);
}
on("order", async () => {
	const o = begin();
	const x = await post(o.key, o.body);
	tried(o, "New order", x);
	$("retry").disabled = $("other").disabled = false;
	tell(o, x.status === 201 ? x.header("idempotent-replayed") ? "This key has been used before, for the same order: it came back." : "Created. Suppose the answer was lost on its way to you, and send it again with Retry." : refused(x));
});
on("retry", async () => {
	const o = orders;
	const x = await post(o.key, o.body);
	tried(o, "Retry " + ++o.n, x);
	tell(o, x.header("idempotent-replayed") ? "The same order came back, and Idempotent-Replayed says that nothing was created." : x.status === 201 ? "Created now: no try before has created an order that the store knows of." : refused(x));
});
on("other", async () => {
	const o = orders;
	const x = await post(o.key, orderBody(o.item, String(Number.isSafeInteger(+o.qty) ? +o.qty + 1 : 1)));
	tried(o, "Other body", x);
	tell(o, x.status === 201 ? "Created: no order had this key yet." : note(x) === "idempotency-key-reused" ? "Refused: this key stands for another order. The order that it has created is as it was." : refused(x));
});
on("ten", async () => {
	const o = begin();
	const all = await Promise.all(Array.from({length: 10}, () => post(o.key, o.body)));
	all.forEach((x, i) => tried(o, "At once, " + (i + 1), x));
	const ids = new Set(all.filter(x => x.status === 201).map(idOf));
	const created = all.filter(x => x.status === 201 && !x.header("idempotent-replayed")).length;
	$("retry").disabled = $("other").disabled = false;
	const got = all.filter(x => x.status === 201).length;
	tell(o, ids.size === 1 ? `Ten requests with one key: ${count(created, "order")} created, and ${got === 10 ? "all ten" : got + " of them"} got that one back.` : `${count(ids.size, "order")} came back; see the answers above.`);
});

// Pages

let walk;
const lists = {users: {path: "v1/users", position: "after"}, widgets: {path: "v2/widgets", position: "start"}};
// nextPage reads the next page, and reports whether there are more. Who asks while it is being read gets the same.
function nextPage() {
	const w = walk;
	return w.reading ||= readPage(w).finally(() => { w.reading = undefined; });
}
async function readPage(w) {
	const list = lists[w.list];
	const x = await send({path: list.path, query: [["limit", w.limit], ...(w.next ? [[list.position, w.next]] : [])]});
	if (w !== walk) return false;
	if (x.status !== 200 || !x.json || !x.json.data) {
		say("pages-said", `${reasonOf(x)}. ${faultsOf(x).map(f => f.detail).join(" ")}`);
		return false;
	}
	w.pages++;
	for (const item of x.json.data) {
		const {id, ...rest} = item;
		if (w.seen.has(id)) w.twice++;
		w.seen.add(id);
		$("seen").tBodies[0].append(make("tr", {}, make("td", {}, String(w.pages)), make("td", {}, make("code", {}, id)), make("td", {}, make("code", {}, cut(JSON.stringify(rest), 300)))));
		w.last = id;
	}
	$("seen").parentNode.scrollTop = $("seen").parentNode.scrollHeight;
	w.next = x.json.next;
	if (!x.json.has_more && [$("next-page"), $("to-the-end")].includes(document.activeElement)) $("first-page").focus(); // before its button is disabled
	$("next-page").disabled = $("to-the-end").disabled = !x.json.has_more;
	say("pages-said", `${count(w.seen.size, "item")} on ${count(w.pages, "page")}, ${w.twice ? w.twice + " of them repeated" : "none of them twice"}. ` + (x.json.has_more ? "There are more." : "That is the end: there is no next."));
	return x.json.has_more;
}
on("first-page", async () => {
	walk = {list: $("list").value, limit: $("limit").value.trim(), seen: new Set(), pages: 0, twice: 0};
	$("seen").tBodies[0].replaceChildren();
	$("next-page").disabled = $("to-the-end").disabled = true;
	await nextPage();
});
on("next-page", nextPage);
on("to-the-end", async () => {
	for (let more = 200; more && await nextPage();) more--; // pages, then the button has to be pressed again
});
// change asks the program to put an item or to delete it, and returns what went wrong, if anything.
async function change(list, id, op) {
	const r = await fetch(location.origin + location.pathname, {method: "POST", body: new URLSearchParams({list, id, op})}).catch(err => ({failure: String(err.message || err)}));
	if (r.ok) return "";
	const p = r.json ? await r.json().catch(() => ({})) : {};
	return `That did not work: ${p.detail || r.failure || r.status + "."}`;
}
if (meta("changes")) {
	$("change").hidden = $("change-product").hidden = false;
	for (const op of ["put", "delete"]) {
		on(op, async () => {
			const list = $("list").value, id = $("change-id").value;
			const fault = await change(list, id, op);
			const done = `${op === "put" ? "Put" : "Deleted"}: ${id}.`;
			if (fault) say("pages-said", fault);
			else if (!walk || walk.list !== list || walk.last === undefined) say("pages-said", done);
			else if (!before(walk.last, id)) say("pages-said", done + " The walk is past its place.");
			else if (!walk.next) say("pages-said", done + " The walk is over, and does not get there.");
			else say("pages-said", done + " Its place is " + (list === "users" ? "still ahead" : "ahead, unless it is before the item that next names") + ". Now go on with the walk.");
		});
	}
}
// IDs are in the order of their bytes.
function before(a, b) {
	const x = new TextEncoder().encode(a), y = new TextEncoder().encode(b);
	for (let i = 0; i < x.length && i < y.length; i++) if (x[i] !== y[i]) return x[i] < y[i];
	return x.length < y.length;
}

// Caching

let kept, saved = 0;
$("product").addEventListener("input", () => {
	kept = undefined;
	$("revalidate").disabled = true;
});
const keep = x => ({path: x.path, tag: x.header("etag"), bytes: x.bytes});
const productPath = () => "v1/products/" + encode($("product").value);
on("read", async () => {
	const x = await send({path: productPath()});
	kept = x.status === 200 ? keep(x) : undefined;
	$("revalidate").disabled = !kept;
	say("revalidate-said", kept ? `${bytes(kept.bytes)}, with the tag ${kept.tag}.` : reasonOf(x) + ".");
});
on("revalidate", async () => {
	const of = kept;
	const x = await send({path: of.path, headers: [["If-None-Match", of.tag]]});
	if (kept !== of) return; // another one was read meanwhile
	if (x.status === 304) saved += kept.bytes;
	else if (x.status === 200) kept = keep(x);
	say("revalidate-said", x.status === 304 ? `304: it has not changed, and no body was sent. ${bytes(saved)} saved so far.` : x.status === 200 ? `200: it has changed. The new tag is ${kept.tag}.` : reasonOf(x) + ".");
});
if (meta("changes")) {
	for (const [button, op, done] of [["put-product", "put", "Changed."], ["delete-product", "delete", "Deleted."]]) {
		on(button, async () => {
			const fault = await change("products", $("product").value, op);
			say("revalidate-said", fault || done + " A read sees that at once; Ask may still get the old one from memory.");
		});
	}
}

const span = 60; // seconds that the time line shows
let marks = [];
function svg(name, attributes, text) {
	const e = document.createElementNS("http://www.w3.org/2000/svg", name);
	for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
	if (text) e.textContent = text;
	return e;
}
function drawTime() {
	const width = $("time").clientWidth;
	if (!width) return; // it is not shown
	$("time").setAttribute("viewBox", `0 0 ${width} 132`);
	const now = Date.now(), left = 65, right = width - 15;
	const at = t => right - (right - left) * (now - t) / 1000 / span;
	const shapes = [svg("text", {x: 8, y: 34}, "memory"), svg("text", {x: 8, y: 89}, "store"), svg("line", {x1: left, x2: right, y1: 30, y2: 30}), svg("line", {x1: left, x2: right, y1: 85, y2: 85})];
	for (let s = 0; s <= span; s += width < 500 ? 20 : 10) {
		const x = at(now - s * 1000);
		shapes.push(svg("line", {x1: x, x2: x, y1: 104, y2: 110}), svg("text", {x, y: 124, "text-anchor": s ? "middle" : "end"}, s ? s + " s ago" : "now"));
	}
	marks = marks.filter(m => now - m.at < span * 1000);
	for (const m of marks) {
		const x = at(m.at);
		const mark = m.hit ? svg("circle", {class: "hit", cx: x, cy: 30, r: 5}) : svg("rect", {class: "store", x: x - 5, y: 80, width: 10, height: 10});
		mark.append(svg("title", {}, m.text));
		if (m.hit) {
			shapes.push(svg("line", {class: "hit", x1: Math.max(left, at(m.at - m.age * 1000)), x2: x, y1: 85, y2: 30}), svg("text", {x, y: 18, "text-anchor": "middle"}, m.age + " s"));
		}
		shapes.push(mark);
	}
	$("time").replaceChildren(...shapes);
}
new ResizeObserver(drawTime).observe($("time")); // also when it is first shown
setInterval(() => { if (marks.length) drawTime(); }, 1000);
$("max-age").addEventListener("input", () => { $("max-age-value").textContent = $("max-age").value; });
on("ask", async () => {
	const n = $("max-age").value;
	const x = await send({path: productPath(), headers: [["Cache-Control", "max-age=" + n]]});
	const age = Number(x.header("age") || 0), status = x.header("cache-status") || "";
	const hit = / hit\b/.test(status);
	const text = x.status !== 200 ? reasonOf(x) + "." : hit ? `From memory, ${count(age, "second")} old; up to ${n} were allowed. Cache-Status: ${status}` : `From the store. Cache-Status: ${status}`;
	if (x.status === 200) marks.push({at: Date.now(), age, hit, text});
	drawTime();
	say("age-said", text);
});
on("forget-marks", () => {
	marks = [];
	drawTime();
	say("age-said", "The time line is empty.");
});

// Break it

const good = `{"item":"teapot","qty":2}`;
const get = (path, ...query) => ({path, query});
const withKey = (body, ...headers) => order(body, ["Idempotency-Key", newKey()], ...headers);
const wrong = [
	["A required parameter is missing", 400, () => get("v2/widgets")],
	["Three faults in one query", 400, () => get("v1/users", ["limit", "0"], ["sort", "name"], ["after", ""])],
	["A changed cursor", 400, () => get("v1/users", ["after", "AXVncmFjZbDNh1Z"])],
	["The cursor of another list", 400, () => get("v2/widgets", ["limit", "2"], ["start", "AXVncmFjZbDNh1Y"])],
	["No Idempotency-Key", 400, () => order(good)],
	["Two keys in one", 400, () => order(good, ["Idempotency-Key", "one, two"])],
	["The key of another order", 422, async () => {
		const key = newKey();
		await post(key, good);
		return order(`{"item":"kettle","qty":1}`, ["Idempotency-Key", key]);
	}],
	["Three faults in one order", 422, () => withKey(`{"qty":"3","colour":"red"}`)],
	["A quantity with a fraction", 422, () => withKey(`{"item":"teapot","qty":1.5}`)],
	["The same member twice", 400, () => withKey(`{"item":"teapot","qty":1,"qty":2}`)],
	["JSON that is cut off", 400, () => withKey(`{"item":"teapot",`)],
	["A body that is not JSON", 415, () => withKey("item=teapot", ["Content-Type", "application/x-www-form-urlencoded"])],
	["A body that is too large", 413, () => withKey(JSON.stringify({item: "t".repeat(70000), qty: 1}))],
	["A product that does not exist", 404, () => get("v1/products/no-such-product")],
	["A path that does not exist", 404, () => get("v1/users/")],
	["A method that is not allowed", 405, () => ({method: "DELETE", path: "v1/users"})],
	["A method that no one knows", 501, () => ({method: "BREW", path: "v1/users"})],
	["Only if it has not changed, but it has", 412, () => ({path: "v1/users", headers: [["If-Match", '"an-older-tag"']]})],
	["Only from memory, but it is not there", 504, () => ({path: "v1/products/not-in-memory", headers: [["Cache-Control", "only-if-cached"]]})],
];
const breaks = wrong.map(([title, want, request]) => {
	const status = make("span", {className: "chip"}, "");
	const button = make("button", {type: "button"}, title, status);
	$("breaks").append(make("li", {}, button));
	const run = async () => {
		const x = await send(await request());
		status.className = "chip s" + Math.floor(x.status / 100);
		status.textContent = x.status || "none";
		$("broken").replaceChildren(...outcome(x));
		$("broken").scrollTop = 0;
		return x.status === want;
	};
	button.addEventListener("click", async () => {
		await run();
		say("live", $("broken").querySelector("h4").textContent);
	});
	return run;
});
on("break-all", async () => {
	let right = 0;
	for (const run of breaks) if (await run()) right++;
	say("live", `${right} of ${breaks.length} were told what is wrong.`);
});

// All requests, as openapi.json describes them

let offered = false;
$("openapi").href = base.pathname + "openapi.json";
$("extra").addEventListener("change", () => { if (!offered) offer(); });
async function offer() {
	const headers = extra().filter(([n]) => n);
	const response = await fetch(base.origin + base.pathname + "openapi.json", {credentials: "same-origin", headers}).catch(err => ({failure: String(err.message || err)}));
	const api = response.ok && await response.json().catch(() => undefined);
	if (!api || !api.paths) {
		$("operations").replaceChildren(make("p", {className: "problem"}, `The openapi.json of the service at ${base.href} cannot be read: ${response.failure || (response.ok ? "it is not JSON" : "the answer is " + response.status)}. If it takes an Authorization, give that below.`));
		return;
	}
	offered = true;
	const follow = v => v && v.$ref ? follow(v.$ref.slice(2).split("/").reduce((o, k) => o[k], api)) : v;
	const limit = api.paths["/v1/users"]?.get?.parameters.map(follow).find(p => p.name === "limit");
	$("limit").title = limit ? `1 to ${limit.schema.maximum}` : "";
	const sections = [];
	for (const [path, item] of Object.entries(api.paths)) {
		for (const method of ["get", "post"]) {
			if (!item[method] || path === "/openapi.json") continue;
			sections.push(operation(follow, path, method.toUpperCase(), item[method], [...(item.parameters || []), ...(item[method].parameters || [])].map(follow)));
		}
	}
	$("operations").replaceChildren(...sections);
}
const plain = text => (text || "").split("\n")[0].replaceAll("`", "").replace(/^(.*?[.!])(\s.*)?$/, "$1");
function operation(follow, path, method, op, parameters) {
	const fields = [];
	const add = (kind, p, value) => {
		const id = op.operationId + "-" + p.name.toLowerCase();
		const input = make("input", {id, value, autocomplete: "off", spellcheck: false, "aria-describedby": id + "-hint " + id + "-fault"});
		const fault = make("p", {id: id + "-fault", className: "fault"});
		const s = follow(p.schema) || {};
		const range = s.minimum !== undefined && s.maximum !== undefined ? ` ${s.minimum} to ${s.maximum}.` : "";
		fields.push({kind, name: kind === "pointer" ? "#/" + p.name : p.name, bare: p.name, type: s.type, input, fault,
			element: make("div", {className: "field"}, make("label", {htmlFor: id}, `${p.name} (${kind === "pointer" ? "body" : p.in}${p.required ? ", required" : ""})`), input,
				make("span", {id: id + "-hint", className: "hint"}, plain(p.description || s.description) + range), fault)});
	};
	const initial = p => p.name === "product_id" ? meta("product") || p.example : p.required && p.in === "query" ? p.example ?? "" : p.name === "Idempotency-Key" ? newKey() : "";
	for (const p of parameters) add({path: "path", query: "parameter", header: "header"}[p.in], p, String(initial(p)));
	const content = op.requestBody && op.requestBody.content["application/json"];
	if (content) {
		const schema = follow(content.schema);
		const example = follow(Object.values(content.examples || {})[0])?.value || {};
		for (const [name, s] of Object.entries(schema.properties)) add("pointer", {name, schema: s, description: follow(s).description, required: schema.required?.includes(name)}, String(example[name] ?? ""));
	}
	const done = make("div", {className: "outcome", tabIndex: 0, role: "region", "aria-label": "Answer to " + op.summary}, make("p", {}, "Not sent yet."));
	const button = make("button", {type: "submit"}, "Send " + method);
	const form = make("form", {noValidate: true}, make("div", {className: "fields"}, ...fields.map(f => f.element)), make("p", {className: "buttons"}, button), done);
	form.addEventListener("submit", async e => {
		e.preventDefault();
		const filled = kind => fields.filter(f => f.kind === kind && f.input.value !== "");
		const value = f => f.type === "integer" && /^(0|[1-9]\d*)$/.test(f.input.value) ? f.input.value : JSON.stringify(f.input.value);
		const x = await send({
			method,
			path: path.slice(1).replace(/\{(.*?)\}/g, (_, n) => encode(fields.find(f => f.bare === n).input.value)),
			query: filled("parameter").map(f => [f.name, f.input.value]),
			headers: filled("header").map(f => [f.name, f.input.value]),
			body: content ? "{" + filled("pointer").map(f => JSON.stringify(f.bare) + ":" + value(f)).join(",") + "}" : undefined,
		});
		for (const f of fields) {
			const its = faultsOf(x).filter(fault => isAbout(fault, f));
			f.fault.textContent = its.map(fault => fault.detail).join(" ");
			f.input.setAttribute("aria-invalid", its.length > 0);
		}
		done.replaceChildren(...outcome(x));
		say("live", done.querySelector("h4").textContent);
	});
	return make("section", {className: "operation", "aria-label": op.summary}, make("h3", {}, op.summary), make("p", {}, make("code", {}, method + " " + path), " ", plain(op.description)), form);
}
$("key").value = newKey();
if (meta("product")) $("product").value = meta("product");
await offer();
