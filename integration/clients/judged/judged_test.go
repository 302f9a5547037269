// Package judged has the clients in folder sdk of the repository meet the faults of package clienttest.
package judged

import (
	"testing"

	"example.com/storefront/clienttest"
	"example.com/storefront/integration/internal/need"
)

const runner = "../testdata/runners/run"

func TestJavaScriptPassesTheSuite(t *testing.T) {
	t.Parallel()
	need.Programs(t, need.Tools, "node")
	clienttest.RunProgram(t, "node", runner+".mjs")
}

func TestPythonPassesTheSuite(t *testing.T) {
	t.Parallel()
	need.Programs(t, need.Tools, "python3")
	clienttest.RunProgram(t, need.Python(), runner+".py")
}
