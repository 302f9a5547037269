package storefront

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
	"unicode"

	"example.com/storefront/internal/ijson"
	"example.com/storefront/internal/must"
)

// newOrderRequest returns a request with all that an order needs. The length of a
// body that is not a strings.Reader is not declared.
func newOrderRequest(key string, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/orders", body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	return r
}

// refusingOrders returns a handler whose store must not be given any order.
func refusingOrders(t *testing.T) http.Handler {
	create := func(_ context.Context, key IdempotencyKey, order Order) (Order, error) {
		t.Errorf("the store was given %+v with the key %q", order, key.Value)
		return Order{}, errors.New("not expected")
	}
	return New(&stubStore{createOrder: create})
}

// storing returns a handler that accepts every order, and the last one that its store was given. The store
// returns it with another time zone.
func storing() (http.Handler, *Order) {
	given := new(Order)
	create := func(_ context.Context, _ IdempotencyKey, order Order) (Order, error) {
		*given = order
		order.CreatedAt = order.CreatedAt.In(time.FixedZone("", -9*60*60))
		return order, nil
	}
	return New(&stubStore{createOrder: create}), given
}

func TestOrderChecksComeInOrder(t *testing.T) {
	h := New(new(MemStore))
	postOrder(h, "k", teapots)
	r := httptest.NewRequest(http.MethodPut, "/v1/orders?x", nil)
	r.Header.Set("If-Match", "*")
	r.ContentLength = maxOrderBody + 1
	body := strings.Repeat("junk", maxOrderBody)
	for _, step := range []struct {
		mend   func()
		status int
		code   string
	}{
		{func() {}, 405, "method-not-allowed"},
		{func() { r.Method = http.MethodPost }, 400, "invalid-query"},
		{func() { r.URL.RawQuery = "" }, 415, "unsupported-media-type"},
		{func() { r.Header.Set("Content-Type", "application/json") }, 400, "idempotency-key-missing"},
		{func() { r.Header.Set("Idempotency-Key", "k,") }, 400, "idempotency-key-invalid"},
		{func() { r.Header.Set("Idempotency-Key", "k") }, 413, "body-too-large"}, // as declared
		{func() { r.ContentLength = -1 }, 412, "precondition-failed"},
		{func() { r.Header.Set("If-Match", "") }, 413, "body-too-large"},
		{func() { body = `{"item":null,"qty":1,"qty":1}` }, 400, "malformed-body"},
		{func() { body = `{"item":"kettle","qty":0}` }, 422, "invalid-order"},
		{func() { body = `{"item":"kettle","qty":1}` }, 422, "idempotency-key-reused"},
		{func() { r.Header.Set("Idempotency-Key", "free") }, 201, ""},
	} {
		step.mend()
		r.Body = io.NopCloser(strings.NewReader(body))
		if step.code == "" {
			do(h, r).wantStatus(t, step.status)
		} else {
			do(h, r).wantProblem(t, step.status, step.code)
		}
	}
}

