// Package oapicodegen has what oapi-codegen makes of openapi.json, while TestGo runs.
package oapicodegen

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
)

// A store is a MemStore that fails with err if that is set.
type store struct {
	storefront.MemStore
	err error
}

func (s *store) CreateOrder(ctx context.Context, key storefront.IdempotencyKey, order storefront.Order) (storefront.Order, error) {
	if s.err != nil {
		return storefront.Order{}, s.err
	}
	return s.MemStore.CreateOrder(ctx, key, order)
}

// newClient returns a client of the service on the store.
func newClient(t *testing.T, s storefront.Store) *ClientWithResponses {
	t.Helper()
	server := httptest.NewServer(storefront.NewWithOptions(s, &storefront.Options{Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(server.Close)
	client, err := NewClientWithResponses(server.URL, WithHTTPClient(server.Client()))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestClientWalksLists(t *testing.T) {
	s := new(store)
	want := []string{"a", "b", "c", "d", "e"}
	for _, id := range want {
		s.Users.Put(storefront.MustResource(id, map[string]any{"name": "The user " + id}))
		s.Widgets.Put(storefront.MustResource(id, nil))
	}
	client := newClient(t, s)

	var users []string
	for params := new(ListUsersParams); ; {
		params.Limit = new(2)
		res, err := client.ListUsersWithResponse(t.Context(), params)
		if err != nil || res.JSON200 == nil {
			t.Fatal(err, res)
		}
		for _, user := range res.JSON200.Data {
			users = append(users, user.Id)
			if name, _ := user.Get("name"); name != "The user "+user.Id {
				t.Errorf("the name of %s is %q", user.Id, name)
			}
		}
		if params.After = res.JSON200.Next; params.After == nil {
			break
		}
	}
	if !slices.Equal(users, want) {
		t.Errorf("the users are %q, want %q", users, want)
	}

	var widgets []string
	for params := (ListWidgetsParams{Limit: 2}); ; {
		res, err := client.ListWidgetsWithResponse(t.Context(), &params)
		if err != nil || res.JSON200 == nil {
			t.Fatal(err, res)
		}
		for _, widget := range res.JSON200.Data {
			widgets = append(widgets, widget.Id)
		}
		if params.Start = res.JSON200.Next; params.Start == nil {
			break
		}
	}
	if !slices.Equal(widgets, want) {
		t.Errorf("the widgets are %q, want %q", widgets, want)
	}
}

func TestClientCreatesAnOrderOnce(t *testing.T) {
	s := new(store)
	client := newClient(t, s)
	var first Order
	for i := range 3 {
		res, err := client.CreateOrderWithResponse(t.Context(), &CreateOrderParams{IdempotencyKey: "key"}, NewOrder{Item: "teapot", Qty: 1<<53 - 1})
		if err != nil || res.JSON201 == nil {
			t.Fatal(err, res)
		}
		if i == 0 {
			first = *res.JSON201
		}
		if *res.JSON201 != first || first.Item != "teapot" || first.Qty != 1<<53-1 || first.CreatedAt.IsZero() {
			t.Errorf("answer %d has the order %+v, the first had %+v", i, *res.JSON201, first)
		}
		if replayed := res.Headers201.IdempotentReplayed; (replayed != nil) != (i > 0) {
			t.Errorf("Idempotent-Replayed of answer %d is %v", i, replayed)
		}
	}
	if n := len(s.Orders()); n != 1 {
		t.Errorf("there are %d orders, want 1", n)
	}
}

func TestClientRevalidates(t *testing.T) {
	s := new(store)
	s.Products.Put(storefront.MustResource("a/b", nil))
	client := newClient(t, s)
	res, err := client.GetProductWithResponse(t.Context(), "a/b", nil)
	if err != nil || res.JSON200 == nil {
		t.Fatal(err, res)
	}
	etag := res.Headers200.ETag
	res, err = client.GetProductWithResponse(t.Context(), "a/b", &GetProductParams{IfNoneMatch: &etag})
	if err != nil || res.StatusCode() != http.StatusNotModified || res.Headers304.ETag != etag {
		t.Errorf("the answer is %v %+v, want 304 with the same ETag", err, res)
	}
}

func TestClientGetsEveryProblemTyped(t *testing.T) {
	s := &store{MemStore: storefront.MemStore{
		Accept: func(_ context.Context, _ storefront.IdempotencyKey, order storefront.Order) error {
			if order.Item == "samovar" {
				return &storefront.Refusal{Reason: "sold-out", Detail: "The last one is gone.", Pointer: "#/item"}
			}
			return nil
		},
	}}
	s.Products.Put(storefront.MustResource("teapot", nil))
	client := newClient(t, s)
	ctx := t.Context()
	if _, err := client.CreateOrderWithResponse(ctx, &CreateOrderParams{IdempotencyKey: "used"}, NewOrder{Item: "teapot", Qty: 1}); err != nil {
		t.Fatal(err)
	}

	order := func(o NewOrder, key string) *CreateOrderResponse {
		res, err := client.CreateOrderWithResponse(ctx, &CreateOrderParams{IdempotencyKey: key}, o)
		return must(t, res, err)
	}
	body := func(contentType, body string, edit ...RequestEditorFn) *CreateOrderResponse {
		res, err := client.CreateOrderWithBodyWithResponse(ctx, &CreateOrderParams{IdempotencyKey: "new"}, contentType, strings.NewReader(body), edit...)
		return must(t, res, err)
	}
	product := func(id string, params GetProductParams) *GetProductResponse {
		res, err := client.GetProductWithResponse(ctx, id, &params)
		return must(t, res, err)
	}
	users := func(method string) *Problem {
		res, err := client.ListUsersWithResponse(ctx, nil, func(_ context.Context, r *http.Request) error {
			r.Method = method
			return nil
		})
		// What no operation answers has no type of its own.
		p := new(Problem)
		if err := json.Unmarshal(must(t, res, err).Body, p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	teapot := NewOrder{Item: "teapot", Qty: 1}

	missing := map[KnownProblemType]bool{}
	for _, known := range knownProblemTypes(t) {
		if !known.Valid() {
			t.Errorf("the client does not know %s", known)
		}
		missing[known] = true
	}
	check := func(want KnownProblemType, status int, p *Problem) *Problem {
		t.Helper()
		if p == nil {
			t.Fatalf("the answer has no problem where %s belongs", want)
		}
		if KnownProblemType(p.Type) != want || p.Status != status || p.Title == "" || p.Detail == "" {
			t.Errorf("the problem is %+v, want %d %s", *p, status, want)
		}
		if (p.Instance != nil) != (status >= 500) {
			t.Errorf("the instance of %s is %v", want, p.Instance)
		}
		delete(missing, want)
		return p
	}

	res, err := client.ListWidgetsWithResponse(ctx, &ListWidgetsParams{Limit: 501})
	p := check(KnownProblemTypeInvalidQuery, 400, must(t, res, err).ApplicationproblemJSON400)
	if fault := only(t, p); *fault.Parameter != "limit" || *fault.Minimum != 1 || *fault.Maximum != 500 {
		t.Errorf("the fault is %+v, want limit with its bounds", fault)
	}
	check(KnownProblemTypeMalformedBody, 400, body("application/json", `{"item":`).ApplicationproblemJSON400)
	check(KnownProblemTypeIdempotencyKeyMissing, 400, body("application/json", `{}`, func(_ context.Context, r *http.Request) error {
		r.Header.Del("Idempotency-Key")
		return nil
	}).ApplicationproblemJSON400)
	p = check(KnownProblemTypeIdempotencyKeyInvalid, 400, order(teapot, `"unterminated`).ApplicationproblemJSON400)
	if fault := only(t, p); *fault.Header != "Idempotency-Key" {
		t.Errorf("the fault is %+v, want one of Idempotency-Key", fault)
	}
	check(KnownProblemTypeNotFound, 404, product("", GetProductParams{}).ApplicationproblemJSON404)
	check(KnownProblemTypeProductNotFound, 404, product("kettle", GetProductParams{}).ApplicationproblemJSON404)
	check(KnownProblemTypeMethodNotAllowed, 405, users("PUT"))
	check(KnownProblemTypePreconditionFailed, 412, product("teapot", GetProductParams{IfMatch: new(`"other"`)}).ApplicationproblemJSON412)
	check(KnownProblemTypeBodyTooLarge, 413, body("application/json", strings.Repeat(" ", 64<<10+1)).ApplicationproblemJSON413)
	media := body("text/plain", "teapot")
	check(KnownProblemTypeUnsupportedMediaType, 415, media.ApplicationproblemJSON415)
	if accept := media.Headers415.Accept; accept == nil || *accept != "application/json" {
		t.Errorf("Accept is %v, want application/json", accept)
	}
	p = check(KnownProblemTypeInvalidOrder, 422, order(NewOrder{}, "new").ApplicationproblemJSON422)
	if p.Errors == nil || len(*p.Errors) != 2 || *(*p.Errors)[0].Pointer != "#/item" || *(*p.Errors)[1].Pointer != "#/qty" || *(*p.Errors)[1].Maximum != 1<<53-1 {
		t.Errorf("the faults are %+v, want item and qty with its bounds", p.Errors)
	}
	check(KnownProblemTypeIdempotencyKeyReused, 422, order(NewOrder{Item: "kettle", Qty: 1}, "used").ApplicationproblemJSON422)
	p = check(KnownProblemTypeOrderRefused, 422, order(NewOrder{Item: "samovar", Qty: 1}, "new").ApplicationproblemJSON422)
	if fault := only(t, p); *p.Reason != "sold-out" || *fault.Pointer != "#/item" {
		t.Errorf("the refusal is %+v with the fault %+v, want sold-out at #/item", *p, fault)
	}
	check(KnownProblemTypeMethodNotImplemented, 501, users("BREW"))
	check(KnownProblemTypeNotCached, 504, product("kettle", GetProductParams{CacheControl: new("only-if-cached")}).ApplicationproblemJSON504)

	check(KnownProblemTypeRequestTimeout, 408, slowly(t, s).ApplicationproblemJSON408)
	s.err = storefront.ErrInProgress
	busy := order(teapot, "new")
	check(KnownProblemTypeIdempotencyKeyInProgress, 409, busy.ApplicationproblemJSON409)
	s.err = errors.New("a disk is broken")
	check(KnownProblemTypeInternalError, 500, order(teapot, "new").ApplicationproblemJSON500)
	s.err = storefront.ErrUnavailable
	away := order(teapot, "new")
	check(KnownProblemTypeServiceUnavailable, 503, away.ApplicationproblemJSON503)
	if busy.Headers409.RetryAfter != 1 || away.Headers503.RetryAfter != 1 {
		t.Errorf("Retry-After is %d and %d, want 1", busy.Headers409.RetryAfter, away.Headers503.RetryAfter)
	}

	for known := range missing {
		t.Errorf("no request of this test is answered with %s", known)
	}
}

// slowly sends an order whose body does not arrive in time.
func slowly(t *testing.T, s storefront.Store) *CreateOrderResponse {
	t.Helper()
	service := storefront.New(s)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).SetReadDeadline(time.Now()); err != nil {
			t.Error(err)
		}
		service.ServeHTTP(w, r)
	}))
	defer server.Close()
	client, err := NewClientWithResponses(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	body, never := io.Pipe()
	defer never.Close()
	res, err := client.CreateOrderWithBodyWithResponse(t.Context(), &CreateOrderParams{IdempotencyKey: "new"}, "application/json", body)
	return must(t, res, err)
}

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// only returns the only fault of the problem.
func only(t *testing.T, p *Problem) Fault {
	t.Helper()
	if p.Errors == nil || len(*p.Errors) != 1 {
		t.Fatalf("the problem is %+v, want one with one fault", *p)
	}
	return (*p.Errors)[0]
}

// knownProblemTypes returns the problem types that openapi.json lists.
func knownProblemTypes(t *testing.T) (types []KnownProblemType) {
	t.Helper()
	var document struct {
		Components struct {
			Schemas struct {
				KnownProblemType struct{ Enum []KnownProblemType }
			}
		}
	}
	text, err := os.ReadFile("../../../../openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	if types = document.Components.Schemas.KnownProblemType.Enum; types == nil {
		t.Fatal("openapi.json lists no problem types")
	}
	return types
}

// A type is a string, so that one of a later version is read like any other.
func TestClientTakesAProblemTypeOfALaterVersion(t *testing.T) {
	const later = "urn:problem-type:storefront:of-a-later-version"
	var p Problem
	if err := json.Unmarshal([]byte(`{"type":"`+later+`","title":"Later","status":429,"detail":"Too early."}`), &p); err != nil {
		t.Fatal(err)
	}
	var got string = p.Type
	if got != later || KnownProblemType(got).Valid() {
		t.Errorf("the type is %q, and known: %t", got, KnownProblemType(got).Valid())
	}
}
