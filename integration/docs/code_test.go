package docs

import (
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"example.com/storefront/integration/internal/documents"
	"example.com/storefront/internal/must"
)

// TestDocumentedGoCompiles has the Go of the documents type-checked, each block as a package of its own that is
// not in the file system. Of what is no whole program, names may be missing that the text around it speaks of.
func TestDocumentedGoCompiles(t *testing.T) {
	root := must.Get(filepath.Abs(repository))(t)
	files := make(map[string][]byte)
	places := make(map[string]string) // in the documents, by the path of a package
	isSnippet := make(map[string]bool)
	for _, d := range documents.All(t, repository) {
		for _, b := range d.Blocks() {
			if b.Language != "go" || strings.HasPrefix(b.Note, "from ") {
				continue
			}
			folder := fmt.Sprintf("documented%d", len(files))
			path := "example.com/storefront/integration/" + folder
			places[path] = fmt.Sprintf("%s:%d", d.Name, b.Line)
			isSnippet[path] = !strings.Contains("\n"+b.Text, "\npackage ")
			if isSnippet[path] {
				b.Text = completed(b.Text)
			}
			files[filepath.Join(root, "integration", folder, "main.go")] = []byte(b.Text)
		}
	}
	config := &packages.Config{Mode: packages.LoadSyntax, Dir: root, Overlay: files}
	for _, p := range must.Get(packages.Load(config, slices.Collect(maps.Keys(places))...))(t) {
		for _, err := range p.Errors {
			// What go list says, the type checker says, too.
			if err.Kind != packages.ListError && !(isSnippet[p.PkgPath] && incomplete.MatchString(err.Msg)) {
				t.Errorf("%s: %s", places[p.PkgPath], err.Msg)
			}
		}
		if delete(places, p.PkgPath); p.Types == nil {
			t.Errorf("%s was not checked", p.PkgPath)
		}
	}
	for _, place := range places {
		t.Errorf("%s: it was not loaded", place)
	}
}

// incomplete matches what the compiler says of a snippet that needs its context.
var incomplete = regexp.MustCompile(
	`^undefined: \w+$|^declared and not used: \w+$|^"\S+" imported and not used$|^missing return$`)

// packagesOfSnippets are those that snippets use without importing them.
var packagesOfSnippets = []string{
	"context", "errors", "fmt", "net/http", "net/http/httptest", "log", "log/slog", "database/sql", "strings",
	"testing", "time", "example.com/storefront", "example.com/storefront/explorer",
	"example.com/storefront/sqlstore", "example.com/storefront/storetest",
}

// completed returns a snippet as a file: declarations, or else the body of a function,
// without lines that have nothing but … in them.
func completed(snippet string) string {
	head := "package documented\n"
	for _, path := range packagesOfSnippets {
		if path = strconv.Quote(path); !strings.Contains(snippet, path) {
			head += "import " + path + "\n"
		}
	}
	var body string
	for line := range strings.Lines(snippet) {
		switch {
		case strings.HasPrefix(line, "import "):
			head += line
		case strings.TrimSpace(line) != "…":
			body += line
		}
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "", head+body, parser.SkipObjectResolution); err != nil {
		body = "func _() {\n" + body + "\n}\n"
	}
	return head + body
}
