package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
)

// The API of a package is recorded as Go source, of the exported declarations
// without their bodies: in a year it is still read by any Go and by people, which
// the export data that apidiff writes is not.

// recordAPI writes the declarations of each public package into a file.
func recordAPI(release, root string) error {
	m, err := loadModule(root)
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(release, "api"), 0o755); err != nil {
		return err
	}
	for _, p := range m.public {
		text, err := m.declarations(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		if err := os.WriteFile(filepath.Join(release, "api", path.Base(p.ImportPath)+".txt"), text, 0o644); err != nil {
			return err
		}
	}
	// What was written says all of it.
	report, err := compareAPI(release, root)
	if err == nil && len(report.Changes) > 0 {
		err = fmt.Errorf("the declarations that were written are not those that are there:\n%v", report)
	}
	return err
}

// checkAPI has apidiff compare the public packages with the released ones.
func checkAPI(release, root string) ([]string, error) {
	report, err := compareAPI(release, root)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, change := range report.Changes {
		if !change.Compatible && !strings.HasSuffix(change.Message, ": old is comparable, new is not") { // which nobody is promised
			lines = append(lines, change.Message)
		}
	}
	return lines, nil
}

func compareAPI(release, root string) (apidiff.Report, error) {
	files, err := filepath.Glob(filepath.Join(release, "api/*.txt"))
	if err == nil && len(files) == 0 {
		err = errors.New("no API is recorded")
	}
	if err != nil {
		return apidiff.Report{}, err
	}
	old := &recordedPackages{fset: token.NewFileSet(), files: make(map[string]*ast.File), checked: make(map[string]*types.Package)}
	imported := make(map[string]bool)
	for _, file := range files {
		f, err := parser.ParseFile(old.fset, file, nil, parser.ParseComments)
		if err != nil {
			return apidiff.Report{}, err
		}
		importPath, err := importComment(f)
		if err != nil {
			return apidiff.Report{}, fmt.Errorf("%s: %w", file, err)
		}
		old.files[importPath] = f
		for _, spec := range f.Imports {
			imported[strings.Trim(spec.Path.Value, `"`)] = true
		}
	}
	maps.DeleteFunc(imported, func(importPath string, _ bool) bool { return old.files[importPath] != nil })
	m, err := loadModule(root, slices.Sorted(maps.Keys(imported))...)
	if err != nil {
		return apidiff.Report{}, err
	}
	old.others = m.importer
	was, is := &apidiff.Module{Path: m.path}, &apidiff.Module{Path: m.path}
	for _, importPath := range slices.Sorted(maps.Keys(old.files)) {
		p, err := old.Import(importPath)
		if err != nil {
			return apidiff.Report{}, err
		}
		was.Packages = append(was.Packages, p)
	}
	for _, listed := range m.public {
		p, err := m.importer.Import(listed.ImportPath)
		if err != nil {
			return apidiff.Report{}, err
		}
		is.Packages = append(is.Packages, p)
	}
	return apidiff.ModuleChanges(was, is), nil
}

// importComment returns the path in the comment of a package clause.
func importComment(f *ast.File) (string, error) {
	for _, group := range f.Comments {
		if rest, ok := strings.CutPrefix(group.List[0].Text, `// import "`); ok {
			return strings.TrimSuffix(rest, `"`), nil
		}
	}
	return "", errors.New("the package clause has no import comment")
}

// recordedPackages imports the packages whose declarations were recorded, and has
// others import the rest.
type recordedPackages struct {
	fset    *token.FileSet
	files   map[string]*ast.File
	checked map[string]*types.Package
	others  types.Importer
}

func (r *recordedPackages) Import(importPath string) (*types.Package, error) {
	if r.files[importPath] == nil {
		return r.others.Import(importPath)
	}
	if r.checked[importPath] == nil {
		config := types.Config{Importer: r, IgnoreFuncBodies: true}
		p, err := config.Check(importPath, r.fset, []*ast.File{r.files[importPath]}, nil)
		if err != nil {
			return nil, err
		}
		r.checked[importPath] = p
	}
	return r.checked[importPath], nil
}

// A module is the root module as it is.
type module struct {
	path     string
	public   []listedPackage
	names    map[string]string // of packages, by import path
	importer types.Importer    // of its packages and what they import
}

