package client_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/client"
	"example.com/storefront/internal/must"
)

func open(t testing.TB, dir string, c *client.Client) *client.Journal {
	t.Helper()
	return must.Get(client.OpenJournal(dir, c))(t)
}

// resume returns the drafts that a journal yields, by item, with what became of each.
func resume(t testing.TB, journal *client.Journal) map[string]string {
	t.Helper()
	got := make(map[string]string)
	for entry, err := range journal.Resume(t.Context()) {
		if entry == nil {
			t.Fatal(err)
		}
		got[entry.Draft.Item()] = fmt.Sprintf("%.4s %T", entry.Order.ID, err)
	}
	return got
}

// files returns the contents of a folder's files.
func files(t testing.TB, dir string) (out []string) {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	for _, e := range entries {
		data := must.Get(os.ReadFile(filepath.Join(dir, e.Name())))(t)
		out = append(out, string(data))
	}
	return out
}

func TestOrderIsKeptUntilItIsRemoved(t *testing.T) {
	dir := t.TempDir()
	shop, store := newScript()
	journal := open(t, dir, shopOf(t, shop, client.Options{}))
	draft := client.NewDraft("teapot", 2)
	order := must.Get(journal.Order(t.Context(), draft))(t)
	again, err := journal.Order(t.Context(), draft)
	if err != nil || !again.Equal(order) || len(shop.sent) != 1 {
		t.Errorf("the same draft returned %v, %v with %d requests", again, err, len(shop.sent))
	}
	for entry, err := range journal.Resume(t.Context()) {
		if err != nil || !entry.Order.Equal(order) || entry.Draft.Key() != draft.Key() {
			t.Errorf("Resume yields %v, %v", entry, err)
		}
	}
	must.OK(t, journal.Remove(t.Context(), draft))
	if got := resume(t, journal); len(got) > 0 || len(store.Orders()) != 1 || len(files(t, dir)) > 0 {
		t.Errorf("after Remove, Resume yields %v, and the folder has %q", got, files(t, dir))
	}
}

// TestProgramIsKilledAtAnyMoment has each number of bytes of an entry on the disk, as if the
// program was killed then.
func TestProgramIsKilledAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	shop, store := newScript()
	journal := open(t, dir, shopOf(t, shop, client.Options{}))
	draft := client.NewDraft("teapot", 2)
	must.OK(t, journal.Put(t.Context(), draft))
	put := len(files(t, dir)[0])
	must.Get(journal.Order(t.Context(), draft))(t)
	whole := files(t, dir)[0]
	name, _ := filepath.Glob(filepath.Join(dir, "*"))
	for n := range len(whole) + 1 {
		must.OK(t, os.WriteFile(name[0], []byte(whole[:n]), 0o600))
		got := fmt.Sprint(resume(t, journal))
		want := "map[teapot:ord_ <nil>]"
		if n < put {
			want = "map[]" // it was never acknowledged, and never sent
		}
		if got != want {
			t.Errorf("with %d of %d bytes (%d of Put), Resume yields %v", n, len(whole), put, got)
		}
		if again := fmt.Sprint(resume(t, journal)); again != want {
			t.Errorf("with %d of %d bytes, Resume yields %v the second time", n, len(whole), again)
		}
		if left := files(t, dir); n >= put && !strings.HasSuffix(left[0], "}}\n") || n < put && len(left) > 0 {
			t.Errorf("with %d bytes, the folder has %q", n, left)
		}
	}
	if n := len(store.Orders()); n != 1 {
		t.Errorf("the shop has %d orders, want 1", n)
	}
}

func TestDraftIsOnTheDiskBeforeItIsSent(t *testing.T) {
	dir := t.TempDir()
	var kept []string
	shop := &script{shop: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept = files(t, dir)
		problem(422, "order-refused")(w, r)
	})}
	journal := open(t, dir, shopOf(t, shop, client.Options{}))
	draft := client.NewDraft("teapot", 2)
	_, err := journal.Order(t.Context(), draft)
	if want := fmt.Sprintf(`{"version":1,"shop":"http://shop.test/base","account":"","draft":%s}`+"\n",
		text(t, draft)); !slices.Equal(kept, []string{want}) ||
		!strings.Contains(want, "begun") {
		t.Errorf("the shop was asked with %q in the folder, want %q", kept, want)
	}
	if _, ok := errors.AsType[*client.RefusedError](err); !ok || len(files(t, dir)) != 1 {
		t.Errorf("Order returned %v, and the folder has %q", err, files(t, dir))
	}
}

