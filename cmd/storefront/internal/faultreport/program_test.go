package faultreport

import (
	"errors"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/faults"
)

// asking returns a process without a program, whose lines come from a channel.
func asking() (*process, task) {
	s := New(7, new(storefront.MemStore))
	p := &process{client: s.newClient("a program"), dice: faults.NewDice(7, "", faults.Minutes),
		input: struct {
			io.Writer
			io.Closer
		}{Writer: io.Discard}, lines: make(chan []byte, 10)}
	p.shop = s.open(p.client, faults.Lists(), p.dice, p.assign)
	return p, task{kind: conformance.Orders, fault: &faults.Fault{Name: "nothing is wrong"}}
}

func TestProcessThatDoesNotAnswerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, order := asking()
		began := time.Now()
		if err := p.do(t.Context(), order); err != nil || !p.stuck {
			t.Errorf("it returns %v, and the process is stuck: %t", err, p.stuck)
		}
		if waited := time.Since(began); waited < conformance.LongestTry || waited > 4*time.Minute {
			t.Errorf("it has waited for %v", waited)
		}
		if c := p.calls[0]; len(c.Results) != 1 || !c.Results[0].Stuck {
			t.Errorf("the results are %v", c.Results)
		}
	})
}

func TestLinesOfAProcess(t *testing.T) {
	for _, row := range []struct{ lines, err string }{
		{`{"item":"teapot 0","qty":2,"id":"ord_1"}`, ""},
		{`{"item":"teapot 0","error":"queued"}`, ""},
		{`{"item":"teapot 0"}`, ""}, // as JavaScript writes an ID that is undefined
		{"", "the program ended (exit status 0) when it was asked for"},
		{`{"item":"teapot 0","qty":3,"id":"ord_1"}`, "for which it was not asked"},
		{`{"list":"users","ids":[]}`, "for which it was not asked"},
		{"\n" + `{"item":"teapot 0","id":"ord_1"}`, "which is no outcome"},
		{`{"item":"teapot 0","id":"ord_1"}{}`, "which is no outcome"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, order := asking()
			p.ended = errors.New("exit status 0")
			for line := range strings.SplitSeq(row.lines, "\n") {
				if row.lines != "" {
					p.lines <- []byte(line)
				}
			}
			close(p.lines)
			err := p.do(t.Context(), order)
			if (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
				t.Errorf("%s: %v, want %q", row.lines, err, row.err)
			}
		})
	}
}

// An order that was left to a queue may end while the process does something else.
func TestOrderThatEndsLaterIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, order := asking()
		p.lines <- []byte(`{"item":"teapot 0","error":"queued"}`)
		first := p.do(t.Context(), order)
		p.lines <- []byte(`{"item":"teapot 0","id":"ord_1"}`)
		p.lines <- []byte(`{"item":"teapot 1","id":"ord_2"}`)
		order.number = 1
		p.client.rounds[order.kind] = &round{rest: []*faults.Fault{order.fault}}
		second := p.do(t.Context(), order)
		if r := p.calls[0].Results; first != nil || second != nil || len(r) != 2 || r[1].ID != "ord_1" {
			t.Errorf("%v, %v, and the results of the first are %v", first, second, r)
		}
	})
}

func TestListChangesBetweenTwoWalks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, walk := asking()
		walk.kind, walk.fault.Name = conformance.Users, faults.TwoWalks
		for range 2 {
			p.lines <- []byte(`{"list":"users","ids":[]}`)
		}
		if err := p.do(t.Context(), walk); err != nil || len(p.calls) != 2 ||
			slices.Equal(p.calls[0].Items, p.calls[1].Items) {
			t.Errorf("%v, and %d walks through lists that must not be the same", err, len(p.calls))
		}
	})
}

// What a process orders is found by its item, whatever it is asked for.
func TestLateRequestBelongsToItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, order := asking()
		p.lines <- []byte(`{"item":"teapot 0","error":"queued"}`)
		p.lines <- []byte(`{"list":"users","ids":[]}`)
		for _, kind := range []conformance.Kind{conformance.Orders, conformance.Users} {
			order.kind = kind
			if err := p.do(t.Context(), order); err != nil {
				t.Fatal(err)
			}
		}
		r := httptest.NewRequest("POST", "/v1/orders", strings.NewReader(`{"item":"teapot 0","qty":2}`))
		p.shop.ServeHTTP(httptest.NewRecorder(), r)
		if n := len(p.calls[0].Exchanges); n != 1 {
			t.Errorf("%d requests are the order's, want 1", n)
		}
	})
}
