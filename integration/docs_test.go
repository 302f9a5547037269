package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// repository is its root, for this package's tests.
const repository = ".."

// A document is a Markdown file that people read.
type document struct {
	name   string // from the repository's root, such as docs/wire.md
	source []byte
	tree   ast.Node
}

// A block is a fenced block of a document.
type block struct {
	line     int
	language string // what is behind the fence
	text     string
	note     string // what is in a comment on the line before
}

// documents returns README.md and all in docs/.
func documents(t *testing.T) (docs []*document) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append([]string{filepath.Join(repository, "README.md")}, files...) {
		name, err := filepath.Rel(repository, file)
		if err != nil {
			t.Fatal(err)
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, parseDocument(filepath.ToSlash(name), source))
	}
	return docs
}

func parseDocument(name string, source []byte) *document {
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM))
	return &document{name, source, markdown.Parser().Parse(text.NewReader(source))}
}

// walk calls visit for each node.
func (d *document) walk(visit func(ast.Node)) {
	ast.Walk(d.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			visit(n)
		}
		return ast.WalkContinue, nil
	})
}

// at says where in the document an offset is.
func (d *document) at(offset int) string {
	return fmt.Sprintf("%s:%d", d.name, 1+bytes.Count(d.source[:offset], []byte("\n")))
}

// linesOf returns the text of a block's lines.
func (d *document) linesOf(n ast.Node) string { return string(n.Lines().Value(d.source)) }

// textOf returns the text in a node, without its markup.
func (d *document) textOf(n ast.Node) string {
	var b strings.Builder
	ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(n.Value(d.source))
			}
		case *ast.String:
			if entering {
				b.Write(n.Value)
			}
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

var note = regexp.MustCompile(`^<!-- (.*) -->\n$`)

// blocks returns the document's fenced blocks.
func (d *document) blocks() (blocks []block) {
	d.walk(func(n ast.Node) {
		fenced, ok := n.(*ast.FencedCodeBlock)
		if !ok {
			return
		}
		b := block{text: d.linesOf(n)}
		if n.Lines().Len() > 0 {
			b.line = bytes.Count(d.source[:n.Lines().At(0).Start], []byte("\n"))
		}
		if fenced.Info != nil {
			b.language = string(fenced.Info.Value(d.source))
		}
		if before, ok := n.PreviousSibling().(*ast.HTMLBlock); ok && !n.HasBlankPreviousLines() {
			comment := d.linesOf(before)
			if before.HasClosure() {
				comment += string(before.ClosureLine.Value(d.source))
			}
			if found := note.FindStringSubmatch(comment); found != nil {
				b.note = found[1]
			}
		}
		blocks = append(blocks, b)
	})
	return blocks
}

// documentedBlocks returns the blocks of a language in a document that are marked as
// tested by the test that asks for them:
//
//	<!-- tested by TestNginx -->
//	```nginx
func documentedBlocks(t *testing.T, name, language string) (texts []string) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	for _, b := range parseDocument(name, source).blocks() {
		if b.language == language && b.note == "tested by "+test {
			texts = append(texts, b.text)
		}
	}
	if texts == nil {
		t.Fatalf("%s has no %s that is marked as tested by %s", name, language, test)
	}
	return texts
}

func TestReadmeIsShort(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(source, []byte("\n")); n > 200 {
		t.Errorf("README.md has %d lines, want at most 200", n)
	}
}

// A block of a document is run, compiled, or the property of a test.
func TestDocumentsHaveOnlyBlocksThatAreTested(t *testing.T) {
	tests := testFunctions(t)
	for _, d := range documents(t) {
		d.walk(func(n ast.Node) {
			if _, ok := n.(*ast.CodeBlock); ok {
				t.Errorf("%s: an indented block: fence it, and say what it is", d.at(n.Lines().At(0).Start))
			}
		})
		for _, b := range d.blocks() {
			switch test, marked := strings.CutPrefix(b.note, "tested by "); {
			case marked && !tests[test]:
				t.Errorf("%s:%d: there is no %s", d.name, b.line, test)
			case marked, strings.HasPrefix(b.note, "from "):
			case b.language == "console", b.language == "sh", b.language == "go":
			default:
				t.Errorf("%s:%d: nothing tests a block of %q", d.name, b.line, b.language)
			}
		}
	}
}

