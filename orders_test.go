package storefront

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront/internal/ijson"
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
	return New(&stubStore{createOrder: func(_ context.Context, key IdempotencyKey, order Order) (Order, error) {
		t.Errorf("the store was given %+v with the key %q", order, key.Value)
		return Order{}, errors.New("not expected")
	}})
}

// unreadBody is a body that fails the test when it is read.
type unreadBody struct{ t *testing.T }

func (b unreadBody) Read([]byte) (int, error) {
	b.t.Error("the body was read")
	return 0, io.EOF
}

// where returns what the faults point at, each with its bounds, in order.
func where(faults []Fault) string {
	places := make([]string, len(faults))
	for i, f := range faults {
		places[i] = f.Header + f.Parameter + f.Pointer
		if f.Minimum != nil || f.Maximum != nil {
			bound := func(b *int64) (text string) {
				if b != nil {
					text = strconv.FormatInt(*b, 10)
				}
				return text
			}
			places[i] += "[" + bound(f.Minimum) + "," + bound(f.Maximum) + "]"
		}
	}
	slices.Sort(places)
	return strings.Join(places, " ")
}

// orderFaults are the faults that a request for an order may have, in the order
// in which they are looked for.
var orderFaults = []struct {
	name   string
	spoil  func(*http.Request)
	status int
	code   string
}{
	{"method", func(r *http.Request) { r.Method = http.MethodPut }, 405, "method-not-allowed"},
	{"media type", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415, "unsupported-media-type"},
	{"key", func(r *http.Request) { r.Header.Del("Idempotency-Key") }, 400, "idempotency-key-missing"},
	{"size", func(r *http.Request) {
		r.Body = io.NopCloser(strings.NewReader(strings.Repeat(" ", 64<<10) + teapots))
		r.ContentLength = 64<<10 + int64(len(teapots))
	}, 413, "body-too-large"},
	{"body", func(r *http.Request) {
		rest, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(rest) + "junk"))
		r.ContentLength = int64(len(rest)) + 4
	}, 400, "malformed-body"},
}

func TestOrderChecksComeInOrder(t *testing.T) {
	for i, first := range orderFaults {
		for _, second := range orderFaults[i:] {
			t.Run(first.name+" before "+second.name, func(t *testing.T) {
				r := newOrderRequest("k", strings.NewReader(teapots))
				first.spoil(r)
				if second.name != first.name {
					second.spoil(r)
				}
				do(refusingOrders(t), r).wantProblem(t, first.status, first.code)
			})
		}
	}
	t.Run("undeclared size before body", func(t *testing.T) {
		r := newOrderRequest("k", io.MultiReader(strings.NewReader(strings.Repeat("junk", 64<<10))))
		do(refusingOrders(t), r).wantProblem(t, 413, "body-too-large")
	})
	t.Run("malformed before wrong", func(t *testing.T) {
		postOrder(refusingOrders(t), "k", `{"item":null,"qty":1,"qty":1}`).wantProblem(t, 400, "malformed-body")
	})
	t.Run("wrong body before reuse of the key", func(t *testing.T) {
		h := New(new(MemStore))
		postOrder(h, "k", teapots)
		postOrder(h, "k", `{"item":"kettle","qty":0}`).wantProblem(t, 422, "invalid-order")
	})
}

func TestOrderMedia(t *testing.T) {
	for _, field := range []struct {
		name, answer, offered string // answer is the header that says what would have been accepted
		accepted, refused     [][]string
	}{
		{"Content-Type", "Accept", "application/json", [][]string{
			{"application/json"}, {"Application/JSON"}, {"application/json; charset=utf-8"}, {"application/json;CHARSET=UTF-8"},
			{`application/json; charset="utf-8"`}, {"application/json ; charset=utf-8"}, {"application/json;"},
			{"application/json; profile=x"}, {"application/json; v=1; charset=utf-8"},
			{"application/json", "application/json"}, {"application/json, application/json"}, // as FastCGI has it
		}, [][]string{
			nil, {""}, {" "}, {"application/json", "text/plain"}, {"application/json", "application/json; charset=utf-8"},
			{"text/plain"}, {"application/x-www-form-urlencoded"}, {"text/json"}, {"application/*"}, {"application/problem+json"},
			{"application/json-seq"}, {"application/js"}, {"json"}, {"application/json; charset=iso-8859-1"},
			{`application/json; charset=""`}, {"application/json; charset=utf-8; charset=utf-16"}, {"application/json; charset="},
			{"application/json; charset"}, {"application/json junk"}, {"application/json; =;"},
		}},
		{"Content-Encoding", "Accept-Encoding", "identity", [][]string{
			nil, {""}, {"identity"}, {"IDENTITY"}, {"identity", "identity"}, {" , identity,"},
		}, [][]string{
			{"gzip"}, {"GZIP"}, {"x-mine"}, {"gzip, br"}, {"identity, gzip"}, {"identity", "gzip"}, {"", "gzip"}, {"identity;q=1"},
		}},
	} {
		request := func(lines []string) *http.Request {
			r := newOrderRequest("k", strings.NewReader(teapots))
			r.Header[field.name] = lines
			return r
		}
		for _, lines := range field.accepted {
			t.Run(fmt.Sprintf("%s %q is accepted", field.name, lines), func(t *testing.T) {
				do(New(new(MemStore)), request(lines)).wantStatus(t, http.StatusCreated)
			})
		}
		for _, lines := range field.refused {
			t.Run(fmt.Sprintf("%s %q is refused", field.name, lines), func(t *testing.T) {
				got := do(refusingOrders(t), request(lines))
				p := got.wantProblem(t, 415, "unsupported-media-type")
				if where(p.Errors) != field.name {
					t.Errorf("errors %+v, want one for %s", p.Errors, field.name)
				}
				want := http.Header{"Accept": nil, "Accept-Encoding": nil}
				want[field.answer] = []string{field.offered}
				for name, values := range want {
					if !slices.Equal(got.header[name], values) {
						t.Errorf("%s: %q, want %q", name, got.header[name], values)
					}
				}
			})
		}
	}
	t.Run("both at once", func(t *testing.T) {
		got := postOrder(refusingOrders(t), "k", teapots, "Content-Type: text/plain", "Content-Encoding: gzip")
		p := got.wantProblem(t, 415, "unsupported-media-type")
		if where(p.Errors) != "Content-Encoding Content-Type" || got.header.Get("Accept") == "" || got.header.Get("Accept-Encoding") == "" {
			t.Errorf("errors %+v and headers %v, want both", p.Errors, got.header)
		}
	})
}

