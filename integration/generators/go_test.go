package generators

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	_ "github.com/oapi-codegen/runtime" // which generated code imports

	"example.com/storefront/internal/must"
)

// TestGo tests clients that generators of Go make. The compiler is told to take their
// files for files beside the tests in testdata.
func TestGo(t *testing.T) {
	for folder, generate := range map[string][]string{
		"testdata/ogen":        {"ogen", "--package", "ogen", "--target", "."},
		"testdata/oapicodegen": {"oapi-codegen", "-config", "testdata/oapicodegen/config.yaml", "-o", "api.gen.go"},
	} {
		t.Run(generate[0], func(t *testing.T) {
			t.Parallel()
			generated := t.TempDir()
			last := len(generate) - 1
			generate[last] = filepath.Join(generated, generate[last])
			goCommand(t, append(append([]string{"tool"}, generate...), "../../openapi.json")...)

			files := must.Get(os.ReadDir(generated))(t)
			replace := map[string]string{}
			for _, file := range files {
				name := must.Get(filepath.Abs(filepath.Join(folder, file.Name())))(t)
				replace[name] = filepath.Join(generated, file.Name())
			}
			text := must.Get(json.Marshal(map[string]any{"Replace": replace}))(t)
			overlay := filepath.Join(t.TempDir(), "overlay.json")
			must.OK(t, os.WriteFile(overlay, text, 0o666))
			goCommand(t, "test", "-vet", "all", "-overlay", overlay, "./"+folder)
		})
	}
}

func goCommand(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %q: %v\n%s", args, err, out)
	}
}
