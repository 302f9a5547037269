package clients

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"example.com/storefront"
	"example.com/storefront/internal/must"
)

// A folderShop counts the requests and, until it is told otherwise, is out of order.
type folderShop struct {
	*httptest.Server
	store    storefront.MemStore
	requests atomic.Int32
	answer   atomic.Pointer[http.HandlerFunc]
}

func newFolderShop(t *testing.T) *folderShop {
	s := new(folderShop)
	s.answers(answers(503, ""))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		(*s.answer.Load())(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *folderShop) answers(answer http.HandlerFunc) { s.answer.Store(&answer) }

// entryFile is where the journal in a folder has the order of a name of an account.
func entryFile(dir, url, account, name string) string {
	return filepath.Join(dir, fmt.Sprintf("%x.json", sha256.Sum256([]byte(url+"\n"+account+"\n"+name))))
}

// changedEntry is the text of an entry with other members. One whose value is nil is left out.
func changedEntry(t *testing.T, entry string, members map[string]any) string {
	t.Helper()
	var changed map[string]any
	must.OK(t, json.Unmarshal([]byte(entry), &changed))
	for member, value := range members {
		if changed[member] = value; value == nil {
			delete(changed, member)
		}
	}
	return string(must.Get(json.Marshal(changed))(t))
}

// order asks a runner for an order, and returns its error.
func order(t *testing.T, r *runner, name string) (failed string) {
	t.Helper()
	_, failed = orderID(t, r, outcome{Item: name, Qty: 2})
	return failed
}

// orderID asks a runner for an order, or without a quantity to go on with it.
func orderID(t *testing.T, r *runner, ask outcome) (id, failed string) {
	t.Helper()
	got, _, err := r.ask(ask)
	if err != nil {
		t.Fatal(err)
	}
	return got.ID, got.Error
}

// pending returns what a runner says.
func pending(t *testing.T, r *runner) []string {
	t.Helper()
	got, _, err := r.ask(outcome{List: "pending"})
	if err != nil || got.Error != "" {
		t.Fatal(got.Error, err)
	}
	return got.IDs
}

// oneTry is for runners that send an order once.
const oneTry = "STOREFRONT_PATIENCE=0"

// What is in the folder of a journal and none of its entries, or of another version, stops no one, is named,
// and stays as it is, also where a name has its entry.
func TestJournalLeavesOutWhatIsNoEntry(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, dir := newFolderShop(t), t.TempDir()
		r := l.start(t, shop.URL, "JOURNAL="+dir, oneTry)
		order(t, r, "basket")
		order(t, r, "m")
		entry := string(must.Get(os.ReadFile(entryFile(dir, shop.URL, "", "m")))(t))
		foreign := map[string]string{"bytes": "\x00\x05\x16\x07\xff", "half": entry[:len(entry)/2], "null": "null",
			"deep": strings.Repeat("[", 1e5), "copy": entry, "lines": entry + "\n" + entry}
		for name, members := range map[string]map[string]any{
			"candidate": {"version": nil, "shop": nil, "account": nil, "begun": nil}, "later": {"version": 2},
			"unknown": {"state": "sent"}, "key": {"key": "é"}, "cut body": {"body": `{"item":"cut body"`},
			"fields":  {"body": `{"item":"fields","qty":2,"fields":[]}`},
			"no made": {"made": nil}, "account": {"account": true},
			"answer": {"order": map[string]any{"id": "ord_1", "item": "x", "qty": 2}},
		} {
			members["name"] = name
			foreign[name] = changedEntry(t, entry, members)
		}
		for name, text := range foreign {
			must.OK(t, os.WriteFile(entryFile(dir, shop.URL, "", name), []byte(text), 0o600))
		}
		at := func(name string) string { return entryFile(dir, shop.URL, "", name) }
		must.OK(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("of others"), 0o600))
		must.OK(t, os.Mkdir(at("folder"), 0o700))
		must.OK(t, os.Symlink("nowhere", at("link")))
		must.OK(t, exec.Command("mkfifo", at("pipe")).Run())
		must.OK(t, os.WriteFile(at("long"), nil, 0o600))
		must.OK(t, os.Truncate(at("long"), 1<<40))
		if got := pending(t, r); !slices.Equal(got, []string{"basket", "m"}) {
			t.Errorf("its drafts are %q", got)
		}
		names := append(slices.Collect(maps.Keys(foreign)), "folder", "link", "pipe", "long")
		for _, name := range names {
			if failed := order(t, r, name); failed == "" || shop.requests.Load() != 2 {
				t.Errorf("%s is no entry, and it sends an order", name)
			}
		}
		r.end()
		for _, name := range names {
			file := at(name)
			if text, ok := foreign[name]; ok {
				if got := string(must.Get(os.ReadFile(file))(t)); got != text {
					t.Errorf("%s has become %q", name, got)
				}
			} else if _, err := os.Lstat(file); err != nil {
				t.Error(err)
			}
			if !strings.Contains(r.stderr.String(), filepath.Base(file)) {
				t.Errorf("it says nothing of %s in\n%s", name, &r.stderr)
			}
		}
		if strings.Contains(r.stderr.String(), "notes.txt") {
			t.Errorf("it says something of notes.txt in\n%s", &r.stderr)
		}
	})
}

