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
	products := resources(append(slices.Clone(trickyIDs), plainIDs(1100)...))
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
}
