package clients

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/need"
)

// Resolvers differ in what they make of a relative reference (RFC 3986, Section 5).
func TestLinkLeadsOnInEveryLanguage(t *testing.T) {
	t.Parallel()
	store := new(storefront.MemStore)
	ids := []string{"a", "b", "c", "d", "e"}
	for _, id := range ids {
		store.Users.Put(storefront.MustResource(id, nil))
		store.Widgets.Put(storefront.MustResource(id, nil))
	}
	front := storefront.NewWithOptions(store, &storefront.Options{PageSize: 2})
	mux := http.NewServeMux()
	mux.Handle("/", front)
	mux.Handle("/a/shop/", http.StripPrefix("/a/shop", front))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	var firstPages, want []string
	for _, target := range []string{
		"/v1/users", "/v2/widgets?limit=2", "/a/shop/v1/users?limit=2", "/a/shop/v2/widgets?limit=1",
	} {
		firstPages = append(firstPages, server.URL+target)
		want = append(want, ids...)
	}
	for name, walk := range map[string]func(t *testing.T, firstPages []string) (pages []byte){
		"Java":    program(need.Java, "java", "-XX:TieredStopAtLevel=1", "links/Walk.java"),
		"Node.js": program(need.Tools, "node", "links/walk.mjs"),
		"Python":  program(need.Tools, "python3", "links/walk.py"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pages := walk(t, firstPages)
			var got []string
			for in := json.NewDecoder(bytes.NewReader(pages)); in.More(); {
				var page struct{ Data []storefront.Resource }
				if err := in.Decode(&page); err != nil {
					t.Fatalf("%v\n%s", err, pages)
				}
				for _, item := range page.Data {
					got = append(got, item.ID())
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("the walks have seen %q, want %q, in\n%s", got, want, pages)
			}
		})
	}
}

// program returns what runs a program, with the URLs as arguments.
func program(name, interpreter string, args ...string) func(*testing.T, []string) []byte {
	return func(t *testing.T, firstPages []string) []byte {
		need.Programs(t, name, interpreter)
		cmd := exec.Command(interpreter, append(args, firstPages...)...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%v: %v\n%s", cmd, err, stderr.String())
		}
		return out
	}
}