func TestOrderBody(t *testing.T) {
	exact := teapots + strings.Repeat(" ", 64<<10-len(teapots))
	reading := func(text string) io.Reader { return strings.NewReader(text) }
	then := func(err error) io.Reader { return io.MultiReader(reading(teapots), iotest.ErrReader(err)) }
	unread := readerFunc(func([]byte) (int, error) {
		t.Error("the body was read")
		return 0, io.EOF
	})
	endless := readerFunc(func(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte(" "), len(p))), nil })
	const created, malformed, tooLarge, late = "", "malformed-body", "body-too-large", "request-timeout"
	size := int64(len(teapots))
	for _, row := range []struct {
		name     string
		body     io.Reader
		declared int64
		status   int
		code     string
	}{
		{"a byte too much, declared, which is not read", unread, 64<<10 + 1, 413, tooLarge},
		{"a byte too much, not declared", reading(exact + " "), -1, 413, tooLarge},
		{"without end", endless, -1, 413, tooLarge},
		{"64 KiB, declared", reading(exact), 64 << 10, 201, created},
		{"none", nil, 0, 400, malformed},
		{"read by a middleware", reading(""), size, 400, malformed},
		{"fails midway, declared", then(io.ErrUnexpectedEOF), 100, 400, malformed},
		{"fails for a reason of its own", then(errors.New("secret reason")), -1, 400, malformed},
		{"does not arrive in time", then(os.ErrDeadlineExceeded), 100, 408, late},
		{"arrives late, wrapped", then(&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}), -1, 408, late},
		{"cut by an outer limit", then(&http.MaxBytesError{Limit: 1000}), 100, 413, tooLarge},
		{"in pieces", iotest.OneByteReader(reading(teapots)), size, 201, created},
		{"whose last bytes come with the EOF", iotest.DataErrReader(reading(teapots)), -1, 201, created},
		// Middleware that decodes a body often leaves the length as it was, and
		// http.NewRequest leaves it 0.
		{"declared as empty", reading(teapots), 0, 201, created},
		{"declared as shorter", reading(teapots), 5, 201, created},
		{"declared as shorter, with junk behind that", reading(teapots + "junk"), size, 400, malformed},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newOrderRequest("k", row.body)
			r.ContentLength = row.declared
			if row.body == nil {
				r.Body = nil
			}
			if row.code == created {
				do(New(new(MemStore)), r).wantStatus(t, row.status)
				return
			}
			got := do(refusingOrders(t), r)
			got.wantProblem(t, row.status, row.code)
			if strings.Contains(got.body, "secret") || strings.Contains(got.body, "EOF") ||
				(row.name == "read by a middleware") != strings.Contains(got.body, "around the service") {
				t.Errorf("the problem has the text of the error, or does not say what has read the body: %s", got.body)
			}
			if own := row.declared != 100; row.code == tooLarge && own != strings.Contains(got.body, "65536") {
				t.Errorf("the problem names a limit that is not the one: %s", got.body)
			}
		})
	}
}

// A length is quickly declared, and what it promises may never come.
func TestDeclaredLengthTakesNoMemory(t *testing.T) {
	first := 0
	body := readerFunc(func(b []byte) (int, error) {
		if first == 0 { // then the rest would be dropped
			first = len(b)
		}
		return 0, io.ErrUnexpectedEOF
	})
	r := newOrderRequest("k", body)
	r.ContentLength = maxOrderBody
	do(New(new(MemStore)), r).wantProblem(t, 400, "malformed-body")
	if first == 0 || first > 4<<10 {
		t.Errorf("there is room for %d bytes before any has come", first)
	}
}

// orderBodies are accepted, wrong and malformed bodies. FuzzOrderBody knows which.
func orderBodies() []string {
	bodies := []string{
		"", `{"item":"teapot`, teapots + teapots, "{\"item\":\"\xff\",\"qty\":2}",
		`{"qty":2,"note":[0,{"a":["\udfff"]}]}`, `{"item":"teapot","\u0069tem":"kettle","qty":2}`,
		`{"a/b~ %é":1,"a\/b~ %\u00e9":2}`, strings.Repeat("[", 1001) + strings.Repeat("]", 1001),
		strings.Repeat("[", 1000) + strings.Repeat("]", 1000), `null`, `true`, `"teapot"`, `[]`,
		`[` + teapots + `]`, `{}`, `{"qty":2}`, `{"item":"teapot"}`, `{"item":1}`,
		`{"ITEM":"teapot","qty":2}`, `{"Item":"teapot","Qty":2}`, `{"":1,"item":"teapot","qty":2}`,
		`{"a~b":1}`, `{"%2F":1}`, `{"né":1}`, `{"item":2,"qty":"teapot"}`,
		`{"note":1,"item":" ","Qty":1,"qty":-1}`, `{"qty":2,"item":"teapot"}`,
		"\r\n\t { \"item\"\t:\r\"teapot\" ,\n \"qty\" : 2 } \t\r\n", `{"\u0069tem":"teapot","q\u0074y":2}`,
		`{"item":"teapot","qty":2.` + strings.Repeat("0", 65_000) + `}`, strings.Repeat(" ", 64<<10),
		`{"item":"teapot","qty":2,"id":"ord_1"}`, `{"item":"teapot","qty":2,"Item":"kettle"}`,
	}
	for _, item := range []string{
		`null`, `7`, `{"name":"teapot"}`, `""`, `" \t\r\n "`, `"\u3000\u2003\u00a0"`,
		`"` + strings.Repeat("😀", 256) + `"`, `"tea\npot"`, `"tea\u0000pot"`, "\"tea\x7fpot\"",
		"\"tea\u0085pot\"", `"t"`, `"` + strings.Repeat("😀", 255) + `"`, `"\u0074\u0065a"`, `"\\ud800"`,
		`" teapot "`, `"<b>&amp;</b>"`, `"👩‍💻"`, `"cafe\u0301"`, `"\ufffd"`,
	} {
		bodies = append(bodies, `{"item":`+item+`,"qty":2}`)
	}
	for _, qty := range []string{
		`null`, `"2"`, `{}`, `0`, `-0`, `-1`, `1.5`, `15e-1`, `2.00000000000000000000000001`,
		`9007199254740992.0`, `0e999999999`, `1e99999999999999999999`, `9007199254740992`,
		`9223372036854775807`, `1e999`, strings.Repeat("9", 1000), `1`, `9007199254740991`, `2.0`, `0.2E+1`,
		`9007199254740991.0`,
	} {
		bodies = append(bodies, `{"item":"teapot","qty":`+qty+`}`)
	}
	return bodies
}

