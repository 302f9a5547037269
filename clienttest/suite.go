package clienttest

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"example.com/storefront/internal/trouble"
)

// A suite is a run.
type suite struct {
	newClient func(*testing.T, Service) Client
	pace      trouble.Pace
	seed      uint64
	broken    func(check string) // is told of each failure, which then is none; nil: the test fails

	told    map[string]int // how often a story was told, by check
	missing []string       // the names of optional methods' types
}

// bubble is whether each trouble has a bubble of its own.
func (s *suite) bubble() bool { return s.pace == trouble.Days }

func run(t *testing.T, s *suite) {
	t.Helper()
	s.told = make(map[string]int)
	for _, kind := range []trouble.Kind{trouble.Orders, trouble.Users, trouble.Widgets, trouble.Products} {
		t.Run(string(kind), func(t *testing.T) { s.kind(t, kind) })
	}
	if s.missing != nil && !testing.Verbose() {
		// Package testing shows nothing of a test that passes.
		fmt.Fprintf(os.Stdout, "%s has left unchecked what needs optional methods, which the client lacks (go test -v names them): %s\n", t.Name(), strings.Join(s.missing, ", "))
	}
}

// kind checks what a client does of a kind.
func (s *suite) kind(t *testing.T, kind trouble.Kind) {
	switch kind {
	case trouble.Users, trouble.Widgets:
		s.need(t, reflect.TypeFor[Lister](), "walks through lists")
	case trouble.Products:
		s.need(t, reflect.TypeFor[ProductGetter](), "products")
	}
	troubles := trouble.Troubles(kind, s.pace)
	meetings := make([]*meeting, len(troubles))
	for i, tr := range troubles {
		meetings[i] = &meeting{suite: s, kind: kind, trouble: tr}
	}
	calm := true
	var calls []*trouble.Call
	for i, m := range meetings {
		if i == 1 && !s.bubble() {
			for _, m := range meetings[1:] { // they wait at the same time
				m.start(t)
			}
		}
		t.Run(m.trouble.Name, func(t *testing.T) {
			m.hold(t)
			faults := s.judge(t, kind, m.calls, false)
			calm = calm && (!m.trouble.Calm() || faults == 0)
		})
		if !calm {
			t.Log("The other troubles were not tried, as the client fails where nothing is wrong.")
			return
		}
		calls = append(calls, m.calls...)
	}
	t.Run("all together", func(t *testing.T) { s.judge(t, kind, calls, true) })
	if kind == trouble.Orders {
		t.Run("order after a final answer", func(t *testing.T) {
			s.need(t, reflect.TypeFor[Resumer](), "that the client can go on with an order when a password, a URL or the stock was put right")
		})
	}
}

// judge makes a subtest of each check that the calls have met, and returns the number of
// those that fail.
func (s *suite) judge(t *testing.T, kind trouble.Kind, calls []*trouble.Call, together bool) (failed int) {
	for _, check := range trouble.Checks(kind) {
		if check.Together() != together {
			continue
		}
		met, faults := check.Judge(calls)
		if !met && faults == nil {
			continue
		}
		if faults != nil {
			failed++
		}
		if s.broken != nil {
			if faults != nil {
				s.broken(check.Name)
			}
			continue
		}
		t.Run(check.Name, func(t *testing.T) {
			if faults != nil {
				t.Error(s.explain(check, faults[0]))
			}
		})
	}
	return failed
}

// explain says what a client did wrong. Of the stories, which are long, two are enough.
func (s *suite) explain(check *trouble.Check, fault trouble.Fault) string {
	s.told[check.Name]++
	text := fault.Text + "\nThe broken promise: " + check.Promise
	if s.told[check.Name] > 2 {
		return text
	}
	return fmt.Sprintf("%s\nWhat happens to a shop otherwise: %s\nWhat was sent, with the trouble %q and -clienttest.seed=%d:\n%s",
		text, check.Shop, fault.Call.Trouble.Name, s.seed, strings.TrimRight(fault.Call.Story(), "\n"))
}

// need skips the test if the client has not got optional methods.
func (s *suite) need(t *testing.T, methods reflect.Type, what string) {
	var client reflect.Type
	look := func(t *testing.T) {
		m := &meeting{suite: s, kind: trouble.Orders, trouble: trouble.Troubles(trouble.Orders, s.pace)[0]}
		m.open(t)
		client = reflect.TypeOf(m.visits[0].client)
		m.close()
	}
	if s.bubble() {
		synctest.Test(t, look)
	} else {
		look(t)
	}
	if client.Implements(methods) {
		return
	}
	text := fmt.Sprintf("Not checked: %s. To have it checked, give the client that newClient returns the methods of clienttest.%s:", what, methods.Name())
	for m := range methods.Methods() {
		text += fmt.Sprintf("\n\t%s%s", m.Name, strings.TrimPrefix(m.Type.String(), "func"))
		if has, ok := client.MethodByName(m.Name); ok {
			text += fmt.Sprintf(" (%v has one with this name: %v)", client, has.Type)
		}
	}
	if !slices.Contains(s.missing, methods.Name()) {
		s.missing = append(s.missing, methods.Name())
	}
	t.Skip(text)
}
