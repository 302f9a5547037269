package storefront

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "example.com/storefront"

// Only the standard library is imported, and testing only by the suites. The rooms below the service
// can be read, tested and changed alone: they know nothing of it nor of each other.
func TestImports(t *testing.T) {
	suites := []string{module + "/storetest", module + "/clienttest"}
	above := []string{"audit", "commandtest", "conformance", "demo", "exchanges", "faults", "trypage"}
	for importer, imported := range moduleImports(t) {
		name, internal := strings.CutPrefix(importer, module+"/internal/")
		name, _, _ = strings.Cut(name, "/")
		room := internal && !slices.Contains(above, name)
		for _, name := range imported {
			first, _, _ := strings.Cut(name, "/")
			testing := first == "testing" || slices.Contains(suites, name)
			if strings.Contains(first, ".") && !inModule(name) || name == "C" ||
				testing && !slices.Contains(suites, importer) || room && inModule(name) {
				t.Errorf("%s imports %s", importer, name)
			}
		}
	}
}

func inModule(name string) bool { return name == module || strings.HasPrefix(name, module+"/") }

// moduleImports returns what each package of this module imports outside of its tests,
// on any system.
func moduleImports(t *testing.T) map[string][]string {
	t.Helper()
	imports := make(map[string][]string)
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if base := entry.Name(); slices.Contains([]string{"shopdb", "integration", "testdata"}, name) ||
				base == "testdata" || base != "." && (base[0] == '.' || base[0] == '_') {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		importer := path.Join(module, filepath.ToSlash(filepath.Dir(name)))
		imports[importer] = append(imports[importer], "") // though it imports nothing
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imports[importer] = append(imports[importer], imported)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{module, module + "/internal/ijson", module + "/storetest"} {
		if imports[name] == nil {
			t.Fatalf("%s was not found", name)
		}
	}
	return imports
}