// The service writes orders without encoding/json, which must not be seen. With
// other numbers of digits of the second, clients with a fixed layout would fail at 1
// of 1,000 orders, and times would not sort as text.
func TestOrderIsRenderedAsByEncodingJSON(t *testing.T) {
	at := time.Date(2026, 11, 20, 19, 30, 11, 0, time.UTC)
	for _, test := range []struct {
		order Order
		time  string
	}{
		{Order{ID: "ord_1", Item: "teapot", Qty: 1, CreatedAt: time.Time{}}, "0001-01-01T00:00:00.000Z"},
		{Order{ID: "ord_1", Item: `"\/<>&'`, Qty: 1<<53 - 1, CreatedAt: at}, "2026-11-20T19:30:11.000Z"},
		{Order{ID: "ord_1", Item: "é 😀 \u2028\u2029\u00ad\ufeff", Qty: 2, CreatedAt: at.Add(200 * time.Millisecond)},
			"2026-11-20T19:30:11.200Z"},
		{Order{ID: `an ID "of" the store's <own>`, Item: "teapot", Qty: 2,
			CreatedAt: at.Add(250 * time.Millisecond).In(time.FixedZone("", 2*60*60))}, "2026-11-20T19:30:11.250Z"},
		{Order{ID: `\\`, Item: "teapot", Qty: 2, CreatedAt: at.Add(251 * time.Millisecond)}, "2026-11-20T19:30:11.251Z"},
		{Order{ID: `",a",`, Item: "teapot", Qty: 2, CreatedAt: at}, "2026-11-20T19:30:11.000Z"},
		{Order{ID: "é", Item: "teapot", Qty: 2, CreatedAt: at}, "2026-11-20T19:30:11.000Z"},
		{Order{ID: "ord_1", Item: "teapot", Qty: 2, CreatedAt: at.Add(time.Second - 1)}, "2026-11-20T19:30:11.999Z"},
		{Order{ID: "ord_1", Item: "teapot", Qty: 2, CreatedAt: at.Add(5*time.Millisecond + 500*time.Microsecond).Local()},
			"2026-11-20T19:30:11.005Z"},
	} {
		encoded := func(v any) string {
			var text bytes.Buffer
			enc := json.NewEncoder(&text)
			enc.SetEscapeHTML(false)
			must.OK(t, enc.Encode(v))
			return strings.TrimSuffix(text.String(), "\n")
		}
		want := encoded(struct {
			ID        string `json:"id"`
			Item      string `json:"item"`
			Qty       int64  `json:"qty"`
			CreatedAt string `json:"created_at"`
		}{test.order.ID, test.order.Item, test.order.Qty, test.time})
		if own := encoded(test.order); own != want { // which a program makes of an Order
			t.Errorf("encoding/json makes %s of it, want %s", own, want)
		}
		r, err := NewResource(test.order.ID, json.RawMessage(want))
		for _, of := range []any{test.order, &test.order} {
			if got, err2 := NewResource(test.order.ID, of); err != nil || err2 != nil || !got.Equal(r) || got.ID() != r.ID() {
				t.Errorf("%T is the Resource %s, %v, want %s, %v", of, got, err2, r, err)
			}
			if got, err := NewResource("ord_1"+strings.Repeat("0", 250), of); err == nil {
				t.Errorf("%T with another ID is the Resource %s", of, got)
			}
		}
		if test.order.CreatedAt.IsZero() {
			continue // no store returns it
		}
		sent := fmt.Sprintf(`{"item":%s,"qty":%d}`, ijson.AppendString(nil, test.order.Item), test.order.Qty)
		create := func(context.Context, IdempotencyKey, Order) (Order, error) { return test.order, nil }
		answer := postOrder(New(&stubStore{createOrder: create}), "k", sent)
		if answer.body != want || answer.header["Idempotent-Replayed"] == nil {
			t.Errorf("%v %s, want %s", answer.header, answer.body, want)
		}
	}
}

