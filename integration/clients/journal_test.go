package clients

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/must"
)

// steps are what a journal does before the first try of an order, and after its answer.
const steps = "flush\nrename\nflush\n"

// A moment is one at which a client is killed.
type moment struct {
	request int // that has created its order
	step    int // of the open journal that would come next
}

// Each of 2 orders is created once, and the client learns which it is, whenever it is killed.
func TestJournalOutlivesItsProcess(t *testing.T) {
	// What it does, started again, before its first request: what was found may not be on the disk.
	moments := map[moment]string{{}: "", {request: 2}: "flush\nflush\n", {step: 2}: steps, {step: 3}: "flush\n",
		{step: 5}: "flush\n", {step: 6}: "flush\n" + steps}
	inLanguages(t, func(t *testing.T, l language) {
		for m, then := range moments {
			t.Run(fmt.Sprintf("%+v", m), func(t *testing.T) {
				t.Parallel()
				killAt(t, l, m, then)
			})
		}
	})
}

func killAt(t *testing.T, l language, m moment, then string) {
	var store storefront.MemStore
	service := storefront.New(&store)
	dir := t.TempDir()
	env := []string{"JOURNAL=" + filepath.Join(dir, "journal"), "STEPS=" + filepath.Join(dir, "steps")}
	done := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "steps")) // none at first
		return string(text)
	}
	var first atomic.Pointer[runner] // the one that is killed
	var sent atomic.Int64
	var again atomic.Pointer[string] // what has to be done at the first request of the next
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		requests := int(sent.Add(1))
		if m.step == 0 && (m.request == 0 || requests <= m.request) {
			if got, want := done(), l.opening+strings.Repeat(steps, 2*requests-1); got != want {
				t.Errorf("before order %d is sent, the journal has done %q, want %q", requests, got, want)
			}
		}
		if want := again.Swap(nil); want != nil && done() != *want {
			t.Errorf("started again, before it sends, the journal has done %q, want %q", done(), *want)
		}
		if requests != m.request {
			service.ServeHTTP(w, req)
			return
		}
		service.ServeHTTP(httptest.NewRecorder(), req)
		first.Load().kill()
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()

	var r *runner
	items, ids := []string{"a", "Ä /.lock"}, map[string]string{}
	order := func() error {
		for _, item := range items {
			got, _, err := r.ask(outcome{Item: item, Qty: 2})
			if err != nil {
				return err
			}
			if got.Error != "" {
				t.Errorf("%s: %s", item, got.Error)
			}
			ids[item] = got.ID
		}
		return nil
	}
	kill := 0
	if m.step > 0 {
		kill = strings.Count(l.opening, "\n") + m.step
	}
	r = l.start(t, server.URL, append(env, "KILL="+strconv.Itoa(kill))...)
	first.Store(r)
	err := order()
	if killed := m != (moment{}); killed != (err != nil) {
		t.Fatalf("killed at %+v, it ends with %v", m, err)
	}
	if err == nil {
		if got, want := done(), l.opening+strings.Repeat(steps, 2*len(items)); got != want {
			t.Errorf("in the end, the journal has done %q, want %q", got, want)
		}
	}

	again.Store(new(done() + l.opening + then))
	r = l.start(t, server.URL, env...)
	want := []string(nil)
	if m.request > 0 || m.step >= 3 && m.step <= 5 { // between the draft's rename and the order's
		want = []string{items[max(0, m.request-1)]}
	}
	pending, _, err := r.ask(outcome{List: "pending"})
	if err != nil || !slices.Equal(pending.IDs, want) {
		t.Errorf("started again, its journal has the drafts %q, want %q (%v)", pending.IDs, want, err)
	}
	if err := order(); err != nil {
		t.Fatal(err)
	}
	created := store.Orders()
	if len(created) != len(items) {
		t.Errorf("of %d orders, %d were created", len(items), len(created))
	}
	for _, o := range created {
		if ids[o.Item] != o.ID {
			t.Errorf("it believes that the order of %s is %s; it is %s", o.Item, ids[o.Item], o.ID)
		}
	}
}

