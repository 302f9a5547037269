package storetest

import (
	"errors"
	"fmt"
	"slices"

	"example.com/storefront"
)

func productPromises() []promise {
	return []promise{
		{"GetProduct returns the product whose ID is id, byte for byte", checkProduct},
		{"If there is none, it returns ErrNotFound", checkNotFound},
	}
}

func checkProduct(t *test) {
	many := plainIDs(1100)
	products := resources(append(slices.Clone(trickyIDs), many...))
	store := t.newStore(Contents{Products: products})
	for _, want := range products {
		call := fmt.Sprintf("GetProduct(ctx, %q)", want.ID())
		got, err := store.GetProduct(t.Context(), want.ID())
		switch {
		case errors.Is(err, storefront.ErrNotFound):
			t.wrong("the ID is changed on the way: trimmed, cut, cleaned as a path or unescaped.",
				"%s did not find the product: %v", call, err)
		case err != nil:
			t.must(call, err)
		case got.ID() != want.ID():
			t.wrong("IDs are compared as a pattern (LIKE) or by a collation.", "%s returned the product %q.",
				call, got.ID())
		}
	}
	editor, ok := optional[Editor](t, store, "products that are added and replaced")
	if !ok {
		return
	}
	added := storefront.MustResource("added later", nil)
	replaced := storefront.MustResource(many[0], map[string]string{"version": "2"})
	store.GetProduct(t.Context(), added.ID()) // as a store may remember that there is none
	t.must("Put", editor.Put(t.Context(), Contents{Products: []storefront.Resource{added, replaced}}))
	for _, want := range []storefront.Resource{added, replaced} {
		if got, err := store.GetProduct(t.Context(), want.ID()); err != nil || !got.Equal(want) {
			t.wrong("what was read before is cached.",
				"After Put, GetProduct(ctx, %q) returned %s, %v, want %s.", want.ID(), got, err, want)
		}
	}
}

func checkNotFound(t *test) {
	const cause = "IDs are compared as a pattern (LIKE), as a prefix, as a path or by a collation."
	ids := []string{"teapot", "Kettle", "caf\u00e9", "a/b", "tea pot"}
	contents := Contents{
		Users:    resources([]string{"only a user"}),
		Products: resources(ids),
		Widgets:  resources([]string{"only a widget"}),
	}
	store := t.newStore(contents)
	for _, id := range []string{
		"missing", "TEAPOT", "Teapot", "kettle", "cafe", "cafe\u0301", "CAF\u00c9", // by a collation
		// by a prefix, or trimmed
		"tea", "teapo", "teapots", "teapot ", " teapot", "teapot\u00a0", "teapot\u200b", "\uff54eapot",
		"teapot/", "/teapot",
		"%", "teapo%", "teapo_", "*", "?", "te.*", "_______", // by a pattern
		// as a path
		"a", "a/", "a//b", "a/./b", "./teapot", "x/../teapot", "../products/teapot", ".", "..", "/",
		`a\b`, "a%2Fb", "tea+pot",
		"' OR '1'='1", "teapot'; --", "0", "null", `"`, "\U0010fffd",
	} {
		if slices.Contains(ids, id) {
			panic(id)
		}
		call := fmt.Sprintf("GetProduct(ctx, %q), where there is no such product,", id)
		got, err := store.GetProduct(t.Context(), id)
		switch {
		case err == nil && got.ID() == "":
			t.wrong("what the database returns for no row is not turned into ErrNotFound.",
				"%s returned the zero Resource and no error.", call)
		case err == nil:
			t.wrong(cause, "%s returned the product %q.", call, got.ID())
		case !errors.Is(err, storefront.ErrNotFound):
			t.wrong("what the database returns for no row is not turned into ErrNotFound.",
				"%s returned an error that does not match ErrNotFound: %v", call, err)
		}
	}
	editor, ok := optional[Editor](t, store, "products that were deleted")
	if !ok {
		return
	}
	_, err := store.GetProduct(t.Context(), ids[0])
	t.must("GetProduct", err)
	t.must("Delete", editor.Delete(t.Context(), Contents{Products: resources(ids[:1])}))
	if got, err := store.GetProduct(t.Context(), ids[0]); !errors.Is(err, storefront.ErrNotFound) {
		t.wrong("what was read before is cached.", "After Delete, GetProduct(ctx, %q) returned %s, %v, "+
			"want an error that matches ErrNotFound.", ids[0], got, err)
	}
}
