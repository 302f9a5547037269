// Leaks runs go test with the arguments that it is given, and each package fails whose tests
// have left goroutines behind that are blocked for good: on channels or locks which nothing
// that still runs can reach.
//
//	go run ./integration/leaks [arguments of go test]
//
// The garbage collector of Go's experiment goroutineleakprofile finds them. The package testing
// is compiled with an overlay that asks for this profile after the last test, so no package needs
// a TestMain for it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("leaks: ")
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // which ends go test, and the overlay is removed
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

// run runs go test, which prints to w.
func run(w io.Writer, args []string) error {
	env := exec.Command("go", "env", "GOROOT")
	env.Stderr = os.Stderr
	root, err := env.Output()
	if err != nil {
		return err
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src/testing/testing.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return err
	}
	if n := strings.Count(string(source), before); n != 1 {
		return fmt.Errorf("%s has %d times\n%swant once: the check has to go to another place of this release of Go", original, n, before)
	}
	dir, err := os.MkdirTemp("", "leaks-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	replacement, list := filepath.Join(dir, "testing.go"), filepath.Join(dir, "overlay.json")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: replacement}})
	if err != nil {
		return err
	}
	err = errors.Join(os.WriteFile(list, overlay, 0o600),
		os.WriteFile(replacement, []byte(strings.Replace(string(source), before, check+before, 1)), 0o600))
	if err != nil {
		return err
	}
	own := os.Getenv("GOEXPERIMENT")
	// The tests get no other experiments than this command: what they build, and all that it
	// imports, would have to be compiled once more.
	test := exec.Command("go", append([]string{"test", "-overlay", list, "-exec", "env GOEXPERIMENT=" + own}, args...)...)
	test.Env = append(os.Environ(), "GOEXPERIMENT="+strings.TrimPrefix(own+",goroutineleakprofile", ","))
	test.Stdout, test.Stderr = w, os.Stderr
	return test.Run()
}

// In (*testing.M).Run, check stands in front of before. Goroutines that have not come to where
// they block may do so during the first of two collections.
const (
	before = "\t\tif anyFailed {\n"
	check  = `		for i := 0; i < 2 && !anyFailed; i++ {
			var leaked strings.Builder
			if err := m.deps.WriteProfileTo("goroutineleak", &leaked, 1); err != nil {
				panic(err)
			}
			if !strings.HasPrefix(leaked.String(), "goroutineleak profile: total 0\n") {
				fmt.Print(chatty.prefix(), "testing: goroutines are blocked for good: ", leaked.String())
				anyFailed = true
			}
		}
`
)
