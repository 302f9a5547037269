package clients

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/documents"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/internal/must"
)

const root = "../.."

// Each block of a README of a client, and of docs/wire.md where it says so, runs beside the client as it
// stands. What has "created" in it places an order.
func TestDocumentedClients(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			need.Programs(t, need.Tools, l.programs...)
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
}

func runBlock(t *testing.T, l language, folder string, b documents.Block) {
	store := new(storefront.MemStore)
	store.Users.Put(storefront.MustResource("ada", nil))
	store.Products.Put(storefront.MustResource("teapot", map[string]string{"name": "Teapot"}))
	server := httptest.NewServer(storefront.New(store))
	defer server.Close()
	dir := t.TempDir()
	must.OK(t, os.CopyFS(dir, os.DirFS(folder)))
	block := filepath.Join(dir, "block"+l.extension)
	text := strings.ReplaceAll(b.Text, "http://localhost:8080", server.URL)
	must.OK(t, os.WriteFile(block, []byte(text), 0o600))
	cmd := exec.Command(l.interpreter(), block)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if orders := store.Orders(); err != nil || strings.Contains(b.Text, "created") &&
		(len(orders) != 1 || !strings.Contains(string(out), "created "+orders[0].ID)) {
		t.Errorf("line %d: %v, %v\n%s\n%s", b.Line, err, orders, b.Text, out)
	}
}
