// Package bash is package judged for the client for Bash, which takes as long as the others together: it starts
// programs for each try. So it meets all faults in the long run only.
package bash

import (
	"os/exec"
	"testing"

	"example.com/storefront/clienttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

func TestBashPassesTheSuite(t *testing.T) {
	need.Programs(t, need.Tools, "bash", "curl", "jq", "flock")
	command := []string{"bash", "../../testdata/runners/run.sh"}
	if long.Run() {
		clienttest.RunProgram(t, command...)
		return
	}
	storefront := must.Get(process.Storefront())(t)
	some := "/(nothing|.*(lost|cut|later|proxy sends|before the service|page to sign in|without its))"
	try := exec.CommandContext(t.Context(), storefront, append([]string{"-faults", "1", "-only", some, "--"}, command...)...)
	try.Stdout, try.Stderr = t.Output(), t.Output()
	if err := try.Run(); err != nil {
		t.Error(err)
	}
}