// A process may be killed between writing and syncing, and the power fail after what the next one does.
func TestWhatAnotherProcessWroteIsSynced(t *testing.T) {
	dir, text := t.TempDir(), strings.TrimSpace(kept())
	var synced []string
	client.OnSync(t, func(path string) { synced = append(synced, path) })
	check := func(when string) {
		if entry := must.Get(filepath.Glob(filepath.Join(dir, "*")))(t); len(entry) != 1 ||
			!slices.Contains(synced, entry[0]) || !slices.Contains(synced, dir) {
			t.Errorf("when %s, of %q it has synced %q", when, entry, synced)
		}
	}
	shop := &script{shop: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check("it sends the draft")
		says(201, `{"id":"ord_1","item":"teapot","qty":2}`)(w, r)
	})}
	written := []byte(`{"version":1,"shop":"http://shop.test/base","account":"","draft":` + text + "}\n")
	for does, f := range map[string]func(*client.Journal) error{
		"Put":    func(j *client.Journal) error { return j.Put(t.Context(), draftFrom(t, text)) },
		"Order":  func(j *client.Journal) error { _, err := j.Order(t.Context(), draftFrom(t, text)); return err },
		"Resume": func(j *client.Journal) error { return resumed(t, j) },
	} {
		journal := open(t, dir, shopOf(t, shop, client.Options{}))
		must.OK(t, os.WriteFile(filepath.Join(dir, "G9AC6AD9518FDL9PRKRMUI0MTOJM8KBT.jsonl"), written, 0o600))
		for range 2 { // the second time, Order and Resume find an order
			synced = nil
			must.OK(t, f(journal))
			check(does + " returns")
		}
	}
}

func TestNothingIsSentThatCannotBeKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	shop, _ := newScript()
	journal := open(t, dir, shopOf(t, shop, client.Options{}))
	must.OK(t, os.Remove(dir))
	order, err := journal.Order(t.Context(), client.NewDraft("teapot", 2))
	if err == nil || draftOf(err) != nil || order.ID != "" || len(shop.sent) > 0 {
		t.Errorf("Order returned %v, %v, and %d requests were sent", order, err, len(shop.sent))
	}
	// A draft that no journal has can be sent without one.
	c := shopOf(t, shop, client.Options{Account: strings.Repeat("too long", 2<<20)})
	draft := client.NewDraft("teapot", 2)
	if err := open(t, t.TempDir(), c).Put(t.Context(), draft); err == nil {
		t.Error("Put returned nil")
	}
	must.Get(c.Order(t.Context(), draft))(t)
}

