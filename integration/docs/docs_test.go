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
		d.Walk(func(n ast.Node) {
			if _, ok := n.(*ast.CodeBlock); ok {
				t.Errorf("%s: an indented block: fence it, and say what it is\n%s", d.Name, d.LinesOf(n))
			}
		})
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

// A file has what is quoted from it, but for lines with nothing but … in them, which may
// be comments.
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
			rest := withoutIndentation(string(source))
			quoted := strings.ReplaceAll(withoutIndentation(b.Text), "\n// …\n", "\n…\n")
			for piece := range strings.SplitSeq(quoted, "\n…\n") {
				_, after, found := strings.Cut(rest, "\n"+strings.Trim(piece, "\n")+"\n")
				if !found {
					t.Errorf("%s:%d: not in %s, or not in this sequence:\n%s", d.Name, b.Line, file, piece)
					break
				}
				rest = "\n" + after
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
			case *ast.RawHTML:
				for _, found := range inHTML.FindAllStringSubmatch(string(n.Segments.Value(d.Source)), -1) {
					check(found[1])
				}
			case *ast.HTMLBlock:
				for _, found := range inHTML.FindAllStringSubmatch(d.LinesOf(n), -1) {
					check(found[1])
				}
			}
		})
	}
}
