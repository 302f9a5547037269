package clients

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
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
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	http2 := &http.Transport{Protocols: new(http.Protocols)}
	http2.Protocols.SetUnencryptedHTTP2(true)

	var firstPages, want []string
	for _, target := range []string{
		"/v1/users", "/v2/widgets?limit=2", "/a/shop/v1/users?limit=2", "/a/shop/v2/widgets?limit=1",
	} {
		firstPages = append(firstPages, server.URL+target)
		want = append(want, ids...)
	}
	for name, walk := range map[string]func(t *testing.T, firstPages []string) (pages []byte){
		"Java":           program(need.Java, "java", "-XX:TieredStopAtLevel=1", "links/Walk.java"),
		"Node.js":        program(need.Tools, "node", "links/walk.mjs"),
		"Python":         program(need.Tools, "python3", "links/walk.py"),
		"Go":             walkByLink(http.DefaultTransport),
		"Go over HTTP/2": walkByLink(http2),
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

var nextLink = regexp.MustCompile(`<([^>]*)>; rel="next"`)

func walkByLink(transport http.RoundTripper) func(*testing.T, []string) []byte {
	client := http.Client{Transport: transport}
	return func(t *testing.T, firstPages []string) (pages []byte) {
		for _, page := range firstPages {
			for page != "" {
				res, err := client.Get(page)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				pages, page = append(pages, body...), ""
				if link := nextLink.FindStringSubmatch(strings.Join(res.Header["Link"], ", ")); link != nil {
					next, err := res.Request.URL.Parse(link[1])
					if err != nil {
						t.Fatal(err)
					}
					page = next.String()
				}
			}
		}
		return pages
	}
}