// A refusal is for sure as long as no try can have created the order, and then kept instead of sent again.
func TestRefusalIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := problem(422, "order-refused")
		shop, store := newScript()
		dir := t.TempDir()
		draft, elsewhere := client.NewDraft("teapot", 2), client.NewDraft("kettle", 1)
		text := text(t, elsewhere) // with which another may have sent it
		journal := open(t, dir, shopOf(t, shop, client.Options{}))
		must.OK(t, journal.Put(t.Context(), draft))
		must.OK(t, journal.Put(t.Context(), draftFrom(t, text)))
		resumes := func() string { return fmt.Sprint(resume(t, journal)) }
		orders := func() string {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			order, err := journal.Order(ctx, draft)
			return fmt.Sprintf("%.4s %T", order.ID, err)
		}
		const refused, unknown = " *client.RefusedError", " *client.UnknownError"
		const both = "map[kettle:" + unknown + " teapot:" + refused + "]"
		for i, step := range []struct {
			does    func() string
			answers []http.HandlerFunc
			want    string
		}{
			{resumes, []http.HandlerFunc{refusal, refusal}, both},
			{resumes, []http.HandlerFunc{refusal}, both},
			{orders, []http.HandlerFunc{refusal}, refused}, // anew
			{resumes, []http.HandlerFunc{refusal}, both},
			{orders, []http.HandlerFunc{lost}, unknown}, // it may be on its way
			{orders, []http.HandlerFunc{refusal}, unknown},
			{resumes, []http.HandlerFunc{refusal, refusal}, "map[kettle:" + unknown + " teapot:" + unknown + "]"},
			{orders, []http.HandlerFunc{shop.shop.ServeHTTP}, "ord_ <nil>"},
		} {
			journal = open(t, dir, shopOf(t, shop, client.Options{})) // as after a restart
			shop.answers, shop.sent = step.answers, nil
			if got := step.does(); got != step.want || len(shop.sent) != len(step.answers) {
				t.Errorf("step %d yields %s with %d requests, want %s with %d", i+1, got, len(shop.sent), step.want,
					len(step.answers))
			}
		}
		late := client.NewDraft("late", 1)
		shop.answers = []http.HandlerFunc{refusal}
		journal.Order(t.Context(), late)
		time.Sleep(client.Lifetime)
		shop.sent = nil
		_, err := journal.Order(t.Context(), late)
		_, ok := errors.AsType[*client.RefusedError](err)
		if !ok || len(shop.sent) > 0 || len(store.Orders()) != 1 {
			t.Errorf("a draft that was refused and is too old: %v, with %d requests", err, len(shop.sent))
		}
	})
}

// An entry is of the shop and the account that it was made for, whoever has the same folder.
func TestEntryIsOfOneShopAndOneAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop, store := newScript()
		dir := t.TempDir()
		journalOf := func(url, account string) *client.Journal {
			return open(t, dir, must.Get(client.New(url, &client.Options{HTTPClient: &http.Client{Transport: shop},
				Account: account, Logger: slog.New(slog.DiscardHandler)}))(t))
		}
		alice := journalOf("http://shop.test/base", "alice")
		lostDraft := client.NewDraft("lost", 1)
		ctx, cancel := context.WithCancel(t.Context())
		shop.answers = []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			shop.shop.ServeHTTP(httptest.NewRecorder(), r)
			cancel()
			w.WriteHeader(http.StatusBadGateway)
		}}
		if _, err := alice.Order(ctx, lostDraft); err == nil {
			t.Fatal("it was not lost")
		}
		before := files(t, dir)
		for _, other := range [][2]string{{"http://shop.test/base", "bob"}, {"http://shop.test/base", ""},
			{"http://bob:secret@shop.test/base", ""}, {"https://shop.test/base", "alice"},
			{"http://shop.test/Base", "alice"}, {"http://shop.test:8080/base", "alice"}} {
			journal := journalOf(other[0], other[1])
			shop.sent = nil
			if got := resume(t, journal); len(got) > 0 {
				t.Errorf("%q: Resume yields %v", other, got)
			}
			_, err := journal.Order(t.Context(), lostDraft)
			for what, err := range map[string]error{"Order": err, "Put": journal.Put(t.Context(), lostDraft),
				"Remove": journal.Remove(t.Context(), lostDraft)} {
				if err == nil || !strings.Contains(err.Error(), "another account") {
					t.Errorf("%q: %s of Alice's draft returned %v", other, what, err)
				}
			}
			if after := files(t, dir); !slices.Equal(after, before) || len(shop.sent) > 0 {
				t.Errorf("%q: %d requests were sent, and the folder has %q", other, len(shop.sent), after)
			}
		}
		for _, same := range [][2]string{{"HTTP://SHOP.test:80/base//", "alice"},
			{"http://alice:secret@shop.test/base", ""}} {
			got := fmt.Sprint(resume(t, journalOf(same[0], same[1])))
			if got != "map[lost:ord_ <nil>]" || strings.Contains(fmt.Sprint(files(t, dir)), "secret") {
				t.Errorf("%q: Resume yields %s, and the folder has %q", same, got, files(t, dir))
			}
		}
		if n := len(store.Orders()); n != 1 {
			t.Errorf("the shop has %d orders, want 1", n)
		}
	})
}

