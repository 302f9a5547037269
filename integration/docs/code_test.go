package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/documents"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// A goSource is Go of a document, as a file that the compiler takes.
type goSource struct {
	place, text string
	wrong       func(line string) bool // whether what the compiler says is the document's fault
}

// TestDocumentedGoCompiles compiles the Go of the documents. Of what is no whole
// program, names may be missing that the text around it speaks of.
func TestDocumentedGoCompiles(t *testing.T) {
	var sources []goSource
	for _, d := range documents.All(t, repository) {
		for _, b := range d.Blocks() {
			if b.Language != "go" || strings.HasPrefix(b.Note, "from ") {
				continue
			}
			s := goSource{fmt.Sprintf("%s:%d", d.Name, b.Line), b.Text, func(string) bool { return true }}
			if !strings.Contains("\n"+b.Text, "\npackage ") {
				var err error
				if s.text, err = completed(b.Text); err != nil {
					t.Errorf("%s: %v", s.place, err)
					continue
				}
				s.wrong = func(line string) bool { return !incomplete.MatchString(line) }
			}
			sources = append(sources, s)
		}
	}
	root := must.Get(filepath.Abs(repository))(t)
	dir := t.TempDir()
	overlay := make(map[string]string) // files that are only there for the compiler, and what is in them
	args := []string{"build", "-overlay", filepath.Join(dir, "overlay.json"), "-gcflags=-e", "-o", os.DevNull}
	for i, s := range sources {
		folder := fmt.Sprintf("integration/documented%d", i)
		file := filepath.Join(dir, fmt.Sprintf("documented%d.go", i))
		must.OK(t, os.WriteFile(file, []byte(s.text), 0o600))
		overlay[filepath.Join(root, folder, "main.go")] = file
		args = append(args, "./"+folder)
	}
	text := must.Get(json.Marshal(map[string]any{"Replace": overlay}))(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600))
	build := exec.Command("go", args...)
	build.Dir = root
	out, err := build.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		found := compilerError.FindStringSubmatch(line)
		if found == nil {
			if !strings.HasPrefix(line, "#") {
				t.Errorf("go build: %s", line)
			}
			continue
		}
		i := must.Get(strconv.Atoi(found[1]))(t)
		if s := sources[i]; s.wrong(line) {
			t.Errorf("%s: %s", s.place, found[2])
		}
	}
}

var (
	compilerError = regexp.MustCompile(`documented(\d+)\.go:\d+:\d+: (.*)`)

	// incomplete matches what the compiler says of a snippet that needs its context.
	incomplete = regexp.MustCompile(
		`: undefined: \w+$|: declared and not used: \w+$|: "\S+" imported and not used$|: missing return$`)
)

func parsed(source string) (*ast.File, error) {
	return parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
}

// packagesByName are those that snippets use without importing them.
var packagesByName = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http",
	"httptest": "net/http/httptest", "log": "log", "slog": "log/slog", "sql": "database/sql",
	"strings": "strings", "testing": "testing", "time": "time",
	"storefront": "example.com/storefront", "explorer": "example.com/storefront/explorer",
	"sqlstore": "example.com/storefront/sqlstore", "storetest": "example.com/storefront/storetest",
}

// completed returns a snippet as a file: declarations, or else the body of a function,
// without lines that have nothing but … in them.
func completed(snippet string) (string, error) {
	var imported, rest []string
	for line := range strings.SplitSeq(snippet, "\n") {
		switch {
		case strings.HasPrefix(line, "import "):
			imported = append(imported, line)
		case strings.TrimSpace(line) != "…":
			rest = append(rest, line)
		}
	}
	body := strings.Join(rest, "\n")
	head := "package documented\n" + strings.Join(imported, "\n") + "\n"
	file, err := parsed(head + body)
	if err != nil {
		body = "func _() {\n" + body + "\n}\n"
		if file, err = parsed(head + body); err != nil {
			return "", err
		}
	}
	return head + strings.Join(imports(file), "\n") + "\n" + body, nil
}

// imports returns declarations that import the packages that are named, but not
// imported, in n.
func imports(n ast.Node) (declarations []string) {
	used, imported := make(map[string]bool), make(map[string]bool)
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && n.Sel.IsExported() {
				used[x.Name] = true
			}
		case *ast.ImportSpec:
			imported[n.Path.Value] = true
		}
		return true
	})
	for name, path := range packagesByName {
		if path = strconv.Quote(path); used[name] && !imported[path] {
			declarations = append(declarations, "import "+path)
		}
	}
	return declarations
}

// TestOwnersReadOrders runs the SQL of the README, whose queries find an order.
func TestOwnersReadOrders(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		order := storefront.Order{ID: "ord_0pgbmqoa8l8q3dkv2mrb5nvtca", Item: "teapot", Qty: 2, CreatedAt: time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)}
		must.Get(sqlstore.New(d.Pool, nil).CreateOrder(t.Context(), storefront.IdempotencyKey{Value: "a1"}, order))(t)
		queries := 0
		for _, text := range documents.TestedBy(t, repository, "README.md", "sql", "TestOwnersReadOrders") {
			for statement := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(text), ";"), ";") {
				if statement = strings.TrimSpace(statement); !strings.HasPrefix(statement, "SELECT ") {
					d.Exec(t, statement)
					continue
				}
				queries++
				found := 0
				rows := must.Get(d.Pool.QueryContext(t.Context(), statement))(t)
				for ; rows.Next(); found++ {
				}
				if must.OK(t, rows.Err()); found != 1 {
					t.Errorf("%s\nreturns %d rows, want the order", statement, found)
				}
			}
		}
		if queries != 2 {
			t.Errorf("the README has %d queries, want 2", queries)
		}
	})
}