// What ended with an error is gone on with by the next process, with the same key. Only the
// process itself knows that no earlier try can have created an order.
func TestJournalGoesOnAfterErrors(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		s := &clientShop{first: []http.HandlerFunc{answers(401, htmlPage), refused}}
		s.service = storefront.New(&s.store)
		shop, dir := newFolderShop(t), t.TempDir()
		shop.answers(s.ServeHTTP)
		for _, want := range []string{"Blocked:", "Unknown:", ""} {
			r := l.start(t, shop.URL, "JOURNAL="+dir)
			if _, failed := orderID(t, r, outcome{Item: "teapot", Qty: 2}); !strings.HasPrefix(failed, want) ||
				(failed == "") != (want == "") {
				t.Errorf("a process ends with %q, want %q", failed, want)
			}
			if got := pending(t, r); (len(got) == 1) != (want != "") {
				t.Errorf("after %q, it has the drafts %q", want, got)
			}
		}
		if checkTries(t, s, true); len(s.store.Orders()) != 1 {
			t.Errorf("there are %v", s.store.Orders())
		}
	})
}

// A draft that was refused is not sent any more once it is too old, or if a clock was wrong. That it has no
// order is known for ever.
func TestRefusalOutlivesItsDraft(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, dir := newFolderShop(t), t.TempDir()
		shop.answers(problem(422, `order-refused","reason":"sold-out`))
		r := l.start(t, shop.URL, "JOURNAL="+dir, oneTry)
		order(t, r, "teapot")
		file := entryFile(dir, shop.URL, "", "teapot")
		now := float64(time.Now().Unix())
		for name, times := range map[string]map[string]any{
			"too old":    {"made": now - 24*3600, "begun": now - 24*3600},
			"from ahead": {"made": now + 7200, "begun": now + 7200},
			"doubted":    {"begun": 0},
		} {
			entry := changedEntry(t, string(must.Get(os.ReadFile(file))(t)), times)
			must.OK(t, os.WriteFile(file, []byte(entry), 0o600))
			failed := order(t, r, "teapot")
			if !strings.HasPrefix(failed, "Refused: ") || !strings.Contains(failed, "sold-out") {
				t.Errorf("%s: it says %s", name, failed)
			}
			if got := string(must.Get(os.ReadFile(file))(t)); got != entry || len(pending(t, r)) > 0 {
				t.Errorf("%s: the entry has become %s", name, got)
			}
		}
		if n := shop.requests.Load(); n != 1 {
			t.Errorf("it sends %d requests", n)
		}
	})
}

// Processes with one journal place each order once, and one goes on where another was killed.
func TestJournalOfSeveralProcesses(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		var store storefront.MemStore
		service := storefront.New(&store)
		var mu sync.Mutex
		sending, held, killed := map[string]int{}, "", false
		arrived := make(chan bool)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get("Idempotency-Key")
			mu.Lock()
			sending[key]++
			n := sending[key]
			if held == "" {
				held = key
				close(arrived)
			}
			hold := key == held && !killed
			mu.Unlock()
			if n > 1 {
				t.Errorf("the draft with the key %s is sent by two processes at the same time", key)
			}
			if hold { // it does not reach the service, also if it is tried again after its time limit
				io.Copy(io.Discard, r.Body) // after which the server sees that the client has gone
				<-r.Context().Done()
				mu.Lock()
				if !killed {
					sending[key]--
				}
				mu.Unlock()
				return
			}
			time.Sleep(20 * time.Millisecond) // in which another may come
			service.ServeHTTP(w, r)
			mu.Lock()
			sending[key]--
			mu.Unlock()
		}))
		defer server.Close()

		journal := "JOURNAL=" + t.TempDir()
		victim := l.start(t, server.URL, journal)
		io.WriteString(victim.in, `{"item":"held","qty":2}`+"\n")
		<-arrived
		items := []string{"held", "a", "b", "c", "d"}
		var ids [2]map[string]string
		var wg sync.WaitGroup
		for i := range ids {
			r := l.start(t, server.URL, journal)
			ids[i] = make(map[string]string)
			mine := slices.Concat(items[1:], items[:1]) // the one that is held comes last
			wg.Go(func() {
				for _, item := range mine {
					got, _, err := r.ask(outcome{Item: item, Qty: 2})
					if err != nil || got.ID == "" {
						t.Errorf("process %d: %+v, %v", i, got, err)
					}
					ids[i][item] = got.ID
					if item == "d" && i == 0 {
						mu.Lock()
						killed, sending[held] = true, 0
						mu.Unlock()
						victim.kill()
					}
				}
			})
		}
		wg.Wait()
		created := store.Orders()
		if len(created) != len(items) || len(sending) != len(items) {
			t.Errorf("of %d orders, %d were created, with %d keys", len(items), len(created), len(sending))
		}
		for _, o := range created {
			for i := range ids {
				if ids[i][o.Item] != o.ID {
					t.Errorf("process %d believes that the order of %s is %s; it is %s", i, o.Item, ids[i][o.Item], o.ID)
				}
			}
		}
	})
}