func TestOrderBody(t *testing.T) {
	exact := teapots + strings.Repeat(" ", 64<<10-len(teapots))
	reading := func(text string) io.Reader { return strings.NewReader(text) }
	then := func(err error) io.Reader { return io.MultiReader(reading(teapots), iotest.ErrReader(err)) }
	inTime, size := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, int64(len(teapots))
	for _, row := range []struct {
		name     string
		body     io.Reader
		declared int64
		status   int
		code     string
	}{
		{"a byte too much, declared, which is not read", nil, 64<<10 + 1, 413, "body-too-large"},
		{"much too much, declared, which is not read", nil, 1 << 20, 413, "body-too-large"},
		{"a byte too much, not declared", reading(exact + " "), -1, 413, "body-too-large"},
		{"without end", endless{}, -1, 413, "body-too-large"},
		{"64 KiB, declared", reading(exact), 64 << 10, 201, ""},
		{"64 KiB, not declared", reading(exact), -1, 201, ""},

		{"nothing", reading(""), 0, 400, "malformed-body"},
		{"fails midway, not declared", then(io.ErrUnexpectedEOF), -1, 400, "malformed-body"},
		{"fails midway, declared", then(io.ErrUnexpectedEOF), 100, 400, "malformed-body"},
		{"fails for a reason of its own", then(errors.New("secret reason")), -1, 400, "malformed-body"},
		{"does not arrive in time, not declared", then(os.ErrDeadlineExceeded), -1, 408, "request-timeout"},
		{"does not arrive in time, declared", then(os.ErrDeadlineExceeded), 100, 408, "request-timeout"},
		{"does not arrive in time, wrapped", then(inTime), -1, 408, "request-timeout"},

		{"in pieces", iotest.OneByteReader(reading(teapots)), size, 201, ""},
		{"whose last bytes come with the EOF", iotest.DataErrReader(reading(teapots)), -1, 201, ""},
		// Middleware that decodes a body often leaves the length as it was, and
		// http.NewRequest leaves it 0.
		{"declared as empty", reading(teapots), 0, 201, ""},
		{"declared as shorter", reading(teapots), 5, 201, ""},
		{"declared as longer", reading(teapots), size + 5, 201, ""},
		{"declared as shorter, with junk behind that", reading(teapots + "junk"), size, 400, "malformed-body"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.body == nil {
				row.body = unreadBody{t}
			}
			r := newOrderRequest("k", row.body)
			r.ContentLength = row.declared
			if row.status == http.StatusCreated {
				do(New(new(MemStore)), r).wantStatus(t, http.StatusCreated)
				return
			}
			got := do(refusingOrders(t), r)
			got.wantProblem(t, row.status, row.code)
			if strings.Contains(got.body, "secret") || strings.Contains(got.body, "EOF") {
				t.Errorf("the problem has the text of the error: %s", got.body)
			}
		})
	}
	for name, body := range map[string]io.ReadCloser{"nil": nil, "http.NoBody": http.NoBody} {
		t.Run(name, func(t *testing.T) {
			r := newOrderRequest("k", nil)
			r.Body = body
			if p := do(refusingOrders(t), r).wantProblem(t, 400, "malformed-body"); where(p.Errors) != "#" {
				t.Errorf("errors %+v, want one for the whole body", p.Errors)
			}
		})
	}
}

// endless is a body of white space without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func wantFreeKey(t *testing.T, h http.Handler) {
	t.Helper()
	again := postOrder(h, "k", `{"item":"kettle","qty":1}`)
	if again.status != http.StatusCreated || again.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("then the key got %d %s, want a new order", again.status, again.body)
	}
}

