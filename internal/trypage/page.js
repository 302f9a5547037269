const $ = id => document.getElementById(id);
const meta = name => document.querySelector(`meta[name="storefront-${name}"]`).content;
const base = new URL(meta("base") || ".", location.href);
if (!base.pathname.endsWith("/")) base.pathname += "/";
const service = base.origin + base.pathname; // and not base.href: a path may begin with //
const product = meta("product") || "teapot";

function make(name, properties, ...children) {
	const e = Object.assign(document.createElement(name), properties);
	e.append(...children);
	return e;
}
const [tries, seen, mine] = ["tries", "seen", "mine"].map(id => $(id).tBodies[0]);
const [td, p] = ["td", "p"].map(name => (...children) => make(name, {}, ...children));
const code = text => make("code", {}, cut(text, 300));
// once runs what a button does, unless it still does it.
async function once(button, does) {
	if (button.ariaBusy) return;
	button.ariaBusy = true;
	try { await does(); } finally { button.ariaBusy = null; }
}
const on = (id, does) => $(id).addEventListener("click", () => once($(id), does));
const announce = text => { $("live").textContent = text; }; // for screen readers
// Without TLS, there is no crypto.randomUUID.
const newKey = () => [...crypto.getRandomValues(new Uint32Array(4))].map(n => n.toString(36)).join("");
const count = (n, what) => n.toLocaleString("en") + " " + what + (n === 1 ? "" : "s");
const string = v => typeof v === "string" ? v : "";
const isObject = v => typeof v === "object" && v !== null;

// Credentials, which are not shown, wherever they were typed

