package process

import (
	"fmt"
	"os/exec"
	"path"
	"sync"
	"syscall"
)

// Commands of the repository, each a function that returns the name of its binary.
var (
	Durable    = binaryOf("durable")
	Stock      = binaryOf("durable/examples/stock")
	Storefront = binaryOf("cmd/storefront")
)

// binaryOf returns a function that builds a command when it is called for the first time.
func binaryOf(command string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		name, err := Path(path.Base(command))
		if err != nil {
			return "", err
		}
		return name, GoBuild(name, command)
	})
}

// GoBuild builds a command of the repository into a file.
func GoBuild(file, command string, flags ...string) error {
	g, err := theGroup()
	if err != nil {
		return err
	}
	build := exec.Command("go", append(append([]string{"build"}, flags...), "-o", file, "example.com/storefront/"+command)...)
	build.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.id} // else it may write the file after all is removed
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", build, err, out)
	}
	return nil
}
