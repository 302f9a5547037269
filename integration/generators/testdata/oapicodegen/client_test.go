// Package oapicodegen has what oapi-codegen makes of openapi.json, while TestGo runs.
package oapicodegen

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"

	"example.com/storefront"
)

// serve returns a client of a shop.
func serve(t *testing.T) *ClientWithResponses {
	t.Helper()
	store := &storefront.MemStore{
		Accept: func(_ context.Context, _ storefront.IdempotencyKey, order storefront.Order) error {
			if order.Item == "samovar" {
				return &storefront.Refusal{Reason: "sold-out", Detail: "The last one is gone.", Pointer: "#/item"}
			}
			return nil
		},
	}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		store.Users.Put(storefront.MustResource(id, map[string]any{"name": "The user " + id}))
		store.Widgets.Put(storefront.MustResource(id, nil))
	}
	store.Products.Put(storefront.MustResource("a/b", nil))
	server := httptest.NewServer(storefront.New(store))
	t.Cleanup(server.Close)
	client, err := NewClientWithResponses(server.URL, WithHTTPClient(server.Client()))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestReads(t *testing.T) {
	client, ctx := serve(t), t.Context()
	var ids []string
	for params := new(ListUsersParams); ; {
		params.Limit = new(2)
		res, err := client.ListUsersWithResponse(ctx, params)
		if err != nil || res.JSON200 == nil {
			t.Fatal(err, res)
		}
		for _, user := range res.JSON200.Data {
			ids = append(ids, user.Id)
			if name, _ := user.Get("name"); name != "The user "+user.Id {
				t.Errorf("the name of %s is %q", user.Id, name)
			}
		}
		if params.After = res.JSON200.Next; params.After == nil {
			break
		}
	}
	for params := (ListWidgetsParams{Limit: 2}); ; {
		res, err := client.ListWidgetsWithResponse(ctx, &params)
		if err != nil || res.JSON200 == nil {
			t.Fatal(err, res)
		}
		for _, widget := range res.JSON200.Data {
			ids = append(ids, widget.Id)
		}
		if params.Start = res.JSON200.Next; params.Start == nil {
			break
		}
	}
	if want := slices.Repeat([]string{"a", "b", "c", "d", "e"}, 2); !slices.Equal(ids, want) {
		t.Errorf("the lists have %q, want %q", ids, want)
	}
	res, err := client.GetProductWithResponse(ctx, "a/b", nil)
	if err != nil || res.JSON200 == nil {
		t.Fatal(err, res)
	}
	etag := res.Headers200.ETag
	res, err = client.GetProductWithResponse(ctx, "a/b", &GetProductParams{IfNoneMatch: etag})
	if err != nil || res.StatusCode() != http.StatusNotModified || *res.Headers304.ETag != *etag {
		t.Errorf("the answer is %v %+v, want 304 with the same ETag", err, res)
	}
}

func TestOrders(t *testing.T) {
	client := serve(t)
	var first Order
	for i := range 2 {
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
	res, err := client.CreateOrderWithResponse(t.Context(), &CreateOrderParams{IdempotencyKey: "new"}, NewOrder{Item: "samovar", Qty: 1})
	if err != nil || res.ApplicationproblemJSON422 == nil {
		t.Fatal(err, res)
	}
	p := *res.ApplicationproblemJSON422
	if KnownProblemType(p.Type) != KnownProblemTypeOrderRefused || p.Status != 422 || *p.Reason != "sold-out" || *(*p.Errors)[0].Pointer != "#/item" {
		t.Errorf("the refusal is %+v, want sold-out at #/item", p)
	}
}

// A type is a string, so that one of a later version is read like any other.
func TestProblemTypes(t *testing.T) {
	client := serve(t)
	res, err := client.ListWidgetsWithResponse(t.Context(), &ListWidgetsParams{Limit: 501})
	if err != nil || res.ApplicationproblemJSON400 == nil {
		t.Fatal(err, res)
	}
	if fault := (*res.ApplicationproblemJSON400.Errors)[0]; *fault.Parameter != "limit" || *fault.Minimum != 1 || *fault.Maximum != 500 {
		t.Errorf("the fault is %+v, want limit with its bounds", fault)
	}
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
	if err := json.Unmarshal(text, &document); err != nil || document.Components.Schemas.KnownProblemType.Enum == nil {
		t.Fatalf("openapi.json lists no problem types: %v", err)
	}
	for _, known := range document.Components.Schemas.KnownProblemType.Enum {
		if !known.Valid() {
			t.Errorf("the client does not know %s", known)
		}
	}
	const later = "urn:problem-type:storefront:of-a-later-version"
	var p Problem
	err = json.Unmarshal([]byte(`{"type":"`+later+`","title":"Later","status":429,"detail":"Too early."}`), &p)
	if got := string(p.Type); err != nil || got != later || KnownProblemType(got).Valid() {
		t.Errorf("the type is %q, %v", got, err)
	}
}
