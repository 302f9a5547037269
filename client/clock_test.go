package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront/client"
	"example.com/storefront/internal/must"
)

// A draft from ahead seems to be new when its time has come. Whoever has seen it once does not send it then.
func TestDraftFromAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop, _ := newScript()
		c, dir := shopOf(t, shop, client.Options{}), t.TempDir()
		for _, times := range [][]string{{"made", at(-30 * time.Hour)}, {"begun", at(-90 * time.Hour)},
			{"made", at(-150 * time.Hour), "begun", at(0)}} {
			journal, draft := open(t, dir, c), draftFrom(t, kept(times...))
			must.OK(t, journal.Put(t.Context(), draftFrom(t, kept(times...))))
			for range 2 {
				_, ofClient := c.Order(t.Context(), draft)
				_, ofJournal := journal.Order(t.Context(), draft)
				for _, err := range []error{resumed(t, journal), ofClient, ofJournal} {
					unknown, ok := errors.AsType[*client.UnknownError](err)
					if !ok || unknown.Draft.Key() != "k" || !strings.Contains(err.Error(), "by its key") {
						t.Errorf("%v: %v", times, err)
					}
				}
				if entry := fmt.Sprint(files(t, dir)); !strings.Contains(text(t, draft), `"begun":0}`) ||
					strings.Count(entry, `"begun":0}`) != 1 {
					t.Errorf("%v: it is kept as %s and %s", times, text(t, draft), entry)
				}
				time.Sleep(31 * time.Hour)
				journal = open(t, dir, c)
			}
			must.OK(t, journal.Remove(t.Context(), draft))
		}
		if len(shop.sent) > 0 {
			t.Errorf("%d tries were sent", len(shop.sent))
		}
	})
}

// A draft that a journal alone has, and has not sent, has no age, whatever the clock said when it was made.
func TestDraftFromAheadThatWasNeverSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop, store := newScript(says(503, ""))
		c, dir := shopOf(t, shop, client.Options{}), t.TempDir()
		must.OK(t, open(t, dir, c).Put(t.Context(), client.NewDraft("teapot", 2)))
		file := must.Get(filepath.Glob(filepath.Join(dir, "*")))(t)[0]
		entry := strings.Replace(files(t, dir)[0], `"made":9466`, `"made":9476`, 1) // 11 days later
		must.OK(t, os.WriteFile(file, []byte(entry), 0o600))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		for range open(t, dir, c).Resume(ctx) {
		}
		if err := resumed(t, open(t, dir, c)); err != nil || len(store.Orders()) != 1 || len(shop.sent) != 2 {
			t.Errorf("Resume yields %v after %d tries", err, len(shop.sent))
		}
	})
}

// A clock that was not set since the machine was started says nothing of the age of a draft, which waits.
func TestClockIsFarBehind(t *testing.T) {
	shop, store := newScript()
	c, dir := shopOf(t, shop, client.Options{}), t.TempDir()
	journal := open(t, dir, c)
	must.OK(t, journal.Put(t.Context(), client.NewDraft("put", 1)))
	must.OK(t, journal.Put(t.Context(), draftFrom(t, kept())))
	before := fmt.Sprint(files(t, dir))
	t.Run("behind", func(t *testing.T) {
		client.SetEarliest(t, time.Now().Add(time.Hour))
		_, ofText := c.Order(t.Context(), draftFrom(t, kept()))
		_, ofClient := c.Order(t.Context(), client.NewDraft("new", 1))
		_, ofJournal := journal.Order(t.Context(), client.NewDraft("new", 1))
		_, asText := client.NewDraft("new", 1).MarshalText()
		errs := []error{ofText, ofClient, ofJournal, asText}
		for _, err := range journal.Resume(t.Context()) {
			errs = append(errs, err)
		}
		for _, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "the clock of this machine is wrong") ||
				strings.Contains(err.Error(), "remove") {
				t.Error(err)
			}
		}
		if after := fmt.Sprint(files(t, dir)); len(errs) != 6 || len(shop.sent) > 0 || after != before {
			t.Errorf("%d errors, %d tries, and the folder has %s, want %s", len(errs), len(shop.sent), after, before)
		}
	})
	if got := resume(t, journal); len(got) != 2 || len(store.Orders()) != 2 {
		t.Errorf("once the clock is right, Resume yields %v", got)
	}
}

