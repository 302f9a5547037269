package storefront

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"
)

// An arrivalWriter records how much of the body was there when the header was
// written.
type arrivalWriter struct {
	*httptest.ResponseRecorder
	body   *countingReader
	atHead int
}

func (w *arrivalWriter) WriteHeader(status int) {
	w.atHead = w.body.n
	w.ResponseRecorder.WriteHeader(status)
}

type countingReader struct {
	io.Reader
	n int
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n += n
	return n, err
}

// A proxy that is still writing a request may lose the answer.
func TestAnswersComeAfterTheBody(t *testing.T) {
	const size, all, any = 60_000, 64 << 10, "Accept: */*"
	for _, test := range []struct {
		method, target string
		declared       int64
		size           int
		line           string
		want           int // bytes read before the answer
	}{
		{"POST", "/v1/orders", size, size, "Content-Type: text/plain", size},
		{"POST", "/v1/orders", size, size, "Content-Type: application/json", size}, // without a key
		{"POST", "/v1/orders?a=b", size, size, "Content-Type: application/json", size},
		{"POST", "/v1/orders", -1, size, "Content-Type: text/plain", size},
		{"PUT", "/v1/orders", size, size, any, size},
		{"POST", "/v1/nothing", size, size, any, size},
		{"POST", "//v1/orders", size, size, any, size},
		{"BREW", "/v1/orders", size, size, any, size},
		{"GET", "/v1/users?limit=0", 2, 2, any, 2},
		{"GET", "/v1/users", size, size, any, size},
		{"GET", "/v1/users", size, size, "If-None-Match: *", size},
		{"GET", "/v1/users?limit=0", -1, 1 << 20, any, all}, // of endless chunks
		{"OPTIONS", "/v1/users", size, size, any, size},
		{"PUT", "/v1/orders", all, all, any, all},
		{"PUT", "/v1/orders", all + 1, all + 1, any, 0},
		{"PUT", "/v1/orders", -1, 1 << 20, any, all},
		{"PUT", "/v1/orders", size, size, "Expect: 100-continue", 0},
		{"POST", "/v1/orders", size, size, "Expect: 100-continue", 0},
		{"CONNECT", "/v1/orders", -1, size, any, 0}, // which has no body, but may have a tunnel
		{"CONNECT", "/v1/nothing", -1, size, any, 0},
	} {
		body := &countingReader{Reader: strings.NewReader(strings.Repeat("x", test.size))}
		r := newRequest(test.method, test.target, "", test.line)
		r.Body, r.ContentLength = io.NopCloser(body), test.declared
		w := &arrivalWriter{httptest.NewRecorder(), body, -1}
		quiet(new(MemStore)).ServeHTTP(w, r)
		if w.atHead != test.want || body.n != test.want {
			t.Errorf("%+v: %d after %d bytes, and %d in the end", test, w.Code, w.atHead, body.n)
		}
	}
}