func TestOrderBodyThatDoesNotArriveInTheServersReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(new(MemStore))
		l := make(pipeListener)
		defer close(l)
		server := &http.Server{Handler: h, ReadTimeout: 15 * time.Second}
		go server.Serve(l)
		ours, theirs := net.Pipe()
		defer ours.Close()
		l <- theirs
		began := time.Now()
		io.WriteString(ours, "POST /v1/orders HTTP/1.1\r\nHost: shop.example\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\n"+
			"Content-Length: 100\r\n\r\n"+`{"item":"teapot"`)
		result, err := http.ReadResponse(bufio.NewReader(ours), nil)
		if err != nil {
			t.Fatal(err)
		}
		if result.StatusCode != http.StatusRequestTimeout || !result.Close {
			t.Errorf("status %d, close %t, want 408 and the connection closed", result.StatusCode, result.Close)
		}
		if took := time.Since(began); took != server.ReadTimeout {
			t.Errorf("it took %v, want %v", took, server.ReadTimeout)
		}
		wantFreeKey(t, h)
	})
}

// malformedOrders are a few of what package ijson refuses. The pointer says where.
var malformedOrders = []struct{ name, body, pointer string }{
	{"empty", "", "#"},
	{"ends in a string", `{"item":"teapot`, "#"},
	{"second object", teapots + teapots, "#"},
	{"byte that UTF-8 has not", "{\"item\":\"\xff\",\"qty\":2}", "#"},
	{"surrogate deep inside", `{"item":"teapot","qty":2,"note":[0,{"a":["\udfff"]}]}`, "#/note/1/a/0"},
	{"item twice, once escaped", `{"item":"teapot","\u0069tem":"kettle","qty":2}`, "#/item"},
	{"name that a pointer escapes, twice", `{"a/b~ %é":1,"a\/b~ %\u00e9":2}`, "#/a~1b~0%20%25%C3%A9"},
	{"nested too deeply", strings.Repeat("[", 1001) + strings.Repeat("]", 1001), "#" + strings.Repeat("/0", 1000)},
}

func TestMalformedOrder(t *testing.T) {
	for _, test := range malformedOrders {
		t.Run(test.name, func(t *testing.T) {
			p := postOrder(refusingOrders(t), "k", test.body).wantProblem(t, 400, "malformed-body")
			if got := where(p.Errors); got != test.pointer {
				t.Errorf("%q: errors at %s, want %s", test.body, got, test.pointer)
			}
		})
	}
}

const (
	badQty     = "#/qty[1,9007199254740991]"
	emptyItem  = "#/item[1,]"
	longItem   = "#/item[,255]"
	bothAbsent = "#/item #/qty"
)

// wrongOrders are I-JSON, but not orders. The faults are where the space-separated
// list says, with their bounds.
var wrongOrders = []struct{ name, body, faults string }{
	{"null", `null`, "#"},
	{"true", `true`, "#"},
	{"string", `"teapot"`, "#"},
	{"empty array", `[]`, "#"},
	{"order in an array", `[` + teapots + `]`, "#"},
	{"deepest array", strings.Repeat("[", 1000) + strings.Repeat("]", 1000), "#"},

	{"empty object", `{}`, bothAbsent},
	{"no item", `{"qty":2}`, "#/item"},
	{"no qty", `{"item":"teapot"}`, "#/qty"},

	{"unknown member", `{"item":"teapot","qty":2,"note":""}`, "#/note"},
	{"unknown member nested", `{"item":"teapot","qty":2,"note":{"item":[1,{}]}}`, "#/note"},
	{"member that the service sets", `{"id":"ord_1","item":"teapot","qty":2}`, "#/id"},
	{"item in upper case", `{"ITEM":"teapot","qty":2}`, "#/ITEM #/item"},
	{"both capitalised", `{"Item":"teapot","Qty":2}`, "#/Item #/Qty #/item #/qty"},
	{"item in both cases", `{"item":"teapot","Item":"kettle","qty":2}`, "#/Item"},

	{"empty name", `{"":1,"item":"teapot","qty":2}`, "#/"},
	{"name with a tilde", `{"a~b":1,"item":"teapot","qty":2}`, "#/a~0b"},
	{"name with a per cent sign", `{"%2F":1,"item":"teapot","qty":2}`, "#/%252F"},
	{"name beyond ASCII", `{"né":1,"item":"teapot","qty":2}`, "#/n%C3%A9"},

	{"item null", `{"item":null,"qty":2}`, "#/item"},
	{"item number", `{"item":7,"qty":2}`, "#/item"},
	{"item object", `{"item":{"name":"teapot"},"qty":2}`, "#/item"},
	{"item empty", `{"item":"","qty":2}`, emptyItem},
	{"item of spaces, tabs and line feeds", `{"item":" \t\r\n ","qty":2}`, "#/item"},
	{"item of wide spaces", `{"item":"\u3000\u2003\u00a0","qty":2}`, "#/item"},
	{"item of 256 characters", `{"item":"` + strings.Repeat("t", 256) + `","qty":2}`, longItem},
	{"item of 256 characters of four bytes", `{"item":"` + strings.Repeat("😀", 256) + `","qty":2}`, longItem},
	{"item with a line feed", `{"item":"tea\npot","qty":2}`, "#/item"},
	{"item with a NUL", `{"item":"tea\u0000pot","qty":2}`, "#/item"},
	{"item with DEL", "{\"item\":\"tea\x7fpot\",\"qty\":2}", "#/item"},
	{"item with a C1 control", "{\"item\":\"tea\u0085pot\",\"qty\":2}", "#/item"},

	{"qty null", `{"item":"teapot","qty":null}`, badQty},
	{"qty string", `{"item":"teapot","qty":"2"}`, badQty},
	{"qty object", `{"item":"teapot","qty":{}}`, badQty},
	{"qty zero", `{"item":"teapot","qty":0}`, badQty},
	{"qty minus zero", `{"item":"teapot","qty":-0}`, badQty},
	{"qty minus one", `{"item":"teapot","qty":-1}`, badQty},
	{"qty fraction", `{"item":"teapot","qty":1.5}`, badQty},
	{"qty fraction with an exponent", `{"item":"teapot","qty":15e-1}`, badQty},
	{"qty with a fraction that no float has", `{"item":"teapot","qty":2.00000000000000000000000001}`, badQty},
	{"qty 2^53, with a point", `{"item":"teapot","qty":9007199254740992.0}`, badQty},
	{"qty zero, with an exponent", `{"item":"teapot","qty":0e999999999}`, badQty},
	{"qty beyond any number", `{"item":"teapot","qty":1e99999999999999999999}`, badQty},
	{"qty 2^53", `{"item":"teapot","qty":9007199254740992}`, badQty},
	{"qty 2^63-1", `{"item":"teapot","qty":9223372036854775807}`, badQty},
	{"qty beyond any double", `{"item":"teapot","qty":1e999}`, badQty},
	{"qty of a thousand digits", `{"item":"teapot","qty":` + strings.Repeat("9", 1000) + `}`, badQty},

	{"both wrong", `{"item":"","qty":0}`, emptyItem + " " + badQty},
	{"types swapped", `{"item":2,"qty":"teapot"}`, "#/item " + badQty},
	{"wrong item, no qty", `{"item":1}`, "#/item #/qty"},
	{"all at once", `{"note":1,"item":" ","Qty":1,"qty":-1}`, "#/Qty #/item #/note " + badQty},
}

