package clients

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/need"
	"example.com/storefront/internal/must"
)

// runJavaScript runs a program beside the client, at a shop in the program itself, which answers the first tries
// with 503, so many as fail says, and each with the header date, if there is one.
func runJavaScript(t *testing.T, url, program string) {
	t.Helper()
	const head = `
		import { promises as fs } from "node:fs";
		import { isDeepStrictEqual } from "node:util";
		import { Draft, Shop } from "./storefront.mjs";
		const { JOURNAL, STOREFRONT_URL } = process.env;
		const is = (what, got, want) => isDeepStrictEqual(got, want) || console.log(what, got, "want", want);
		const fails = (work) => work.then((got) => got, (err) => err);
		let requests = 0, fail = 0, date = "";
		const fetch = async (url, { body, headers }) => {
			requests++;
			const fields = date ? { Date: date } : {};
			if (fail-- > 0) return new Response("", { status: 503, headers: fields });
			return new Response(JSON.stringify({ id: headers.get("Idempotency-Key"), ...JSON.parse(body) }), { status: 201, headers: fields });
		};`
	javaScript := languages[1]
	need.Programs(t, need.Tools, javaScript.programs...)
	runProgram(t, javaScript, url, t.TempDir(), map[string]string{"javascript": head + program})
}

// A draft whose age a wrong clock has hidden is never sent again, whatever the clock says later: neither one that is
// from ahead, nor one whose call has ended without the order after an answer with another time. Within the call, it
// goes on.
func TestJavaScriptSendsNoDraftOfAWrongClock(t *testing.T) {
	t.Parallel()
	runJavaScript(t, "http://shop.example", `
		const now = Date.now, hours = 3600e3;
		let ahead = 0;
		Date.now = () => now() + ahead;
		const at = (ms) => new Date(now() + ms).toUTCString();
		const shop = new Shop(STOREFRONT_URL, { patience: 0, fetch }), journal = await shop.journal(JOURNAL);
		const sent = async (work) => {
			const before = requests, got = await fails(work());
			return [requests - before, got.id ? "order" : got.name + (/do not keep/.test(got.message) ? ", do not keep" : "")];
		};
		const order = (name, options) => sent(() => journal.order(name, "teapot", 2, options));
		const never = [0, "Unknown, do not keep"];

		fail = 1, ahead = 30 * hours; // and the answer does not say when it is
		is("tried", await order("ahead"), [1, "Unknown"]);
		for (ahead of [0, 30 * hours, -2 * hours, 31 * hours, 0]) is("at " + ahead, await order("ahead"), never);
		is("it is open", await journal.pending(), ["ahead"]);
		is("its mark", (await journal.read("ahead")).begun, 0);

		for (const off of [-2 * hours, 2 * hours]) {
			fail = 1, date = at(off);
			is("an answer of another time", await order("date " + off), [1, "Unknown, do not keep"]);
			is("after it", await order("date " + off), never);
			fail = 2;
			is("within the call", await order("within " + off, { patience: 60 }), [3, "order"]);
			is("after the call", await order("within " + off), [0, "order"]);
			fail = 1;
			const draft = new Draft("teapot", 2), text = JSON.stringify(draft);
			is("a draft of the program's", await sent(() => shop.order(draft)), [1, "Unknown, do not keep"]);
			is("is not sent", await sent(() => shop.order(Draft.from(JSON.parse(JSON.stringify(draft))))), never);
			ahead = 30 * hours;
			is("one from ahead", await sent(() => shop.order(new Draft("teapot", 2))), [1, "order"]);
			const later = new Draft("teapot", 2);
			ahead = 0;
			is("one from ahead, later", await sent(() => shop.order(later)), never);
		}
		for (date of ["soon", "0", at(-hours / 2), at(hours / 2)]) {
			fail = 1;
			is("the Date " + date, await order("at " + date), [1, "Unknown"]);
			is("the Date " + date + ", again", await order("at " + date), [1, "order"]);
		}
		date = "";
		const slept = new Shop(STOREFRONT_URL, { patience: 0, fetch: async (...request) => {
			date = at(0), ahead += 2 * hours; // the machine is suspended
			return fetch(...request);
		} });
		fail = 1;
		const draft = new Draft("teapot", 2);
		is("slept", await sent(() => slept.order(draft)), [1, "Unknown"]);
		is("then", await sent(() => shop.order(draft)), [1, "order"]);
		ahead = 0, date = "", fail = 1;
		is("tried", await order("clock"), [1, "Unknown"]);
		ahead = -now();
		for (const name of ["clock", "new"]) is("in 1970", await order(name), [0, "Unknown"]);
		is("why", /clock of this machine is wrong \(1970-/.test((await fails(journal.order("clock"))).message), true);
		ahead = 0;
		is("nothing is kept of 1970", await journal.read("new"), undefined);
		is("and then", await order("clock"), [1, "order"]);
		fail = 1;
		await order("old");
		ahead = 24 * hours;
		is("too old", await order("old"), never);
		is("no mark", (await journal.read("old")).begun > 0, true);`)
}

