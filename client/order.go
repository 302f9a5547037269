package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/ijson"
)

// A RefusedError says that the service has refused a request, and why. If it was an order, nothing
// was created by any try of this [Draft]: it can be dropped, or sent again later if the reason may
// have gone, such as an item that is sold out. A try of another Draft with the same text may still be
// on its way, unless a [Journal] keeps them. It matches [storefront.ErrNotFound] if there is no
// such product or order, and [errors.ErrUnsupported] if the shop does not let orders be read.
type RefusedError struct {
	Problem storefront.Problem
	Draft   *Draft // nil: it was a read
}

func (e *RefusedError) Error() string {
	text := e.Problem.Detail
	for _, f := range e.Problem.Errors {
		if where := f.Pointer + f.Parameter + f.Header; where != "" && f.Detail != "" {
			text += fmt.Sprintf(" %s: %s", where, f.Detail)
		}
	}
	verb := "refused"
	if e.Is(errors.ErrUnsupported) {
		verb = "does not serve"
	}
	return fmt.Sprintf("client: the shop %s %s (%s): %s", verb, request(e.Draft),
		strings.TrimPrefix(e.Problem.Type, problemPrefix), strings.TrimSpace(text))
}

// Is reports whether target is what e matches.
func (e *RefusedError) Is(target error) bool {
	switch strings.TrimPrefix(e.Problem.Type, problemPrefix) {
	case "product-not-found", "order-not-found":
		return target == storefront.ErrNotFound
	case "not-found", "method-not-allowed":
		return target == errors.ErrUnsupported && e.Draft == nil
	}
	return false
}

// A BlockedError says that something between client and service, such as a proxy or a page to sign in, has
// answered, or has changed what was sent or answered, and that the same request would get the same answer. An
// order may exist all the same: put right what the answer says, and go on with the same draft.
type BlockedError struct {
	Status int
	Header http.Header
	Body   string // up to 1,000 bytes of it
	Draft  *Draft // nil: it was a read

	changed *storefront.Problem // what the service said to a request that was right when it was sent
}

func (e *BlockedError) Error() string {
	text := fmt.Sprintf("not the service but something before it answered %s: %d %s", request(e.Draft), e.Status,
		http.StatusText(e.Status))
	coding := e.Header.Get("Content-Encoding")
	switch {
	case e.changed != nil:
		text = fmt.Sprintf("something in front of the service has changed %s, and the service answered %d %s: %s",
			request(e.Draft), e.Status, strings.TrimPrefix(e.changed.Type, problemPrefix), e.changed.Detail)
	case coding != "":
		text += fmt.Sprintf(" with the content coding %q", coding)
	}
	text = "client: " + text + mayExist(e.Draft)
	if e.Draft != nil && e.Draft.isDoubted() {
		text += "; " + errWrongClock.Error()
	}
	return text
}

func blocked(a answer, draft *Draft) *BlockedError {
	body := strings.ToValidUTF8(string(a.body[:min(len(a.body), 1000)]), "\uFFFD")
	return &BlockedError{Status: a.status, Header: a.header, Body: body, Draft: draft}
}

// An UnknownError says that tries ended without a final answer. An order may exist, or still come
// to exist, unless no try was sent. Keep the draft, and go on with it later. If the draft is older
// than [Lifetime], or Err says that a clock was wrong, only the shop can say whether there is an order.
type UnknownError struct {
	Err   error  // why the tries ended, such as the context's error
	Last  string // answer, for people; "" if no try was sent
	Draft *Draft // nil: it was a read
	// Refused is what the service said if it has refused the last try. An earlier try may still be
	// on its way, and be taken. Another call with the draft does not settle that. To give the order
	// up, ask the shop whether it exists, as [Client.GetOrderByKey] says.
	Refused *storefront.Problem

	again bool          // the next try may have a final answer
	after time.Duration // before it, the shop says
}

func (e *UnknownError) Error() string {
	text := fmt.Sprintf("client: %s has no final answer%s: %v", request(e.Draft), mayExist(e.Draft), e.Err)
	if e.Last != "" {
		text += " (the last try: " + e.Last + ")"
	}
	return text
}

// Unwrap returns e.Err.
func (e *UnknownError) Unwrap() error { return e.Err }

func request(draft *Draft) string {
	if draft == nil {
		return "the request"
	}
	return fmt.Sprintf("the order of %d %q", draft.qty, draft.item)
}

func mayExist(draft *Draft) string {
	if draft == nil {
		return ""
	}
	return ", and the order may exist"
}

const (
	longestRetryAfter = time.Hour
	changedTries      = 4 // tries of a request that was cut or changed on its way
)

