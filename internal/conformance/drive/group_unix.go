//go:build unix

package drive

import (
	"os/exec"
	"syscall"
)

// inGroup has the command begin a process group, and returns what kills all of it.
func inGroup(cmd *exec.Cmd) (kill func() error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd.Cancel
}
