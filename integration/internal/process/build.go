package process

import (
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"syscall"
)

var Durable, Stock, Storefront = Binary("durable"), Binary("durable/examples/stock"), Binary("cmd/storefront")

// Binary returns a function that returns one of the commands in the repository,
// which it builds when it is called for the first time.
func Binary(command string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		g, err := TheGroup()
		if err != nil {
			return "", err
		}
		name := filepath.Join(g.Dir, path.Base(command))
		build := exec.Command("go", "build", "-o", name, "example.com/storefront/"+command)
		build.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.ID} // else it may write the file after all is removed
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build %s: %w\n%s", command, err, out)
		}
		return name, nil
	})
}