// Order sends a draft until an answer is final, and returns the order that was created: by this
// call, or by an earlier one with the same draft. It goes on for Options.Patience, as long as ctx
// is not done and the draft is not older than [Lifetime].
//
// The error is a [*RefusedError], a [*BlockedError] or an [*UnknownError]. It has the draft.
func (c *Client) Order(ctx context.Context, draft *Draft) (storefront.Order, error) {
	return c.order(ctx, draft, false, func() error { return nil }, func([]byte) error { return nil })
}

// order is Order. With once, it returns after one answer, unless the request was changed on its way. held is
// called right before each try, which is not sent if it returns an error, and mark with the text of a draft
// once it is clear that a clock was wrong, and no later process may send it.
func (c *Client) order(ctx context.Context, draft *Draft, once bool, held func() error,
	mark func(text []byte) error) (storefront.Order, error) {
	if err := draft.check(); err != nil {
		return storefront.Order{}, err
	}
	limited, cancel := context.WithTimeout(ctx, c.opts.Patience)
	defer cancel()

	var last answer
	unknown := func(err error) *UnknownError {
		if draft.isDoubted() && err != errWrongClock {
			err = fmt.Errorf("%w; %w", err, errWrongClock)
		}
		e := &UnknownError{Err: err, Draft: draft}
		if last.status != 0 || last.err != nil {
			e.Last = last.String()
		}
		return e
	}
	var pauses pauses
	for changes := 0; ; {
		if limited.Err() != nil {
			return storefront.Order{}, unknown(c.ended(ctx))
		}
		var stop error // why no more tries are sent
		a := c.try(limited, "/v1/orders", draft, func(r *http.Request) error {
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Idempotency-Key", draft.key)
			r.GetBody = nil // each try is one that this loop knows of
			if stop = held(); stop == nil {
				stop = draft.begin()
			}
			return stop
		})
		if stop == nil {
			last = a
			if order, ok := last.order(draft); ok {
				return order, nil
			}
		}
		if last.wrongClock || stop == errWrongClock {
			if text := draft.doubt(); text != nil { // now, as the program may be killed
				if err := mark(text); err != nil {
					return storefront.Order{}, unknown(err)
				}
			}
		}
		if stop != nil {
			return storefront.Order{}, unknown(stop)
		}
		problem, ofService := last.problem()
		cut := false // the request is right: it was changed on its way
		switch {
		case last.repeatable(), last.status == http.StatusCreated && !last.coded():
		case last.status/100 == 4 && ofService:
			// The order that has the key may be what something on the way has made of this try.
			surely := problem.Type != problemPrefix+"idempotency-key-reused" && draft.refused()
			changed := changed(problem, false)
			changes++
			if cut = (changed || problem.Type == problemPrefix+"malformed-body") && changes < changedTries; cut {
				break
			}
			if changed {
				e := blocked(last, draft)
				e.changed = &problem
				return storefront.Order{}, e
			}
			if surely {
				return storefront.Order{}, &RefusedError{Problem: problem, Draft: draft}
			}
			e := unknown(fmt.Errorf("the service refused a try, and may still take an earlier one: %s",
				problem.Detail))
			e.Refused = &problem
			return storefront.Order{}, e
		default:
			return storefront.Order{}, blocked(last, draft)
		}
		c.opts.Logger.InfoContext(ctx, "storefront client: an order is tried again", "answer", last.String())
		if once && !cut {
			e := unknown(c.ended(ctx))
			e.again, e.after = ctx.Err() == nil, min(last.retryAfter(), longestRetryAfter)
			return storefront.Order{}, e
		}
		if pauses.wait(limited, last.retryAfter(), longestRetryAfter) != nil {
			return storefront.Order{}, unknown(c.ended(ctx))
		}
	}
}

// ended returns why an order is tried no more: ctx is done, or Patience is over.
func (c *Client) ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return done(ctx)
	}
	return fmt.Errorf("no answer was final for %v", c.opts.Patience)
}

// order returns the order of a draft, if the answer says that it was created. What says so of
// another order, such as the answer that a cache has kept, does not.
func (a *answer) order(draft *Draft) (storefront.Order, bool) {
	var order storefront.Order
	if a.status != http.StatusCreated || a.err != nil || ijson.Unmarshal(a.body, &order) != nil ||
		order.ID == "" || order.Item != draft.item || order.Qty != draft.qty ||
		ijson.Sum([]byte(order.Fields)) != ijson.Sum([]byte(draft.fields)) {
		return storefront.Order{}, false
	}
	return order, true
}
