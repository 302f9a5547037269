package clienttest

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/faults"
)

// A suite is a run.
type suite struct {
	newClient func(*testing.T, Service) Client
	pace      faults.Pace
	seed      uint64
	broken    func(check string) // is told of each failure, which then is none; nil: the test fails
	kinds     []conformance.Kind // nil: all

	places  chan struct{}  // of meetings at the same time
	client  reflect.Type   // of the clients
	told    map[string]int // how often a story was told, by check
	missing []string       // names of optional methods' types
}

// bubble is whether each fault has a bubble of its own.
func (s *suite) bubble() bool { return s.pace == faults.Days }

// A chapter is what a run checks of one kind.
type chapter struct {
	kind     conformance.Kind
	needs    reflect.Type
	what     string // is not checked without the methods
	meetings []*meeting
}

func run(t *testing.T, s *suite) {
	t.Helper()
	s.told = make(map[string]int)
	s.places = make(chan struct{}, 48)
	chapters := []*chapter{
		{kind: conformance.Orders, needs: reflect.TypeFor[Client]()},
		{kind: conformance.Users, needs: reflect.TypeFor[Lister](), what: "walks through users"},
		{kind: conformance.Widgets, needs: reflect.TypeFor[Lister](), what: "walks through widgets"},
		{kind: conformance.Products, needs: reflect.TypeFor[ProductGetter](), what: "products"},
	}
	for _, c := range chapters {
		for _, f := range faults.Of(c.kind, s.pace) {
			c.meetings = append(c.meetings, &meeting{suite: s, kind: c.kind, fault: f})
		}
	}
	s.look(t, *chapters[0].meetings[0])
	if s.kinds != nil {
		chapters = slices.DeleteFunc(chapters,
			func(c *chapter) bool { return !slices.Contains(s.kinds, c.kind) })
	}
	defer func() {
		for _, c := range chapters {
			for _, m := range c.meetings {
				m.wait()
			}
		}
	}()
	for i, c := range chapters {
		// In real time, all faults are met at the same time, once the client has shown that it can do
		// without any. These clients may outlive the subtest.
		start := func() { s.startAll(t, chapters[i:]) }
		t.Run(string(c.kind), func(t *testing.T) {
			s.need(t, c.needs, c.what)
			s.check(t, c, start)
		})
	}
	if s.missing != nil && !testing.Verbose() {
		// Package testing shows nothing of a test that passes.
		fmt.Fprintf(os.Stdout, "%s has left unchecked what needs methods that the client lacks (go test -v "+
			"names them): %s\n", t.Name(), strings.Join(s.missing, ", "))
	}
}

// look finds out which methods the clients have.
func (s *suite) look(t *testing.T, m meeting) {
	t.Helper()
	look := func(t *testing.T) {
		m.open(t)
		s.client = reflect.TypeOf(m.visits[0].client)
		m.close()
	}
	if s.bubble() {
		synctest.Test(t, look)
	} else {
		look(t)
	}
}

func (s *suite) startAll(t *testing.T, chapters []*chapter) {
	if s.bubble() {
		return
	}
	for _, c := range chapters {
		for _, m := range c.meetings {
			if s.client.Implements(c.needs) && m.over == nil {
				m.start(t)
			}
		}
	}
}

// check has the clients meet the faults of a chapter, and judges them.
func (s *suite) check(t *testing.T, c *chapter, started func()) {
	calm := true
	var calls []*conformance.Call
	for i, m := range c.meetings {
		if i == 1 {
			started()
		}
		t.Run(m.fault.Name, func(t *testing.T) {
			m.hold(t)
			calm = s.judge(t, c.kind, m.calls, false) || !m.fault.None()
		})
		if !calm {
			t.Log("The other faults were not tried, as the client fails where nothing is wrong.")
			return
		}
		calls = append(calls, m.calls...)
	}
	if len(calls) > 1 {
		s.judge(t, c.kind, calls, true)
	}
	if c.kind == conformance.Orders {
		t.Run("ResumeOrder", func(t *testing.T) {
			s.need(t, reflect.TypeFor[Resumer](), "that a client can go on with an order, with the same "+
				"key, when a password, a URL or the stock was put right")
		})
	}
}

// judge makes a subtest of each check that the calls have met, and reports whether all pass.
func (s *suite) judge(t *testing.T, kind conformance.Kind, calls []*conformance.Call, together bool) bool {
	right := true
	for _, check := range conformance.Checks(kind) {
		if check.Together() != together {
			continue
		}
		met, violations := check.Judge(calls)
		right = right && violations == nil
		switch {
		case s.broken != nil:
			if violations != nil {
				s.broken(check.Name)
			}
		case met || violations != nil:
			t.Run(check.Name, func(t *testing.T) {
				if violations != nil {
					t.Error(s.explain(check, violations[0]))
				}
			})
		}
	}
	return right
}

// explain says what a client did wrong. Of the stories, which are long, two are enough.
func (s *suite) explain(check *conformance.Check, v conformance.Violation) string {
	text := fmt.Sprintf("%s\nThe broken promise (%v): %s", v.Text, check.Weight, check.Promise)
	if s.told[check.Name]++; s.told[check.Name] > 2 {
		return text
	}
	return fmt.Sprintf("%s\nWhat happens to a shop otherwise: %s\nWhat was sent, with the fault %q and "+
		"-clienttest.seed=%d:\n%s",
		text, check.Harm, v.Call.Fault, s.seed, strings.TrimRight(v.Call.Story(), "\n"))
}

// need skips the test if the client has not got methods.
func (s *suite) need(t *testing.T, methods reflect.Type, what string) {
	if s.client.Implements(methods) {
		return
	}
	text := fmt.Sprintf("Not checked: %s. To have it checked, give the client that newClient returns the "+
		"methods of clienttest.%s:", what, methods.Name())
	for m := range methods.Methods() {
		text += fmt.Sprintf("\n\t%s%s", m.Name, strings.TrimPrefix(m.Type.String(), "func"))
		if has, ok := s.client.MethodByName(m.Name); ok {
			text += fmt.Sprintf(" (%v has one with this name: %v)", s.client, has.Type)
		}
	}
	if !slices.Contains(s.missing, methods.Name()) {
		s.missing = append(s.missing, methods.Name())
	}
	t.Skip(text)
}