// What a journal writes is for its user alone, also in a folder that others may read.
func TestJournalIsForItsUser(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, dir := newFolderShop(t), t.TempDir()
		must.OK(t, os.Chmod(dir, 0o755))
		r := l.start(t, shop.URL, "JOURNAL="+dir, oneTry)
		order(t, r, "open")
		shop.answers(storefront.New(&shop.store).ServeHTTP)
		order(t, r, "done")
		entries := must.Get(os.ReadDir(dir))(t)
		for _, entry := range entries {
			if mode := must.Get(entry.Info())(t).Mode(); mode&0o077 != 0 {
				t.Errorf("%s has the mode %v", entry.Name(), mode)
			}
		}
		if len(entries) < 2 {
			t.Errorf("there are %v", entries)
		}
	})
}

// A journal has more drafts than its process may open files, or give to another as arguments.
func TestJournalHasManyDrafts(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, dir := newFolderShop(t), t.TempDir()
		order(t, l.start(t, shop.URL, "JOURNAL="+dir, oneTry), "m")
		entry := string(must.Get(os.ReadFile(entryFile(dir, shop.URL, "", "m")))(t))
		const n = 1500
		for i := range n - 1 {
			name := fmt.Sprintf("basket-%0100d", i)
			text := changedEntry(t, entry, map[string]any{"name": name})
			must.OK(t, os.WriteFile(entryFile(dir, shop.URL, "", name), []byte(text), 0o600))
		}
		limit := "-n 100"
		if l.name == "bash" {
			limit = "-s 512" // KB, and so 128 KB of arguments
		}
		limited := l
		limited.interpreter = func() string { return "bash" }
		limited.arguments = []string{"-c", `ulimit ` + limit + ` && exec "$@"`, "limited", l.interpreter()}
		if got := pending(t, limited.start(t, shop.URL, "JOURNAL="+dir)); len(got) != n {
			t.Errorf("it has %d drafts, want %d", len(got), n)
		}
	})
}

// Drafts at which a process always ends, such as by its supervisor, keep no other from being sent.
func TestPendingDraftsTakeTurns(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, dir := newFolderShop(t), t.TempDir()
		r := l.start(t, shop.URL, "JOURNAL="+dir, oneTry)
		for _, name := range []string{"bad 1", "bad 2", "good", "well"} {
			order(t, r, name)
		}
		r.end()
		service := storefront.New(&shop.store)
		var current atomic.Pointer[runner]
		shop.answers(func(w http.ResponseWriter, req *http.Request) {
			body, _ := io.ReadAll(req.Body)
			if bytes.Contains(body, []byte("bad")) {
				current.Load().kill()
				return
			}
			req.Body = io.NopCloser(bytes.NewReader(body))
			service.ServeHTTP(w, req)
		})
		for range 3 {
			r := l.start(t, shop.URL, "JOURNAL="+dir, oneTry)
			current.Store(r)
			for _, name := range pending(t, r) {
				if _, _, err := r.ask(outcome{Item: name, Qty: 2}); err != nil {
					break
				}
			}
		}
		if created := shop.store.Orders(); len(created) != 2 {
			t.Errorf("after 3 processes, of 2 drafts that do not fail, there are %v", created)
		}
	})
}

// The folder of a journal is moved and copied back while an order is on its way: as others do not see its lock, no
// more tries are sent.
func TestFolderIsReplacedDuringAnOrder(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, dir := newFolderShop(t), filepath.Join(t.TempDir(), "drafts")
		r := l.start(t, shop.URL, "JOURNAL="+dir)
		shop.answers(func(w http.ResponseWriter, req *http.Request) {
			must.OK(t, os.Rename(dir, dir+".old"))
			must.OK(t, exec.Command("cp", "-a", dir+".old", dir).Run())
			shop.answers(storefront.New(&shop.store).ServeHTTP)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		if failed := order(t, r, "teapot"); !strings.Contains(failed, "Unknown") || shop.requests.Load() != 1 {
			t.Errorf("with %d requests: %q, want one, and Unknown", shop.requests.Load(), failed)
		}
		if failed := order(t, r, "teapot"); failed != "" {
			t.Errorf("asked again: %s", failed)
		}
	})
}