func TestWrongOrder(t *testing.T) {
	for _, test := range wrongOrders {
		t.Run(test.name, func(t *testing.T) {
			p := postOrder(refusingOrders(t), "k", test.body).wantProblem(t, 422, "invalid-order")
			if got := where(p.Errors); got != test.faults {
				t.Errorf("%q: errors at %s, want %s", test.body, got, test.faults)
			}
			for _, f := range p.Errors {
				if f.Detail == "" || f.Pointer == "" {
					t.Errorf("%q: fault %+v, want a detail and a pointer", test.body, f)
				}
			}
		})
	}
}

var acceptedOrders = []struct {
	name, body, item string
	qty              int64
}{
	{"plain", teapots, "teapot", 2},
	{"qty first", `{"qty":2,"item":"teapot"}`, "teapot", 2},
	{"white space everywhere", "\r\n\t { \"item\"\t:\r\"teapot\" ,\n \"qty\" : 2 } \t\r\n", "teapot", 2},
	{"least qty", `{"item":"teapot","qty":1}`, "teapot", 1},
	{"greatest qty", `{"item":"teapot","qty":9007199254740991}`, "teapot", 1<<53 - 1},
	{"qty with a point", `{"item":"teapot","qty":2.0}`, "teapot", 2},
	{"qty with an exponent", `{"item":"teapot","qty":0.2E+1}`, "teapot", 2},
	{"greatest qty with a point", `{"item":"teapot","qty":9007199254740991.0}`, "teapot", 1<<53 - 1},
	{"qty of many digits", `{"item":"teapot","qty":2.` + strings.Repeat("0", 65_000) + `}`, "teapot", 2},
	{"one character", `{"item":"t","qty":2}`, "t", 2},
	{"255 characters", `{"item":"` + strings.Repeat("t", 255) + `","qty":2}`, strings.Repeat("t", 255), 2},
	{"255 characters of four bytes", `{"item":"` + strings.Repeat("😀", 255) + `","qty":2}`, strings.Repeat("😀", 255), 2},
	{"escaped letters", `{"item":"\u0074\u0065a","qty":2}`, "tea", 2},
	{"backslash before what looks like a surrogate", `{"item":"\\ud800","qty":2}`, `\ud800`, 2},
	{"escaped names", `{"\u0069tem":"teapot","q\u0074y":2}`, "teapot", 2},
	{"spaces around the item are kept", `{"item":" teapot ","qty":2}`, " teapot ", 2},
	{"markup", `{"item":"<b>&amp;</b>","qty":2}`, "<b>&amp;</b>", 2},
	{"zero-width joiner", `{"item":"👩‍💻","qty":2}`, "👩‍💻", 2},
	{"combining accent is not composed", `{"item":"cafe\u0301","qty":2}`, "cafe\u0301", 2},
	{"replacement character", `{"item":"\ufffd","qty":2}`, "\ufffd", 2},
}

