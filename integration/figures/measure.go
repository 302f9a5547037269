package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"example.com/storefront/integration/internal/long"
)

// A measurement is a run of go test whose output is kept in docs/figures.
type measurement struct {
	name     string
	packages []string
	flag     string // -bench or -run
	pattern  string
	flags    []string
}

var measurements = []measurement{
	{"package", []string{"./integration/bench"}, "-bench", "Handler|Socket|MemStore", nil},
	{"databases", []string{"./integration/bench"}, "-bench", "Handwritten|Service", []string{"-benchtime", "1x"}},
	{"size", []string{"./integration/bench"}, "-bench", "Size", []string{"-benchtime", "1x"}},
	{"forget", []string{"./integration/bench"}, "-bench", "Forget", []string{"-benchtime", "1x"}},
	{"distance", []string{"./integration/bench"}, "-bench", "Distance", []string{"-benchtime", "1x"}},
	{"faults", []string{"./integration/faults", "./integration/overload", "./integration/clusters"}, "-run", "Kills|Power|Failover|SplitBrain|Frozen|Cuts|AtOnce|DiskFull",
		[]string{"-p", "1", "-parallel", "1", "-v"}},
	{"releases", []string{"./integration/releases"}, "-run", "SideBySide", []string{"-v"}},
	{"hours", []string{"./integration/hours"}, "-run", "Hours", []string{"-v", "-for", "1h", "-orders", "10000000"}},
}

// measure runs the measurement and keeps its output.
func (m *measurement) measure(root string) error {
	args := []string{"test", "-count=1", "-timeout", "0", m.flag, m.pattern}
	if m.flag == "-bench" {
		args = append(args, "-run", "^$")
	}
	args = slices.Concat(args, m.packages, m.flags) // a test's own flags must be behind the packages
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), long.Variable+"=full", "STOREFRONT_REQUIRE=postgres,postgres18,mariadb,mysql")
	if m.name == "hours" {
		cmd.Env = append(cmd.Env, "GOEXPERIMENT=goroutineleakprofile") // which durable says then
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return os.WriteFile(filepath.Join(root, "docs/figures", m.name+".txt"), m.kept(out), 0o644)
}

// kept returns those lines that are kept.
func (m *measurement) kept(out []byte) []byte {
	if m.flag == "-bench" {
		return out
	}
	return bytes.Join(attribute.FindAll(out, -1), []byte("\n"))
}
