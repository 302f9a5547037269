package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/must"
)

// withAccounts has a shop know its callers by their sign-in, and lose the first answer to each key, after it has
// created the order. It returns how many orders each account has.
func (s *folderShop) withAccounts() (orders func() map[string]int) {
	var mu sync.Mutex
	seen, count := map[string]bool{}, map[string]int{}
	signIn := func(r *http.Request) string { return r.Header.Get("Authorization") }
	service := storefront.NewWithOptions(&s.store, &storefront.Options{Scope: signIn, Orders: &s.store})
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		before := len(s.store.Orders())
		answer := httptest.NewRecorder()
		service.ServeHTTP(answer, r)
		count[signIn(r)] += len(s.store.Orders()) - before
		if key := r.Header.Get("Idempotency-Key"); !seen[key] {
			seen[key] = true
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes())
	})
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
}

// Of one folder, each shop and each account has its own orders: what is another's is neither listed nor sent nor
// returned.
func TestJournalKeepsShopsAndAccountsApart(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, elsewhere, dir := newFolderShop(t), newFolderShop(t), t.TempDir()
		orders := shop.withAccounts()
		start := func(url, account string) *runner {
			return l.start(t, url, "JOURNAL="+dir, oneTry, "STOREFRONT_ACCOUNT="+account)
		}
		alice := start(shop.URL, "alice")
		order(t, alice, "basket") // of which the answer is lost
		others := map[string]*runner{"bob": start(shop.URL, "bob"), "nobody": start(shop.URL, ""),
			"alice elsewhere": start(elsewhere.URL, "alice")}
		for who, r := range others {
			if got := pending(t, r); len(got) > 0 {
				t.Errorf("%s has the drafts %q", who, got)
			}
			if id, failed := orderID(t, r, outcome{Item: "basket"}); failed == "" {
				t.Errorf("%s gets the order %s", who, id)
			}
		}
		if n := shop.requests.Load() + elsewhere.requests.Load(); n != 1 {
			t.Errorf("%d requests were sent, want that of alice alone", n)
		}
		bob := others["bob"]
		order(t, bob, "basket") // of which the answer is lost, too
		bobs, failed := orderID(t, bob, outcome{Item: "basket", Qty: 2})
		if failed != "" {
			t.Error(failed)
		}
		spelt := start("HTTP"+strings.TrimPrefix(shop.URL, "http")+"//", "alice")
		for _, r := range []*runner{spelt, alice} {
			id, failed := orderID(t, r, outcome{Item: "basket"})
			if failed != "" || id == bobs {
				t.Errorf("alice gets the order %q, bob %q: %s", id, bobs, failed)
			}
		}
		if got := orders(); got["alice"] != 1 || got["bob"] != 1 || len(shop.store.Orders()) != 2 {
			t.Errorf("there are orders of %v", got)
		}
		for who, r := range others {
			if r.end(); strings.Contains(r.stderr.String(), "leaves out") {
				t.Errorf("%s is told of the others: %s", who, &r.stderr)
			}
		}
	})
}

// A sign-in that changes while an order is on its way sends nothing more, and the draft stays with whose it is.
func TestSignInChangesDuringAnOrder(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		if l.name == "bash" {
			return // whose account is that of its environment
		}
		shop, dir := newFolderShop(t), t.TempDir()
		orders := shop.withAccounts()
		runProgram(t, l, shop.URL, dir, map[string]string{
			"javascript": `
				import { Draft, Shop } from "./storefront.mjs";
				let account, left;
				const shop = new Shop(process.env.STOREFRONT_URL, {
					account: () => account,
					headers: async () => {
						if (left-- === 0) account = "bob";
						return { Authorization: account };
					},
				});
				const journal = await shop.journal(process.env.JOURNAL);
				for (const tries of [0, 1]) {
					const draft = new Draft("teapot", 2);
					for (const order of [() => shop.order(draft), () => journal.order("basket " + tries, "teapot", 2)]) {
						[account, left] = ["alice", tries];
						const ends = await order().catch((err) => err.name);
						if (ends !== "Unknown") console.log("with", tries, "tries before, it ends with", ends);
						if ((await journal.pending()).length > 0) console.log("bob has", await journal.pending());
						[account, left] = ["alice", 100];
						await order();
					}
				}
				[account, left] = ["alice", 1];
				const walk = async () => { for await (const _ of shop.orders({ limit: 1 })); };
				const ends = await walk().catch((err) => err.name);
				if (ends !== "Unknown") console.log("a walk ends with", ends);`,
			"python": `
import os, storefront
def headers():
    global account, left
    if left == 0:
        account = "bob"
    left -= 1
    return {"Authorization": account}
account, left = "", 0
shop = storefront.Shop(os.environ["STOREFRONT_URL"], account=lambda: account, headers=headers)
journal = shop.journal(os.environ["JOURNAL"])
for tries in 0, 1:
    draft = storefront.Draft("teapot", 2)
    for order in lambda: shop.order(draft), lambda: journal.order(f"basket {tries}", "teapot", 2):
        account, left = "alice", tries
        try:
            print("with", tries, "tries before, there is", order())
        except storefront.Unknown:
            pass
        if journal.pending():
            print("bob has", journal.pending())
        account, left = "alice", 100
        order()
account, left = "alice", 1
try:
    print("a walk has", list(shop.orders(1)))
except storefront.Unknown:
    pass`,
		})
		if got := orders(); got["alice"] != 4 || got["bob"] != 0 {
			t.Errorf("there are orders of %v, want 4 of alice", got)
		}
	})
}