func TestOrderCommitContext(t *testing.T) {
	type contextKey struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "ann"))
	var waited <-chan struct{}
	h := New(&stubStore{createOrder: func(ctx context.Context, _ IdempotencyKey, order Order) (Order, error) {
		waited = ctx.Done()
		cancel() // the client goes away
		_, hasDeadline := ctx.Deadline()
		if err, got := ctx.Err(), ctx.Value(contextKey{}); err != nil || got != "ann" || !hasDeadline {
			t.Errorf("error %v, value %v, a deadline: %t, want none, ann and one", err, got, hasDeadline)
		}
		return order, nil
	}})
	do(h, newOrderRequest("k", strings.NewReader(teapots)).WithContext(ctx)).wantStatus(t, http.StatusCreated)
	select {
	case <-waited:
	default:
		t.Error("after the call its context is not done: its timer is still running")
	}
}

// What does not follow the rules is not sent. The log has the names of these parts, and not their values.
func TestRefusal(t *testing.T) {
	long := strings.Repeat("é", 500)
	fault := func(detail, pointer string) Fault { return Fault{Detail: detail, Pointer: pointer} }
	of := func(faults ...Fault) Refusal { return Refusal{Faults: faults} }
	for _, row := range []struct {
		refusal Refusal
		sent    string // the reason, the detail and the faults
		named   string // in the log
	}{
		{Refusal{Reason: "sold-out", Detail: "Sold.", Pointer: "#/item"}, "sold-out|Sold.|#/item:Sold.", ""},
		{Refusal{Pointer: "#/qty"}, "||#/qty:", ""},
		{Refusal{Reason: strings.Repeat("a-0z", 16), Detail: long}, strings.Repeat("a-0z", 16) + "|" + long + "|", ""},
		{Refusal{Reason: strings.Repeat("a", 65), Detail: "D", Pointer: "#/qty"}, "|D|#/qty:D", "Reason"},
		{Refusal{Reason: "Sold-out"}, "||", "Reason"},
		{Refusal{Reason: "sold out"}, "||", "Reason"},
		{Refusal{Reason: "épuisé"}, "||", "Reason"},
		{Refusal{Reason: "r", Detail: long + "x", Pointer: "#/qty"}, "r||#/qty:", "Detail"},
		{Refusal{Detail: "\xff"}, "||", "Detail"},
		{Refusal{Detail: "a\uffff"}, "||", "Detail"},
		{Refusal{Detail: "D", Pointer: "#/id"}, "|D|", "Pointer"},
		{Refusal{Detail: "D", Pointer: "/item"}, "|D|", "Pointer"},
		{Refusal{Reason: "Not To Be Logged", Detail: "nor\tthis", Pointer: "#/nor/this"}, "||", "Reason Detail Pointer"},
		{of(fault("A", "#/item"), Fault{Detail: "B", Minimum: new(int64(0)), Maximum: new(int64(9))}),
			"||#/item:A :B[0,9]", ""},
		{Refusal{Detail: "D", Pointer: "#/fields", Faults: []Fault{fault("A", "#/fields/a/0/~0~1%20é")}},
			"|D|#/fields:D :A", "Faults[0].Pointer"},
		{of(fault("A", "#/fields/a~1b/0/%C3%A9")), "||#/fields/a~1b/0/%C3%A9:A", ""},
		{of(fault("A", "#/fields/a~2"), fault("B", "#/fields/%zz"), fault("C", "#/fieldsx"), fault("D", "#/id"),
			fault("E", "#/fields/%ff"), fault("F", "#/fields/"+strings.Repeat("a", 2048))), "||:A :B :C :D :E :F",
			"Faults[0].Pointer Faults[1].Pointer Faults[2].Pointer Faults[3].Pointer Faults[4].Pointer " +
				"Faults[5].Pointer"},
		{of(fault("\n", ""), fault("", "#/qty"), Fault{Detail: "A", Header: "X", Parameter: "p"}), "||:A",
			"Faults[0].Detail Faults[2].Parameter Faults[2].Header"},
	} {
		h, log := logged(failing(&row.refusal))
		before := fmt.Sprint(row.refusal)
		p := postOrder(h, "k", teapots).wantProblem(t, 422, "order-refused")
		var faults []string
		for _, f := range p.Errors {
			text := f.Pointer + ":" + strings.TrimPrefix(f.Detail, "The order was refused.")
			if f.Minimum != nil {
				text += fmt.Sprintf("[%d,%d]", *f.Minimum, *f.Maximum)
			}
			faults = append(faults, text)
		}
		sent := p.Reason + "|" + strings.TrimPrefix(p.Detail, "The order was refused.") + "|" + strings.Join(faults, " ")
		if sent != row.sent {
			t.Errorf("%v: %q is sent, want %q", row.refusal, sent, row.sent)
		}
		var line struct{ Parts []string }
		json.Unmarshal([]byte(log.String()), &line)
		if named := strings.Join(line.Parts, " "); named != row.named {
			t.Errorf("%v: the log names %q, want %q", row.refusal, named, row.named)
		}
		if strings.Contains(log.String(), "Not To Be Logged") || strings.Contains(log.String(), "nor") {
			t.Errorf("the log has the parts: %s", log)
		}
		if after := fmt.Sprint(row.refusal); before != after {
			t.Errorf("the store's refusal has become %s", after)
		}
	}
	many := Refusal{Detail: strings.Repeat(`"`, 1000), Pointer: "#/item",
		Faults: slices.Repeat([]Fault{{Detail: strings.Repeat("x", 1000)}}, 200)}
	if got := postOrder(quiet(failing(&many)), "k", teapots); len(got.body) > 16<<10 {
		t.Errorf("200 faults of 1,000 bytes are answered with %d bytes", len(got.body))
	}
}