// Whatever has a draft, and however it has come to it, no try is sent when the key may be forgotten. A step with
// ! must fail, as another has the draft, or it is too old.
func TestNoDraftHasASecondLife(t *testing.T) {
	for _, way := range []string{
		"wait, order, wait, !order", // it has begun with its first try
		"order its text, wait, !a orders its text",
		"a puts its text, order its text, wait, !a resumes",
		"order its text, wait, !order",
		"order, a puts, wait, !a resumes",
		"a puts, !order, !has a text, wait, a resumes",
		"a puts, !b puts, b resumes, wait, a resumes",
		"a puts, another removes it, a orders, a removes, wait, !a orders",
		"a puts, a removes, order, b puts, wait, !b resumes",
	} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := atBase(storefront.New(new(storefront.MemStore)))
				var first time.Time // try
				shop := &script{shop: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if first.IsZero() {
						first = time.Now()
					}
					if age := time.Since(first); age >= client.Lifetime {
						t.Errorf("a try is sent %v after the first one", age)
					}
					service.ServeHTTP(w, r)
				})}
				c := shopOf(t, shop, client.Options{})
				a, b, ctx := open(t, t.TempDir(), c), open(t, t.TempDir(), c), t.Context()
				draft, kept := client.NewDraft("teapot", 2), ""
				if strings.Contains(way, "its text") {
					kept = text(t, draft)
				}
				for step := range strings.SplitSeq(way, ", ") {
					step, fails := strings.CutPrefix(step, "!")
					var err error
					switch step {
					case "wait":
						time.Sleep(30 * time.Hour)
					case "order":
						_, err = c.Order(ctx, draft)
					case "order its text":
						_, err = c.Order(ctx, draftFrom(t, kept))
					case "has a text":
						_, err = draft.MarshalText()
					case "a orders":
						_, err = a.Order(ctx, draft)
					case "a orders its text":
						_, err = a.Order(ctx, draftFrom(t, kept))
					case "a puts":
						err = a.Put(ctx, draft)
					case "a puts its text":
						err = a.Put(ctx, draftFrom(t, kept))
					case "b puts":
						err = b.Put(ctx, draft)
					case "a resumes":
						err = resumed(t, a)
					case "b resumes":
						err = resumed(t, b)
					case "a removes":
						err = a.Remove(ctx, draft)
					case "another removes it":
						for entry := range a.Resume(ctx) {
							must.OK(t, entry.Remove())
						}
					default:
						t.Fatal(step)
					}
					if (err != nil) != fails {
						t.Errorf("%s: %v", step, err)
					}
				}
			})
		})
	}
}

// resumed returns the error of the one entry of a journal, or nil if there is none.
func resumed(t *testing.T, journal *client.Journal) (last error) {
	for _, err := range journal.Resume(t.Context()) {
		last = err
	}
	return last
}

// What is kept in version 1 is read, and gone on with. The recorded files never change.
func TestRecordedDraftsAndJournalsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock begins with the year 2000, as that of the files did
		var mu sync.Mutex
		sent := make(map[string]string) // bodies by keys; guarded by mu
		shop := &script{shop: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			sent[r.Header.Get("Idempotency-Key")] = string(body)
			says(201, `{"id":"ord_new",`+string(body[1:]))(w, r)
		})}
		c := shopOf(t, shop, client.Options{Account: "alice"})
		time.Sleep(22 * time.Hour)
		recorded := string(must.Get(os.ReadFile("testdata/formats/1/draft.json"))(t))
		draft := draftFrom(t, recorded)
		order, err := c.Order(t.Context(), draftFrom(t, recorded))
		if err != nil || order.ID != "ord_new" || text(t, draft) != recorded {
			t.Errorf("the draft %s: %v, %v", text(t, draft), order, err)
		}
		dir := t.TempDir()
		must.OK(t, os.CopyFS(dir, os.DirFS("testdata/formats/1/journal")))
		got := make(map[string]string)
		for entry, err := range open(t, dir, c).Resume(t.Context()) {
			if entry == nil {
				t.Fatal(err)
			}
			got[entry.Draft.Item()] = entry.Order.ID
			if refused, ok := errors.AsType[*client.RefusedError](err); ok {
				got[entry.Draft.Item()] = refused.Problem.Reason
			}
		}
		if want := "map[begun:ord_new created:ord_old refused:sold-out waiting:ord_new]"; fmt.Sprint(got) != want {
			t.Errorf("Resume yields %v, want %s", got, want)
		}
		const rest = `","qty":2, "fields":{"note":"<é>"}}`
		want := map[string]string{"KEYOFDRAFT": `{"item":"draft` + rest, "KEYOFBEGUN": `{"item":"begun` + rest,
			"KEYOFWAITING": `{"item":"waiting` + rest}
		if fmt.Sprint(sent) != fmt.Sprint(want) {
			t.Errorf("it sends %v, want %v", sent, want)
		}
	})
}

