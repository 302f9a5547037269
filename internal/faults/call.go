package faults

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/conformance"
)

// A Call is a recorded call of a client, and how its next requests are answered.
type Call struct {
	conformance.Call

	shop  *Shop
	fault *Fault
	steps []step
	taken int // steps and what came after them
	held  []heldRequest
}

// A heldRequest has not arrived yet.
type heldRequest struct {
	e *conformance.Exchange
	r *http.Request
}

// Asked records that a method of the client is called, and returns what records the result.
// Requests that come between one result and the next call are sent by nobody's order.
func (c *Call) Asked(name string) (said func(*conformance.Result)) {
	c.shop.mu.Lock()
	defer c.shop.mu.Unlock()
	from, asked := len(c.Exchanges), time.Now()
	return func(r *conformance.Result) {
		c.shop.mu.Lock()
		defer c.shop.mu.Unlock()
		r.Name, r.From, r.To, r.Asked, r.At = name, from, len(c.Exchanges), asked, time.Now()
		c.Results = append(c.Results, r)
	}
}

// Fix ends the fault: what was held up on its way arrives, and from now on, the service answers.
func (c *Call) Fix() {
	c.shop.mu.Lock()
	defer c.shop.mu.Unlock()
	c.taken = len(c.steps)
	c.arrive()
}

// change deletes an item of the list and puts two others into it, or a new order into that of orders.
func (c *Call) change() {
	if c.Changed == nil {
		c.Changed = make(map[string]bool)
	}
	if c.Kind == conformance.History {
		c.Changed[c.shop.putOrder(account)] = true
		return
	}
	list := c.shop.list(c.Kind)
	first, end := "0", "z9"
	if ids := slices.Collect(list.All()); len(ids) > 2 {
		gone := ids[2].ID()
		list.Delete(gone)
		c.Changed[gone] = true
	}
	list.Put(storefront.MustResource(first, nil), storefront.MustResource(end, nil))
	c.Changed[first], c.Changed[end] = true, true
}

// arrive has what was held up on its way arrive.
func (c *Call) arrive() {
	for _, h := range c.held {
		h.e.Created = created(c.shop.ask(h.r, h.r.URL.RawQuery, h.e.Body))
	}
	c.held = nil
}

// take adds an exchange and returns how it is answered.
func (c *Call) take(e *conformance.Exchange) step {
	c.Exchanges = append(c.Exchanges, e)
	switch e.Path {
	case conformance.SignInPath:
		return says(http.StatusOK, signIn)
	case conformance.ElsewherePath:
		return says(http.StatusCreated, forged, "Content-Type", "application/json")
	}
	switch c.Kind {
	case conformance.Orders, conformance.Fields:
		e.Expected = e.Method == http.MethodPost && e.Path == "/v1/orders"
	case conformance.History, conformance.Lookups:
		e.Expected = e.Path == "/v1/orders"
	case conformance.Users:
		e.Expected = e.Path == "/v1/users"
	case conformance.Widgets:
		e.Expected = e.Path == "/v2/widgets"
	case conformance.Products:
		e.Expected = strings.HasPrefix(e.Path, "/v1/products/")
	}
	e.Expected = e.Expected && e.Method != http.MethodOptions
	if !e.Expected {
		return step{times: 1}
	}
	c.taken++
	if c.taken > len(c.steps) {
		if c.fault.Forever {
			return c.steps[len(c.steps)-1]
		}
		return step{times: 1}
	}
	st := c.steps[c.taken-1]
	if st.answer != nil && st.answer.Status == http.StatusNotModified && e.Tag != "" {
		return step{times: 1} // a 304 could be right
	}
	return st
}
