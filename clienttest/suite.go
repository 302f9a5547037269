package clienttest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/conformance/drive"
)

// A suite is a run.
type suite struct {
	drive.Run
	newClient func(*testing.T, Service) Client // nil: the clients are processes
	places    int                              // of meetings at the same time, in real time
	broken    func(check string)               // gets each failure; nil: the test fails
	leftOut   func(*drive.Meeting) bool        // nil: none is

	t       *testing.T    // that of the clients which are made
	able    *drive.Client // to say what the clients can do
	missing []string      // what they lack
}

// A chapter is what a run checks of one kind.
type chapter struct {
	kind     conformance.Kind
	what     string // is not checked without
	methods  string // the type that has them
	ability  string // of a program
	meetings []*drive.Meeting
}

func run(t *testing.T, s *suite) {
	t.Helper()
	s.Chance = fmt.Sprint("-clienttest.seed=", s.Seed)
	if s.newClient != nil {
		s.New = s.goClient
	}
	chapters := []*chapter{
		{kind: conformance.Orders},
		{conformance.Fields, "orders with fields", "FieldsCreator", "fields", nil},
		{conformance.Users, "walks through users", "Lister", "lists", nil},
		{conformance.Widgets, "walks through widgets", "Lister", "lists", nil},
		{conformance.Products, "products", "ProductGetter", "products", nil},
		{conformance.History, "walks through the own orders", "HistoryLister", "history", nil},
		{conformance.Lookups, "looks for an order by its key", "OrderFinder", "find", nil},
	}
	for _, c := range chapters {
		c.meetings = s.Meetings(c.kind)
		if s.leftOut != nil {
			c.meetings = slices.DeleteFunc(c.meetings, s.leftOut)
		}
	}
	chapters = slices.DeleteFunc(chapters, func(c *chapter) bool { return len(c.meetings) == 0 })
	s.look(t)
	s.t = t
	defer func() {
		for _, c := range chapters {
			for _, m := range c.meetings {
				m.Wait()
			}
		}
	}()
	for i, c := range chapters {
		// In real time, all faults are met at the same time, once the client has shown that it can do
		// without any. These clients may outlive the subtest.
		start := func() { s.beginAll(chapters[i:]) }
		t.Run(string(c.kind), func(t *testing.T) {
			s.need(t, s.able.Can(c.kind), c.what, c.methods, c.ability)
			s.check(t, c, start)
		})
	}
	if s.missing != nil && !testing.Verbose() {
		// Package testing shows nothing of a test that passes.
		fmt.Fprintf(os.Stdout, "%s has left unchecked what the client cannot do (go test -v says what it "+
			"lacks): %s\n", t.Name(), strings.Join(s.missing, ", "))
	}
}

// goClient returns a client of a Go program.
func (s *suite) goClient(url string, way http.RoundTripper) *drive.Client {
	client := s.newClient(s.t, Service{url, way})
	if client == nil {
		s.t.Fatal("newClient returned nil.")
	}
	c := &drive.Client{CreateOrder: client.CreateOrder}
	if r, ok := client.(Resumer); ok {
		c.ResumeOrder = r.ResumeOrder
	}
	if p, ok := client.(Patient); ok {
		c.Patience = p.Patience()
	}
	if f, ok := client.(FieldsCreator); ok {
		c.CreateOrderWithFields = f.CreateOrderWithFields
	}
	if h, ok := client.(HistoryLister); ok {
		c.ListOrders = h.ListOrders
	}
	if f, ok := client.(OrderFinder); ok {
		c.FindOrder = f.FindOrder
	}
	if l, ok := client.(Lister); ok {
		c.ListUsers, c.ListWidgets = l.ListUsers, l.ListWidgets
	}
	if p, ok := client.(ProductGetter); ok {
		c.GetProduct = p.GetProduct
	}
	return c
}

// look finds out what the clients can do.
func (s *suite) look(t *testing.T) {
	t.Helper()
	look := func(t *testing.T) {
		s.t = t
		m := s.Meetings(conformance.Orders)[0]
		m.Open()
		s.able = m.Client()
		m.Close()
	}
	if s.Bubble() {
		synctest.Test(t, look)
	} else {
		look(t)
	}
}

// beginAll begins all meetings of some chapters, in real time.
func (s *suite) beginAll(chapters []*chapter) {
	if s.Bubble() {
		return
	}
	var all []*drive.Meeting
	for _, c := range chapters {
		if s.able.Can(c.kind) {
			all = append(all, c.meetings...)
		}
	}
	s.Begin(context.Background(), s.places, all...)
}

// hold returns when a meeting is over.
func (s *suite) hold(t *testing.T, m *drive.Meeting) {
	if s.Bubble() {
		synctest.Test(t, func(t *testing.T) {
			s.t = t
			m.Open()
			m.Hold(context.Background())
		})
		return
	}
	s.Begin(context.Background(), s.places, m)
	m.Wait()
}

// check has the clients meet the faults of a chapter, and judges them.
func (s *suite) check(t *testing.T, c *chapter, started func()) {
	calm := true
	var calls []*conformance.Call
	for i, m := range c.meetings {
		if i == 1 {
			started()
		}
		t.Run(m.Fault.Name, func(t *testing.T) {
			s.hold(t, m)
			if m.Err != nil {
				calm = calm && !m.Fault.None()
				t.Fatal(m.Err)
			}
			calls = append(calls, m.Calls...)
			calm = s.judge(t, c.kind, m.Calls, false) || !m.Fault.None()
		})
		if !calm {
			t.Log("The other faults were not tried, as the client fails where nothing is wrong.")
			return
		}
	}
	if len(calls) > 1 {
		s.judge(t, c.kind, calls, true)
	}
	if c.kind == conformance.Orders {
		t.Run("ResumeOrder", func(t *testing.T) {
			s.need(t, s.able.ResumeOrder != nil, "that a client can go on with an order, with the same "+
				"key, when a password, a URL or the stock was put right", "Resumer", "resume")
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
					t.Error(s.Explain(check, violations[0]))
				}
			})
		}
	}
	return right
}

// need skips the test if the client cannot do something, and says what it lacks.
func (s *suite) need(t *testing.T, able bool, what, methods, ability string) {
	if able {
		return
	}
	lacks := ability
	text := fmt.Sprintf("Not checked: %s. The program does not say that it can %q.", what, ability)
	if s.newClient != nil {
		lacks = methods
		text = fmt.Sprintf("Not checked: %s. To have it checked, give the client that newClient returns the "+
			"methods of clienttest.%s.", what, methods)
	}
	if !slices.Contains(s.missing, lacks) {
		s.missing = append(s.missing, lacks)
	}
	t.Skip(text)
}