func TestOrderHonoursTheDeadlineOfTheHost(t *testing.T) {
	for host, want := range map[time.Duration]time.Duration{ // the earlier one counts
		time.Hour: 30 * time.Second, 31 * time.Second: 30 * time.Second, 2 * time.Second: 2 * time.Second,
		-time.Second: 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			create := func(ctx context.Context, _ IdempotencyKey, order Order) (Order, error) {
				<-ctx.Done()
				if err := ctx.Err(); err != context.DeadlineExceeded || context.Cause(ctx) != err {
					t.Errorf("Err is %v and the cause %v, want the deadline", err, context.Cause(ctx))
				}
				return Order{}, ctx.Err()
			}
			h := quiet(&stubStore{createOrder: create})
			ctx, cancel := context.WithTimeout(t.Context(), host)
			defer cancel()
			began := time.Now()
			do(h, newOrderRequest("k", strings.NewReader(teapots)).WithContext(ctx)).wantProblem(t, 503,
				"unavailable")
			if took := time.Since(began); took != want {
				t.Errorf("with a deadline after %v it was given up after %v, want %v", host, took, want)
			}
		})
	}
}

// slowOrder is what becomes of a body: the status, the order or the pointers of the faults. It leaves
// to package ijson whether the body is I-JSON and what a number is worth, as that has tests of its own.
func slowOrder(body string) (status int, order Order, pointers []string) {
	if len(body) > 64<<10 {
		return 413, order, nil
	}
	if _, _, err := ijson.Parse([]byte(body)); err != nil {
		return 400, order, []string{ijson.Pointer(err.(*ijson.Error).Path...)}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &members); err != nil || members == nil {
		return 422, order, []string{"#"}
	}
	item, qty := json.RawMessage("null"), json.RawMessage("null")
	for name, value := range members {
		switch name {
		case "item":
			item = value
		case "qty":
			qty = value
		default:
			pointers = append(pointers, ijson.Pointer(name))
		}
	}
	blank := func(r rune) bool { return unicode.Is(unicode.White_Space, r) }
	if err := json.Unmarshal(item, &order.Item); err != nil || len([]rune(order.Item)) > 255 ||
		strings.TrimFunc(order.Item, blank) == "" || strings.ContainsFunc(order.Item, unicode.IsControl) {
		pointers = append(pointers, "#/item")
	}
	var ok bool
	if order.Qty, ok = (ijson.Member{Value: qty}).Int64(); !ok || order.Qty < 1 || order.Qty >= 1<<53 {
		pointers = append(pointers, "#/qty")
	}
	if pointers == nil {
		return 201, order, nil
	}
	return 422, order, pointers
}

// uriFragment is what may stand in the fragment of a URI (RFC 3986, Section 3.5).
var uriFragment = regexp.MustCompile(`^#(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*$`)

