package shopdb

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"example.com/storefront/internal/must"
)

// People copy one example into a module of their own, which has none of the others.
func TestExamplesBuildAloneWhereTheyAreCopied(t *testing.T) {
	here := must.Get(filepath.Abs("."))(t)
	examples, err := filepath.Glob("examples/*")
	if err != nil || len(examples) == 0 {
		t.Fatalf("no examples were found: %v", err)
	}
	for _, example := range examples {
		t.Run(filepath.Base(example), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			must.OK(t, os.CopyFS(dir, os.DirFS(example)))
			for _, name := range []string{"go.mod", "go.sum"} {
				text := must.Get(os.ReadFile(name))(t)
				must.OK(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
			}
			for _, args := range [][]string{
				{"mod", "edit", "-module=example.org/copy", "-replace=example.com/storefront=" + filepath.Dir(here),
					"-require=example.com/storefront/shopdb@v0.0.0", "-replace=example.com/storefront/shopdb=" + here},
				{"build", "-o", os.DevNull, "."},
			} {
				cmd := exec.CommandContext(t.Context(), "go", args...)
				cmd.Dir = dir
				// Nothing is found by way of the workspace, nor downloaded.
				cmd.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off", "GOFLAGS=")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("go %q: %v\n%s", args, err, out)
				}
			}
		})
	}
}
