package storefront

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"example.com/storefront/internal/httpfield"
)

// keyRecorder returns a handler that accepts every order, and the keys that its
// store has been given.
func keyRecorder() (http.Handler, *[]IdempotencyKey) {
	keys := new([]IdempotencyKey)
	return New(&stubStore{createOrder: func(_ context.Context, key IdempotencyKey, order Order) (Order, error) {
		*keys = append(*keys, key)
		return order, nil
	}}), keys
}

// postWithKeyLines sends an order with these lines of Idempotency-Key, to the
// byte.
func postWithKeyLines(h http.Handler, lines ...string) response {
	r := newOrderRequest("", strings.NewReader(teapots))
	r.Header["Idempotency-Key"] = lines
	return do(h, r)
}

func quoteKey(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

func TestIdempotencyKeyAccepted(t *testing.T) {
	for _, test := range []struct{ name, line, key string }{
		{"bare", `abc`, `abc`},
		{"quoted", `"abc"`, `abc`},
		{"255 characters, bare", strings.Repeat("k", 255), strings.Repeat("k", 255)},
		{"255 characters, quoted", `"` + strings.Repeat("k", 255) + `"`, strings.Repeat("k", 255)},
		{"255 characters, each escaped", `"` + strings.Repeat(`\"`, 255) + `"`, strings.Repeat(`"`, 255)},
		{"escaped backslash at the end", `"a\\"`, `a\`},
		{"backslash in a bare key is itself", `a\b`, `a\b`},
		{"comma in a quoted key", `"a,b"`, `a,b`},
		{"semicolon in a bare key", `a;b=1`, `a;b=1`},
		{"space inside a bare key", `a b`, `a b`},
		{"spaces inside quotes are part of the key", `" a "`, ` a `},
		{"a space alone, quoted", `" "`, ` `},
		{"spaces and tabs around a quoted key", " \t\"abc\"\t ", `abc`},
		{"single quotes are part of the key", `'abc'`, `'abc'`},
		{"parameters of a quoted key mean nothing", `"abc";v=1; w="x, y"`, `abc`},
		{"255 characters and parameters", `"` + strings.Repeat("k", 255) + `";v=` + strings.Repeat("v", 255), strings.Repeat("k", 255)},
		{"semicolon and parameters in a quoted key", `"a;b=1";v=1`, `a;b=1`},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, keys := keyRecorder()
			if r := postWithKeyLines(h, test.line); r.status != http.StatusCreated {
				t.Fatalf("%q: status %d, want 201\n%s", test.line, r.status, r.body)
			}
			if got := (*keys)[0].Value; got != test.key {
				t.Errorf("%q: key %q, want %q", test.line, got, test.key)
			}
		})
	}
}

func TestIdempotencyKeyMayHaveEveryPrintableCharacter(t *testing.T) {
	h, keys := keyRecorder()
	for c := ' '; c <= '~'; c++ {
		forms := map[string]string{quoteKey(string(c)): string(c)}
		if c != '"' && c != ',' {
			forms["a"+string(c)+"b"] = "a" + string(c) + "b"
		}
		if c != '"' && c != ',' && c != ' ' {
			forms[string(c)] = string(c)
		}
		for line, want := range forms {
			*keys = nil
			if r := postWithKeyLines(h, line); r.status != http.StatusCreated || (*keys)[0].Value != want {
				t.Errorf("%s: status %d and keys %v, want 201 and the key %q", line, r.status, *keys, want)
			}
		}
	}
}

func TestIdempotencyKeyIsRequired(t *testing.T) {
	p := postWithKeyLines(refusingOrders(t)).wantProblem(t, http.StatusBadRequest, "idempotency-key-missing")
	if where(p.Errors) != "Idempotency-Key" {
		t.Errorf("errors %+v, want one that names the header", p.Errors)
	}
}

func TestIdempotencyKeyRefused(t *testing.T) {
	for _, test := range []struct {
		name  string
		lines []string
	}{
		{"empty", []string{``}},
		{"only space", []string{" \t"}},
		{"empty quoted", []string{`""`}},
		{"two lines", []string{`abc`, `def`}},
		{"two equal lines", []string{`abc`, `abc`}},
		{"256 characters, bare", []string{strings.Repeat("k", 256)}},
		{"256 characters, quoted", []string{`"` + strings.Repeat("k", 256) + `"`}},
		{"256 characters, each escaped", []string{`"` + strings.Repeat(`\\`, 256) + `"`}},
		{"unterminated", []string{`"abc`}},
		{"closing quote escaped", []string{`"abc\"`}},
		{"escape of a letter", []string{`"a\bc"`}},
		{"junk after the quote", []string{`"abc"d`}},
		{"list of two strings", []string{`"abc", "def"`}},
		{"comma in a bare key", []string{`a,b`}},
		{"two bare keys joined to one line", []string{`abc, def`}},
		{"a bare key and an empty one", []string{`abc, `}},
		{"list of two strings with parameters", []string{`"abc";v=1, "def";v=1`}},
		{"parameter without a name", []string{`"abc";`}},
		{"parameter that is malformed", []string{`"abc";v=1.`}},
		{"empty quoted with a parameter", []string{`"";v=1`}},
		{"parameter of a bare key with a quote", []string{`abc;v="1"`}},
		{"quote inside a bare key", []string{`a"b`}},
		{"display string", []string{`%"abc"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := postWithKeyLines(refusingOrders(t), test.lines...).wantProblem(t, http.StatusBadRequest, "idempotency-key-invalid")
			if len(p.Errors) != 1 || p.Errors[0].Header != "Idempotency-Key" || p.Errors[0].Detail == "" {
				t.Errorf("errors %+v, want one that names the header", p.Errors)
			}
		})
	}
}

func TestIdempotencyKeyHasNoOtherCharacters(t *testing.T) {
	h := refusingOrders(t)
	for c := range 256 {
		if ' ' <= c && c <= '~' {
			continue
		}
		for _, line := range []string{"a" + string([]byte{byte(c)}) + "b", `"` + string([]byte{byte(c)}) + `"`} {
			if r := postWithKeyLines(h, line); r.status != http.StatusBadRequest {
				t.Errorf("%q: status %d, want 400", line, r.status)
			}
		}
	}
}

func TestIdempotencyKeyBareAndQuotedAreTheSameKey(t *testing.T) {
	h := New(new(MemStore))
	first := postOrder(h, `retry-1`, teapots)
	for _, form := range []string{`"retry-1"`, `"retry-1";v=1`} {
		again := postOrder(h, form, teapots)
		if again.header.Get("Idempotent-Replayed") != "true" || again.body != first.body {
			t.Errorf("%s got %q (Idempotent-Replayed: %q), want %q replayed",
				form, again.body, again.header.Get("Idempotent-Replayed"), first.body)
		}
	}
}

func TestIdempotencyKeysThatDifferInCaseAreTwo(t *testing.T) {
	h := New(new(MemStore))
	postOrder(h, "key", teapots)
	if r := postOrder(h, "KEY", teapots); r.header.Get("Idempotent-Replayed") != "" {
		t.Error("another key was taken for a repeat")
	}
}

// Stores keep fingerprints: one that changes turns every retry across an upgrade
// into ErrKeyReused.
func TestFingerprintIsFrozen(t *testing.T) {
	for _, test := range []struct{ body, want string }{
		{`{"item":"teapot","qty":2}`, "3903ffcff8da5f1d5e2f991405736371419170ce556f44078e66b0de15c3ef1e"},
		{`{"item":"caf\u00e9 \ud83d\ude00","qty":9007199254740991}`, "c3de341ac8c498e6e76439bddcda1bb5ab202e3a517b10192cb0cadadcaaf48e"},
	} {
		h, keys := keyRecorder()
		postOrder(h, "k", test.body)
		if got := hex.EncodeToString((*keys)[0].Fingerprint[:]); got != test.want {
			t.Errorf("%s: fingerprint %s, want %s", test.body, got, test.want)
		}
	}
}

func TestFingerprintIsOfTheDecodedOrder(t *testing.T) {
	for _, test := range []struct{ name, body string }{
		{"members in another order", `{"qty":2,"item":"thé / tea"}`},
		{"with white space", " {\r\n\t\"item\" : \"thé / tea\" , \"qty\" : 2 } \n"},
		{"escaped value", `{"item":"\u0074h\u00E9 \/ tea","qty":2}`},
		{"escaped names", `{"\u0069tem":"thé / tea","\u0071ty":2}`},
		{"quantity with a point", `{"item":"thé / tea","qty":2.0}`},
		{"quantity with an exponent", `{"item":"thé / tea","qty":20e-1}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := New(new(MemStore))
			first := postOrder(h, "k", `{"item":"thé / tea","qty":2}`)
			again := postOrder(h, "k", test.body)
			if again.header.Get("Idempotent-Replayed") != "true" || again.body != first.body {
				t.Errorf("got %d %s, want a replay of %s", again.status, again.body, first.body)
			}
		})
	}
}

func TestFingerprintIsTheSameWhereverTheHandlerIsMounted(t *testing.T) {
	h, keys := keyRecorder()
	postOrder(h, "k", teapots)
	mounted := http.StripPrefix("/shop", h)
	send(mounted, http.MethodPost, "http://shop.example/shop/v1/orders", teapots,
		"Content-Type: application/json; charset=utf-8", "Idempotency-Key: k", "X-Request-Id: 7")
	if !reflect.DeepEqual((*keys)[0], (*keys)[1]) {
		t.Errorf("keys %+v, want two equal ones", *keys)
	}
}

func TestSameKeyWithAnotherOrderIsReused(t *testing.T) {
	for _, test := range []struct{ name, first, second string }{
		{"other item", teapots, `{"item":"kettle","qty":2}`},
		{"other qty", teapots, `{"item":"teapot","qty":3}`},
		{"other case", teapots, `{"item":"Teapot","qty":2}`},
		{"one space more", teapots, `{"item":"teapot ","qty":2}`},
		{"other normal form", `{"item":"caf\u00e9","qty":2}`, `{"item":"cafe\u0301","qty":2}`},
		{"digits that move between item and qty", `{"item":"cup1","qty":2}`, `{"item":"cup","qty":12}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := new(MemStore)
			h := New(store)
			first := postOrder(h, "k", test.first)
			p := postOrder(h, "k", test.second).wantProblem(t, http.StatusUnprocessableEntity, "idempotency-key-reused")
			if len(p.Errors) != 1 || p.Errors[0].Header != "Idempotency-Key" {
				t.Errorf("errors %+v, want one that names the header", p.Errors)
			}
			if strings.Contains(fmt.Sprint(p), "teapot") {
				t.Errorf("the problem tells what is stored: %+v", p)
			}
			if n := len(store.Orders()); n != 1 {
				t.Errorf("%d orders, want 1", n)
			}
			if again := postOrder(h, "k", test.first); again.body != first.body {
				t.Errorf("after that the first order's retry got %s, want %s", again.body, first.body)
			}
		})
	}
}

func TestIdempotencyKeyScopes(t *testing.T) {
	store := new(MemStore)
	h := NewWithOptions(store, &Options{Scope: func(r *http.Request) string { return r.Header.Get("X-Account") }})
	ann := postOrder(h, "k", teapots, "X-Account: ann")
	bob := postOrder(h, "k", `{"item":"kettle","qty":1}`, "X-Account: bob")
	for name, r := range map[string]response{"ann": ann, "bob": bob} {
		if r.status != http.StatusCreated || r.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s: status %d, Idempotent-Replayed %q, want a new order\n%s", name, r.status, r.header.Get("Idempotent-Replayed"), r.body)
		}
	}
	if n := len(store.Orders()); n != 2 {
		t.Errorf("%d orders, want one for each scope", n)
	}
	if again := postOrder(h, "k", teapots, "X-Account: ann"); again.body != ann.body {
		t.Errorf("ann's retry got %s, want her own order %s", again.body, ann.body)
	}
}

func TestIdempotencyKeyScopeByDefaultIsOneForAll(t *testing.T) {
	h := New(new(MemStore))
	postOrder(h, "k", teapots, "Authorization: Bearer ann")
	if r := postOrder(h, "k", teapots, "Authorization: Bearer bob"); r.header.Get("Idempotent-Replayed") != "true" {
		t.Error("want a replay: without Options.Scope all keys are of one scope")
	}
}

// FuzzIdempotencyKey compares bare keys with a regular expression and quoted ones with
// package httpfield, which has a fuzz target of its own, and every key that is accepted with
// the same key in other forms.
func FuzzIdempotencyKey(f *testing.F) {
	for _, line := range []string{
		``, `abc`, `"abc"`, ` "a\"b" `, `"a\\"`, `"abc`, `"abc\"`, `"a"b`, `"a";v=1`, `a"b`, `a b`, "a\tb", `clé`, `""`, `"`, `\`, `" "`,
		strings.Repeat("k", 255), strings.Repeat("k", 256), `"` + strings.Repeat(`\\`, 255) + `"`, `"` + strings.Repeat(`\"`, 256) + `"`,
	} {
		f.Add(line)
	}
	bare := regexp.MustCompile(`^[ \t]*([!#-+\--~]|[!#-+\--~][ !#-+\--~]{0,253}[!#-+\--~])[ \t]*$`)
	h, keys := keyRecorder()
	f.Fuzz(func(t *testing.T, line string) {
		*keys = nil
		want, ok := "", false
		if m := bare.FindStringSubmatch(line); m != nil {
			want, ok = m[1], true
		} else if want, ok = httpfield.ParseStringItem(strings.Trim(line, " \t")); len(want) < 1 || len(want) > 255 {
			ok = false
		}
		r := postWithKeyLines(h, line)
		if !ok {
			r.wantProblem(t, http.StatusBadRequest, "idempotency-key-invalid")
			return
		}
		if r.status != http.StatusCreated || (*keys)[0].Value != want {
			t.Fatalf("%q: status %d, keys %v, want the key %q", line, r.status, *keys, want)
		}
		forms := []string{quoteKey(want), " " + quoteKey(want) + "\t", quoteKey(want) + "; a=1;b"}
		if !strings.ContainsAny(want, `",`) && strings.Trim(want, " ") == want {
			forms = append(forms, want, "\t"+want+" ")
		}
		for _, form := range forms {
			if r := postWithKeyLines(h, form); r.status != http.StatusCreated || !reflect.DeepEqual((*keys)[len(*keys)-1], (*keys)[0]) {
				t.Errorf("%q as %q: status %d, keys %v, want the same key", line, form, r.status, *keys)
			}
		}
		if r := postWithKeyLines(h, line, line); r.status != http.StatusBadRequest {
			t.Errorf("%q on two lines: status %d, want 400", line, r.status)
		}
	})
}