// What the folder of a journal does not do is a JournalError, with the cause. What the shop has said is returned
// all the same, and the draft that is left gets the same order.
func TestJavaScriptJournalFails(t *testing.T) {
	javaScript := inParallel(t, languages[1])
	runProgram(t, javaScript, "http://shop.example", t.TempDir(), map[string]string{"javascript": `
		import { promises as fs } from "node:fs";
		import { isDeepStrictEqual } from "node:util";
		import { Shop } from "./storefront.mjs";
		const { JOURNAL, STOREFRONT_URL } = process.env;
		const is = (what, got, want) => isDeepStrictEqual(got, want) || console.log(what, got, "want", want);
		let requests = 0, full = false;
		const fetch = async (url, { body, headers }) => {
			requests++;
			const order = { id: headers.get("Idempotency-Key"), ...JSON.parse(body) };
			return new Response(JSON.stringify(order), { status: 201 });
		};
		let warned = 0, answer = fetch;
		console.warn = () => warned++;
		const { rename } = fs;
		fs.rename = async (...args) => {
			if (full) throw Object.assign(new Error("no space left"), { code: "ENOSPC" });
			return rename(...args);
		};
		const shop = new Shop(STOREFRONT_URL, { patience: 0, fetch: (...request) => answer(...request) });
		const journal = await shop.journal(JOURNAL);
		const order = (name) => journal.order(name, "teapot", 2).then((got) => got, (err) => err);
		full = true;
		const first = await order("full");
		is("its error", [first.name, first.cause.code, requests], ["JournalError", "ENOSPC", 0]);
		full = false;
		answer = async (...request) => (full = true, fetch(...request));
		const { id } = await order("teapot");
		is("it says so", [/^[0-9a-f]{32}$/.test(id), warned, await journal.pending()], [true, 1, ["teapot"]]);
		full = false, answer = fetch;
		is("the same order", [(await order("teapot")).id, requests, await journal.pending()], [id, 2, []]);
		const refused = '{"type":"urn:problem-type:storefront:order-refused"}';
		answer = async () => (full = true, new Response(refused, { status: 422 }));
		is("refused", (await order("refused")).name, "Refused");
		const parse = (text) => JSON.parse(text.replace(/:(\d{16,})/g, ':"$1"'));
		answer = async () => new Response('{"id":"a","item":"x","qty":1,"fields":{"n":9007199254740993}}');
		const { fields } = await new Shop(STOREFRONT_URL, { parse, fetch: answer }).getOrder("a");
		is("with a parser of its own", fields.n, "9007199254740993");
		const big = (text) => JSON.parse(text, (_, value) => typeof value === "number" ? BigInt(value) : value);
		const parsed = async (parse) => {
			const shop = new Shop(STOREFRONT_URL, { patience: 0, parse, fetch: (...request) => answer(...request) });
			return shop.journal(JOURNAL);
		};
		const bad = '{"type":"urn:problem-type:storefront:invalid-order",\n"errors":[{"maximum":9007199254740993}]}';
		full = false, answer = async () => new Response(bad, { status: 422 });
		const numbers = await parsed(big);
		const why = await numbers.order("big", "teapot", 2).catch((err) => err);
		is("refused, with a parser", [why.name, why.code, await journal.pending()], ["Refused", "invalid-order", ["refused"]]);
		is("its refusal", (await fs.readFile(JOURNAL + "/" + numbers.key(await numbers.id("big")), "utf8")).slice(-21),
			":9007199254740993}]}}");
		answer = fetch, requests = 0;
		is("an order, with a parser", (await numbers.order("big")).qty, 2n);
		const broken = await parsed(() => { throw new Error("of the parser"); });
		is("its error", (await broken.order("broken", "teapot", 2).catch((err) => err)).message, "of the parser");
		is("and the order is kept", [(await order("broken")).qty, requests], [2, 2]);
		warned = 0;
		is("the drafts, with a parser that fails", [await broken.pending(), warned], [["refused"], 0]);
		const items = await parsed((text) => JSON.parse(text).item ?? null);
		is("a kept order, with a parser that has no members", [await items.order("big"), await items.findOrder("big"),
			(await items.read("big")).order, requests], ["teapot", "teapot", "teapot", 2]);
		answer = async (url, { body }) => new Response('{"id":"a",' + body.slice(1), { status: 201 });
		const long = '{"a":0,"order":9007199254740993}', digits = await parsed(parse);
		for (const way of ["sent", "kept"]) {
			const got = await digits.order("digits", "teapot", 2, { fields: long });
			is(way + ", with long numbers", got.fields.order, "9007199254740993");
		}`})
}

