// Package need is for tests of what may not be installed. They are skipped without it,
// and fail if the environment variable STOREFRONT_REQUIRE names it: that is a list of
// names, separated by commas, or "all".
package need

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Variable is the environment variable that says what must be there.
const Variable = "STOREFRONT_REQUIRE"

// The names that it may have.
const (
	Postgres   = "postgres"
	Postgres18 = "postgres18"
	MariaDB    = "mariadb"
	MySQL      = "mysql"
	Fronts     = "fronts" // the proxies, and systemd
	Browser    = "browser"
	Node       = "node"
	Tools      = "tools" // of the documents' commands
)

// Names are all of them.
var Names = []string{Postgres, Postgres18, MariaDB, MySQL, Fronts, Browser, Node, Tools}

// Required reports whether what has a name must be there. It panics if the variable has a
// name that nothing has, which would demand nothing.
func Required(name string) bool {
	required := strings.Split(os.Getenv(Variable), ",")
	for _, each := range required {
		if each != "" && each != "all" && !slices.Contains(Names, each) {
			panic(Variable + " has " + each + ", and only all, " + strings.Join(Names, ", ") + " can be required")
		}
	}
	return slices.Contains(required, name) || slices.Contains(required, "all")
}

// Missing skips the test because what has a name is not there, or fails it if that is
// required.
func Missing(t testing.TB, name string, why any) {
	t.Helper()
	if Required(name) {
		t.Fatal(why)
	}
	t.Skip(why)
}

// Programs is Missing if one of these programs is not in PATH.
func Programs(t testing.TB, name string, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			Missing(t, name, err)
		}
	}
}

// Python returns the interpreter, of which a version manager may have put a script in the way that takes
// longer than the tests.
var Python = sync.OnceValue(func() string {
	path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return "python3" // which a test then finds missing
	}
	return strings.TrimSpace(string(path))
})