// The Date of an answer to an order shows that the clock here is wrong. Then no later process sends the draft.
func TestDateShowsThatTheClockIsWrong(t *testing.T) {
	for _, row := range []struct {
		status int
		date   any // hours ahead, or what is no date
		wrong  bool
	}{
		{503, 1.1, true}, {503, -1.1, true}, {401, 30.0, true}, {201, -1e6, true}, {422, 1.1, true},
		{503, 0.9, false}, {401, -0.9, false}, {503, "yesterday", false}, {422, "", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			shop, _ := newScript()
			c, draft := shopOf(t, shop, client.Options{}), client.NewDraft("teapot", 2)
			ctx, cancel := context.WithCancel(t.Context())
			shop.answers = []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
				cancel()
				w.Header()["Date"] = []string{dateOf(row.date)}
				if row.status == 422 {
					problem(422, "order-refused")(w, r)
				} else {
					w.WriteHeader(row.status)
				}
			}}
			_, err := c.Order(ctx, draft)
			if says := strings.Contains(fmt.Sprint(err), "do not keep it"); says != (row.wrong && row.status != 422) {
				t.Errorf("%+v: Order returned %v", row, err)
			}
			if marked := strings.Contains(text(t, draft), `"begun":0}`); marked != row.wrong {
				t.Errorf("%+v: Order leaves %s", row, text(t, draft))
			}
			shop.sent = nil
			_, err = c.Order(t.Context(), draftFrom(t, text(t, draft)))
			if (err != nil) != row.wrong || (len(shop.sent) > 0) == row.wrong {
				t.Errorf("%+v: then, Order returned %v after %d tries", row, err, len(shop.sent))
			}
		})
	}
}

func dateOf(date any) string {
	if hours, ok := date.(float64); ok {
		return time.Now().Add(time.Duration(hours * float64(time.Hour))).UTC().Format(http.TimeFormat)
	}
	return date.(string)
}

// The call that has seen that the clock is wrong goes on by one that is not set, and the mark is on the disk when
// its program is killed.
func TestCallGoesOnWhenTheClockIsWrong(t *testing.T) {
	for name, order := range map[string]func(*testing.T, *client.Journal, *client.Draft) error{
		"Order": func(t *testing.T, j *client.Journal, d *client.Draft) error {
			_, err := j.Order(t.Context(), d)
			return err
		},
		"Resume": func(t *testing.T, j *client.Journal, d *client.Draft) error {
			must.OK(t, j.Put(t.Context(), d))
			return resumed(t, j)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			var before, kept string
			shop, store := newScript(func(w http.ResponseWriter, r *http.Request) {
				before = fmt.Sprint(files(t, dir))
				says(503, "", "Date", dateOf(30.0))(w, r)
			}, lost, says(503, "", "Date", dateOf(0.0)), func(w http.ResponseWriter, r *http.Request) {
				kept = fmt.Sprint(files(t, dir))
				says(503, "", "Retry-After", "3600")(w, r)
			})
			journal := open(t, dir, shopOf(t, shop, client.Options{}))
			if err := order(t, journal, client.NewDraft("teapot", 2)); err != nil || len(shop.sent) != 5 {
				t.Errorf("%s: %v after %d tries", name, err, len(shop.sent))
			}
			if strings.Contains(before, `"begun":0}`) || strings.Count(kept, `"begun":0}`) != 1 {
				t.Errorf("%s: it is kept as %s, and then %s", name, before, kept)
			}
			got := fmt.Sprint(resume(t, journal))
			if got != "map[teapot:ord_ <nil>]" || len(shop.sent) != 5 || len(store.Orders()) != 1 {
				t.Errorf("%s: then Resume yields %v", name, got)
			}
		})
	}
}