// TestOneAtATimeSendsADraft has several journals on one folder send the same drafts.
func TestOneAtATimeSendsADraft(t *testing.T) {
	dir := t.TempDir()
	store := new(storefront.MemStore)
	service := atBase(storefront.New(store))
	var sending sync.Map // keys
	shop := &script{shop: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if _, twice := sending.LoadOrStore(key, true); twice {
			t.Error("a draft is sent twice at once")
		}
		service.ServeHTTP(w, r)
		sending.Delete(key)
	})}
	var drafts []string
	for i := range 20 {
		drafts = append(drafts, text(t, client.NewDraft(fmt.Sprint("item ", i), 1)))
	}
	var wg sync.WaitGroup
	for range 4 {
		journal := open(t, dir, shopOf(t, shop, client.Options{}))
		wg.Go(func() {
			for _, draft := range drafts {
				if err := journal.Put(t.Context(), draftFrom(t, draft)); err != nil {
					t.Error(err)
				}
			}
			for entry, err := range journal.Resume(t.Context()) {
				if err != nil {
					t.Error(err)
				} else if err := entry.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for _, draft := range drafts {
				if order, err := journal.Order(t.Context(), draftFrom(t, draft)); err != nil || order.ID == "" {
					t.Error(order, err)
				}
			}
		})
	}
	wg.Wait()
	if len(store.Orders()) != 20 {
		t.Errorf("%d drafts became %d orders", len(drafts), len(store.Orders()))
	}
}

// Resume sends in goroutines of its own, in which a panic would end the program.
func TestResumeYieldsTheDraftWhoseTransportDoesNotReturn(t *testing.T) {
	for says, end := range map[string]func(){
		"panic: out of tea":       func() { panic("out of tea") },
		"the goroutine has ended": runtime.Goexit,
	} {
		shop, _ := newScript(func(http.ResponseWriter, *http.Request) { end() })
		journal := open(t, t.TempDir(), shopOf(t, shop, client.Options{}))
		must.OK(t, journal.Put(t.Context(), client.NewDraft("teapot", 2)))
		if err := resumed(t, journal); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Resume yields %v, want an error with %s", err, says)
		}
		if got := resume(t, journal); got["teapot"] != "ord_ <nil>" { // the draft is free again
			t.Errorf("then, Resume yields %v", got)
		}
	}
}

