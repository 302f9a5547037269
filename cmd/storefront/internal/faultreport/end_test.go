package faultreport

import (
	"context"
	"encoding/xml"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/storefront/internal/conformance"
)

func TestRunEndsOnceAllIsSettled(t *testing.T) {
	all := func(reports bool) func(w *world, b *buyer) {
		return func(_ *world, b *buyer) {
			b.reports = reports
			b.orders(ofARound())
		}
	}
	for _, row := range []struct {
		name   string
		does   func(w *world, b *buyer)
		ends   time.Duration // at most so long afterwards
		status int
		says   string
	}{
		{"it does all and reports it", all(true), quiet, 0, `\A18 passed\nb: orders \(`},
		{"it reports nothing", all(false), quiet, 3, `\A14 passed, 4 not judged: report your outcomes, by ` +
			`.*\n.*\n  not judged: success, silence, takes-order, right-id\n\z`},
		{"it stops early", func(_ *world, b *buyer) { b.orders(3) }, 3 * time.Minute, 3,
			fmt.Sprintf("; %d of %d faults were not met; 3 have no outcome\n  not met: comes-back, try-limit, ",
				ofARound()-3, ofARound())},
		{"it goes on after a pause", func(_ *world, b *buyer) {
			b.order("the first")
			time.Sleep(conformance.Patience)
			all(true)(nil, b)
		}, quiet, 3, "; 1 have no outcome"},
		{"it reads first pages alone", func(w *world, b *buyer) {
			for range 3 * len(newClient(7).aRound(conformance.Users)) {
				b.send("GET", "/v1/users", nil)
			}
		}, quiet, 1, "wrong data: failed whole-list in walk through users "},
		{"it takes a key for each try", func(_ *world, b *buyer) {
			b.keyPerTry = true
			all(true)(nil, b)
		}, quiet, 1, "\nsecond order: failed agreement in order "},
	} {
		t.Run(row.name, func(t *testing.T) {
			inWorld(t, func(w *world, b *buyer) {
				ended := make(chan time.Time)
				go func() {
					w.shop.Wait(w.t.Context())
					ended <- time.Now()
				}()
				row.does(w, b)
				did := time.Now()
				if waited := (<-ended).Sub(did); waited < 0 || waited > row.ends+time.Second {
					t.Errorf("it ends after %v, want %v", waited, row.ends)
				}
				if status := w.shop.Status(); status != row.status {
					t.Errorf("the status is %d, want %d", status, row.status)
				}
				text := w.shop.Summary()
				if !regexp.MustCompile(row.says).MatchString(text) {
					t.Errorf("%s is not in\n%s", row.says, text)
				}
			})
		})
	}
}

func TestRunWithoutAClientEndsWithItsContext(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Hour)
		defer cancel()
		if w.shop.Wait(ctx); ctx.Err() == nil {
			t.Error("it ends")
		}
		if status := w.shop.Status(); status != 3 {
			t.Errorf("the status is %d, want 3", status)
		}
	})
}

func TestHeaviestFailuresComeFirstAndEachStoryOnce(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		b.keyPerTry, b.pause = true, func(time.Duration) time.Duration { return 0 }
		b.reports = true
		b.http.CheckRedirect = nil
		b.orders(ofARound())
		text := w.shop.Summary()
		was := 0
		for i, weight := range []string{"lost order", "second order", "rude"} {
			at := strings.Index(text, "\n"+weight+": failed ")
			if at < was {
				t.Errorf("%d: %s comes at %d, after %d", i, weight, at, was)
			}
			was = at
		}
		told := make(map[string]int)
		for _, story := range regexp.MustCompile(`(?m)^    0\.000 s  1\..*`).FindAllString(text, -1) {
			if told[story]++; told[story] > 1 {
				t.Errorf("it tells twice %s", story)
			}
		}
	})
}

func TestFileForCIHasEachVerdict(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		b.keyPerTry, b.agent = true, "a <client>\u009b"
		b.orders(ofARound())
		var all testSuites
		if err := xml.Unmarshal(w.shop.JUnit(), &all); err != nil || len(all.Suites) != 1 {
			t.Fatalf("%d suites: %v", len(all.Suites), err)
		}
		suite, failed, skipped := all.Suites[0], 0, 0
		for _, c := range suite.Cases {
			if c.Failure != nil && strings.Contains(c.Failure.Text, "POST /v1/orders") {
				failed++
			}
			if c.Skipped != nil {
				skipped++
			}
		}
		if suite.Name != "a <client>\ufffd: orders" ||
			suite.Tests != len(conformance.Checks(conformance.Orders))-1 ||
			failed != len(w.failed("a <client>\ufffd", conformance.Orders)) || suite.Failures != failed ||
			suite.Skipped != skipped || skipped < 4 {
			t.Errorf("%q has %d tests, %d failures, %d skipped; want %d and %d", suite.Name, suite.Tests,
				suite.Failures, suite.Skipped, failed, skipped)
		}
	})
}