// Who says who signs in may wait for a person, or sleep with the machine: a draft that has become too old
// meanwhile is not sent, and a call ends when it is aborted.
func TestSignInTakesLong(t *testing.T) {
	javaScript := inParallel(t, languages[1])
	shop := newFolderShop(t)
	shop.answers(storefront.New(&shop.store).ServeHTTP)
	runProgram(t, javaScript, shop.URL, t.TempDir(), map[string]string{
		"javascript": `
				import { Draft, Shop } from "./storefront.mjs";
				const { JOURNAL, STOREFRONT_URL } = process.env;
				let past = 0, calls, waits, end;
				const clock = Date.now;
				Date.now = () => clock() + past;
				const wait = async (where) => { // in the first call for a try
					if (waits.in === where && calls++ === (where === "account" ? 1 : 0)) await waits.wait();
				};
				const shop = new Shop(STOREFRONT_URL, {
					account: async () => (await wait("account"), "ann"), headers: async () => (await wait("headers"), {}),
				});
				const journal = await shop.journal(JOURNAL);
				const ways = {
					shop: (name, until) => shop.order(new Draft("teapot", 2), until),
					journal: (name, until) => journal.order(name, "teapot", 2, until),
				};
				const never = () => (setTimeout(() => end.abort(), 50), new Promise(() => {}));
				for (const [what, says, wait] of [
					["a day", "too old to be sent again", () => (past += 24 * 3_600_000)],
					["a clock that is set", "a clock was wrong", () => (past -= 2 * 3_600_000)],
					["no end", "has failed: AbortError", never],
				]) for (const where of ["headers", "account"]) for (const way in ways) {
					[past, calls, waits, end] = [0, 0, { in: where, wait }, new AbortController()];
					const err = await ways[way](what + where, { signal: end.signal }).catch((err) => err);
					if (err.name !== "Unknown" || !err.message.includes(says) || err.draft === undefined) {
						console.log(way, where, "takes", what, err);
					}
				}
				[calls, waits, end] = [1, { in: "account", wait: never }, new AbortController()];
				const first = await journal.order("first", "teapot", 2, { signal: end.signal }).catch((err) => err.name);
				if (first !== "Unknown") console.log("before there is a draft:", first);`,
	})
	if n := shop.requests.Load(); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// What a program takes for a shop, an account, a draft or a text is checked before anything is kept or sent.
func TestWhatIsNoShopAccountOrDraft(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, dir := newFolderShop(t), t.TempDir()
		runProgram(t, l, shop.URL, dir, map[string]string{
			"bash": `
				for url in localhost:8080 ftp://shop.example http://ann:secret@shop.example http://shop.example/?a \
					$'http://shop.example/\n' http://shop.example:99999 'http://shop.example\@a' 'http://[::1'; do
					STOREFRONT_URL=$url bash storefront.sh order x teapot 2
					(($? == 2)) || echo "taken: $url"
				done
				for account in $'a\nb' $'\xff'; do
					STOREFRONT_ACCOUNT=$account bash storefront.sh order x teapot 2
					(($? == 2)) || echo "taken: $account"
				done
				for order in 'x '$'tea\xffpot' $'\xff'' teapot'; do
					bash storefront.sh order $order 2
					(($? == 2)) || echo "taken: $order"
				done
				bash storefront.sh order x teapot 9007199254740992
				(($? == 2)) || echo "taken as a quantity"; :`,
			"javascript": `
				import { Draft, Shop } from "./storefront.mjs";
				const { JOURNAL, STOREFRONT_URL } = process.env;
				const kept = JSON.parse(JSON.stringify(new Draft("teapot", 2))), ahead = Date.now() / 1000 + 7200;
				const of = async (account) => {
					const journal = await new Shop(STOREFRONT_URL, { account, patience: 0 }).journal(JOURNAL);
					return journal.order("x", "teapot", 2);
				};
				const read = (members) => () => Draft.from({ ...kept, ...members });
				const send = (members) => () => new Shop(STOREFRONT_URL).order(Draft.from({ ...kept, ...members }));
				for (const take of [
					...["localhost:8080", "ftp://shop.example", "http://ann:secret@shop.example", "http://shop.example/?a", "",
						"http://shop.example:99999", "http://[::1"].map((url) => () => new Shop(url)),
					...["a\nb", "\ud800", null, () => null, async () => undefined].map((account) => () => of(account)),
					...[{ version: 2 }, { version: undefined }, { fields: 1 }, { made: "1" }, { begun: null },
						{ body: '{"item":"a","qty":2.5}' }, { key: "" }].map(read),
					() => new Draft("tea\ud800pot", 2),
					async () => (await new Shop(STOREFRONT_URL).journal(JOURNAL)).order("\ud800", "teapot", 2),
					() => Draft.from(null), () => new Draft("a", 2.5), () => new Draft("a", "2"), () => new Draft(7, 2),
					send({ made: ahead }), send({ begun: ahead }), send({ made: 1, begun: 1 }),
				]) await Promise.resolve().then(take).then((got) => console.log("taken: " + take, got), () => {});`,
			"python": `
import json, os, time, storefront
kept = json.loads(storefront.Draft("teapot", 2).to_json())
ahead = time.time() + 7200
url = os.environ["STOREFRONT_URL"]
def of(account):
    shop = storefront.Shop(url, account=account, patience=0)
    return lambda: shop.journal(os.environ["JOURNAL"]).order("x", "teapot", 2)
def read(**members):
    return lambda: storefront.Draft.from_json(json.dumps({**kept, **members}))
def send(**members):
    return lambda: storefront.Shop(url).order(read(**members)())
without = {name: value for name, value in kept.items() if name != "version"}
for i, take in enumerate([
    *[lambda url=url: storefront.Shop(url) for url in ("localhost:8080", "ftp://shop.example",
      "http://ann:secret@shop.example", "http://shop.example/?a", "http://shop.example/\n", "",
      "http://shop.example:99999", "http://shop.example\\@a", "http://[::1", "http://a b", "http://a/\u00e9")],
    *[of(account) for account in ("a\nb", "\ud800", None, lambda: None)],
    lambda: storefront.Draft.from_json(json.dumps(without)), read(version=2), read(version=True), read(fields=1),
    read(body='{"item":"a","qty":1e-999999999999999999}'), read(made="1"), read(made=float("nan")), read(made=10**400),
    read(begun=None), read(body='{"item":"a","qty":true}'), read(key=""), read(key="a\n"),
    lambda: storefront.Draft("tea\udcffpot", 2),
    lambda: storefront.Shop(url).journal(os.environ["JOURNAL"]).order("\ud800", "teapot", 2),
    lambda: storefront.Draft.from_json("null"), lambda: storefront.Draft("a", 2.5), lambda: storefront.Draft("a", "2"),
    lambda: storefront.Draft(7, 2), send(made=ahead), send(begun=ahead), send(made=1, begun=1),
]):
    try:
        print("taken:", i, take())
    except (ValueError, storefront.Unknown):
        pass`,
		})
		files := must.Get(filepath.Glob(filepath.Join(dir, "*.json")))(t)
		if n := shop.requests.Load(); n > 0 || len(files) > 0 {
			t.Errorf("%d requests were sent, and %q are kept", n, files)
		}
	})
}