func TestAcceptedOrder(t *testing.T) {
	for _, test := range acceptedOrders {
		t.Run(test.name, func(t *testing.T) {
			var got Order
			r := postOrder(New(&stubStore{createOrder: func(_ context.Context, _ IdempotencyKey, order Order) (Order, error) {
				got = order
				return order, nil
			}}), "k", test.body)
			if r.status != http.StatusCreated || got.Item != test.item || got.Qty != test.qty {
				t.Fatalf("%q: status %d, the store was given %q, %d, want %q, %d\n%s",
					test.body, r.status, got.Item, got.Qty, test.item, test.qty, r.body)
			}
			var sent Order
			if err := json.Unmarshal([]byte(r.body), &sent); err != nil || sent.Item != test.item || sent.Qty != test.qty {
				t.Errorf("the response says %q, %d (%v), want %q, %d", sent.Item, sent.Qty, err, test.item, test.qty)
			}
		})
	}
}

func TestCreatedOrder(t *testing.T) {
	var (
		given Order
		r     response
	)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(5*time.Second + 123_999_999) // after 2000-01-01T00:00:00Z
		r = postOrder(New(&stubStore{createOrder: func(_ context.Context, _ IdempotencyKey, order Order) (Order, error) {
			given = order
			return order, nil
		}}), "k", `{"qty":2,"item":"<tea>pot\u00e9"}`)
	})
	if r.status != http.StatusCreated {
		t.Fatalf("status %d, want 201\n%s", r.status, r.body)
	}
	t.Run("its ID is ord_ and 26 random characters", func(t *testing.T) {
		if !regexp.MustCompile(`^ord_[A-Z2-7]{26}$`).MatchString(given.ID) {
			t.Errorf("ID %q", given.ID)
		}
	})
	t.Run("its time is in UTC and whole milliseconds", func(t *testing.T) {
		want := time.Date(2000, 1, 1, 0, 0, 5, 123e6, time.UTC)
		if !given.CreatedAt.Equal(want) || given.CreatedAt.Location() != time.UTC {
			t.Errorf("created at %v, want %v", given.CreatedAt, want)
		}
	})
	t.Run("the body has id, item, qty and created_at", func(t *testing.T) {
		want := `{"id":"` + given.ID + `","item":"<tea>poté","qty":2,"created_at":"2000-01-01T00:00:05.123Z"}`
		if r.body != want {
			t.Errorf("body %s\nwant %s", r.body, want)
		}
	})
	t.Run("the headers are these and no Location", func(t *testing.T) {
		want := http.Header{
			"Content-Type":           {"application/json"},
			"Content-Length":         {strconv.Itoa(len(r.body))},
			"Cache-Control":          {"no-store"},
			"X-Content-Type-Options": {"nosniff"},
		}
		if diff := cmp.Diff(want, r.header); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
	})
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
		{Order{"ord_1", "teapot", 1, time.Time{}}, "0001-01-01T00:00:00.000Z"},
		{Order{"ord_1", `"\/<>&'`, 1<<53 - 1, at}, "2026-11-20T19:30:11.000Z"},
		{Order{"ord_1", "é 😀 \u2028\u2029\u00ad\ufeff", 2, at.Add(200 * time.Millisecond)}, "2026-11-20T19:30:11.200Z"},
		{Order{`an ID "of" the store's <own>`, "teapot", 2, at.Add(250 * time.Millisecond).In(time.FixedZone("", 2*60*60))}, "2026-11-20T19:30:11.250Z"},
		{Order{"ord_1", "teapot", 2, at.Add(251 * time.Millisecond)}, "2026-11-20T19:30:11.251Z"},
		{Order{"ord_1", "teapot", 2, at.Add(time.Second - 1)}, "2026-11-20T19:30:11.999Z"},
		{Order{"ord_1", "teapot", 2, at.Add(5*time.Millisecond + 500*time.Microsecond).Local()}, "2026-11-20T19:30:11.005Z"},
	} {
		encoded := func(v any) string {
			var text bytes.Buffer
			enc := json.NewEncoder(&text)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(v); err != nil {
				t.Fatal(err)
			}
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
		if test.order.CreatedAt.IsZero() {
			continue // no store returns it
		}
		sent := fmt.Sprintf(`{"item":%s,"qty":%d}`, ijson.AppendString(nil, test.order.Item), test.order.Qty)
		r := postOrder(New(&stubStore{createOrder: func(context.Context, IdempotencyKey, Order) (Order, error) {
			return test.order, nil
		}}), "k", sent)
		if r.body != want || r.header["Idempotent-Replayed"] == nil {
			t.Errorf("%v %s, want %s", r.header, r.body, want)
		}
	}
}

func TestStoreMayReturnTheOrderInAnotherZone(t *testing.T) {
	h := New(&stubStore{createOrder: func(_ context.Context, _ IdempotencyKey, order Order) (Order, error) {
		order.CreatedAt = order.CreatedAt.In(time.FixedZone("", -9*60*60))
		return order, nil
	}})
	if r := postOrder(h, "k", teapots); r.status != http.StatusCreated || r.header["Idempotent-Replayed"] != nil {
		t.Errorf("status %d, headers %v, want a new order", r.status, r.header)
	}
}

func TestNilRefusalIsAFaultOfTheStore(t *testing.T) {
	for _, err := range []error{(*Refusal)(nil), fmt.Errorf("%w", (*Refusal)(nil)), errors.Join(errors.New("disk full"), (*Refusal)(nil))} {
		postOrder(quiet(failing(err)), "k", teapots).wantProblem(t, 500, "internal-error")
	}
}

