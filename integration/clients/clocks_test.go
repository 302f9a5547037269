package clients

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/must"
)

// isMarked reports whether the entry of a name says that it is not sent any more, as a clock was wrong.
func isMarked(t *testing.T, dir, url, name string) bool {
	t.Helper()
	entry := struct{ Begun float64 }{-1}
	must.OK(t, json.Unmarshal(must.Get(os.ReadFile(entryFile(dir, url, "", name)))(t), &entry))
	return entry.Begun == 0
}

// dated answers with the Date of some hours from now, or with a text as the Date.
func dated(hours any, then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		date, ok := hours.(string)
		if !ok {
			date = time.Now().Add(time.Duration(hours.(float64) * float64(time.Hour))).UTC().Format(http.TimeFormat)
		}
		w.Header()["Date"] = []string{date}
		then(w, r)
	}
}

// The Date of an answer to an order shows that the clock here is wrong. Then no later process sends the draft.
func TestDateShowsThatTheClockIsWrong(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, dir := newFolderShop(t), t.TempDir()
		service := storefront.New(&shop.store)
		r := l.start(t, shop.URL, "JOURNAL="+dir, oneTry)
		for name, c := range map[string]struct {
			date   any
			answer http.HandlerFunc
			wrong  bool
		}{
			"ahead": {1.1, answers(503, ""), true}, "behind": {-1.1, answers(503, ""), true}, "blocked": {30.0, answers(401, ""), true},
			"refused": {1.1, refused, true}, "nearly": {0.9, answers(503, ""), false},
			"no date": {"$(date)", refused, false},
		} {
			shop.answers(dated(c.date, c.answer))
			failed := order(t, r, name)
			if says := strings.Contains(failed, "a clock was wrong"); says != (c.wrong && name != "refused") {
				t.Errorf("%s: it says %s", name, failed)
			}
			if marked := isMarked(t, dir, shop.URL, name); marked != c.wrong {
				t.Errorf("%s: it is marked: %v", name, marked)
			}
			shop.answers(service.ServeHTTP)
			before := shop.requests.Load()
			failed = order(t, r, name)
			if sent := shop.requests.Load() > before; sent == c.wrong || (failed == "") == c.wrong {
				t.Errorf("%s: then it is sent: %v, and it says %s", name, sent, failed)
			}
		}
	})
}

// The call that has seen that the clock is wrong goes on, and the mark is on the disk when it is killed.
func TestCallGoesOnWhenTheClockIsWrong(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, dir := newFolderShop(t), t.TempDir()
		service := storefront.New(&shop.store)
		var marked [3]atomic.Bool
		shop.answers(func(w http.ResponseWriter, r *http.Request) {
			n := shop.requests.Load()
			marked[n-1].Store(isMarked(t, dir, shop.URL, "teapot"))
			if n < 3 {
				dated(2.0, answers(503, ""))(w, r)
				return
			}
			dated(2.0, service.ServeHTTP)(w, r)
		})
		r := l.start(t, shop.URL, "JOURNAL="+dir)
		id, failed := orderID(t, r, outcome{Item: "teapot", Qty: 2})
		again, _ := orderID(t, r, outcome{Item: "teapot"})
		if id == "" || again != id || shop.requests.Load() != 3 {
			t.Errorf("the order is %q, and then %q: %s", id, again, failed)
		}
		if marked[0].Load() || !marked[1].Load() || !marked[2].Load() {
			t.Error("it is not marked after the first answer")
		}
	})
}

// A clock that was not set since the machine was started says nothing of the age of a draft, which waits.
func TestClockIsFarBehind(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, dir := newFolderShop(t), t.TempDir()
		order(t, l.start(t, shop.URL, "JOURNAL="+dir, oneTry), "kept")
		entries := func() int { return len(must.Get(filepath.Glob(filepath.Join(dir, "*.json")))(t)) }
		shop.answers(storefront.New(&shop.store).ServeHTTP)
		r := l.start(t, shop.URL, "JOURNAL="+dir, oneTry, "CLOCK=100")
		for _, name := range []string{"kept", "new"} {
			failed := order(t, r, name)
			if !strings.HasPrefix(failed, "Unknown") ||
				!strings.Contains(failed, "clock of this machine is wrong (1970-01-01T00:01:40") {
				t.Errorf("%s: %s", name, failed)
			}
		}
		if entries() != 1 || shop.requests.Load() != 1 {
			t.Errorf("there are %d entries, and %d requests", entries(), shop.requests.Load())
		}
		if failed := order(t, l.start(t, shop.URL, "JOURNAL="+dir, oneTry), "kept"); failed != "" {
			t.Errorf("once the clock is right: %s", failed)
		}
	})
}
