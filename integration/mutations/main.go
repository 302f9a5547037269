// Command mutations tests the tests: it breaks the code in one place after the other, as list.go
// says, and demands that the test fails that is named there.
//
//	go run ./integration/mutations [-run regexp]
//
// It runs in the root of the repository and changes no file there. The exit status is 1 if a test
// passes although the code is broken, and 2 if the list is wrong.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	pattern := flag.String("run", "", "only those of which package, function or test match `regexp`")
	flag.Parse()
	missed, err := run(os.Stdout, ".", mutations, *pattern)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutations:", err)
		os.Exit(2)
	}
	if missed > 0 {
		os.Exit(1)
	}
}

// run tries the mutations of the module in root that a pattern matches, writes a line for each, and
// returns how many no test has seen.
func run(w io.Writer, root string, mutations []mutation, pattern string) (missed int, err error) {
	chosen, err := regexp.Compile(pattern)
	if err != nil {
		return 0, err
	}
	passed := make(map[string]bool) // the tests
	for _, m := range mutations {
		pkg, test := m.testIn()
		if !chosen.MatchString(m.pkg + " " + m.function + " " + m.test) {
			continue
		}
		if _, _, err := m.apply(root); err != nil {
			return missed, fmt.Errorf("%s: %w", m.what, err)
		}
		if !passed[pkg+" "+test] {
			out, err := goTest(root, pkg, test)
			if err != nil || !bytes.Contains(out, []byte("--- PASS: "+test+" ")) {
				return missed, fmt.Errorf("without a mutation, %s %s does not pass: %v\n%s",
					pkg, test, err, out)
			}
			passed[pkg+" "+test] = true
		}
		caught, err := m.try(root)
		switch {
		case err != nil:
			return missed, fmt.Errorf("%s: %w", m.what, err)
		case caught:
			fmt.Fprintf(w, "caught  %s (%s)\n", m.what, m.test)
		default:
			missed++
			fmt.Fprintf(w, "MISSED  %s (%s)\n", m.what, m.test)
		}
	}
	return missed, nil
}

// testIn returns the package and the name of the test.
func (m mutation) testIn() (pkg, test string) {
	if pkg, test, ok := strings.Cut(m.test, " "); ok {
		return pkg, test
	}
	return m.pkg, m.test
}

// try reports whether the test fails with the mutation.
func (m mutation) try(root string) (caught bool, err error) {
	file, text, err := m.apply(root)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "storefront-mutation-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	mutated, overlay := filepath.Join(dir, "mutated.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{file: mutated}})
	err = errors.Join(err, os.WriteFile(mutated, text, 0o600), os.WriteFile(overlay, list, 0o600))
	if err != nil {
		return false, err
	}
	pkg, test := m.testIn()
	out, err := goTest(root, pkg, test, "-vet=off", "-overlay", overlay)
	if bytes.Contains(out, []byte("[build failed]")) {
		return false, fmt.Errorf("it does not compile:\n%s", out)
	}
	return err != nil, nil
}

func goTest(root, pkg, test string, flags ...string) ([]byte, error) {
	args := append([]string{"test", "-count=1", "-timeout=2m", "-v", "-run", "^" + test + "$"}, flags...)
	cmd := exec.Command("go", append(args, "./"+pkg)...)
	cmd.Dir = root
	return cmd.CombinedOutput()
}

// apply returns the file, with an absolute path, that has the function, and its text with the mutation.
func (m mutation) apply(root string) (file string, text []byte, err error) {
	folder, err := filepath.Abs(filepath.Join(root, m.pkg))
	if err != nil {
		return "", nil, err
	}
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return "", nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return "", nil, err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			return "", nil, err
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || nameOf(f) != m.function {
				continue
			}
			start, end := f.Pos()-parsed.FileStart, f.End()-parsed.FileStart
			body := string(text[start:end])
			if n := strings.Count(body, m.old); n != 1 {
				return "", nil, fmt.Errorf("%s in %s has %q %d times, not once", m.function, m.pkg, m.old, n)
			}
			body = strings.Replace(body, m.old, m.new, 1)
			return name, []byte(string(text[:start]) + body + string(text[end:])), nil
		}
	}
	return "", nil, fmt.Errorf("%s has no function %s", m.pkg, m.function)
}

// nameOf returns the name of a function, or the type and the name of a method.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	for {
		switch t := receiver.(type) {
		case *ast.StarExpr:
			receiver = t.X
		case *ast.IndexExpr:
			receiver = t.X
		case *ast.Ident:
			return t.Name + "." + f.Name.Name
		}
	}
}