func TestOrderCommitContext(t *testing.T) {
	type contextKey struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "ann"))
	var waited <-chan struct{}
	h := New(&stubStore{createOrder: func(ctx context.Context, _ IdempotencyKey, order Order) (Order, error) {
		waited = ctx.Done()
		cancel() // the client goes away
		t.Run("a client that goes away does not cancel it", func(t *testing.T) {
			if err := ctx.Err(); err != nil {
				t.Errorf("the store's context: %v", err)
			}
		})
		t.Run("it has the values of the request's", func(t *testing.T) {
			if got := ctx.Value(contextKey{}); got != "ann" {
				t.Errorf("value %v, want ann", got)
			}
		})
		t.Run("it has a deadline", func(t *testing.T) {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("no deadline")
			}
		})
		return order, nil
	}})
	r := do(h, newOrderRequest("k", strings.NewReader(teapots)).WithContext(ctx))
	if r.status != http.StatusCreated {
		t.Errorf("status %d, want 201\n%s", r.status, r.body)
	}
	t.Run("who waits for it is told when the call is over", func(t *testing.T) {
		select {
		case <-waited:
		default:
			t.Error("it is not done: its timer is still running")
		}
	})
}

func TestRefusal(t *testing.T) {
	long := strings.Repeat("é", 500)
	for _, test := range []struct {
		name    string
		refusal Refusal
		want    Refusal // as it is sent
	}{
		{"with all fields", Refusal{"sold-out", "The last teapot was sold.", "#/item"}, Refusal{"sold-out", "The last teapot was sold.", "#/item"}},
		{"of the quantity", Refusal{"over-limit-2", "At most 5.", "#/qty"}, Refusal{"over-limit-2", "At most 5.", "#/qty"}},
		{"zero", Refusal{}, Refusal{}},
		{"with a reason of 64 characters", Refusal{Reason: strings.Repeat("a-0z", 16)}, Refusal{Reason: strings.Repeat("a-0z", 16)}},
		{"with a detail of 1,000 bytes", Refusal{Detail: long}, Refusal{Detail: long}},

		{"with a reason of 65 characters", Refusal{strings.Repeat("a", 65), "D", "#/qty"}, Refusal{"", "D", "#/qty"}},
		{"with a reason in capitals", Refusal{"Sold-out", "D", ""}, Refusal{"", "D", ""}},
		{"with a space in the reason", Refusal{"sold out", "D", ""}, Refusal{"", "D", ""}},
		{"with a reason beyond ASCII", Refusal{"épuisé", "D", ""}, Refusal{"", "D", ""}},
		{"with a detail of 1,001 bytes", Refusal{"r", long + "x", "#/qty"}, Refusal{"r", "", "#/qty"}},
		{"with a detail that is not UTF-8", Refusal{"r", "\xff", ""}, Refusal{"r", "", ""}},
		{"with a noncharacter in the detail", Refusal{"r", "a\uffff", ""}, Refusal{"r", "", ""}},
		{"with nothing right", Refusal{"Not To Be Logged", "nor\tthis", "#/nor/this"}, Refusal{}},
		{"with a line feed in the detail", Refusal{"r", "a\nb", ""}, Refusal{"r", "", ""}},
		{"with a pointer to another member", Refusal{"r", "D", "#/id"}, Refusal{"r", "D", ""}},
		{"with a pointer that is none", Refusal{"r", "D", "/item"}, Refusal{"r", "D", ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // as an error is given little time to answer
				for form, err := range map[string]error{"": &test.refusal, ", wrapped": fmt.Errorf("secret: %w", &test.refusal), ", joined": errors.Join(errors.New("secret"), &test.refusal)} {
					h, log := logged(failing(err))
					r := postOrder(h, "k", teapots)
					p := r.wantProblem(t, 422, "order-refused")
					got := Refusal{Reason: p.Reason, Detail: p.Detail}
					if got.Detail == "The order was refused." {
						got.Detail = ""
					}
					if len(p.Errors) == 1 && p.Errors[0].Detail == p.Detail {
						got.Pointer = p.Errors[0].Pointer
					} else if len(p.Errors) > 0 {
						t.Errorf("errors %+v%s", p.Errors, form)
					}
					if got != test.want {
						t.Errorf("%+v is sent%s, want %+v", got, form, test.want)
					}
					if strings.Contains(r.body, "secret") || p.Instance != "" || r.header.Get("Retry-After") != "" {
						t.Errorf("header %v, body %s%s", r.header, r.body, form)
					}
					for _, field := range []struct{ name, given, sent string }{
						{"Reason", test.refusal.Reason, test.want.Reason}, {"Detail", test.refusal.Detail, test.want.Detail}, {"Pointer", test.refusal.Pointer, test.want.Pointer},
					} {
						if named := strings.Contains(log.String(), `"`+field.name+`"`); named != (field.given != field.sent) {
							t.Errorf("the log is %q, want the names of the fields that were not sent", log)
						}
						if field.given != field.sent && strings.Contains(log.String(), field.given) {
							t.Errorf("the log has the %s: %s", field.name, log)
						}
					}
				}
			})
		})
	}
}