// A draft is sent for 23 hours since its first try, as the service forgets its key, and not if it is from the
// future, as nobody then knows its age.
func TestAgeOfADraft(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, dir := newFolderShop(t), t.TempDir()
		r := l.start(t, shop.URL, "JOURNAL="+dir, oneTry)
		order(t, r, "m")
		entry := string(must.Get(os.ReadFile(entryFile(dir, shop.URL, "", "m")))(t))
		shop.answers(storefront.New(&shop.store).ServeHTTP)
		const old, wrong = "too old", "a clock was wrong"
		for name, c := range map[string]struct {
			made, begun any    // hours from now
			says        string // why it is not sent
		}{
			"old": {-22.5, -22.5, ""}, "too old": {-23.5, -23.5, old}, "begun later": {-40.0, -1.0, ""},
			"begun unknown": {-23.5, nil, old}, "ahead": {0.5, 0.5, ""},
			"made in the future": {1.5, -1.0, wrong}, "begun in the future": {-1.0, 1.5, wrong},
		} {
			at := func(hours any) any {
				if hours == nil {
					return nil
				}
				return float64(time.Now().Unix()) + 3600*hours.(float64) + 0.25
			}
			text := changedEntry(t, entry, map[string]any{"name": name, "made": at(c.made), "begun": at(c.begun)})
			must.OK(t, os.WriteFile(entryFile(dir, shop.URL, "", name), []byte(text), 0o600))
			before := shop.requests.Load()
			_, failed := orderID(t, r, outcome{Item: name})
			if sent := shop.requests.Load() > before; sent != (c.says == "") || sent != (failed == "") {
				t.Errorf("%s: sent is %v: %s", name, sent, failed)
			}
			if c.says != "" && (!strings.HasPrefix(failed, "Unknown") || !strings.Contains(failed, c.says)) {
				t.Errorf("%s: %s, want Unknown, %s", name, failed, c.says)
			}
			if marked := isMarked(t, dir, shop.URL, name); marked != (c.says == wrong) {
				t.Errorf("%s: it is marked: %v", name, marked)
			}
		}
	})
}