// FuzzOrderBody compares the service with slowOrder: the verdict, the order that
// the store is given, and every pointer.
func FuzzOrderBody(f *testing.F) {
	for _, body := range orderBodies() {
		if len(body) <= 1024 { // the fuzzer spends a minute on minimizing each long one
			f.Add(body)
		}
	}
	for _, n := range []int{2000, 3000} { // bytes of a name, around those of the longest pointer
		f.Add(`{"` + strings.Repeat("x", n) + `":1,"` + strings.Repeat("é", n) + `":{"a":1,"a":2}}`)
		f.Add(`{"` + strings.Repeat("y", n) + `":1,"` + strings.Repeat("~", n) + `":1,` +
			strings.Repeat(`"/":1,`, 20) + `"item":1}`)
	}
	var many strings.Builder
	for i := range 150 { // faults, with more bytes than go into a problem
		fmt.Fprintf(&many, `"%0200d":1,`, i)
	}
	f.Add("{" + many.String() + `"item":"a"}`)
	f.Fuzz(checkOrderBody)
}

func TestLongOrderBodies(t *testing.T) {
	for _, body := range orderBodies() {
		if len(body) > 1024 {
			checkOrderBody(t, body)
		}
	}
}

func checkOrderBody(t *testing.T, body string) {
	h, given := storing()
	r := postOrder(h, "k", body)
	status, want, pointers := slowOrder(body)
	if status == 201 {
		var sent Order
		if err := json.Unmarshal([]byte(r.body), &sent); err != nil || !sent.Equal(*given) ||
			given.Item != want.Item || given.Qty != want.Qty {
			t.Fatalf("%q: status %d, order %+v, want 201 and %+v\n%s", body, r.status, *given, want, r.body)
		}
		return
	}
	code := map[int]string{400: "malformed-body", 413: "body-too-large", 422: "invalid-order"}[status]
	var got []string
	for _, f := range r.wantProblem(t, status, code).Errors {
		if f.Pointer != "" && !uriFragment.MatchString(f.Pointer) {
			t.Errorf("%q: pointer %q is not a URI fragment", body, f.Pointer)
		}
		got = append(got, f.Pointer)
	}
	for i, p := range pointers {
		if len(p) > 2048 {
			pointers[i] = "" // which is left out
		}
	}
	slices.Sort(pointers)
	slices.Sort(got)
	if len(got) == 100 || len(r.body) >= 15<<10-2048-100 { // so many that no more go into 15 KiB
		pointers = slices.DeleteFunc(pointers, func(p string) bool { return !slices.Contains(got, p) })
	}
	if !slices.Equal(got, pointers) {
		t.Errorf("%q: pointers %q, want %q", body, got, pointers)
	}
}

func TestOrderEqual(t *testing.T) {
	order := Order{ID: "ord_1", Item: "teapot", Qty: 2, CreatedAt: time.UnixMilli(1_800_000_000_000).UTC()}
	same := order
	same.CreatedAt = order.CreatedAt.In(time.FixedZone("elsewhere", 3600))
	if !order.Equal(order) || !order.Equal(same) {
		t.Errorf("%v does not equal %v, the same instant", order, same)
	}
	changes := map[string]func(*Order){
		"ID":        func(o *Order) { o.ID = "ord_2" },
		"Item":      func(o *Order) { o.Item = "diary" },
		"Qty":       func(o *Order) { o.Qty = 3 },
		"Fields":    func(o *Order) { o.Fields = "{}" },
		"CreatedAt": func(o *Order) { o.CreatedAt = o.CreatedAt.Add(1) },
	}
	for name, change := range changes {
		other := order
		if change(&other); order.Equal(other) {
			t.Errorf("%v equals %v, in spite of another %s", order, other, name)
		}
	}
	if n := reflect.TypeFor[Order]().NumField() - 1; n != len(changes) { // one keeps it from being compared
		t.Errorf("an Order has %d fields, and Equal compares %d", n, len(changes))
	}
}

// A field of a type that cannot be compared, or another one at all, would break programs that compare.
func TestStructsThatMayGainFieldsCannotBeCompared(t *testing.T) {
	for _, of := range []reflect.Type{
		reflect.TypeFor[Order](), reflect.TypeFor[Fault](), reflect.TypeFor[IdempotencyKey](),
	} {
		if of.Comparable() {
			t.Errorf("a %v can be compared", of)
		}
	}
}
