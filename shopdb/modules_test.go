package shopdb

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"example.com/storefront/internal/must"
)

// modernc.org/sqlite wants the libc of its own go.mod exactly. In the workspace, another module may require a
// later one than users get.
func TestLibcIsThatOfSQLite(t *testing.T) {
	list := func(format, module string) string {
		out := must.Get(exec.CommandContext(t.Context(), "go", "list", "-m", "-f", format, module).Output())(t)
		return strings.TrimSpace(string(out))
	}
	used := list("{{.Path}} {{.Version}}", "modernc.org/libc")
	for _, file := range []string{"go.mod", list("{{.GoMod}}", "modernc.org/sqlite")} {
		text := must.Get(os.ReadFile(file))(t)
		if got := regexp.MustCompile(`modernc\.org/libc v\S+`).FindString(string(text)); got != used {
			t.Errorf("%s requires %q, and the tests run with %s", file, got, used)
		}
	}
}
