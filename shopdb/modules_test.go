package shopdb

import (
	"encoding/json"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"example.com/storefront/internal/must"
)

// What the tests try is what users get. In the workspace, another module may require a later version of
// one that shopdb imports. And modernc.org/sqlite wants the libc of its own go.mod exactly.
func TestVersionsAreThoseThatUsersGet(t *testing.T) {
	goList := func(format string, paths ...string) []string {
		args := append([]string{"list", "-m", "-f", format}, paths...)
		out, err := exec.CommandContext(t.Context(), "go", args...).Output()
		if err != nil {
			t.Fatalf("go %q: %v", args, err)
		}
		return strings.Split(strings.TrimSpace(string(out)), "\n")
	}
	required := requirements(t, "go.mod")
	delete(required, "example.com/storefront") // this repository
	for _, module := range goList("{{.Path}} {{.Version}}", slices.Sorted(maps.Keys(required))...) {
		path, got, _ := strings.Cut(module, " ")
		if version := required[path]; got != version {
			t.Errorf("the tests run with %s %s, and users get %s", path, got, version)
		}
	}
	const libc = "modernc.org/libc"
	want := requirements(t, goList("{{.GoMod}}", "modernc.org/sqlite")[0])[libc]
	if got := required[libc]; got != want || want == "" {
		t.Errorf("%s is %s, and modernc.org/sqlite wants %q", libc, got, want)
	}
}

// requirements returns the version of each module that a go.mod requires.
func requirements(t *testing.T, goMod string) map[string]string {
	t.Helper()
	out := must.Get(exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", goMod).Output())(t)
	var mod struct {
		Require []struct{ Path, Version string }
	}
	must.OK(t, json.Unmarshal(out, &mod))
	versions := make(map[string]string)
	for _, r := range mod.Require {
		versions[r.Path] = r.Version
	}
	return versions
}