func TestOrderCutByAnOuterLimit(t *testing.T) {
	big := `{"item":"` + strings.Repeat("x", 200) + `","qty":1}` + strings.Repeat(" ", 2000)
	for name, request := range map[string]*http.Request{
		"declared":   newOrderRequest("k", strings.NewReader(big)),
		"undeclared": newOrderRequest("k", io.MultiReader(strings.NewReader(big))),
	} {
		t.Run(name, func(t *testing.T) {
			store := new(MemStore)
			r := do(http.MaxBytesHandler(New(store), 1000), request)
			r.wantProblem(t, 413, "body-too-large")
			if strings.Contains(r.body, "65536") || strings.Contains(r.body, "ry again") {
				t.Errorf("the problem names a limit that is not the one, or advises to try again: %s", r.body)
			}
			if len(store.Orders()) > 0 {
				t.Errorf("it has created %v", store.Orders())
			}
		})
	}
}

func TestOrderHonoursTheDeadlineOfTheHost(t *testing.T) {
	for _, test := range []struct {
		name string
		host time.Duration // 0: none
		want time.Duration
	}{
		{"none: 30 seconds", 0, 30 * time.Second},
		{"an earlier one counts", 2 * time.Second, 2 * time.Second},
		{"a later one does not", time.Minute, 30 * time.Second},
		{"one that has passed", -time.Second, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := quiet(&stubStore{createOrder: func(ctx context.Context, _ IdempotencyKey, order Order) (Order, error) {
					<-ctx.Done()
					if err, cause := ctx.Err(), context.Cause(ctx); err != context.DeadlineExceeded || cause != err {
						t.Errorf("Err is %v and the cause %v, want context.DeadlineExceeded", err, cause)
					}
					return Order{}, ctx.Err()
				}})
				r := newOrderRequest("k", strings.NewReader(teapots))
				if test.host != 0 {
					ctx, cancel := context.WithTimeout(r.Context(), test.host)
					defer cancel()
					r = r.WithContext(ctx)
				}
				began := time.Now()
				do(h, r).wantProblem(t, 503, "unavailable")
				if took := time.Since(began); took != test.want {
					t.Errorf("it was given up after %v, want %v", took, test.want)
				}
			})
		})
	}
}

// A slowVerdict is what slowOrder makes of a body.
type slowVerdict struct {
	status   int
	order    Order
	pointers []string // as slowPointer returns them
}

// slowPointer returns a pointer without # and per-cent signs (RFC 6901, Section 5),
// or "absent".
func slowPointer(fragment string) string {
	if fragment == "" || len(fragment) > 2048 {
		return "absent"
	}
	pointer, err := url.PathUnescape(strings.TrimPrefix(fragment, "#"))
	if err != nil {
		panic(err)
	}
	return pointer
}

// slowOrder is a second implementation of the checks of an order's body. It leaves to
// package ijson whether the body is I-JSON and what a number is worth, as that has its own.
func slowOrder(body string) slowVerdict {
	if len(body) > 64<<10 {
		return slowVerdict{status: 413}
	}
	if _, _, err := ijson.Parse([]byte(body)); err != nil {
		return slowVerdict{status: 400, pointers: []string{slowPointer(ijson.Pointer(err.(*ijson.Error).Path...))}}
	}
	v := slowVerdict{status: 422}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &members); err != nil || members == nil {
		v.pointers = []string{""}
		return v
	}
	var item any
	json.Unmarshal(members["item"], &item)
	var ok bool
	if v.order.Item, ok = item.(string); !ok || !slowItem(v.order.Item) {
		v.pointers = append(v.pointers, "/item")
	}
	if v.order.Qty, ok = (ijson.Member{Value: members["qty"]}).Int64(); !ok || v.order.Qty < 1 || v.order.Qty >= 1<<53 {
		v.pointers = append(v.pointers, "/qty")
	}
	for name := range members {
		if name != "item" && name != "qty" {
			escaped := strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
			v.pointers = append(v.pointers, slowPointer("#/"+url.PathEscape(escaped)))
		}
	}
	if v.pointers == nil {
		v.status = 201
	}
	slices.Sort(v.pointers)
	return v
}

func slowItem(item string) bool {
	blank := true
	for _, r := range item {
		if r < ' ' || 0x7F <= r && r <= 0x9F {
			return false
		}
		blank = blank && unicode.Is(unicode.White_Space, r)
	}
	return !blank && len([]rune(item)) <= 255
}

// uriFragment is what may stand in the fragment of a URI (RFC 3986, Section 3.5).
var uriFragment = regexp.MustCompile(`^#(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*$`)