// A draft that gets too old while somebody signs in is not sent any more, and that counts as no try.
func TestDraftGetsTooOldDuringASignIn(t *testing.T) {
	python := inParallel(t, languages[2])
	shop := newFolderShop(t)
	shop.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "refuse" {
			refused(w, r)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	runProgram(t, python, shop.URL, t.TempDir(), map[string]string{"python": `
import os, time, storefront
real, account, hours, left = time.time, "alice", 0, 0
time.time = lambda: real() + (3600 * hours if left < 0 else 0)
def headers():
    global left
    left -= 1
    return {"Authorization": account}
shop = storefront.Shop(os.environ["STOREFRONT_URL"], headers=headers, patience=60)
journal = shop.journal(os.environ["JOURNAL"])
def ends(order):
    try:
        return repr(order())
    except storefront.StorefrontError as err:
        return repr(err)
for hours, why in (23.5, "too old"), (-2, "a clock was wrong"):
    for tries in 0, 1:
        name, left = f"{hours} hours, {tries} tries", tries
        draft = storefront.Draft("teapot", 2)
        for order in lambda: shop.order(draft), lambda: journal.order(name, "teapot", 2):
            left = tries
            said = ends(order)
            if not said.startswith("Unknown") or why not in said:
                print(name, said)
        if (journal.read(name)["begun"] == 0) != (hours < 0):
            print(name, journal.read(name))
        account, left = "refuse", 9
        if hours > 0 and ends(lambda: shop.order(draft))[:7] != ("Refused", "Unknown")[tries]:
            print(name, "and then", ends(lambda: shop.order(draft)))
        account = "alice"`})
	if n := shop.requests.Load(); n != 4+2 {
		t.Errorf("%d requests were sent, want one for each order with a try before, and 2 that are refused", n)
	}
}

// A body is sent as it is kept, with members that only a later version knows; who asks for an order without
// them asks for another.
func TestBodyIsSentAsItIsKept(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, dir := newFolderShop(t), t.TempDir()
		r := l.start(t, shop.URL, "JOURNAL="+dir, oneTry)
		order(t, r, "m")
		file := entryFile(dir, shop.URL, "", "m")
		body := " {\"qty\": 2.0,\n\t\"later\":{\"price\":1.50, \"note\":\"\\u00e9 'a' $b" + strings.Repeat("é", 5000) +
			"\"},\r\n\"item\":\"m\"}\n"
		entry := string(must.Get(os.ReadFile(file))(t))
		must.OK(t, os.WriteFile(file, []byte(changedEntry(t, entry, map[string]any{"body": body})), 0o600))
		s := &clientShop{first: []http.HandlerFunc{answers(503, ""), answers(201, `{"id":"ord_1","item":"m","qty":2}`)}}
		shop.answers(s.ServeHTTP)
		if failed := order(t, r, "m"); failed == "" || len(s.requests) > 0 {
			t.Error("without what only a later version knows, it is the same order")
		}
		orderID(t, r, outcome{Item: "m"})
		if id, failed := orderID(t, r, outcome{Item: "m"}); id != "ord_1" {
			t.Error(failed)
		}
		for _, got := range s.requests {
			if !strings.HasSuffix(got, " "+body) {
				t.Errorf("it sends %.200q", got)
			}
		}
	})
}

