package process

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Commands of the repository, each a function that returns the name of its binary.
var (
	Storefrontd = binaryOf("shopdb/cmd/storefrontd")
	Exactlyonce = binaryOf("cmd/exactlyonce")
	Stock       = binaryOf("shopdb/examples/stock")
	Storefront  = binaryOf("cmd/storefront")
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

// Flags returns the flags of a command and their defaults.
func Flags(t testing.TB, command func() (string, error)) map[string]string {
	t.Helper()
	binary, err := command()
	if err != nil {
		t.Fatal(err)
	}
	usage, _ := exec.Command(binary, "-h").CombinedOutput()
	flags := make(map[string]string)
	described := regexp.MustCompile(`(?m)^  -(\S+).*\n((?:    .*\n)+)`)
	for _, found := range described.FindAllStringSubmatch(string(usage), -1) {
		_, value, _ := strings.Cut(found[2], "(default ")
		flags[found[1]] = strings.Trim(strings.TrimSuffix(value, ")\n"), `"`)
	}
	return flags
}

// GoBuild builds a command of the repository into a file. Of what go run links, other than go build, go keeps
// a copy, so that it is linked once for all packages.
func GoBuild(file, command string, flags ...string) error {
	g, err := theGroup()
	if err != nil {
		return err
	}
	build := exec.Command("go",
		append(append([]string{"run", "-exec", "cp"}, flags...), "example.com/storefront/"+command, file)...)
	// else it may write the file after all is removed
	build.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.id}
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", build, err, out)
	}
	return nil
}

// A Change is an edit of a file of the repository, whose name begins at its root.
type Change struct{ File, Old, New string }

// GoBuildChanged builds a command of the repository into a file, as it would be with these
// changes.
func GoBuildChanged(file, command string, changes ...Change) error {
	root, err := exec.Command("go", "list", "-f", "{{.Module.Dir}}", "example.com/storefront").Output()
	if err != nil {
		return err
	}
	replaced := make(map[string]string) // files beside the binary by the path of that in whose place they are
	for _, c := range changes {
		name := filepath.Join(strings.TrimSpace(string(root)), c.File)
		text, err := os.ReadFile(cmp.Or(replaced[name], name))
		if err != nil {
			return err
		}
		if !strings.Contains(string(text), c.Old) {
			return fmt.Errorf("%s does not have %q", c.File, c.Old)
		}
		replaced[name] = cmp.Or(replaced[name], fmt.Sprint(file, "-", len(replaced), ".go"))
		text = []byte(strings.ReplaceAll(string(text), c.Old, c.New))
		if err := os.WriteFile(replaced[name], text, 0o600); err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return err
	}
	list := file + ".json"
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return err
	}
	return GoBuild(file, command, "-overlay", list)
}
