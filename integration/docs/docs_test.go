package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/yuin/goldmark/ast"

	"example.com/storefront/integration/internal/documents"
)

// repository is its root, for this package's tests.
const repository = "../.."

// A block of a document is run, compiled, or the property of a test.
func TestDocumentsHaveOnlyBlocksThatAreTested(t *testing.T) {
	for _, d := range documents.All(t, repository) {
		for _, b := range d.Blocks() {
			switch {
			case strings.HasPrefix(b.Note, "tested by "), strings.HasPrefix(b.Note, "from "):
			case b.Language == "console", b.Language == "sh", b.Language == "go":
			default:
				t.Errorf("%s:%d: nothing tests a block of %q", d.Name, b.Line, b.Language)
			}
		}
	}
}

// A file has what is quoted from it, in one piece.
func TestDocumentsQuoteWhatIsThere(t *testing.T) {
	for _, d := range documents.All(t, repository) {
		for _, b := range d.Blocks() {
			file, ok := strings.CutPrefix(b.Note, "from ")
			if !ok {
				continue
			}
			source, err := os.ReadFile(filepath.Join(repository, file))
			if err != nil {
				t.Errorf("%s:%d: %v", d.Name, b.Line, err)
				continue
			}
			if !strings.Contains(withoutIndentation(string(source)), withoutIndentation(b.Text)) {
				t.Errorf("%s:%d: not in %s:\n%s", d.Name, b.Line, file, b.Text)
			}
		}
	}
}

// withoutIndentation returns a text whose lines have no white space at their
// beginnings and ends, in which each has a line break before and behind it.
func withoutIndentation(s string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimSpace(line))
		b.WriteByte('\n')
	}
	return b.String()
}

var inHTML = regexp.MustCompile(`\b(?:src|srcset|href)="([^"]*)"`)

func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	anchors := make(map[string]bool) // each behind the name of its document
	for _, d := range documents.All(t, repository) {
		d.Walk(func(n ast.Node) {
			if id, ok := n.AttributeString("id"); ok {
				anchors[fmt.Sprintf("%s#%s", d.Name, id)] = true
			}
		})
	}
	for _, d := range documents.All(t, repository) {
		check := func(target string) {
			if strings.Contains(target, "://") {
				return
			}
			path, anchor, hasAnchor := strings.Cut(target, "#")
			if path == "" {
				path = d.Name
			} else {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(d.Name), path))
			}
			if _, err := os.Stat(filepath.Join(repository, path)); err != nil {
				t.Errorf("%s: the link to %q: %v", d.Name, target, err)
			} else if hasAnchor && !anchors[path+"#"+anchor] {
				t.Errorf("%s: the link to %q: no heading of a document makes that anchor", d.Name, target)
			}
		}
		d.Walk(func(n ast.Node) {
			switch n := n.(type) {
			case *ast.Link:
				check(string(n.Destination))
			case *ast.Image:
				check(string(n.Destination))
			}
		})
		for _, found := range inHTML.FindAllSubmatch(d.Source, -1) {
			check(string(found[1]))
		}
	}
}
