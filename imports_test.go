package storefront

import (
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/storefront/internal/must"
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
	imports, others := make(map[string][]string), must.Get(filepath.Glob("*/go.mod"))(t)
	for _, pattern := range []string{"*.go", "*/*.go", "*/*/*.go", "*/*/*/*.go"} {
		for _, name := range must.Get(filepath.Glob(pattern))(t) {
			folder, _, _ := strings.Cut(filepath.ToSlash(name), "/")
			if strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata") ||
				slices.Contains(others, filepath.Join(folder, "go.mod")) {
				continue
			}
			file := must.Get(parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly))(t)
			importer := path.Join(module, filepath.ToSlash(filepath.Dir(name)))
			imports[importer] = append(imports[importer], "") // though it imports nothing
			for _, spec := range file.Imports {
				imports[importer] = append(imports[importer], must.Get(strconv.Unquote(spec.Path.Value))(t))
			}
		}
	}
	for _, name := range []string{module, module + "/internal/ijson", module + "/storetest"} {
		if imports[name] == nil {
			t.Fatalf("%s was not found", name)
		}
	}
	return imports
}
