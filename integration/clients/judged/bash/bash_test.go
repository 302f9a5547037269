// Package bash is package judged for the client for Bash, which takes as long as the others together: it starts
// programs for each try.
package bash

import (
	"testing"

	"example.com/storefront/clienttest"
	"example.com/storefront/integration/internal/need"
)

func TestBashPassesTheSuite(t *testing.T) {
	need.Programs(t, need.Tools, "bash", "curl", "jq", "flock")
	clienttest.RunProgram(t, "bash", "../../testdata/runners/run.sh")
}