// TestDraftsThatFailHoldUpNoOther has many that fail in a journal, and all the others sent by a few calls of
// Resume.
func TestDraftsThatFailHoldUpNoOther(t *testing.T) {
	for _, test := range []struct {
		name  string
		fails http.HandlerFunc // nil: it is silent
		limit time.Duration    // of each call; 0: none, and the loop is left when all have come
		calls int
	}{
		{"at once, with a limit", says(500, ""), 3 * time.Second, 2},
		{"by silence, with a limit", nil, 3 * time.Second, 8},
		{"by silence, without a limit", nil, 0, 1},
		{"with a wait, without a limit", says(503, "", "Retry-After", "3600"), 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shop, store := newScript()
				transport := roundTripper(func(r *http.Request) (*http.Response, error) {
					body, _ := io.ReadAll(r.Body)
					r.Body = io.NopCloser(bytes.NewReader(body))
					if !bytes.Contains(body, []byte("poison")) {
						return shop.RoundTrip(r)
					}
					if test.fails == nil {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					return (&script{shop: test.fails}).RoundTrip(r)
				})
				journal := open(t, t.TempDir(), shopOf(t, transport, client.Options{}))
				const good, bad = 20, 100
				for i := range good + bad {
					item := "poison"
					if i < good {
						item = fmt.Sprint("item ", i)
					}
					must.OK(t, journal.Put(t.Context(), client.NewDraft(item, 1)))
				}
				began, left := time.Now(), good
				for range test.calls {
					ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(test.limit, time.Hour))
					for entry, err := range journal.Resume(ctx) {
						if err != nil {
							continue
						}
						must.OK(t, entry.Remove())
						if left--; left == 0 && test.limit == 0 {
							break
						}
					}
					cancel()
				}
				if n := len(store.Orders()); n != good || left > 0 || time.Since(began) > 5*time.Minute {
					t.Errorf("after %d calls and %v, %d of %d are orders, and %d have not come", test.calls,
						time.Since(began), n, good, left)
				}
			})
		})
	}
}

// TestResumeYieldsWhatFailsInTheEnd, once, and with its lock.
func TestResumeYieldsWhatFailsInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal := open(t, t.TempDir(), shopOf(t, &script{shop: says(500, "")}, client.Options{}))
		must.OK(t, journal.Put(t.Context(), client.NewDraft("teapot", 2)))
		began, n := time.Now(), 0
		for entry, err := range journal.Resume(t.Context()) {
			unknown, ok := errors.AsType[*client.UnknownError](err)
			if n++; !ok || !strings.Contains(unknown.Last, "500") || entry.Remove() != nil {
				t.Errorf("Resume yields %v, %v", entry, err)
			}
		}
		if took := time.Since(began); n != 1 || took < 12*time.Hour || took > 13*time.Hour {
			t.Errorf("Resume yields %d entries within %v", n, took)
		}
	})
}

// TestForeignFilesStay has what is no entry between two that are.
func TestForeignFilesStay(t *testing.T) {
	dir := t.TempDir()
	shop, _ := newScript()
	journal := open(t, dir, shopOf(t, shop, client.Options{}))
	for _, item := range []string{"a", "b"} {
		must.OK(t, journal.Put(t.Context(), client.NewDraft(item, 1)))
	}
	entries, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	entry, name := files(t, dir)[0], filepath.Base(entries[0])
	other := func(letter string) string { return strings.Repeat(letter, 32) + ".jsonl" }
	foreign := map[string]string{"a.jsonl": "{}\n", "README": "of others", "empty.jsonl": "",
		"._" + name: "\x00\x05\x16\x07", "copy.jsonl": entry, other("0"): entry,
		other("1"): "{\"order\":{\"id\":\"ord_1\"}}\n", other("2"): strings.Replace(entry, `"key":"`, `"key":"é`, 1)}
	for name, data := range foreign {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600))
	}
	odd := []string{other("4"), other("5"), other("6"), other("7")}
	at := func(name string) string { return filepath.Join(dir, name) }
	must.OK(t, os.Mkdir(at(odd[0]), 0o700))
	must.OK(t, os.Symlink("nowhere", at(odd[1])))
	must.OK(t, exec.Command("mkfifo", at(odd[2])).Run())
	must.OK(t, os.WriteFile(at(odd[3]), nil, 0o600))
	must.OK(t, os.Truncate(at(odd[3]), 1<<40))
	said, sent := 0, 0
	for entry, err := range journal.Resume(t.Context()) {
		if entry == nil {
			said++
			continue
		}
		must.OK(t, err)
		sent++
	}
	if said != len(foreign)-1+len(odd) || sent != 2 {
		t.Errorf("Resume yields %d orders, and says of %d files that they are no entries", sent, said)
	}
	for name, data := range foreign {
		if got, err := os.ReadFile(at(name)); string(got) != data {
			t.Errorf("%s has become %q (%v)", name, got, err)
		}
	}
	for _, name := range odd {
		must.Get(os.Lstat(at(name)))(t)
	}
}