const mask = "MASKED";
const secrets = new Set(); // the values of More headers
const credentials = new RegExp([
	/\bBearer(\s|%20|\+)+(?!\w+="?\w)(?=[^\s"]*\d|[^\s"]{16})[\w.~+/%-]+=*/, // but not Bearer realm="shop"
	/\bBasic(\s|%20|\+)+[\w+/%-]{8,}=*/,
	/\beyJ[\w-]{6,}\.[\w-]+\.[\w-]*/, // a JSON Web Token
].map(r => r.source).join("|"), "gi");
function hide(text) {
	for (const secret of secrets) text = text.replaceAll(secret, mask);
	return text.replace(credentials, mask);
}
// cut returns the first n characters, without credentials.
function cut(text, n) {
	const start = hide(text.slice(0, n + 5000)); // a credential may cross the edge
	return text.length <= n ? start : start.slice(0, n) + ` … (${count(text.length, "character")} in all)`;
}

// Exchanges: sent, then answered, redirected, failed or cancelled; or refused at once

const exchanges = [];
const waiting = new Set();
const encode = s => encodeURIComponent(s.toWellFormed()).replace(/[!'()*]/g, c => "%" + c.charCodeAt(0).toString(16));
const valueOf = (list, name) => list.find(([n]) => n === name)?.[1];

// typedHeaders returns what goes with every request, and what is wrong with it.
function typedHeaders() {
	const list = [];
	for (const [i, line] of $("extra").value.split("\n").entries()) {
		const [, name, value] = /^\s*([\w!#$%&'*+.^`|~-]+)\s*:(.*)$/.exec(line) || [];
		if (name) list.push([name.toLowerCase(), value.trim()]);
		else if (line.trim()) return {list, fault: `line ${i + 1} of the headers is not “Name: value”`};
	}
	return {list, fault: ""};
}
// prepare returns an exchange. The path is relative to the service. The page's own stay folded in the log.
function prepare({method = "GET", path, url = service + path, query = [], headers = [], body, cookies, own = false}) {
	const typed = typedHeaders();
	const all = [...headers, ...typed.list];
	const unless = name => all.every(([n]) => n.toLowerCase() !== name.toLowerCase());
	if (body !== undefined && unless("Content-Type")) all.push(["Content-Type", "application/json"]);
	// A browser that is to ask past its own cache sends this anyway; saying so makes the log true.
	if (method === "GET" && unless("Cache-Control")) all.push(["Cache-Control", "no-cache"]);
	const search = query.map(([n, v]) => encode(n) + "=" + encode(v)).join("&");
	const x = {
		method, path, query, headers: all, body, own, state: "sent",
		url: new URL(search ? url + "?" + search : url), masked: typed.list.map(([n]) => n),
		cookies: cookies ?? $("cookies").checked, before: performance.now(), protocol: "HTTP",
		status: 0, reason: "", answer: [], text: "", bytes: 0, ms: 0, queued: 0,
	};
	x.target = x.url.pathname + x.url.search;
	x.header = name => valueOf(x.answer, name);
	const values = typed.list.flatMap(([, v]) => [v, v.split(" ").at(-1)]);
	for (const v of values) if (v.length > 7) secrets.add(v);
	const odd = x.headers.find(([, v]) => /[^\t -~]/.test(v));
	const fault = odd ? `${odd[0]} has a character that is not printable ASCII` : typed.fault;
	try {
		if (fault) throw new Error(fault);
		x.request = new Request(x.url, {
			method, headers: all, body, cache: method === "GET" ? "no-store" : "default",
			redirect: "manual", credentials: x.cookies ? "same-origin" : "omit",
		});
		x.headers = [...x.request.headers]; // as sent: joined, and without those that no page may send
	} catch (err) {
		Object.assign(x, {state: "refused", problem: "Not sent: " + hide(err.message)});
	}
	return x;
}
// send returns the exchange once there is an answer, or will be none. It is in the log from the beginning.
async function send(request, report) {
	const x = prepare(request);
	exchanges.push(x);
	addToLog(x);
	if (x.state === "refused") return x;
	waiting.add(x);
	report?.sent(x);
	await receive(x);
	waiting.delete(x);
	measure(x);
	showInLog(x);
	report?.done(x);
	if (isFromService(x) && !isReached) offer();
	return x;
}
async function receive(x) {
	const stop = new AbortController();
	x.cancel = () => stop.abort();
	try {
		const response = await fetch(x.request, {signal: AbortSignal.any([stop.signal, AbortSignal.timeout(40e3)])});
		if (response.type === "opaqueredirect") {
			x.problem = "The answer is a redirect, and browsers do not tell a page where to";
			x.state = "redirected";
			return;
		}
		const received = await response.arrayBuffer();
		x.text = new TextDecoder().decode(received);
		try { x.json = JSON.parse(x.text); } catch { /* an answer need not be JSON */ }
		Object.assign(x, {state: "answered", status: response.status, reason: response.statusText});
		Object.assign(x, {answer: [...response.headers], bytes: received.byteLength});
	} catch (err) {
		x.state = stop.signal.aborted ? "cancelled" : "failed";
		x.problem = "No answer: " + String(err.message || err).replace(/\.$/, "");
		if (err.name === "TimeoutError") x.problem = "No answer within 40 seconds";
		if (stop.signal.aborted) x.problem = "Cancelled, before there was an answer";
	}
}
function measure(x) {
	x.ms = performance.now() - x.before;
	const timings = performance.getEntriesByName(x.url.href).filter(t => t.startTime >= x.before - 1);
	const timing = timings.sort((a, b) => a.responseEnd - b.responseEnd).at(-1);
	if (timing) {
		x.queued = Math.max(0, timing.requestStart - timing.startTime);
		x.protocol = (timing.nextHopProtocol || "HTTP").toUpperCase().replace(/^H([23])$/, "HTTP/$1");
	}
	if (!waiting.size) performance.clearResourceTimings();
}

// Reports: the sentence below the buttons

class Report {
	waiting = new Set();
	constructor(text) {
		this.text = text;
		this.button = button("Cancel", "what was sent here", () => { for (const x of this.waiting) x.cancel(); });
		this.button.hidden = true;
		text.after(this.button);
	}
	begin() {
		this.waiting.clear();
		this.update();
	}
	sent(x) {
		if (!this.waiting.size) this.sender = document.activeElement;
		this.waiting.add(x);
		this.update();
		this.say("");
	}
	done(x) {
		if (!this.waiting.delete(x)) return;
		this.update();
		if (this.waiting.size) this.say("");
	}
	say(text) {
		const n = this.waiting.size;
		if (n) text += n > 1 ? ` Sent; no answer yet to ${n} requests.` : " Sent; no answer yet.";
		announce(text.trim());
		this.text.textContent = text.trim();
	}
	update() {
		const isWaiting = this.waiting.size > 0;
		if (!isWaiting && document.activeElement === this.button) this.sender.focus();
		this.button.hidden = !isWaiting;
		this.text.parentNode.classList.toggle("waiting", isWaiting);
	}
}

// The log

const quote = s => "'" + s.replaceAll("'", `'\\''`) + "'";
const isMasked = (x, name, value) => x.masked.includes(name) || hide(value) !== value;
const wireName = name => name.replace(/(^|-)[a-z]/g, c => c.toUpperCase());
function variableOf(name, taken) {
	let variable = "H_" + name.toUpperCase().replace(/\W|-/g, "_");
	while (taken.includes(variable)) variable += "_";
	taken.push(variable);
	return variable;
}
// curl returns the request as a shell command. A value that may be a secret is a variable there, without
// which it stops.
function curl(x) {
	const {method, body} = x;
	const implied = body === undefined ? "GET" : "POST";
	const taken = [];
	const header = ([name, value]) => {
		const shown = wireName(name);
		if (!value) return "-H " + quote(shown + ";");
		if (isMasked(x, name, value)) return `-H ${quote(shown + ": ")}"\${${variableOf(name, taken)}:?}"`;
		return "-H " + quote(shown + ": " + value);
	};
	const asItIs = /[[\]]/.test(x.target) ? "-g " : ""; // brackets are a range otherwise
	const line = `curl ${asItIs}-i ` + (method === implied ? "" : `-X ${method} `);
	const parts = [line + quote(hide(base.origin + x.target)), ...x.headers.map(header)];
	if (x.cookies) parts.push('-b "$COOKIE"');
	if (body !== undefined) parts.push((body.startsWith("@") ? "--data-raw " : "-d ") + quote(hide(body)));
	return parts.join(" \\\n  ");
}
// pretty breaks JSON into lines, and changes nothing else of it, such as its numbers.
function pretty(json) {
	let depth = 0;
	const line = change => "\n" + "  ".repeat(Math.min(depth += change, 40));
	return json.replace(/"(?:[^"\\]|\\.)*"?|\{\s*\}|\[\s*\]|[{}[\],:]|\s+/g, part => {
		if (part === "{" || part === "[") return part + line(1);
		if (part === "}" || part === "]") return line(-1) + part;
		if (part === ",") return part + line(0);
		return part === ":" ? ": " : part.trim();
	});
}
const shownLength = 20000;
function bodyOf(x, asItCame) {
	const text = cut(x.text, shownLength);
	if (asItCame || x.json === undefined) return text;
	return pretty(text.slice(0, shownLength)) + text.slice(shownLength);
}
function wire(x, asItCame) {
	if (x.state === "sent") return "No answer yet.";
	if (x.problem) return x.problem + ".";
	const head = x.answer.map(([n, v]) => `\n${wireName(n)}: ${hide(v)}`).join("");
	return `${x.protocol} ${x.status} ${x.reason}`.trim() + head + (x.text && "\n\n") + bodyOf(x, asItCame);
}
function fillChip(chip, x) {
	let kind = Math.floor(x.status / 100);
	if (x.state === "redirected" || x.status === 201 && isReplay(x)) kind = 3;
	chip.className = "chip s" + (x.state === "sent" ? "wait" : kind);
	chip.textContent = {sent: "…", redirected: "3xx"}[x.state] || x.status || "none";
	return chip;
}
const isReplay = x => x.header("idempotent-replayed") !== undefined;
const chip = x => fillChip(make("span", {}), x);
function note(x) {
	if (isReplay(x)) return "replayed";
	if (x.header("cache-status") && x.header("age")) return "from memory";
	if (x.status < 400) return "";
	const type = string(x.json?.type).replace(/^urn:problem-type:storefront:|^about:blank$/, "");
	return cut([type, string(x.json?.reason)].filter(s => s).join(": "), 100);
}
const duration = ms => ms.toFixed(ms < 10 ? 1 : 0) + " ms";
function summary(x) {
	if (x.state === "sent") return `no answer yet, after ${Math.round((performance.now() - x.before) / 1000)} s`;
	const time = duration(x.ms) + (x.queued < 20 || x.own ? "" : `, ${duration(x.queued)} of it before it was sent`);
	if (x.state !== "answered") return x.state === "refused" ? "not sent" : time + " · " + x.state;
	return [time, x.status === 304 || !x.bytes ? "no body" : count(x.bytes, "byte"), note(x)].filter(s => s).join(" · ");
}

let number = 0;
let unfolded; // the exchange that was unfolded when it was sent
const isLookedAt = e => e.matches(":hover, :focus-within") || getSelection().containsNode(e, true);
function button(text, what, does) {
	const b = make("button", {type: "button", ariaLabel: `${text} (${what})`}, text);
	b.addEventListener("click", () => does(b));
	return b;
}
function addToLog(x) {
	x.name = `${++number}: ${x.method} ${cut(x.target, 100)}`;
	x.chip = make("span", {});
	x.meta = make("span", {className: "meta"});
	const title = make("summary", {}, x.chip, " ", code(x.method + " " + x.target), " ", x.meta);
	x.details = make("details", {open: !x.own}, title);
	x.details.addEventListener("toggle", () => { if (x.details.open !== Boolean(x.parts)) showDetails(x); });
	x.stop = button("Cancel", x.name, () => x.cancel());
	x.item = make("li", {}, x.details, x.stop);
	const log = $("log");
	log.querySelector(".empty")?.remove();
	if (!x.own) {
		if (unfolded && !isLookedAt(unfolded.item)) unfolded.details.open = false;
		unfolded = x;
	}
	log.prepend(x.item);
	if (!isLookedAt(log)) log.scrollTop = 0;
	if (exchanges.length > 500) exchanges.shift().item.remove();
	showInLog(x);
}
function showInLog(x) {
	const isWaiting = x.state === "sent";
	if (!isWaiting && document.activeElement === x.stop) x.details.firstChild.focus();
	x.stop.hidden = !isWaiting || x.own;
	x.item.className = (x.own ? "own " : "") + (isWaiting ? "waiting" : "");
	fillChip(x.chip, x);
	x.meta.textContent = summary(x);
	showDetails(x);
	if (!isWaiting) $("clear").disabled = $("export").disabled = false;
}
// What an entry has is in the document only while it is unfolded: a long log stays quick.
function showDetails(x) {
	x.parts?.remove();
	x.parts = undefined;
	if (!x.details.open) return;
	const box = (what, text) => make("pre", {tabIndex: 0, role: "group", ariaLabel: what + x.name}, text);
	const request = box("Request ", cut(curl(x), 2000)), answer = box("Answer to ", wire(x));
	const head = (what, ...buttons) => make("div", {className: "what"}, make("span", {}, what), ...buttons);
	const copy = button("Copy", "request " + x.name, b => copyRequest(x, request, b));
	x.parts = make("div", {}, head("Request", copy), request, head("Answer", ...answerButtons(x, answer)), answer);
	x.details.append(x.parts);
}
async function copyRequest(x, request, button) {
	try {
		await navigator.clipboard.writeText(curl(x));
		button.textContent = "Copied";
	} catch { // not allowed: let the user copy what is selected
		request.textContent = curl(x);
		getSelection().selectAllChildren(request);
		button.textContent = "Selected";
	}
	announce(button.textContent + ".");
	setTimeout(() => { button.textContent = "Copy"; }, 3000);
}
function answerButtons(x, answer) {
	const list = [];
	if (x.json !== undefined) list.push(button("As it came", "answer to " + x.name, b => {
		const asItCame = b.ariaPressed !== "true";
		b.ariaPressed = asItCame;
		answer.textContent = wire(x, asItCame);
	}));
	if (x.text.length > shownLength) {
		list.push(button("Save all", "answer to " + x.name, () => save("answer.txt", "text/plain", x.text)));
	}
	return list;
}
function save(name, type, text) {
	const url = URL.createObjectURL(new Blob([text], {type}));
	make("a", {href: url, download: name}).click();
	setTimeout(() => URL.revokeObjectURL(url), 60000);
}
on("clear", () => {
	for (const x of exchanges) if (!waiting.has(x)) x.item.remove();
	exchanges.splice(0, Infinity, ...waiting);
	if (!waiting.size) $("log").append(make("li", {className: "empty"}, "Nothing was sent since it was cleared."));
	$("clear").disabled = $("export").disabled = true;
	announce("The log is empty.");
	$("log").focus();
});
function archived(x) {
	const pairs = list => list.map(([name, value]) => ({name, value: hide(value)}));
	const sent = x.headers.map(([n, v]) => [n, isMasked(x, n, v) ? mask : v]);
	const both = {httpVersion: x.protocol, cookies: [], headersSize: -1};
	const type = valueOf(x.headers, "content-type");
	return {
		startedDateTime: new Date(performance.timeOrigin + x.before).toISOString(), time: x.ms, cache: {},
		request: {
			...both, method: x.method, url: hide(base.origin + x.target), headers: pairs(sent), bodySize: -1,
			queryString: pairs(x.query), ...(x.body !== undefined && {postData: {mimeType: type, text: hide(x.body)}}),
		},
		response: {
			...both, status: x.status, statusText: x.reason, headers: pairs(x.answer), redirectURL: "",
			bodySize: x.header("content-encoding") ? -1 : x.bytes,
			content: {size: x.bytes, mimeType: x.header("content-type") || "", text: hide(x.text)},
		},
		...(x.problem && {comment: x.problem}), timings: {blocked: x.queued, send: 0, wait: x.ms - x.queued, receive: 0},
	};
}
// Developer tools open an HTTP Archive.
on("export", () => {
	const entries = exchanges.filter(x => !waiting.has(x)).map(archived);
	const har = {log: {version: "1.2", creator: {name: "storefront explorer", version: "1"}, entries}};
	save("storefront.har", "application/json", JSON.stringify(har, null, "\t"));
	announce(count(entries.length, "exchange") + " exported.");
});

// Problems: the faults beside what they are about

function faultsOf(x) {
	const errors = x.json?.errors;
	return Array.isArray(errors) ? errors.filter(f => string(f?.detail)).slice(0, 100) : [];
}
// Who checks the fields of an order may leave it to the pointer to say which one is meant.
const placeOf = f => string(f.pointer).startsWith("#/fields/") ? f.pointer.slice(9) + ": " : "";
const textOf = f => cut(placeOf(f) + f.detail, 500);
const faultLines = faults => faults.map(f => make("p", {className: "fault"}, textOf(f)));
// parts returns what a request has, with the kind and name that a fault would give.
function parts(x) {
	const list = x.query.map(([n, v]) => ({kind: "parameter", name: n, value: v}));
	for (const [n, v] of x.headers) list.push({kind: "header", name: wireName(n), value: isMasked(x, n, v) ? mask : v});
	if (x.body === undefined) return list;
	try {
		const body = JSON.parse(x.body);
		for (const n of Object.keys(body)) list.push({kind: "pointer", name: "#/" + n, value: JSON.stringify(body[n])});
	} catch {
		list.push({kind: "pointer", name: "the body", value: x.body});
	}
	return list;
}
function isAbout(fault, part) {
	const name = string(fault[part.kind]);
	if (part.kind === "header") return name.toLowerCase() === part.name.toLowerCase();
	return name === part.name || part.kind === "pointer" && name.startsWith(part.name + "/");
}
const kinds = {parameter: "query", header: "header", pointer: "body"};
function faultTable(x) {
	const rows = parts(x);
	const faults = faultsOf(x);
	for (const f of faults) {
		const kind = Object.keys(kinds).find(k => string(f[k]));
		if (kind && !rows.some(r => isAbout(f, r))) rows.push({kind, name: f[kind]});
	}
	const general = faults.filter(f => !rows.some(r => isAbout(f, r)));
	const columns = ["Part", "Sent"];
	if (faults.length > general.length) columns.push("What is wrong with it");
	const cells = r => [
		td(code(r.name), " ", kinds[r.kind]),
		td(r.value === undefined ? "not sent" : code(r.value)),
		td(...faultLines(faults.filter(f => isAbout(f, r)))),
	].slice(0, columns.length);
	const head = make("thead", {}, make("tr", {}, ...columns.map(t => make("th", {scope: "col"}, t))));
	const body = make("tbody", {}, ...rows.map(r => make("tr", {}, ...cells(r))));
	return [...faultLines(general), ...(rows.length ? [make("table", {}, head, body)] : [])];
}
const titleOf = x => cut(string(x.json?.title) || x.reason, 200);
function headline(x) {
	if (x.problem || x.status >= 400) return x.problem || titleOf(x);
	return isReplay(x) ? "The order that this key has created" : "Done";
}
function outcome(x) {
	const title = make("h4", {}, chip(x), " ", headline(x));
	if (x.state === "answered" && x.status < 400) return [title, make("pre", {}, bodyOf(x) || "There is no body.")];
	const {detail, type, instance, title: _, status, errors, ...members} = isObject(x.json) ? x.json : {};
	const also = [
		["Programs go by ", type], ["The server’s log has it under ", instance],
		...Object.entries(members).slice(0, 20).map(([n, v]) => [cut(n, 100) + ": ", string(v) || JSON.stringify(v)]),
		...["allow", "accept", "retry-after"].map(n => [wireName(n) + ": ", x.header(n)]),
	].filter(([, v]) => string(v));
	const told = p(cut(string(detail), 1000), " ", hint(x));
	return [title, p(code(`${x.method} ${x.target}`)), told, ...faultTable(x), ...also.map(([t, v]) => p(t, code(v)))];
}

// What an answer is that was not hoped for

const isHTML = x => /^\s*</.test(x.text) || /html/i.test(x.header("content-type"));
const isOurs = x => string(x.json?.type).startsWith("urn:problem-type:storefront:");
function reasonOf(x) {
	if (x.problem) return x.problem;
	const code = cut(string(x.json?.reason), 100); // of a store that refuses an order
	return (titleOf(x) ? `${x.status}, ${titleOf(x)}` : String(x.status)) + (code && ` (${code})`);
}
// hint says where to look if something in front of the service has answered.
function hint(x) {
	const how = " Sign in, in another tab, and tick Send my sign-in at the top, or give a header there";
	if (x.state === "redirected") return `Is it to a sign-in page?${how}.`;
	if (x.state !== "answered" || isOurs(x)) return "";
	if (x.status === 401) return `It asks who you are.${how}, such as Authorization.`;
	if (x.status === 403) return `Is it for those who have signed in?${how}.`;
	return x.status < 400 && isHTML(x) ? `Is that a sign-in page?${how}.` : "";
}
// explain says what came instead of, say, "a list".
function explain(x, wanted) {
	const what = isHTML(x) ? "an HTML page and not " : "an answer that is not ";
	const reason = x.state === "answered" && x.status < 400 ? `${x.status}, with ${what}${wanted}` : reasonOf(x);
	return [reason + ".", hint(x)].join(" ").trim();
}

// Tabs

const tabs = [...document.querySelectorAll(".tabs button")];
tabs[0].parentNode.role = "tablist";
const nameOf = tab => tab.id.slice(4);
const putInAddress = where => history.replaceState(0, "", "#" + where);
function show(tab) {
	for (const t of tabs) {
		t.ariaSelected = t === tab;
		t.tabIndex = t === tab ? 0 : -1;
		$(nameOf(t)).hidden = t !== tab;
	}
}
function choose(tab) {
	show(tab);
	tab.focus();
	putInAddress(nameOf(tab));
}
for (const [i, tab] of tabs.entries()) {
	const panel = $(nameOf(tab));
	tab.role = "tab";
	tab.setAttribute("aria-controls", panel.id);
	panel.role = "tabpanel";
	panel.setAttribute("aria-labelledby", tab.id);
	tab.addEventListener("click", () => choose(tab));
	tab.addEventListener("keydown", e => {
		const n = tabs.length;
		const to = {ArrowRight: (i + 1) % n, ArrowLeft: (i + n - 1) % n, Home: 0, End: n - 1}[e.key];
		if (to === undefined) return;
		e.preventDefault();
		choose(tabs[to]);
	});
}
// The address names a tab, such as #pages, or a request, such as #all/createOrder.
function followAddress() {
	const [name, operation] = location.hash.slice(1).split("/");
	const tab = tabs.find(t => nameOf(t) === name);
	if (tab) show(tab);
	if ($("operation-" + operation)) $("operation-" + operation).open = true;
}
addEventListener("hashchange", followAddress);
// The fragment is for the tabs alone.
document.querySelector(".skip").onclick = () => { $("main").focus(); return false; };

// Orders

let begun; // the key that was begun, and how many retries it had
const orders = new Report($("orders-said"));
const orderFields = [["pointer", "#/item", "item"], ["pointer", "#/qty", "qty"], ["pointer", "#/fields", "fields"],
	["header", "Idempotency-Key", "key"]].map(([kind, name, id]) => ({kind, name, input: $(id)}));
const withKey = (key, body, ...headers) => order(body, ["Idempotency-Key", key], ...headers);
const order = (body, ...headers) => ({method: "POST", path: "v1/orders", headers, body});
// typed returns the JSON of what was typed: a number is sent as it stands, and all else is a string.
const typed = text => /^-?(0|[1-9]\d*)(\.\d+)?(e[+-]?\d+)?$/i.test(text) ? text : JSON.stringify(text);
function typedOrder(changed) {
	let qty = $("qty").value.trim();
	if (changed) qty = Number.isSafeInteger(+qty) ? +qty + 1 : 1;
	const fields = $("fields").value.trim(); // sent as they are, whatever they are
	return `{"item":${JSON.stringify($("item").value)},"qty":${typed(qty)}${fields && `,"fields":${fields}`}}`;
}
// look scrolls the answers, and nothing else, until a row can be seen.
function look(row) {
	const box = tries.closest(".scroll");
	const below = row.offsetTop + row.offsetHeight - box.clientHeight;
	box.scrollTop = Math.min(Math.max(box.scrollTop, below), row.offsetTop - tries.rows[0].offsetTop);
}
const isOrder = x => x.status === 201 && string(x.json?.id) !== "";
// attempt returns nothing if another key was begun meanwhile.
async function attempt(what, body) {
	const of = begun;
	const row = make("tr", {}, td(what), td(chip({state: "sent"})), td("no answer yet"));
	tries.append(row);
	if (tries.rows.length > 200) tries.rows[0].remove(); // the log has them
	look(row);
	$("retry").disabled = $("other").disabled = false;
	const x = await send(withKey(of.key, body), orders);
	fillChip(row.cells[1].firstChild, x);
	row.cells[2].replaceChildren(...cameBack(x));
	if (isOrder(x) && !isReplay(x)) row.className = "created";
	if (of !== begun) return undefined;
	look(row);
	showFaults(x, orderFields);
	if (faultsOf(x).some(f => f.pointer === "#")) $("fields").ariaInvalid = true; // all else is well-formed
	return x;
}
function cameBack(x) {
	const faults = faultsOf(x);
	if (!faults.length && string(x.json?.detail)) faults.push(x.json);
	if (!isOrder(x)) return [reasonOf(x).replace(/^\d+, /, ""), ...faultLines(faults)];
	return [code(x.json.id), isReplay(x) ? " the same order, replayed" : " created"];
}
function beginKey(key) {
	$("key").value = key;
	begun = {key, retries: 0};
	tries.replaceChildren();
	orders.begin();
}
// A new order has the key that was typed, or else a new one; a retry has the one that is shown.
function beginOrder() {
	const typed = $("key").value;
	beginKey(!typed || typed === begun?.key ? newKey() : typed);
}
function beginRetry() {
	if ($("key").value !== begun.key) beginKey($("key").value);
}
function fate(x) {
	if (x.state === "refused") return "";
	const isAnswered = x.state === "redirected" || x.status && x.status < 500 && x.status !== 409;
	if (!isAnswered) return "It may have been created or not: Retry finds out, and creates it at most once.";
	return isOurs(x) ? "A refused request does not use up its key." : "Retry is safe: one key, one order.";
}
function sayOfOrder(x, created, replayed) {
	if (!x) return;
	if (isOrder(x)) orders.say(isReplay(x) ? replayed : created);
	else if (note(x) !== "idempotency-key-reused") orders.say(explain(x, "an order") + " " + fate(x));
	else orders.say("Refused: this key stands for another order. The order that it has created is as it was.");
}
on("order", async () => {
	beginOrder();
	sayOfOrder(await attempt("New order", typedOrder()),
		"Created. Suppose the answer was lost on its way to you, and send it again with Retry.",
		"This key has been used before, for the same order: it came back.");
});
on("retry", async () => {
	beginRetry();
	sayOfOrder(await attempt("Retry " + ++begun.retries, typedOrder()),
		"Created now: no try before has created an order that the store knows of.",
		"The same order came back, and Idempotent-Replayed says that nothing was created.");
});
on("other", async () => {
	beginRetry();
	sayOfOrder(await attempt("Other body", typedOrder(true)),
		"Created: no order had this key yet.", "It came back: this key was used for that order.");
});
on("ten", async () => {
	beginOrder();
	const body = typedOrder();
	const all = await Promise.all(Array.from({length: 10}, (_, i) => attempt("At once, " + (i + 1), body)));
	if (!all[0]) return;
	look(tries.querySelector(".created") || tries.rows[0]);
	const back = all.filter(isOrder);
	const created = back.filter(x => !isReplay(x)).length;
	const got = (back.length === 10 ? "all ten" : back.length + " of them") + " got that one back.";
	const queue = all[0].protocol === "HTTP/1.1" ? " Browsers send six at a time over HTTP/1.1; the others queue." : "";
	if (!back.length) sayOfOrder(all[0]);
	else if (back.some(x => x.json.id !== back[0].json.id)) orders.say("More than one order came back!");
	else orders.say(`Ten requests with one key: ${count(created, "order")} created, and ${got}${queue}`);
});

// Orders that are read back, where the service lets one

let next;
const past = new Report($("history-said"));
async function readOrders(query) {
	const x = await send({path: "v1/orders", query}, past);
	if (x.status !== 200 || !Array.isArray(x.json?.data)) {
		past.say([explain(x, "a list"), ...faultsOf(x).slice(0, 3).map(f => cut(f.detail, 100))].join(" "));
		return;
	}
	if (query[0]?.[0] !== "after") for (const e of [mine, $("opened")]) e.replaceChildren();
	mine.append(...x.json.data.map(orderRow));
	next = x.json.has_more && string(x.json.next);
	if (!next && document.activeElement === $("more-orders")) $("my-orders").focus(); // before it is disabled
	$("more-orders").disabled = !next;
	past.say(`${count(mine.rows.length, "order")}. ${next ? "There are more." : "That is the end: there is no next."}`);
}
function orderRow({id, ...rest}) {
	const open = button(cut(string(id), 100), "open the order", () => once(open, async () => {
		const x = await send({path: "v1/orders/" + encode(string(id))}, past);
		$("opened").replaceChildren(...outcome(x));
		past.say(x.status === 200 ? "Opened, below." : explain(x, "an order"));
	}));
	return make("tr", {}, td(open), td(code(JSON.stringify(rest))));
}
on("my-orders", () => readOrders([]));
on("more-orders", () => readOrders([["after", next]]));
// A bare key is quoted, as a space in it would be refused. What has a quote or a comma is no bare key.
const quoted = key => /[",]/.test(key) ? key : JSON.stringify(key);
on("of-key", () => readOrders([["idempotency_key", quoted($("key").value.replace(/^[ \t]+|[ \t]+$/g, ""))]]));

// Pages

let walk;
const pages = new Report($("pages-said"));
const lists = {users: ["v1/users", "after"], widgets: ["v2/widgets", "start"]};
// nextPage reports whether there are more. Who asks meanwhile gets the same.
function nextPage() {
	const w = walk;
	return w.reading ||= readPage(w).finally(() => { w.reading = undefined; });
}
async function readPage(w) {
	const [path, position] = lists[w.list];
	const x = await send({path, query: [["limit", w.limit], ...(w.next ? [[position, w.next]] : [])]}, pages);
	if (w !== walk) return false;
	if (x.status !== 200 || !Array.isArray(x.json?.data)) {
		pages.say([explain(x, "a list"), ...faultsOf(x).slice(0, 3).map(f => cut(f.detail, 100))].join(" "));
		return false;
	}
	addItems(w, x.json.data);
	w.next = x.json.has_more && string(x.json.next);
	const buttons = [$("next-page"), $("to-the-end")];
	if (!w.next && buttons.includes(document.activeElement)) $("first-page").focus(); // before its button is disabled
	for (const b of buttons) b.disabled = !w.next;
	const end = x.json.has_more ? "There are more, but no next." : "That is the end: there is no next.";
	const twice = w.twice ? w.twice + " of them repeated" : "none of them twice";
	pages.say(`${count(w.ids.size, "item")} on ${count(w.pages, "page")}, ${twice}. ${w.next ? "There are more." : end}`);
	return Boolean(w.next);
}
const rowsAtOnce = 200;
function addItems(w, items) {
	w.pages++;
	for (const item of items) {
		const id = string(item?.id);
		if (w.ids.has(id)) w.twice++;
		w.ids.add(id);
		w.last = id;
	}
	// Of a long walk, only the last rows are in the document.
	w.items += items.length;
	seen.append(...items.slice(-rowsAtOnce).map(item => tableRow(w.pages, item)));
	while (seen.rows.length > rowsAtOnce) seen.rows[0].remove();
	const missing = w.items - seen.rows.length;
	$("earlier").textContent = missing ? `Not shown: ${count(missing, "row")} before these, which the log has.` : "";
	seen.closest(".scroll").scrollTop = 1e9;
}
function tableRow(page, item) {
	const id = string(item?.id), rest = id ? {...item, id: undefined} : item;
	return make("tr", {}, td(String(page)), td(id ? code(id) : "no ID"), td(code(JSON.stringify(rest))));
}
on("first-page", async () => {
	walk = {list: $("list").value, limit: $("limit").value.trim(), ids: new Set(), items: 0, pages: 0, twice: 0};
	pages.begin();
	seen.replaceChildren();
	$("earlier").textContent = "";
	$("next-page").disabled = $("to-the-end").disabled = true;
	await nextPage();
});
on("next-page", nextPage);
on("to-the-end", async () => {
	for (let n = 200; n && await nextPage();) n--; // then the button has to be pressed again
});
// change returns what went wrong, if anything.
async function change(list, id, op, report) {
	const body = String(new URLSearchParams({list, id, op}));
	const headers = [["Content-Type", "application/x-www-form-urlencoded"]];
	const x = await send({method: "POST", url: location.origin + location.pathname, headers, body, own: true}, report);
	if (x.status === 204) return "";
	return "That did not work: " + (cut(string(x.json?.detail), 300) || explain(x, "of the program"));
}
function sayOfChange(list, id, done) {
	if (!walk || walk.list !== list || walk.last === undefined) return done;
	const again = "; First page begins another one.";
	if (bytesOf(id) <= bytesOf(walk.last)) return done + " The walk is past its place in the order of IDs" + again;
	if (!walk.next) return done + " The walk is over" + again;
	const ahead = list === "users" ? "still ahead" : "ahead, unless it is before the item that next names";
	return `${done} Its place is ${ahead}. Now go on with the walk.`;
}
function offerChanges() {
	$("change").hidden = $("change-product").hidden = false;
	for (const [op, done] of [["put", "Put"], ["delete", "Deleted"]]) {
		on(op, async () => {
			const list = $("list").value, id = $("change-id").value;
			const fault = await change(list, id, op, pages);
			pages.say(fault || sayOfChange(list, id, `${done}: ${cut(id, 100)}.`));
		});
		on(op + "-product", async () => {
			const fault = await change("products", $("product").value, op, reads);
			const said = op === "put" ? "Changed." : "Deleted.";
			reads.say(fault || said + " A read sees that at once; Ask may still get the old one from memory.");
		});
	}
}
// IDs are in the order of their bytes.
const bytesOf = id => Array.from(new TextEncoder().encode(id), b => String.fromCharCode(b)).join("");

// Caching

let kept, saved = 0;
const reads = new Report($("revalidate-said"));
const asks = new Report($("age-said"));
$("product").addEventListener("input", () => {
	kept = undefined;
	$("revalidate").disabled = true;
});
const productPath = () => "v1/products/" + encode($("product").value);
const isProduct = x => x.status === 200 && isObject(x.json);
function keep(x, said) {
	const tag = x.header("etag");
	kept = isProduct(x) && tag ? {path: x.path, tag, bytes: x.bytes} : undefined;
	$("revalidate").disabled = !kept;
	if (!isProduct(x)) return reads.say(explain(x, "a product"));
	mark({});
	reads.say(kept ? said + cut(tag, 100) + "." : "200, without an ETag to revalidate it with.");
}
on("read", async () => {
	const x = await send({path: productPath()}, reads);
	keep(x, count(x.bytes, "byte") + ", with the tag ");
});
on("revalidate", async () => {
	const of = kept;
	const x = await send({path: of.path, headers: [["If-None-Match", of.tag]]}, reads);
	if (kept !== of) return; // another one was read meanwhile
	if (x.status !== 304) return keep(x, "200: it has changed. The new tag is ");
	saved += kept.bytes;
	mark({});
	reads.say(`304: it has not changed, and no body was sent. ${count(saved, "byte")} saved so far.`);
});
$("max-age").addEventListener("input", () => { $("max-age-value").textContent = $("max-age").value; });
on("ask", async () => {
	const n = $("max-age").value;
	const x = await send({path: productPath(), headers: [["Cache-Control", "max-age=" + n]]}, asks);
	if (!isProduct(x)) return asks.say(explain(x, "a product"));
	const status = x.header("cache-status") || "";
	const hit = / hit\b/.test(status), isAge = /^\d{1,9}$/.test(x.header("age"));
	const age = isAge ? Number(x.header("age")) : 0;
	const old = isAge ? count(age, "second") + " old" : "of an age that it does not say";
	const text = (hit ? `From memory, ${old}; up to ${n} were allowed.` : "From the store.")
		+ (status && " Cache-Status: " + cut(status, 200));
	mark({hit, age});
	asks.say(text);
});

let marks = [];
function mark(m) {
	marks = [...marks.slice(-199), {at: Date.now(), ...m}];
	drawTime();
}
function svg(name, attributes, text = "") {
	const e = document.createElementNS("http://www.w3.org/2000/svg", name);
	for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
	e.append(text);
	return e;
}
function scale(at, left, right, now) {
	const shapes = [svg("text", {x: 8, y: 34}, "memory"), svg("text", {x: 8, y: 89}, "store")];
	for (const y of [30, 85]) shapes.push(svg("line", {x1: left, x2: right, y1: y, y2: y}));
	for (let s = 0; s <= 60; s += right < 500 ? 20 : 10) {
		const x = at(now - s * 1000);
		shapes.push(svg("line", {x1: x, x2: x, y1: 104, y2: 110}));
		shapes.push(svg("text", {x, y: 124, "text-anchor": s ? "middle" : "end"}, s ? s + " s ago" : "now"));
	}
	return shapes;
}
function drawTime() {
	const width = $("time").clientWidth;
	if (!width) return; // it is not shown
	$("time").setAttribute("viewBox", `0 0 ${width} 132`);
	const now = Date.now(), left = 65, right = width - 20;
	const at = t => right - (right - left) * (now - t) / 60e3; // of the last minute
	const shapes = scale(at, left, right, now);
	marks = marks.filter(m => now - m.at < 60e3);
	let labelled = Infinity; // where the last label is
	for (const m of marks.toReversed()) {
		const x = at(m.at);
		if (!m.hit) {
			shapes.push(svg("rect", {class: "store", x: x - 5, y: 80, width: 10, height: 10}));
			continue;
		}
		shapes.push(svg("circle", {class: "hit", cx: x, cy: 30, r: 5}));
		shapes.push(svg("line", {class: "hit", x1: Math.max(left, at(m.at - m.age * 1000)), x2: x, y1: 85, y2: 30}));
		if (labelled - x < 32) continue; // it would be written over the last one
		shapes.push(svg("text", {x, y: 18, "text-anchor": "middle"}, m.age + " s"));
		labelled = x;
	}
	$("time").replaceChildren(...shapes);
}
new ResizeObserver(drawTime).observe($("time")); // also when it is first shown

// Break it

const breaking = new Report($("break-said"));
const start = `{"item":${JSON.stringify(product)},"qty":`;
const get = (path, ...query) => ({path, query});
// A text is the body of an order that has a new key.
const wrong = [
	["A required parameter is missing", 400, get("v2/widgets")],
	["Three faults in one query", 400, get("v1/users", ["limit", "0"], ["sort", "name"], ["after", ""])],
	["A changed cursor", 400, get("v1/users", ["after", "AXVncmFjZbDNh1Z"])],
	["The cursor of another list", 400, get("v2/widgets", ["limit", "2"], ["start", "AXVncmFjZbDNh1Y"])],
	["No Idempotency-Key", 400, order(start + "2}")],
	["Two keys in one", 400, withKey("one, two", start + "2}")],
	["The key of another order", 422, async () => {
		const key = newKey();
		await send(withKey(key, start + "2}"), breaking);
		return withKey(key, start + "1}");
	}],
	["Three faults in one order", 422, `{"qty":"3","colour":"red"}`],
	["A quantity with a fraction", 422, start + "1.5}"],
	["The same member twice", 400, start + `1,"qty":2}`],
	["JSON that is cut off", 400, start],
	["A body that is not JSON", 415, withKey("form", "item=1", ["Content-Type", "application/x-www-form-urlencoded"])],
	["A body that is too large", 413, `{"item":"${"t".repeat(70000)}","qty":1}`],
	["A product that does not exist", 404, get("v1/products/no-such-product")],
	["A path that does not exist", 404, get("v1/users/")],
	["A method that is not allowed", 405, {method: "DELETE", path: "v1/users"}],
	["A method that no one knows", 501, {method: "BREW", path: "v1/users"}],
	["Only if it has not changed, but it has", 412, {path: "v1/users", headers: [["If-Match", '"an-older-tag"']]}],
	["Only from memory, but it is not there", 504,
		{path: "v1/products/not-in-memory", headers: [["Cache-Control", "only-if-cached"]]}],
];
const breakers = wrong.map(([title, expected, what]) => {
	const status = make("span", {className: "chip"});
	const button = make("button", {}, title, " ", status);
	$("breaks").append(make("li", {}, button));
	const run = async () => {
		fillChip(status, {state: "sent"});
		const request = what.call ? await what() : what;
		const x = await send(string(what) ? withKey(newKey(), what) : request, breaking);
		x.isExpected = x.status === expected;
		fillChip(status, x).append(x.isExpected ? " ✓" : ` ✗ not ${expected}`);
		$("broken").replaceChildren(...outcome(x));
		$("broken").scrollTop = 0;
		return x;
	};
	button.addEventListener("click", () => once(button, async () => {
		const x = await run();
		breaking.say(x.isExpected ? reasonOf(x) + ", as expected." : `${expected} was expected. ${explain(x, "a problem")}`);
	}));
	return run;
});
on("break-all", async () => {
	const sent = [];
	for (const run of breakers) if (sent.push(await run()) && sent.at(-1).state === "cancelled") break;
	const failed = sent.filter(x => x.state === "failed").length;
	breaking.say(`${sent.filter(x => x.isExpected).length} of ${sent.length} had the expected status.`
		+ (failed ? ` No answer came to ${failed} of them.` : ""));
});

// All requests, as openapi.json describes them

let isOffered = false, isReached = true;
const isFromService = x => x.status > 0 && x.status < 500;
const offer = () => isOffered || once($("unread"), readDocument);
async function readDocument() {
	const x = await send({path: "openapi.json", cookies: true, own: true});
	isReached = isFromService(x);
	let fault = "";
	try {
		if (x.status !== 200 || !isObject(x.json?.paths)) throw new Error(explain(x, "an OpenAPI document"));
		$("operations").replaceChildren(...operations(x.json));
		$("with-fields").hidden = !$("createOrder-fields");
		$("history").hidden = !$("operation-listOrders");
		isOffered = true;
		followAddress();
	} catch (err) {
		fault = `The openapi.json of the service at ${service} cannot be read: ${err.message}`;
		$("operations").replaceChildren();
	}
	if (fault !== $("unread").textContent) announce(fault || "The service can be read now.");
	$("unread").textContent = fault;
}
// Whoever has signed in elsewhere comes back.
for (const event of ["focus", "visibilitychange"]) addEventListener(event, () => { if (!document.hidden) offer(); });
function operations(api) {
	const resolve = (v, depth = 0) => {
		if (!v?.$ref || depth > 20) return v || {};
		return resolve(v.$ref.slice(2).split("/").reduce((o, k) => o?.[k], api), depth + 1);
	};
	const list = [];
	for (const [path, item] of Object.entries(api.paths)) {
		for (const method of ["get", "post"]) {
			const op = item[method];
			if (!op || path === "/openapi.json") continue;
			const parameters = [...item.parameters || [], ...op.parameters || []];
			list.push(operation(method.toUpperCase(), path, op, fieldsOf(op, parameters, resolve)));
		}
	}
	if (list.length) list[0].open = true;
	return list;
}
const firstSentence = text => string(text).split("\n")[0].replaceAll("`", "").replace(/^(.*?[.!])(\s.*)?$/, "$1");
// There is a field for each parameter, and (kind "pointer") member of the body.
function fieldsOf(op, parameters, resolve) {
	const places = {path: "path", query: "parameter", header: "header"};
	const fields = parameters.map(p => resolve(p)).map(p => field(op, places[p.in], p, resolve(p.schema)));
	const content = op.requestBody?.content?.["application/json"];
	const schema = resolve(content?.schema);
	const example = resolve(Object.values(content?.examples || {})[0]).value;
	for (const [name, of] of Object.entries(schema.properties || {})) {
		const required = schema.required?.includes(name);
		fields.push(field(op, "pointer", {name, in: "body", required, example: example?.[name]}, resolve(of)));
	}
	return fields;
}
function field(op, kind, p, schema) {
	const id = op.operationId + "-" + p.name.toLowerCase();
	const input = make("input", {id, value: initial(p), autocomplete: "off", spellcheck: false});
	input.setAttribute("aria-describedby", `${id}-hint ${id}-fault`);
	const fault = make("p", {id: id + "-fault", className: "fault"});
	const {minimum, maximum} = schema;
	const range = minimum !== undefined && maximum !== undefined ? ` ${minimum} to ${maximum}.` : "";
	const label = make("label", {htmlFor: id}, `${p.name} (${p.in}${p.required ? ", required" : ""})`);
	const about = firstSentence(p.description || schema.description) + range;
	const hint = make("span", {id: id + "-hint", className: "hint"}, about);
	const element = make("div", {className: "field"}, label, input, hint, fault);
	const name = (kind === "pointer" ? "#/" : "") + p.name;
	return {kind, name, bare: p.name, type: schema.type, input, fault, element};
}
function initial(p) {
	if (/^(product_id|item)$/.test(p.name)) return product;
	if (p.name === "Idempotency-Key") return newKey();
	return p.in === "body" || p.in === "query" && p.required ? String(p.example ?? "") : "";
}
function filledIn(method, path, fields) {
	const filled = kind => fields.filter(f => f.kind === kind && f.input.value !== "");
	const pairs = kind => filled(kind).map(f => [f.bare, f.input.value]);
	const writers = {string: JSON.stringify, object: text => text};
	const json = f => JSON.stringify(f.bare) + ":" + (writers[f.type] || typed)(f.input.value);
	const body = fields.some(f => f.kind === "pointer") ? `{${filled("pointer").map(json)}}` : undefined;
	const value = (all, name) => encode(fields.find(f => f.bare === name)?.input.value ?? all);
	const filledPath = path.slice(1).replace(/\{(.*?)\}/g, value);
	return {method, path: filledPath, query: pairs("parameter"), headers: pairs("header"), body};
}
function showFaults(x, fields) {
	for (const f of fields) {
		const its = faultsOf(x).filter(fault => isAbout(fault, f));
		if (f.fault) f.fault.textContent = its.map(textOf).join(" ");
		f.input.ariaInvalid = its.length > 0;
	}
}
function operation(method, path, op, fields) {
	const title = string(op.summary) || method + " " + path;
	const done = make("div", {className: "outcome", tabIndex: 0, role: "region", ariaLabel: "Answer to " + title});
	const said = p("Not sent yet.");
	const submit = make("button", {}, "Send " + method);
	const form = make("form", {noValidate: true}, make("div", {className: "fields"}, ...fields.map(f => f.element)),
		make("p", {className: "buttons"}, submit), make("div", {className: "said"}, said), done);
	const report = new Report(said);
	form.addEventListener("submit", e => {
		e.preventDefault();
		once(submit, async () => {
			const x = await send(filledIn(method, path, fields), report);
			showFaults(x, fields);
			done.replaceChildren(...outcome(x));
			const isGood = x.status && x.status < 400 && !isHTML(x);
			report.say(isGood ? `${x.status}: ${headline(x)}.` : explain(x, "JSON"));
		});
	});
	const head = make("summary", {}, make("h3", {}, title), " ", code(method + " " + path));
	head.addEventListener("click", () => putInAddress("all/" + op.operationId));
	return make("details", {className: "operation", name: "operation", id: "operation-" + op.operationId},
		head, p(firstSentence(op.description)), form);
}

// Headers for every request

function checkHeaders() {
	const {list, fault} = typedHeaders();
	$("extra-fault").textContent = fault && `Nothing is sent: ${fault}.`;
	$("extra").ariaInvalid = fault !== "";
	$("headers-button").textContent = "Headers: " + (fault ? "wrong" : list.length || "none");
}
$("extra").addEventListener("input", checkHeaders);
for (const id of ["extra", "cookies"]) $(id).addEventListener("change", offer);

// The beginning: nothing is used that a browser has kept of an earlier visit

for (const e of document.querySelectorAll("main input, textarea")) {
	e.value = e.defaultValue;
	e.autocomplete = "off";
}
$("list").selectedIndex = 0;
$("cookies").checked = false;
$("item").value = $("product").value = product;
$("key").value = newKey();
checkHeaders();
for (const b of document.querySelectorAll("button")) b.disabled = b.matches(".later");
addEventListener("pageshow", e => { if (e.persisted) location.reload(); });
$("openapi").href = service + "openapi.json";
$("openapi").textContent = base.pathname + "openapi.json";
if (meta("changes")) offerChanges();
setInterval(() => {
	for (const x of waiting) x.meta.textContent = summary(x);
	if (marks.length) drawTime();
}, 1000);
show(tabs[0]);
followAddress();
await offer();