// What is quoted from a file is in it, but for lines with nothing but … in them, which
// may be comments.
func TestDocumentsQuoteWhatIsThere(t *testing.T) {
	for _, d := range documents(t) {
		for _, b := range d.blocks() {
			file, ok := strings.CutPrefix(b.note, "from ")
			if !ok {
				continue
			}
			source, err := os.ReadFile(filepath.Join(repository, file))
			if err != nil {
				t.Errorf("%s:%d: %v", d.name, b.line, err)
				continue
			}
			rest := withoutIndentation(string(source))
			quoted := strings.ReplaceAll(withoutIndentation(b.text), "\n// …\n", "\n…\n")
			for piece := range strings.SplitSeq(quoted, "\n…\n") {
				_, after, found := strings.Cut(rest, "\n"+strings.Trim(piece, "\n")+"\n")
				if !found {
					t.Errorf("%s:%d: not in %s, or not in this sequence:\n%s", d.name, b.line, file, piece)
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

var (
	inHTML   = regexp.MustCompile(`\b(?:src|srcset|href)="([^"]*)"`)
	testName = regexp.MustCompile(`^(?:Test|Example|Benchmark|Fuzz)(?:[A-Z_]\w*)?$`)
)

func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	anchors := make(map[string]map[string]bool) // by the path of a document
	anchorsOf := func(path string) map[string]bool {
		if anchors[path] == nil {
			source, err := os.ReadFile(filepath.Join(repository, path))
			if err != nil {
				t.Error(err)
			}
			anchors[path] = parseDocument(path, source).anchors()
		}
		return anchors[path]
	}
	for _, d := range documents(t) {
		check := func(target string) {
			if strings.Contains(target, "://") {
				return
			}
			path, anchor, hasAnchor := strings.Cut(target, "#")
			if path == "" {
				path = d.name
			} else {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(d.name), path))
			}
			if _, err := os.Stat(filepath.Join(repository, path)); err != nil {
				t.Errorf("%s: the link to %q: %v", d.name, target, err)
			} else if hasAnchor && !(strings.HasSuffix(path, ".md") && anchorsOf(path)[anchor]) {
				t.Errorf("%s: the link to %q: no heading makes that anchor", d.name, target)
			}
		}
		d.walk(func(n ast.Node) {
			switch n := n.(type) {
			case *ast.Link:
				check(string(n.Destination))
			case *ast.Image:
				check(string(n.Destination))
			case *ast.RawHTML:
				for _, found := range inHTML.FindAllStringSubmatch(string(n.Segments.Value(d.source)), -1) {
					check(found[1])
				}
			case *ast.HTMLBlock:
				for _, found := range inHTML.FindAllStringSubmatch(d.linesOf(n), -1) {
					check(found[1])
				}
			}
		})
	}
}

// anchors returns those that GitHub makes of the headings.
func (d *document) anchors() map[string]bool {
	anchors := make(map[string]bool)
	d.walk(func(n ast.Node) {
		if n.Kind() != ast.KindHeading {
			return
		}
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, d.textOf(n))
		unique := anchor
		for i := 1; anchors[unique]; i++ {
			unique = fmt.Sprintf("%s-%d", anchor, i)
		}
		anchors[unique] = true
	})
	return anchors
}

// Tests and examples are named by the functions that they are.
func TestDocumentsNameTestsThatAreThere(t *testing.T) {
	tests := testFunctions(t)
	for _, d := range documents(t) {
		d.walk(func(n ast.Node) {
			if n.Kind() != ast.KindCodeSpan {
				return
			}
			if name := d.textOf(n); testName.MatchString(name) && !tests[name] {
				t.Errorf("%s names %s, which no file of tests has", d.name, name)
			}
		})
	}
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Example|Benchmark|Fuzz)\w*)\(`)

// testFunctions returns the names of the tests, examples, benchmarks and fuzz targets
// of all packages.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for _, pattern := range []string{"*_test.go", "*/*_test.go", "*/*/*_test.go", "*/*/*/*_test.go"} {
		files, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for _, name := range testFunctionsIn(t, file) {
				names[name] = true
			}
		}
	}
	return names
}

func testFunctionsIn(t *testing.T, file string) (names []string) {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range testFunction.FindAllSubmatch(source, -1) {
		names = append(names, string(found[1]))
	}
	return names
}
