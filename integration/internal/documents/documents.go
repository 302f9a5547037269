// Package documents reads README.md and other documents of the repository, for the tests that hold them to
// what is there.
package documents

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"

	"example.com/storefront/internal/must"
)

// A Document is a Markdown file that people read.
type Document struct {
	Name   string // from the repository's root, such as docs/wire.md
	Source []byte
	tree   ast.Node
}

// A Block is a fenced block of a document.
type Block struct {
	Line     int
	Language string // what is behind the fence
	Text     string
	Note     string // what is in a comment on the line before
}

// All returns README.md, the documents beside it that are for people, too, and all in docs/
// of the repository with this root.
func All(t testing.TB, repository string) (docs []*Document) {
	t.Helper()
	files := must.Get(filepath.Glob(filepath.Join(repository, "docs", "*.md")))(t)
	for _, name := range []string{"SECURITY.md", "CONTRIBUTING.md", "AGENTS.md", "README.md"} {
		files = slices.Insert(files, 0, filepath.Join(repository, name))
	}
	for _, file := range files {
		name := must.Get(filepath.Rel(repository, file))(t)
		source := must.Get(os.ReadFile(file))(t)
		docs = append(docs, Parse(filepath.ToSlash(name), source))
	}
	return docs
}

// Parse parses a document. Its headings have the attribute id, which is the anchor that GitHub makes of them.
func Parse(name string, source []byte) *Document {
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	return &Document{name, source, markdown.Parser().Parse(text.NewReader(source))}
}

// Walk calls visit for each node.
func (d *Document) Walk(visit func(ast.Node)) {
	ast.Walk(d.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			visit(n)
		}
		return ast.WalkContinue, nil
	})
}

// LinesOf returns the text of a block's lines.
func (d *Document) LinesOf(n ast.Node) string { return string(n.Lines().Value(d.Source)) }

var note = regexp.MustCompile(`^<!-- (.*) -->\n$`)

// Blocks returns the document's fenced blocks.
func (d *Document) Blocks() (blocks []Block) {
	d.Walk(func(n ast.Node) {
		fenced, ok := n.(*ast.FencedCodeBlock)
		if !ok {
			return
		}
		b := Block{Text: d.LinesOf(n)}
		if n.Lines().Len() > 0 {
			b.Line = bytes.Count(d.Source[:n.Lines().At(0).Start], []byte("\n"))
		}
		if fenced.Info != nil {
			b.Language = string(fenced.Info.Value(d.Source))
		}
		if before, ok := n.PreviousSibling().(*ast.HTMLBlock); ok && !n.HasBlankPreviousLines() {
			comment := d.LinesOf(before)
			if before.HasClosure() {
				comment += string(before.ClosureLine.Value(d.Source))
			}
			if found := note.FindStringSubmatch(comment); found != nil {
				b.Note = found[1]
			}
		}
		blocks = append(blocks, b)
	})
	return blocks
}

// TestedBy returns the blocks of a language in a document that are marked as those of a
// test, of which there must be some:
//
//	<!-- tested by TestQueriesOfOperators -->
//	```sql
func TestedBy(t testing.TB, repository, name, language, test string) (texts []string) {
	t.Helper()
	source := must.Get(os.ReadFile(filepath.Join(repository, name)))(t)
	for _, b := range Parse(name, source).Blocks() {
		if b.Language == language && b.Note == "tested by "+test {
			texts = append(texts, b.Text)
		}
	}
	if texts == nil {
		t.Fatalf("%s has no %s that is marked as tested by %s", name, language, test)
	}
	return texts
}

// Statements returns the SQL of a document that is marked as that of a test and is for the
// database of a driver: behind a comment that begins with its name, or without one.
func Statements(t testing.TB, repository, name, test, driver string) (statements []string) {
	t.Helper()
	database := map[string]string{"pgx": "PostgreSQL", "mysql": "MySQL", "sqlite": "SQLite"}[driver]
	for _, block := range TestedBy(t, repository, name, "sql", test) {
		var text strings.Builder
		applies := true
		for line := range strings.Lines(block) {
			if comment, ok := strings.CutPrefix(line, "-- "); ok {
				databases, _, _ := strings.Cut(comment, ":")
				applies = strings.Contains(databases, database)
			} else if applies {
				text.WriteString(line)
			}
		}
		for statement := range strings.SplitSeq(text.String(), ";") {
			if statement = strings.TrimSpace(statement); statement != "" {
				statements = append(statements, statement)
			}
		}
	}
	return statements
}

// ExpectTable checks that the rows of a table in a document, behind a comment that says which test made
// them, are those of the test.
func ExpectTable(t testing.TB, file string, rows []string) {
	t.Helper()
	source := string(must.Get(os.ReadFile(file))(t))
	_, table, found := strings.Cut(source, "<!-- made by "+t.Name()+" -->\n")
	if !found {
		t.Fatalf("%s has no table that is marked as made by %s", file, t.Name())
	}
	table, _, _ = strings.Cut(table, "\n\n")
	if got := strings.Split(table, "\n")[2:]; !slices.Equal(got, rows) { // below the head
		t.Errorf("the table in %s is not this test's, which has the rows\n%s", file, strings.Join(rows, "\n"))
	}
}