// Later releases go on with what version 1 of the formats has recorded, with only its times put into the present:
// a draft of a program's own, and a journal of alice and bob with drafts, an order and a refusal.
func TestRecordedFormats(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		dir := t.TempDir()
		times := regexp.MustCompile(`("made"|"begun"): ?[0-9.]+`)
		want := map[string]bool{}
		recorded := os.DirFS(filepath.Join("testdata/formats/1", l.name))
		must.OK(t, os.CopyFS(dir, recorded))
		rewrite := func(change func(string) string) {
			for _, file := range must.Get(fs.Glob(recorded, "*/*.json"))(t) {
				text := must.Get(os.ReadFile(filepath.Join(dir, file)))(t)
				must.OK(t, os.WriteFile(filepath.Join(dir, file), []byte(change(string(text))), 0o600))
			}
		}
		rewrite(func(text string) string {
			var entry struct{ Account, Key, Body, Order any }
			must.OK(t, json.Unmarshal([]byte(text), &entry))
			if entry.Order == nil {
				want[fmt.Sprint(entry.Account, entry.Key, entry.Body)] = true
			}
			return times.ReplaceAllString(text, fmt.Sprint("$1:", time.Now().Unix()))
		})
		var mu sync.Mutex
		got := map[string]bool{}
		service := storefront.New(new(storefront.MemStore))
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			got[r.Header.Get("Authorization")+r.Header.Get("Idempotency-Key")+string(body)] = true
			mu.Unlock()
			r.Body, r.URL.Path = io.NopCloser(bytes.NewReader(body)), strings.TrimPrefix(r.URL.Path, "/base")
			service.ServeHTTP(w, r)
		}))
		defer server.Close()
		// The shop of the journal is behind a proxy.
		start := func(account string) *runner {
			return l.start(t, "http://shop.example/base", "JOURNAL="+filepath.Join(dir, "journal"), oneTry,
				"STOREFRONT_ACCOUNT="+account, "http_proxy="+server.URL)
		}
		for account, asks := range map[string][]outcome{"bob": {{Item: "basket 17"}},
			"alice": {{Item: "basket 17", Qty: 2}, {Item: "done", Qty: 3}, {Item: "refused", Qty: 1}}} {
			r := start(account)
			if got := pending(t, r); !slices.Equal(got, []string{"basket 17"}) {
				t.Errorf("%s has the drafts %q", account, got)
			}
			for _, ask := range asks {
				id, failed := orderID(t, r, ask)
				if failed != "" || ask.Item == "done" && id != "ord_7QENBZL6CRJS5EO3WE754CT5PY" {
					t.Errorf("%s, %s: %q, %s", account, ask.Item, id, failed)
				}
			}
		}
		if l.name != "bash" { // which has no drafts outside of journals
			draft := filepath.Join(dir, "draft.json")
			text := must.Get(os.ReadFile(draft))(t)
			var kept struct{ Key, Body string }
			must.OK(t, json.Unmarshal(text, &kept))
			want[kept.Key+kept.Body] = true
			text = times.ReplaceAll(text, fmt.Append(nil, "$1:", time.Now().Unix()))
			must.OK(t, os.WriteFile(draft, text, 0o600))
		}
		runProgram(t, l, server.URL, dir, map[string]string{
			"javascript": `
				import { readFileSync } from "node:fs";
				import { Draft, Shop } from "./storefront.mjs";
				const { JOURNAL, STOREFRONT_URL } = process.env;
				await new Shop(STOREFRONT_URL).order(Draft.from(JSON.parse(readFileSync(JOURNAL + "/draft.json", "utf8"))));`,
			"python": `
import os, storefront
with open(os.environ["JOURNAL"] + "/draft.json") as file:
    storefront.Shop(os.environ["STOREFRONT_URL"]).order(storefront.Draft.from_json(file.read()))`,
		})
		if !maps.Equal(got, want) {
			t.Errorf("it sends\n%v, want\n%v", got, want)
		}
	})
}