// What the shop has said is told even if the folder of a journal in Python does not keep it, and the draft that is
// left gets the same order.
func TestPythonJournalFails(t *testing.T) {
	python := inParallel(t, languages[2])
	shop := newFolderShop(t)
	service := storefront.New(&shop.store)
	shop.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "refuse" {
			refused(w, r)
			return
		}
		service.ServeHTTP(w, r)
	})
	runProgram(t, python, shop.URL, t.TempDir(), map[string]string{"python": `
import errno, logging, os, storefront
account, full, fills, replace, warned = "ann", True, False, os.replace, []
def replaced(*args):
    if full:
        raise OSError(errno.ENOSPC, "no space left")
    replace(*args)
def on_try(one):
    global full
    tries.append(one)
    full = fills is True
    if fills == "moved": os.rename(os.environ["JOURNAL"], os.environ["JOURNAL"] + " moved")
os.replace, tries = replaced, []
logging.getLogger("storefront").addFilter(lambda record: warned.append(record.getMessage()))
shop = storefront.Shop(os.environ["STOREFRONT_URL"], headers=lambda: {"Authorization": account}, on_try=on_try)
journal = shop.journal(os.environ["JOURNAL"])
def order(name):
    try:
        return journal.order(name, "teapot", 2)["id"]
    except Exception as err:
        return type(err)
def check(what, got, want):
    if got != want:
        print(what, got, "want", want)
check("a full disk", (order("full"), tries), (OSError, []))
full, fills = False, True
id = order("kept later")
check("it says so", (type(id), len(warned), journal.pending()), (str, 1, ["kept later"]))
full = fills = False
check("the same order", (order("kept later"), order("kept later"), len(tries), journal.pending()), (id, id, 2, []))
account, fills = "refuse", True
check("refused", (order("refused"), len(warned), journal.pending()), (storefront.Refused, 2, ["refused"]))
account, full, fills = "ann", False, "moved"
check("a folder that is moved", (type(order("moved")), len(warned)), (str, 3))`})
}

// What a journal in Python writes is on the disk, also where fsync does less, as on macOS.
func TestPythonJournalFlushes(t *testing.T) {
	python := inParallel(t, languages[2])
	shop := newFolderShop(t)
	shop.answers(storefront.New(&shop.store).ServeHTTP)
	runProgram(t, python, shop.URL, t.TempDir(), map[string]string{"python": `
import errno, fcntl, os, stat, storefront
done, fails = [], 0
def kind(file):
    return "folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file"
def full(file, what):
    if fails:
        raise OSError(fails, "of the system")
    done.append((what, kind(file)))
os.fsync = lambda file: done.append(("fsync", kind(file)))
journal = storefront.Shop(os.environ["STOREFRONT_URL"]).journal(os.environ["JOURNAL"])
def check(name, call):
    done.clear()
    journal.order(name, "teapot", 2)
    if done != [(call, "file"), (call, "folder")] * 2:
        print(name, done)
if hasattr(fcntl, "F_FULLFSYNC"):
    del fcntl.F_FULLFSYNC
check("a system without it", "fsync")
fcntl.F_FULLFSYNC, fcntl.fcntl = "full", full
check("a system with it", "full")
fails = errno.ENOTSUP
check("a file system without it", "fsync")
fails = errno.EIO
try:
    print("a broken disk keeps", journal.order("a broken disk", "teapot", 2))
except OSError:
    pass`})
}

