//go:build !unix

package drive

import "os/exec"

// inGroup returns what kills the command.
func inGroup(cmd *exec.Cmd) (kill func() error) { return cmd.Cancel }
