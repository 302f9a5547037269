package faultreport

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"example.com/storefront"
)

// Whatever clients send, each request is answered or cut off, and what is said of them can be
// read.
func FuzzClients(f *testing.F) {
	f.Add(uint64(1), "POST", "/v1/orders", "shop/1.0", "a-key", "", `{"item":"teapot","qty":2}`)
	f.Add(uint64(2), "GET", "/v1/users?limit=2&after=dTE", "", "", "", "")
	f.Add(uint64(3), "GET", "/v2/widgets?start=%00", "\x1b[31mred\u202e", "", "", "")
	f.Add(uint64(4), "HEAD", "/v1/products/teapot", "<script>alert(1)</script>", "", `W/"x", "y"`, "")
	f.Add(uint64(5), "POST", "/elsewhere/v1/orders", "a", "k", "", `{"item":"`+"\xff"+`","qty":1e999}`)
	f.Add(uint64(6), "PUT", PagePath, "a", "k", "*", "{}")
	f.Fuzz(func(t *testing.T, seed uint64, method, target, agent, key, tag, body string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			t.Skip("no server hands this on")
		}
		store := new(storefront.MemStore)
		store.Users.Put(storefront.MustResource("u1", nil), storefront.MustResource("u2", nil))
		s := New(seed, store)
		s.EndWaits()
		send := func(method, key string, u *url.URL) {
			defer func() {
				if p := recover(); p != nil && p != http.ErrAbortHandler {
					panic(p)
				}
			}()
			r := &http.Request{Method: method, URL: u, RemoteAddr: "192.0.2.1:1234",
				Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{
					"User-Agent": {agent}, "Idempotency-Key": {key}, "If-None-Match": {tag},
					"Content-Type": {"application/json"},
				}}
			s.ServeHTTP(httptest.NewRecorder(), r)
		}
		for range 60 { // more than a round of orders
			send(method, key, u)
			send(http.MethodPost, key, &url.URL{Path: "/v1/orders"})
			key += "1"
		}
		if text := s.Summary(); strings.ContainsFunc(text,
			func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("the summary has what a terminal may not print: %q", text)
		}
		for _, path := range []string{PagePath, JSONPath} {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code != http.StatusOK || path == JSONPath && !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s is answered %d %.300q", path, w.Code, w.Body)
			}
		}
	})
}
