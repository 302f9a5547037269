// Package node finds the packages of npm that the folder integration/node names.
package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"example.com/storefront/integration/internal/need"
	"example.com/storefront/internal/must"
)

var fetch = sync.OnceValues(func() (folder string, err error) {
	cmd := exec.Command("../node/fetch") // of a test's package, a folder in integration
	cmd.Stderr = os.Stderr
	printed, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("integration/node/fetch: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(printed)), "node_modules"), nil
})

// Modules returns the folder node_modules, which npm makes if it is not in the user's
// cache. For a test without Node, it is [need.Missing].
func Modules(t testing.TB) string {
	t.Helper()
	need.Programs(t, need.Node, "node", "npm")
	return must.Get(fetch())(t)
}