// FuzzOrderBody compares the service with slowOrder: the verdict, the order that
// the store is given, and every pointer.
func FuzzOrderBody(f *testing.F) {
	add := func(body string) {
		if len(body) <= 1024 { // the fuzzer spends a minute on minimizing each long one
			f.Add(body)
		}
	}
	for _, test := range malformedOrders {
		add(test.body)
	}
	for _, test := range wrongOrders {
		add(test.body)
	}
	for _, test := range acceptedOrders {
		add(test.body)
	}
	for _, n := range []int{2000, 3000} { // bytes of a name, around those of the longest pointer
		f.Add(`{"` + strings.Repeat("x", n) + `":1,"` + strings.Repeat("é", n) + `":{"a":1,"a":2}}`)
		f.Add(`{"` + strings.Repeat("y", n) + `":1,"` + strings.Repeat("~", n) + `":1,` + strings.Repeat(`"/":1,`, 20) + `"item":1}`)
	}
	var many strings.Builder
	for i := range 150 { // faults, with more bytes than go into a problem
		fmt.Fprintf(&many, `"%0200d":1,`, i)
	}
	f.Add("{" + many.String() + `"item":"a"}`)
	var given Order
	h := New(&stubStore{createOrder: func(_ context.Context, _ IdempotencyKey, order Order) (Order, error) {
		given = order
		return order, nil
	}})
	f.Fuzz(func(t *testing.T, body string) {
		r := postOrder(h, "k", body)
		want := slowOrder(body)
		switch want.status {
		case 201:
			if r.status != 201 || given.Item != want.order.Item || given.Qty != want.order.Qty {
				t.Fatalf("%q: status %d, order %+v, want 201 and %+v\n%s", body, r.status, given, want.order, r.body)
			}
			var sent Order
			if err := json.Unmarshal([]byte(r.body), &sent); err != nil || sent != given {
				t.Fatalf("%q: the response says %+v (%v), want %+v", body, sent, err, given)
			}
		case 413:
			r.wantProblem(t, 413, "body-too-large")
		default:
			code := map[int]string{400: "malformed-body", 422: "invalid-order"}[want.status]
			p := r.wantProblem(t, want.status, code)
			var got []string
			for _, f := range p.Errors {
				if f.Pointer != "" && !uriFragment.MatchString(f.Pointer) {
					t.Errorf("%q: pointer %q is not a URI fragment", body, f.Pointer)
				}
				got = append(got, slowPointer(f.Pointer))
			}
			slices.Sort(got)
			if len(got) < len(want.pointers) {
				// 100 faults, or so many that the longest would not go into 15 KiB.
				if len(got) != 100 && len(r.body) < 15<<10-2048-100 {
					t.Errorf("%q: %d pointers, want %d", body, len(got), len(want.pointers))
				}
				for _, pointer := range got {
					if !slices.Contains(want.pointers, pointer) {
						t.Errorf("%q: pointer %q, want one of %q", body, pointer, want.pointers)
					}
				}
				return
			}
			if !slices.Equal(got, want.pointers) {
				t.Errorf("%q: pointers %q, want %q", body, got, want.pointers)
			}
		}
	})
}

// There is no representation of the orders that If-Match could match (RFC 9110, Section
// 13.1.1). An order that has another fault is refused for that fault (Section 13.2.1).
func TestOrderWithIfMatchIs412AndCreatesNothing(t *testing.T) {
	for _, line := range []string{"If-Match: *", `If-Match: "x"`, `If-Match: W/"x"`, "If-Match: junk"} {
		store := new(MemStore)
		h := New(store)
		for _, key := range []string{"k", "used"} {
			if key == "used" {
				postOrder(h, key, teapots).wantStatus(t, http.StatusCreated)
			}
			postOrder(h, key, teapots, line).wantProblem(t, http.StatusPreconditionFailed, "precondition-failed")
		}
		if orders := store.Orders(); len(orders) != 1 {
			t.Errorf("%s: the orders are %v, want only that without it", line, orders)
		}
		postOrder(h, "k", teapots).wantStatus(t, http.StatusCreated) // as the key was not consumed
	}
	h := New(new(MemStore))
	postOrder(h, "k", teapots, "If-Match: ").wantStatus(t, http.StatusCreated)
	postOrder(h, "k,", teapots, "If-Match: *").wantProblem(t, http.StatusBadRequest, "idempotency-key-invalid")
	postOrder(h, "k", strings.Repeat(" ", maxOrderBody+1), "If-Match: *").wantProblem(t, http.StatusRequestEntityTooLarge, "body-too-large")
	postOrder(h, "k", teapots, `If-None-Match: *`).wantStatus(t, http.StatusCreated)
}

func TestOrderEqual(t *testing.T) {
	order := Order{ID: "ord_1", Item: "teapot", Qty: 2, CreatedAt: time.UnixMilli(1_800_000_000_000).UTC()}
	if other := order; !order.Equal(other) {
		t.Errorf("%v does not equal itself", order)
	}
	other := order
	other.CreatedAt = order.CreatedAt.In(time.FixedZone("elsewhere", 3600))
	if order == other || !order.Equal(other) {
		t.Errorf("%v does not equal %v, the same instant", order, other)
	}
	for name, change := range map[string]func(*Order){
		"ID":        func(o *Order) { o.ID = "ord_2" },
		"Item":      func(o *Order) { o.Item = "diary" },
		"Qty":       func(o *Order) { o.Qty = 3 },
		"CreatedAt": func(o *Order) { o.CreatedAt = o.CreatedAt.Add(1) },
	} {
		other := order
		if change(&other); order.Equal(other) {
			t.Errorf("%v equals %v, in spite of another %s", order, other, name)
		}
	}
	if n := reflect.TypeFor[Order]().NumField(); n != 4 {
		t.Errorf("an Order has %d fields, and Equal compares 4", n)
	}
}