// Pages that are too long, or come too slowly, become shorter, and a page that is none, or not the next one, is not
// yielded.
func TestJavaScriptPages(t *testing.T) {
	t.Parallel()
	runJavaScript(t, "http://shop.example", `
		const real = setTimeout;
		globalThis.setTimeout = (f, ms, ...args) => real(f, ms === 40_000 ? 40 : ms, ...args); // the limit of a try
		const page = (ids, next) => JSON.stringify({ data: ids.map((id) => ({ id })), has_more: next !== undefined, next });
		const walk = async (kind, answer, options, limit) => {
			const asked = [], got = [];
			const shop = new Shop(STOREFRONT_URL, { readPatience: 0, ...options, fetch: async (url, { signal }) => {
				const query = new URL(url).searchParams;
				asked.push(query.get("limit"));
				const body = answer(query.get("after") ?? query.get("start") ?? "", query.get("limit"), signal);
				return typeof body === "number" ? new Response("", { status: body }) : new Response(body);
			} });
			try {
				for await (const { id } of shop[kind]({ limit })) got.push(id);
				return { got, asked };
			} catch (err) {
				return { got, asked, error: err.name };
			}
		};
		const list = async (kind, ...pages) => {
			let i = 0;
			const { got, error } = await walk(kind, () => pages[i++] ?? pages.at(-1));
			return [got.join(), error];
		};
		for (const kind of ["users", "widgets"]) {
			is("in sequence", await list(kind, page(["a", "b"], "1"), page([], "2"), page(["c"])), ["a,b,c", undefined]);
			is("of UTF-8", await list(kind, page(["\uffee", "\u{1d7d8}"])), ["\uffee,\u{1d7d8}", undefined]);
			is("of UTF-16", await list(kind, page(["\u{1d7d8}", "\uffee"])), ["", "Unknown"]);
			is("a page twice", await list(kind, page(["a", "b"], "1"), page(["a", "b"], "1")), ["a,b", "Unknown"]);
			is("pages that overlap", await list(kind, page(["a", "b"], "1"), page(["b", "c"])), ["a,b", "Unknown"]);
			is("an item twice", await list(kind, page(["a", "a"])), ["", "Unknown"]);
			is("descending", await list(kind, page(["b", "a"])), ["", "Unknown"]);
			is("empty pages in a circle", await list(kind, page(["a"], "1"), page([], "2"), page([], "1")), ["a", "Blocked"]);
			is("an empty page in a circle", await list(kind, page([], "1"), page([], "1")), ["", "Blocked"]);
		}
		is("orders", await list("orders", page(["c", "b"], "1"), page(["a"])), ["c,b,a", undefined]);
		is("orders that ascend", await list("orders", page(["b"], "1"), page(["c"])), ["b", "Unknown"]);
		for (const none of ['{"data":[]}', '{"data":[],"has_more":"false"}', '{"data":[],"has_more":null}', '{"data":[],"has_more":true}',
			'{"data":[],"has_more":true,"next":""}', '{"data":[],"has_more":false,"next":"a"}']) {
			is(none, await list("users", none), ["", "Unknown"]);
			const shop = new Shop(STOREFRONT_URL, { readPatience: 0, fetch: async () => new Response(none) });
			is("by key: " + none, (await fails(shop.findOrder(new Draft("teapot", 2))))?.name, "Unknown");
		}

		const most = (n) => (position, limit, signal) => {
			if (Number(limit ?? 50) <= n) return position === "" ? page(["a"], "1") : page(["b"]);
			return new ReadableStream({ pull: (to) => (to.enqueue(new TextEncoder().encode("[")), new Promise(() => {})) });
		};
		const patient = { readPatience: 60 };
		is("slow", await walk("users", most(3), patient),
			{ got: ["a", "b"], asked: [null, "25", "12", "6", "3", "3"] });
		is("slow, with a limit", await walk("widgets", most(1), patient, 9), { got: ["a", "b"], asked: ["9", "4", "2", "1", "1"] });
		is("too long", await walk("orders", (_, limit) => (Number(limit) > 2 ? " ".repeat(2 ** 24 + 1) : page(["a"])), patient, 4),
			{ got: ["a"], asked: ["4", "2"] });
		let n = 0;
		const cut = () => n++ > 1 ? page(["a"]) : new ReadableStream({ pull: (to) => to.error(new Error("cut")) });
		is("cut at once", await walk("users", cut, patient, 4), { got: ["a"], asked: ["4", "4", "4"] });
		n = 0;
		is("503", await walk("users", () => (n++ > 1 ? page(["a"]) : 503), patient, 4), { got: ["a"], asked: ["4", "4", "4"] });

		const read = async (problem, reads) => {
			const text = JSON.stringify({ ...problem, type: "urn:problem-type:storefront:" + problem.type });
			const shop = new Shop(STOREFRONT_URL, { fetch: async () => new Response(text, { status: 400 }) });
			const reading = reads(shop);
			return (await fails(reading.next?.() ?? reading)).name;
		};
		const users = (shop) => shop.users({ limit: 1000 });
		const fault = { parameter: "limit", minimum: 1, maximum: 500 }, invalid = { type: "invalid-query" };
		is("a limit of the program's", await read({ ...invalid, errors: [fault] }, users), "Refused");
		is("another limit", await read({ ...invalid, errors: [{ ...fault, maximum: 1000 }] }, users), "Blocked");
		is("a cursor, too", await read({ ...invalid, errors: [fault, { parameter: "after" }] }, users), "Blocked");
		is("a path", await read({ type: "not-found" }, users), "Blocked");
		is("no orders", await read({ type: "not-found" }, (shop) => shop.orders()), "Refused");
		is("no product", await read({ type: "product-not-found" }, (shop) => shop.product("a")), "Refused");`)
}

