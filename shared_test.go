package storefront

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A response is a handler's response.
type response struct {
	status int
	header http.Header
	body   string
}

// send sends h a request with header lines of the form "Name: value" and returns
// the response.
func send(h http.Handler, method, target, body string, lines ...string) response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, newRequest(method, target, body, lines...))
	result := w.Result()
	return response{result.StatusCode, result.Header, w.Body.String()}
}

// newRequest returns the request that send sends.
func newRequest(method, target, body string, lines ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// get sends a GET.
func get(h http.Handler, target string, lines ...string) response {
	return send(h, http.MethodGet, target, "", lines...)
}

// postOrder sends an order with a key, and lines in addition to the required
// ones.
func postOrder(h http.Handler, key, body string, lines ...string) response {
	lines = append([]string{"Content-Type: application/json", "Idempotency-Key: " + key}, lines...)
	return send(h, http.MethodPost, "/v1/orders", body, lines...)
}

// wantStatus checks the status.
func (r response) wantStatus(t *testing.T, status int) {
	t.Helper()
	if r.status != status {
		t.Errorf("status %d, want %d\n%s", r.status, status, r.body)
	}
}

// wantProblem checks that r is a problem with this status and code, and returns
// it.
func (r response) wantProblem(t *testing.T, status int, code string) Problem {
	t.Helper()
	var p Problem
	dec := json.NewDecoder(strings.NewReader(r.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		t.Fatalf("status %d with the body %q: want a problem document: %v", r.status, r.body, err)
	}
	if want := "urn:problem-type:storefront:" + code; r.status != status || p.Type != want {
		t.Fatalf("got %d %s, want %d %s\n%s", r.status, p.Type, status, want, r.body)
	}
	if p.Status != status || p.Title == "" || p.Detail == "" {
		t.Errorf("want status %d, a title and a detail in the problem: %s", status, r.body)
	}
	if got := r.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type: %s, want application/problem+json", got)
	}
	if got := r.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control: %s, want no-store", got)
	}
	return p
}

// problemTypes returns all problem types, in the sequence of the source.
func problemTypes(t *testing.T) (types []problemType) {
	t.Helper()
	source, err := os.ReadFile("service.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`= problemType{(\d+), "(.+)", "(.+)"}`).FindAllSubmatch(source, -1) {
		status, _ := strconv.Atoi(string(m[1]))
		types = append(types, problemType{status, string(m[2]), string(m[3])})
	}
	if len(types) == 0 {
		t.Fatal("service.go has no problem types")
	}
	return types
}

// difference returns "" if got is as want, and otherwise the lines of their JSON that
// only one of them has.
func difference(want, got any) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	lines := func(v any) []string {
		text, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return nil
		}
		return strings.Split(string(text), "\n")
	}
	var only []string
	for sign, side := range map[string][2][]string{"- ": {lines(want), lines(got)}, "+ ": {lines(got), lines(want)}} {
		for _, line := range side[0] {
			if !slices.Contains(side[1], line) {
				only = append(only, sign+line)
			}
		}
	}
	if only == nil { // what differs is not in the JSON
		return fmt.Sprintf("- %+v\n+ %+v", want, got)
	}
	slices.SortStableFunc(only, func(a, b string) int { return strings.Compare(b[:1], a[:1]) })
	return strings.Join(only, "\n")
}

// A stubStore is a Store made of functions. Calling a method whose function is
// nil panics.
type stubStore struct {
	listUsers   func(ctx context.Context, after string, limit int) ([]Resource, error)
	createOrder func(ctx context.Context, key IdempotencyKey, order Order) (Order, error)
	getProduct  func(ctx context.Context, id string) (Resource, error)
	listWidgets func(ctx context.Context, start string, limit int) ([]Resource, error)
}

func (s *stubStore) ListUsers(ctx context.Context, after string, limit int) ([]Resource, error) {
	return s.listUsers(ctx, after, limit)
}

func (s *stubStore) CreateOrder(ctx context.Context, key IdempotencyKey, order Order) (Order, error) {
	return s.createOrder(ctx, key, order)
}

func (s *stubStore) GetProduct(ctx context.Context, id string) (Resource, error) {
	return s.getProduct(ctx, id)
}

func (s *stubStore) ListWidgets(ctx context.Context, start string, limit int) ([]Resource, error) {
	return s.listWidgets(ctx, start, limit)
}