// A listedPackage is what go list says of a package.
type listedPackage struct {
	ImportPath, Name, Dir, Export string
	GoFiles                       []string
	DepOnly                       bool
	Module                        *struct{ Path string }
}

// loadModule loads the public packages of the module in root, and makes those
// importable that they or others import.
func loadModule(root string, others ...string) (*module, error) {
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Name,Dir,Export,GoFiles,DepOnly,Module", "./..."}, others...)...)
	list.Dir = root
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	m := &module{names: make(map[string]string)}
	exports := make(map[string]string)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := decoder.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath], m.names[p.ImportPath] = p.Export, p.Name
		if p.Module != nil && !p.DepOnly && p.Name != "main" && !slices.Contains(strings.Split(p.ImportPath, "/"), "internal") {
			m.path = p.Module.Path
			m.public = append(m.public, p)
		}
	}
	m.importer = importer.ForCompiler(token.NewFileSet(), "gc", func(importPath string) (io.ReadCloser, error) {
		return os.Open(exports[importPath])
	})
	return m, nil
}

// declarations returns a source file with the exported declarations of a package.
func (m *module) declarations(p listedPackage) ([]byte, error) {
	checked, err := m.importer.Import(p.ImportPath)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var decls []string
	imports, used := make(map[string]string), make(map[string]bool)
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, spec := range f.Imports {
			importPath := strings.Trim(spec.Path.Value, `"`)
			local := m.names[importPath]
			if spec.Name != nil {
				local = spec.Name.Name
			}
			imports[local] = importPath
		}
		ast.FileExports(f)
		for _, decl := range f.Decls {
			if !isExported(decl) {
				continue
			}
			if err := bare(decl, checked); err != nil {
				return nil, err
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok {
						used[x.Name] = true
					}
				}
				return true
			})
			var text strings.Builder
			if err := format.Node(&text, fset, decl); err != nil {
				return nil, err
			}
			decls = append(decls, text.String())
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "package %s // import %q\n\n", p.Name, p.ImportPath)
	for _, local := range slices.Sorted(maps.Keys(imports)) {
		switch importPath := imports[local]; {
		case !used[local]:
		case local == path.Base(importPath):
			fmt.Fprintf(&b, "import %q\n", importPath)
		default:
			fmt.Fprintf(&b, "import %s %q\n", local, importPath)
		}
	}
	slices.Sort(decls)
	for _, decl := range decls {
		fmt.Fprintf(&b, "\n%s\n", decl)
	}
	return format.Source(b.Bytes())
}

// isExported reports whether a declaration that ast.FileExports has left is one of
// a package's users: neither an import nor a method of an unexported type.
func isExported(decl ast.Decl) bool {
	switch decl := decl.(type) {
	case *ast.GenDecl:
		return decl.Tok != token.IMPORT
	case *ast.FuncDecl:
		if decl.Recv != nil {
			return ast.IsExported(receiver(decl.Recv.List[0].Type))
		}
	}
	return true
}

// receiver returns the name of the type in a receiver's type expression.
func receiver(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.StarExpr:
		return receiver(expr.X)
	case *ast.IndexExpr:
		return receiver(expr.X)
	case *ast.IndexListExpr:
		return receiver(expr.X)
	case *ast.Ident:
		return expr.Name
	}
	return ""
}

// bare takes the body off a function. Where a struct has lost its unexported
// fields, it puts one in their place that the struct is as comparable with.
func bare(decl ast.Decl, p *types.Package) error {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		decl.Body = nil
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			spec, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			switch t := spec.Type.(type) {
			case *ast.InterfaceType:
				if t.Incomplete {
					return fmt.Errorf("%s has unexported methods, which are not recorded", spec.Name)
				}
			case *ast.StructType:
				if !t.Incomplete {
					continue
				}
				hidden := "struct{}"
				if !types.Comparable(p.Scope().Lookup(spec.Name.Name).Type()) {
					hidden = "[0]func()"
				}
				expr, err := parser.ParseExpr(hidden)
				if err != nil {
					return err
				}
				t.Fields.List = append(t.Fields.List, &ast.Field{Names: []*ast.Ident{ast.NewIdent("_")}, Type: expr})
			}
		}
	}
	return nil
}