// Where a program fails that the client for Bash calls, or what it prints is not written, that is no statement about
// an order, or a list.
func TestBashProgramsFail(t *testing.T) {
	bash := inParallel(t, languages[0])
	shop, dir := newFolderShop(t), t.TempDir()
	for i := range 3 {
		shop.store.Users.Put(storefront.MustResource(fmt.Sprint("u", i), nil))
	}
	r := bash.start(t, shop.URL, "JOURNAL="+dir, oneTry)
	order(t, r, "open")
	shop.answers(storefront.NewWithOptions(&shop.store, &storefront.Options{Orders: &shop.store,
		Scope: func(*http.Request) string { return "everybody" }}).ServeHTTP)
	order(t, r, "kept")
	r.end()
	runProgram(t, bash, shop.URL, dir, map[string]string{"bash": `
		source storefront.sh
		fails='' full=/dev/full
		for program in flock jq ls sed; do # by who calls it, and its arguments
			eval "$program() { [[ \"\${FUNCNAME[*]} \$*\" != \$fails ]] || return 2; command $program \"\$@\"; }"
		done
		is() { [[ $2 == "$3" ]] || echo "$1: $2, want $3"; }
		id=$(storefront order kept | jq -r .id)
		while read -r command fails; do
			is "$command without $fails" "$(storefront ${command//,/ } 2>/dev/null; echo $?)" 1
		done <<-'end'
			users,1 jq _storefront_walk *.next *
			users,1 jq _storefront_jq _storefront_walk *
			find-order,open jq _storefront_jq _storefront_find_order *
			find-order,open sed _storefront_mark _storefront_jq _storefront_find_order *
			find-order,kept jq _storefront_jq _storefront_kept *
			order,kept jq _storefront_jq _storefront_kept *
			order,kept,kept,2 jq _storefront_same *
			order,kept flock *
			pending jq _storefront_pending *
			pending ls *
		end
		is 'an order without jq' "$(fails='jq _storefront_jq *'; storefront get-order "$id"; echo $?)" 1
		for command in users users,1 orders find-order,kept order,kept get-order,"$id" pending; do
			is "$command on a full disk" "$(storefront ${command//,/ } 2>/dev/null >$full; echo $?)" 1
		done
		for command in pending find-order,open; do
			is "$command without a folder" "$(STOREFRONT_JOURNAL=/dev/null storefront ${command//,/ } 2>/dev/null; echo $?)" 1
		done
		is 'an empty list' "$(storefront widgets; echo $?)" 0
		is 'a readonly account' "$(readonly account=x; storefront users 2>/dev/null; echo $?)" 1
		is 'a readonly quantity' "$(readonly qty=3; storefront order r teapot 2 2>/dev/null; echo $?)" 1
		declare -i answer code limit status # of the program
		found=false
		is 'beside variables of the program' "$(storefront users 1 | jq -r .id | tr '\n' ' ')" 'u0 u1 u2 '
		ls() { command ls "$@"; return 1; } # a file has gone before ls looks at it
		is 'the drafts' "$(storefront pending; echo $?)" $'open\n0'
		strict() { set -aCE; shopt -s nocasematch; trap 'echo failed' ERR; storefront "$@"; }
		for file in "$STOREFRONT_JOURNAL"/*.json; do cp "$file" "$file.tmp"; done # as one leaves that is killed
		is 'in a strict program' "$(strict order open | jq -r .item; strict users 1 | jq -r .id)" $'open\nu0\nu1\nu2'`})
}

// A product that one account has read is not what another gets, even if the shop has one tag for both.
func TestProductIsNotAnothers(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		if l.name == "bash" {
			return // it remembers nothing
		}
		shop := newFolderShop(t)
		shop.answers(func(w http.ResponseWriter, r *http.Request) {
			account, id := r.Header.Get("Authorization"), strings.TrimPrefix(r.URL.Path, "/v1/products/")
			tag := map[string]string{"own": `"` + account + `"`, "weak": `W/"1"`, "strong": `"1"`}[id]
			w.Header().Set("ETag", tag)
			w.Header().Set("Cache-Control", "private, max-age=60")
			if r.Header.Get("If-None-Match") == tag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			fmt.Fprintf(w, `{"id":%q,"name":%q}`, id, account)
		})
		r := l.start(t, shop.URL)
		for _, id := range []string{"own", "weak", "strong"} {
			for _, account := range []string{"ada", "grace", "grace", "ada"} {
				r.ask(outcome{Account: account})
				if got, _, err := r.ask(outcome{Product: id}); err != nil || got.Name != account {
					t.Errorf("%s gets the product of %+v (%v)", account, got, err)
				}
			}
		}
	})
}

// runProgram runs a program in a language, beside its client. It has to print nothing.
func runProgram(t *testing.T, l language, url, journal string, programs map[string]string) {
	t.Helper()
	dir := t.TempDir()
	must.OK(t, os.CopyFS(dir, os.DirFS(filepath.Join(root, "sdk", l.name))))
	file := filepath.Join(dir, "program"+l.extension)
	must.OK(t, os.WriteFile(file, []byte(programs[l.name]), 0o600))
	cmd := exec.Command(l.interpreter(), append(slices.Clone(l.arguments), file)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "STOREFRONT_URL="+url, "STOREFRONT_JOURNAL="+journal, "JOURNAL="+journal, oneTry)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if out, err := cmd.Output(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s\n%s", err, out, &stderr)
	}
}
