package clients

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/documents"
	"example.com/storefront/internal/must"
)

const root = "../.."

// Each block of a README of a client, and of docs/wire.md where it says so, runs beside the client as it
// stands. What has "created" in it places an order.
func TestDocumentedClients(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		folder := filepath.Join(root, "sdk", l.name)
		count := map[string]int{}
		for _, file := range []string{filepath.Join(folder, "README.md"), root + "/docs/wire.md"} {
			source := must.Get(os.ReadFile(file))(t)
			for _, b := range documents.Parse(file, source).Blocks() {
				if b.Language != l.fence || b.Note == "" && strings.HasSuffix(file, "wire.md") {
					continue
				}
				count[file]++
				runBlock(t, l, folder, b)
			}
		}
		if len(count) != 2 {
			t.Errorf("blocks by their files: %v, want some of both", count)
		}
	})
}

func runBlock(t *testing.T, l language, folder string, b documents.Block) {
	store := new(storefront.MemStore)
	store.Users.Put(storefront.MustResource("ada", nil))
	store.Products.Put(storefront.MustResource("teapot", map[string]string{"name": "Teapot"}))
	service := storefront.NewWithOptions(store, &storefront.Options{OrderFields: true, Orders: store,
		Scope: func(*http.Request) string { return "everybody" }})
	var bad atomic.Int32
	var down atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		switch {
		case down.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case !bytes.Contains(body, []byte("bad")):
			service.ServeHTTP(w, r)
		case bad.Add(1) == 1:
			w.WriteHeader(http.StatusInternalServerError)
		default:
			t.Errorf("line %d: a draft that the shop cannot take holds up the others", b.Line)
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	dir, want := t.TempDir(), 1
	if strings.Contains(b.Text, "pending") { // it goes on with what is open
		want = 2
		down.Store(true)
		r := l.start(t, server.URL, "JOURNAL="+filepath.Join(dir, "orders"), oneTry)
		order(t, r, "bad")
		order(t, r, "good")
		r.end()
		down.Store(false)
	}
	must.OK(t, os.CopyFS(dir, os.DirFS(folder)))
	block := filepath.Join(dir, "block"+l.extension)
	text := strings.ReplaceAll(b.Text, "http://localhost:8080", server.URL)
	must.OK(t, os.WriteFile(block, []byte(text), 0o600))
	cmd := exec.Command(l.interpreter(), block)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if orders := store.Orders(); err != nil || strings.Contains(b.Text, "created") &&
		(len(orders) != want || !strings.Contains(string(out), "created "+orders[want-1].ID)) {
		t.Errorf("line %d: %v, %v\n%s\n%s", b.Line, err, orders, b.Text, out)
	}
}