// What a later release, or a candidate, wrote in another form stays as it is.
func TestEntryOfAnotherReleaseIsRefused(t *testing.T) {
	const order = `{"order":{"id":"ord_1","item":"teapot","qty":2,"created_at":"2026-11-20T20:52:11Z"}}` + "\n"
	const refused = `{"refused":{"type":"urn:problem-type:storefront:order-refused","title":"No","status":422}}` + "\n"
	for _, row := range []struct {
		old, new, more, says string
	}{
		{"", "", `{"parcel":"7"}` + "\n", "a later release"},
		{"", "", strings.Replace(order, `"id"`, `"notes":{},"id"`, 1), "a later release"},
		{"", "", strings.Replace(refused, `"status"`, `"until":1,"status"`, 1), "a later release"},
		{"", "", order[:len(order)-2] + `,"note":1}` + "\n", "a later release"},
		{`"version":1,"shop":`, `"version":2,"shop":7,"shops":`, "", "a later release"},
		{`"account"`, `"region":"eu","account"`, "", "a later release"},
		{`"version":1,"key"`, `"version":2,"key"`, "", "a later release"},
		{`"version":1,"shop":"http://shop.test/base","account":"",`, "", "", "candidates"},
		{`"version":1,"key"`, `"key"`, "", "candidates"},
		{`"account":"",`, "", "", "no entry"}, {`"shop":"http://shop.test/base",`, "", "", "no entry"},
		{"", "", "{}\n", "no entry"}, {"", "", "?\n", "no entry"}, {"", "", order + order[:9] + "\n", "no entry"},
	} {
		dir := t.TempDir()
		shop, _ := newScript()
		journal := open(t, dir, shopOf(t, shop, client.Options{}))
		draft := draftFrom(t, kept())
		must.OK(t, journal.Put(t.Context(), draft))
		file := must.Get(filepath.Glob(filepath.Join(dir, "*")))(t)[0]
		content := strings.Replace(files(t, dir)[0], row.old, row.new, 1) + row.more
		must.OK(t, os.WriteFile(file, []byte(content), 0o600))
		for entry, err := range journal.Resume(t.Context()) {
			if entry != nil || err == nil || !strings.Contains(err.Error(), row.says) ||
				!strings.Contains(err.Error(), file) {
				t.Errorf("Resume yields %v, %v for %s", entry, err, content)
			}
		}
		_, err := journal.Order(t.Context(), draft)
		for _, err := range []error{err, journal.Put(t.Context(), draft), journal.Remove(t.Context(), draft)} {
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%v for %s", err, content)
			}
		}
		if after := files(t, dir)[0]; after != content || len(shop.sent) > 0 {
			t.Errorf("%s has become %s, with %d requests", content, after, len(shop.sent))
		}
	}
}

// TestFolderIsMovedAway and copied back while a draft is being sent, or is in the hands of a program.
func TestFolderIsMovedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "drafts")
		move := func() {
			must.OK(t, os.Rename(dir, dir+".old"))
			must.OK(t, os.CopyFS(dir, os.DirFS(dir+".old")))
			must.OK(t, os.RemoveAll(dir+".old"))
		}
		shop, store := newScript(func(w http.ResponseWriter, r *http.Request) {
			move()
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		journal := open(t, dir, shopOf(t, shop, client.Options{}))
		draft := client.NewDraft("teapot", 2)
		_, err := journal.Order(t.Context(), draft)
		if _, ok := errors.AsType[*client.UnknownError](err); !ok || len(shop.sent) != 1 {
			t.Errorf("Order returned %v, with %d requests; others cannot see that it sends the draft", err, len(shop.sent))
		}
		shop.answers = []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			move()
			shop.shop.ServeHTTP(w, r)
		}}
		order, err := journal.Order(t.Context(), draft)
		if order.ID == "" || err == nil || draftOf(err) != nil {
			t.Errorf("Order returned %v, %v, want an order that the journal does not have", order, err)
		}
		for entry, err := range journal.Resume(t.Context()) {
			if err != nil || entry.Order.ID != order.ID {
				t.Errorf("Resume yields %v, %v", entry, err)
			}
			move()
			if err := entry.Remove(); err == nil || len(files(t, dir)) != 1 {
				t.Errorf("Remove returned %v, and the folder that another process sees has %q", err, files(t, dir))
			}
		}
		if n := len(store.Orders()); n != 1 {
			t.Errorf("the shop has %d orders, want 1", n)
		}
	})
}

