package storefront

import (
	"context"
	"encoding/hex"
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
	create := func(_ context.Context, key IdempotencyKey, order Order) (Order, error) {
		*keys = append(*keys, key)
		return order, nil
	}
	return NewWithOptions(&stubStore{createOrder: create}, &Options{OrderFields: true}), keys
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

// Stores keep fingerprints: one that changes turns every retry across an upgrade
// into ErrKeyReused.
func TestFingerprintIsFrozen(t *testing.T) {
	for _, test := range []struct{ body, want string }{
		{`{"item":"teapot","qty":2}`, "3903ffcff8da5f1d5e2f991405736371419170ce556f44078e66b0de15c3ef1e"},
		{`{"item":"caf\u00e9 \ud83d\ude00","qty":9007199254740991}`,
			"c3de341ac8c498e6e76439bddcda1bb5ab202e3a517b10192cb0cadadcaaf48e"},
		{`{"item":"teapot","qty":2,"fields":{"a":1}}`, "2afe64e687ad63015bbcf604be05e32024d38b016534a5cb52597b8ab5bf02dd"},
	} {
		h, keys := keyRecorder()
		postOrder(h, "k", test.body)
		if got := hex.EncodeToString((*keys)[0].Fingerprint[:]); got != test.want {
			t.Errorf("%s: fingerprint %s, want %s", test.body, got, test.want)
		}
	}
}

// FuzzIdempotencyKey compares bare keys with a regular expression and quoted ones with
// package httpfield, which has a fuzz target of its own, and every key that is accepted with
// the same key in other forms.
func FuzzIdempotencyKey(f *testing.F) {
	k255 := strings.Repeat("k", 255)
	for _, line := range []string{
		``, " \t", `abc`, `"abc"`, ` "a\"b" `, `"a\\"`, `a\b`, `"a,b"`, `a,b`, `abc, `, `a;b=1`, `a b`,
		`" a "`, `" "`, `""`, " \t\"abc\"\t ", `'abc'`, `"abc";v=1; w="x, y"`, `"a;b=1";v=1`, `"abc`,
		`"abc\"`, `"a\bc"`, `"a"b`, `"abc", "def"`, `"abc";v=1, "def";v=1`, `"abc";`, `"abc";v=1.`, `"";v=1`,
		`abc;v="1"`, `a"b`, `%"abc"`, `clé`, `"`, `\`, k255, k255 + "k", `"` + k255 + `"`, `"` + k255 + `k"`,
		`"` + k255 + `";v=` + k255, `"` + strings.Repeat(`\\`, 255) + `"`,
		`"` + strings.Repeat(`\"`, 256) + `"`,
	} {
		f.Add(line)
	}
	for c := range 256 {
		f.Add("a" + string([]byte{byte(c)}) + "b")
		f.Add(`"` + string([]byte{byte(c)}) + `"`)
	}
	bare := regexp.MustCompile(`^[ \t]*([!#-+\--~]|[!#-+\--~][ !#-+\--~]{0,253}[!#-+\--~])[ \t]*$`)
	h, keys := keyRecorder()
	f.Fuzz(func(t *testing.T, line string) {
		*keys = nil
		want, ok := "", false
		if m := bare.FindStringSubmatch(line); m != nil {
			want, ok = m[1], true
		} else if want, ok = httpfield.ParseStringItem(strings.Trim(line, " \t")); len(want) < 1 ||
			len(want) > 255 {
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
			if r := postWithKeyLines(h, form); r.status != http.StatusCreated ||
				!reflect.DeepEqual((*keys)[len(*keys)-1], (*keys)[0]) {
				t.Errorf("%q as %q: status %d, keys %v, want the same key", line, form, r.status, *keys)
			}
		}
		if r := postWithKeyLines(h, line, line); r.status != http.StatusBadRequest {
			t.Errorf("%q on two lines: status %d, want 400", line, r.status)
		}
	})
}
