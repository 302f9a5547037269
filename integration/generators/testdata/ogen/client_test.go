// Package ogen has what ogen makes of openapi.json, while TestGo runs.
package ogen

import (
	"compress/gzip"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/storefront"
)

func TestClient(t *testing.T) {
	store := new(storefront.MemStore)
	for _, id := range []string{"a", "b", "c"} {
		store.Users.Put(storefront.MustResource(id, map[string]any{"name": "The user " + id}))
	}
	store.Products.Put(storefront.MustResource("tea/pot", nil))
	service := storefront.New(store)
	for name, h := range map[string]http.Handler{
		"plain":                 service,
		"compressed on the way": gzipped(service),
		"with a second link": altered(service, http.Header{"Link": {`</terms>; rel="license"; title="The terms"`},
			"Cache-Control": {"no-transform"}, "Allow": {"PATCH"}}),
		"without the headers that may be taken off": altered(service, http.Header{"Etag": nil, "Cache-Control": nil,
			"X-Content-Type-Options": nil, "Retry-After": nil, "Cache-Status": nil, "Vary": nil}),
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(h)
			defer server.Close()
			client, err := NewClient(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			testClient(t, client, name)
		})
	}
}

func testClient(t *testing.T, client *Client, key string) {
	ctx := t.Context()
	var users []string
	for params := (ListUsersParams{Limit: NewOptInt(2)}); ; {
		res, err := client.ListUsers(ctx, params)
		page, ok := res.(*UsersPageHeaders)
		if !ok {
			t.Fatalf("a page is %v %+v", err, res)
		}
		for _, user := range page.Response.Data {
			users = append(users, string(user.ID)+" "+string(user.AdditionalProps["name"]))
		}
		if params.After = page.Response.Next; !page.Response.HasMore {
			break
		}
	}
	if got := strings.Join(users, ", "); got != `a "The user a", b "The user b", c "The user c"` {
		t.Errorf("the users are %s", got)
	}
	params := GetProductParams{ProductID: "tea/pot", CacheControl: NewOptString("max-age=5")}
	res, err := client.GetProduct(ctx, params)
	product, ok := res.(*ResourceHeaders)
	if !ok || product.Response.ID != "tea/pot" {
		t.Fatalf("the product is %v %+v", err, res)
	}
	params.IfNoneMatch = product.ETag // perhaps none
	res, err = client.GetProduct(ctx, params)
	if _, ok := res.(*ProductNotModified); ok != product.ETag.Set {
		t.Errorf("the same product with the tag %v is %v %+v", product.ETag, err, res)
	}
	for _, replayed := range []bool{false, true} {
		res, err := client.CreateOrder(ctx, &NewOrder{Item: "teapot", Qty: 1<<53 - 1}, CreateOrderParams{IdempotencyKey: key})
		order, ok := res.(*OrderHeaders)
		if !ok || order.Response.Qty != 1<<53-1 || order.Response.CreatedAt.IsZero() || order.IdempotentReplayed.Set != replayed {
			t.Errorf("the order is %v %+v", err, res)
		}
	}
	// Problems are told apart by their types, which are strings.
	answer, err := client.CreateOrder(ctx, &NewOrder{Item: "kettle", Qty: 1}, CreateOrderParams{IdempotencyKey: key})
	p, ok := answer.(*CreateOrderUnprocessableEntity)
	if !ok || p.Response.Type != "urn:problem-type:storefront:idempotency-key-reused" || len(p.Response.Errors) != 1 {
		t.Errorf("the answer to another order with the key is %v %+v", err, answer)
	}
}

// A program around the service answers with problems of its own, and names no type of the service's.
func TestProblemOfTheProgram(t *testing.T) {
	server := httptest.NewServer(storefront.Problem{Status: http.StatusInternalServerError})
	defer server.Close()
	client, err := NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.ListUsers(t.Context(), ListUsersParams{})
	if p, ok := res.(*InternalErrorHeaders); !ok || p.Response.Type != "about:blank" {
		t.Errorf("the answer is %v %+v", err, res)
	}
}

// altered adds header fields to each response, as what is on the way does, or takes those without values off.
func altered(h http.Handler, fields http.Header) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := httptest.NewRecorder()
		h.ServeHTTP(got, r)
		maps.Copy(w.Header(), got.Header())
		for name, values := range fields {
			if values == nil {
				delete(w.Header(), name)
			}
			for _, value := range values {
				w.Header().Add(name, value)
			}
		}
		w.WriteHeader(got.Code)
		io.Copy(w, got.Body)
	})
}

// gzipped codes each body, as proxies do, which weakens the entity tag, and takes off
// Content-Length.
func gzipped(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := httptest.NewRecorder()
		h.ServeHTTP(got, r)
		maps.Copy(w.Header(), got.Header())
		if got.Body.Len() == 0 {
			w.WriteHeader(got.Code)
			return
		}
		w.Header().Del("Content-Length")
		w.Header().Set("Content-Encoding", "gzip")
		if tag := w.Header().Get("ETag"); tag != "" {
			w.Header().Set("ETag", "W/"+tag)
		}
		w.WriteHeader(got.Code)
		zip := gzip.NewWriter(w)
		io.Copy(zip, got.Body)
		zip.Close()
	})
}