// In the loop of Resume, a program calls the entry: the journal would wait for its own loop. Behind the loop, it
// calls the journal, as the entry may be another's.
func TestEntryIsOfItsLoop(t *testing.T) {
	shop, _ := newScript()
	dir, ctx := t.TempDir(), t.Context()
	journal := open(t, dir, shopOf(t, shop, client.Options{}))
	must.OK(t, journal.Put(ctx, client.NewDraft("teapot", 2)))
	var kept *client.Entry
	for entry, err := range journal.Resume(ctx) {
		must.OK(t, err)
		kept = entry
		_, err := journal.Order(ctx, entry.Draft)
		for _, err := range []error{err, journal.Put(ctx, entry.Draft), journal.Remove(ctx, entry.Draft)} {
			if err == nil || !strings.Contains(err.Error(), "Entry.Remove") {
				t.Errorf("in the loop: %v", err)
			}
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := journal.Order(ended, draftFrom(t, text(t, entry.Draft))); !errors.Is(err, context.Canceled) {
			t.Errorf("in the loop, another Draft of the key does not wait: %v", err)
		}
	}
	if err := kept.Remove(); err == nil || len(files(t, dir)) != 1 {
		t.Errorf("behind the loop, Remove returned %v and left the files %q", err, files(t, dir))
	}
	must.OK(t, journal.Remove(ctx, kept.Draft))
}

func TestKeyHasOneOrder(t *testing.T) {
	shop, _ := newScript()
	journal := open(t, t.TempDir(), shopOf(t, shop, client.Options{}))
	draft := client.NewDraft("teapot", 2)
	other := draftFrom(t, text(t, draft), `2}"`, `2,\"fields\":{}}"`)
	must.OK(t, journal.Put(t.Context(), draft))
	if _, err := journal.Order(t.Context(), other); err == nil || len(shop.sent) > 0 {
		t.Errorf("Order of another draft with the key returned %v", err)
	}
}

// FuzzEntry has a file of the name of an entry. What is no entry of the journal's stays as it is, and of what
// is one, the last whole draft is sent as it stands.
func FuzzEntry(f *testing.F) {
	const first = `{"version":1,"shop":"http://shop.test/base","account":"","draft":`
	f.Add(first + strings.TrimSpace(kept()) + "}\n{\"refused\":{}}\n{\"draft\":")
	f.Add(first + strings.TrimSpace(kept("begun", "1")) + `,"order":{"id":"ord_1"}}` + "\n")
	f.Fuzz(func(t *testing.T, content string) {
		dir := t.TempDir()
		file := filepath.Join(dir, "G9AC6AD9518FDL9PRKRMUI0MTOJM8KBT.jsonl") // of the key k
		must.OK(t, os.WriteFile(file, []byte(content), 0o600))
		var sent []byte
		ctx, cancel := context.WithCancel(t.Context())
		shop := &script{shop: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent, _ = io.ReadAll(r.Body)
			cancel()
		})}
		whole := content[:strings.LastIndex(content, "\n")+1]
		for entry, err := range open(t, dir, shopOf(t, shop, client.Options{})).Resume(ctx) {
			after := files(t, dir)[0]
			switch {
			case entry == nil && (err == nil || after != content):
				t.Errorf("%q is none with %v, and has become %q", content, err, after)
			case entry != nil && (!strings.HasPrefix(after, whole) || entry.Draft.Key() != "k"):
				t.Errorf("%q has become %q", content, after)
			}
		}
		if len(sent) > 0 {
			var line struct{ Draft struct{ Body string } }
			for text := range strings.Lines(whole) {
				json.Unmarshal([]byte(text), &line)
			}
			if line.Draft.Body != string(sent) {
				t.Errorf("of %q, it sends %q", content, sent)
			}
		}
	})
}