// Answers in a coding that nobody has asked for are decoded, or said to be something else's.
func TestJavaScriptDecodesAnswers(t *testing.T) {
	t.Parallel()
	shop := newFolderShop(t)
	shop.answers(func(w http.ResponseWriter, r *http.Request) {
		coding := strings.TrimPrefix(r.URL.Path, "/v1/products/")
		text := `{"id":"` + coding + `","note":"` + strings.Repeat("é", 1e5) + `"}`
		var coded bytes.Buffer
		var coder io.WriteCloser = gzip.NewWriter(&coded)
		if coding == "deflate" {
			coder = zlib.NewWriter(&coded)
		}
		io.WriteString(coder, text)
		must.OK(t, coder.Close())
		w.Header().Set("Content-Encoding", coding)
		if coding == "cut" {
			w.Header().Set("Content-Encoding", "gzip")
			coded.Truncate(coded.Len() / 2)
		}
		w.Write(coded.Bytes())
	})
	runJavaScript(t, shop.URL, `
		const shop = new Shop(STOREFRONT_URL, { readPatience: 0 });
		const ends = async (coding) => {
			const got = await fails(shop.product(coding));
			return got.name ?? got.note.length;
		};
		for (const coding of ["gzip", "x-gzip", "deflate"]) is(coding, await ends(coding), 1e5);
		for (const coding of ["zstd", "gzip, gzip", "none"]) is(coding, await ends(coding), "Blocked");
		is("half of it", await ends("cut"), "Unknown");`)
}

// What the folder of a journal does not do is a JournalError, with the cause. What the shop has said is returned all
// the same, and the draft that is left gets the same order.
func TestJavaScriptJournalFails(t *testing.T) {
	t.Parallel()
	runJavaScript(t, "http://shop.example", `
		const warn = [];
		console.warn = (text) => warn.push(text);
		let full = false, answer = fetch;
		const { rename } = fs;
		fs.rename = async (...args) => {
			if (full) throw Object.assign(new Error("no space left"), { code: "ENOSPC" });
			return rename(...args);
		};
		const shop = new Shop(STOREFRONT_URL, { patience: 0, fetch: (...request) => answer(...request) });
		const journal = await shop.journal(JOURNAL), order = (name) => fails(journal.order(name, "teapot", 2));
		full = true;
		const first = await order("full");
		is("its error", [first.name, first.cause.code, requests], ["JournalError", "ENOSPC", 0]);
		full = false;
		answer = async (...request) => (full = true, fetch(...request));
		const { id } = await order("teapot");
		is("it says so", [/^[0-9a-f]{32}$/.test(id), warn.length, await journal.pending()], [true, 1, ["teapot"]]);
		full = false, answer = fetch;
		is("the same order", [(await order("teapot")).id, requests, await journal.pending()], [id, 2, []]);
		const refused = '{"type":"urn:problem-type:storefront:order-refused"}';
		answer = async () => (full = true, new Response(refused, { status: 422 }));
		is("refused", (await order("refused")).name, "Refused");
		full = false;
		answer = async () => {
			for (const file of await fs.readdir(JOURNAL)) if (/json$/.test(file)) await fs.rm(JOURNAL + "/" + file);
			return new Response("", { status: 503 });
		};
		const gone = await fails(journal.order("gone", "teapot", 2, { patience: 60 }));
		is("without its draft, no more is sent", [gone.name, /has gone from the journal/.test(gone.message)], ["Unknown", true]);
		is("a folder that cannot be one", (await fails(shop.journal("/dev/null/x"))).cause?.code, "ENOTDIR");`)
}
