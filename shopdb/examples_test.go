package shopdb

import (
	"os/exec"
	"path"
	"strings"
	"testing"

	"example.com/storefront/internal/must"
)

// People copy one example into a module of their own, which has none of the others.
func TestExamplesImportNothingThatIsNotForOthers(t *testing.T) {
	const format = `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`
	list := exec.CommandContext(t.Context(), "go", "list", "-f", format, "./examples/...")
	out := must.Get(list.Output())(t)
	examples := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(examples) < 2 {
		t.Fatalf("no examples were found: %s", out)
	}
	for _, line := range examples {
		example, imports, _ := strings.Cut(line, " ")
		for imported := range strings.FieldsSeq(imports) {
			if strings.Contains(imported, "/internal/") || strings.HasPrefix(imported, path.Dir(example)) {
				t.Errorf("%s imports %s", example, imported)
			}
		}
	}
}
