package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"example.com/storefront/internal/must"
)

// What the tests try is what users get. In the workspace, another module may require a later version of
// one that durable imports. And modernc.org/sqlite wants the libc of its own go.mod exactly.
func TestVersionsAreThoseThatUsersGet(t *testing.T) {
	goList := func(format, path string) string {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", format, path).Output()
		if err != nil {
			t.Fatalf("go list -m %s: %v", path, err)
		}
		return strings.TrimSpace(string(out))
	}
	required := requirements(t, "go.mod")
	for path, version := range required {
		if path == "example.com/storefront" {
			continue // this repository
		}
		if got := goList("{{.Version}}", path); got != version {
			t.Errorf("the tests run with %s %s, and users get %s", path, got, version)
		}
	}
	const libc = "modernc.org/libc"
	want := requirements(t, goList("{{.GoMod}}", "modernc.org/sqlite"))[libc]
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
