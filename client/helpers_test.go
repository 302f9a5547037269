package client_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"example.com/storefront"
	"example.com/storefront/client"
	"example.com/storefront/internal/must"
)

// A script is a transport that gives answers in sequence, and then those of a shop.
type script struct {
	shop    http.Handler
	mu      sync.Mutex
	answers []http.HandlerFunc
	sent    []*http.Request
}

func newScript(answers ...http.HandlerFunc) (*script, *storefront.MemStore) {
	store := new(storefront.MemStore)
	return &script{shop: atBase(storefront.New(store)), answers: answers}, store
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.sent = append(s.sent, r)
	answer := s.shop.ServeHTTP
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	s.mu.Unlock()
	if answer == nil {
		return nil, io.ErrUnexpectedEOF
	}
	w := httptest.NewRecorder()
	answer(w, r)
	return w.Result(), nil
}

// lost is an answer that does not come.
var lost http.HandlerFunc

func says(status int, body string, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(fields); i += 2 {
			w.Header().Set(fields[i], fields[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// problem is a problem document of the service.
func problem(status int, code string) http.HandlerFunc {
	return says(status, fmt.Sprintf(`{"type":"urn:problem-type:storefront:%s","status":%d,"detail":"No."}`,
		code, status))
}

// shopOf returns a client of a transport.
func shopOf(t testing.TB, transport http.RoundTripper, opts client.Options) *client.Client {
	t.Helper()
	opts.HTTPClient = &http.Client{Transport: transport}
	opts.Logger = slog.New(slog.DiscardHandler)
	return must.Get(client.New("http://shop.test/base/", &opts))(t)
}

// atBase has a service at /base, as shopOf expects.
func atBase(service http.Handler) http.Handler { return http.StripPrefix("/base", service) }

// member returns a member of a resource that is a string.
func member(r storefront.Resource, name string) string {
	var members map[string]any
	json.Unmarshal([]byte(r.String()), &members)
	text, _ := members[name].(string)
	return text
}

func text(t testing.TB, draft *client.Draft) string {
	t.Helper()
	return string(must.Get(draft.MarshalText())(t))
}

// draftFrom returns the draft in a text, some of which is replaced.
func draftFrom(t testing.TB, text string, replace ...string) *client.Draft {
	t.Helper()
	draft := new(client.Draft)
	must.OK(t, draft.UnmarshalText([]byte(strings.NewReplacer(replace...).Replace(text))))
	return draft
}
