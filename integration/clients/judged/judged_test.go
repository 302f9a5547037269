// Package judged has the clients in folder sdk of the repository meet the faults of package clienttest.
package judged

import (
	"testing"

	"example.com/storefront/clienttest"
	"example.com/storefront/integration/internal/need"
)

// All do so at the same time, as much of it is waiting.
func TestClientsPassTheSuite(t *testing.T) {
	const runner = "../testdata/runners/run"
	t.Run("bash", func(t *testing.T) {
		t.Parallel()
		need.Programs(t, need.Tools, "bash", "curl", "jq", "flock")
		clienttest.RunProgram(t, "bash", runner+".sh")
	})
	t.Run("javascript", func(t *testing.T) {
		t.Parallel()
		need.Programs(t, need.Tools, "node")
		clienttest.RunProgram(t, "node", runner+".mjs")
	})
	t.Run("python", func(t *testing.T) {
		t.Parallel()
		need.Programs(t, need.Tools, "python3")
		clienttest.RunProgram(t, need.Python(), runner+".py")
	})
}
