package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"testing"
)

// This program and cmd/storefront are copied alone, so each has its own sample shop,
// settings of the server, example requests, and a clean end.
func TestSharedPartsAreThoseOfCmdStorefront(t *testing.T) {
	ours, theirs := sharedParts(t, "main.go"), sharedParts(t, "../cmd/storefront/main.go")
	for _, part := range []string{"sample", "tryThis", "http.Server", "serveUntil", "untilSignal", "errTerminated"} {
		if ours[part] != theirs[part] || ours[part] == "" {
			t.Errorf("%s here is\n%s\nin cmd/storefront\n%s", part, ours[part], theirs[part])
		}
	}
}

// sharedParts returns the source of the constants and functions of a file, by their
// names, and the fields of its http.Server but for the handler.
func sharedParts(t *testing.T, name string) map[string]string {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	source := func(node any) string {
		var text bytes.Buffer
		if err := printer.Fprint(&text, fset, node); err != nil {
			t.Fatal(err)
		}
		return text.String()
	}
	parts := make(map[string]string)
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			parts[n.Name.Name] = source(n)
		case *ast.ValueSpec:
			parts[n.Names[0].Name] = source(n)
		case *ast.CompositeLit:
			if source(n.Type) != "http.Server" {
				break
			}
			for _, field := range n.Elts {
				if field := field.(*ast.KeyValueExpr); source(field.Key) != "Handler" {
					parts["http.Server"] += source(field) + "\n"
				}
			}
		}
		return true
	})
	return parts
}
