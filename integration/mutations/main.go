// Command mutations tests the tests. It breaks the code in one place after the
// other, as list.txt says, and demands that the test that is named there fails.
//
// Usage:
//
//	go run ./integration/mutations [-fast] [-run regexp] [-list]
//
// All is done in a copy of the repository: what git has or would add, as it is in
// the folder now. First, the named tests must pass without a mutation. With one,
// the test must fail by what it checks: a mutation that does not compile, or has
// the test panic or hang, is not caught, unless the list says so. The exit status
// is 1 if a mutation is not caught and 2 if the list, or what it was run on, is
// wrong.
//
// Some tests start servers and other programs. Where one of these is not installed,
// such a test is run with what is there, and a mutation that it does not catch then is
// "not installed", which says nothing of the test.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/need"
)

//go:embed list.txt
var list string

func main() {
	fast := flag.Bool("fast", false, "only those marked fast")
	pattern := flag.String("run", "", "only those whose entry in the list matches `regexp`")
	only := flag.Bool("list", false, "print them and do nothing")
	flag.Parse()
	mutations, err := chosen(*fast, *pattern)
	switch {
	case err != nil:
	case flag.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case *only:
		for _, m := range mutations {
			fmt.Printf("%s\n    %s %s\n", m.what, m.pkg, m.test)
		}
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = run(ctx, os.Stdout, mutations)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutations:", err)
		if errors.Is(err, errNotCaught) {
			os.Exit(1)
		}
		os.Exit(2)
	}
}

// chosen returns the mutations that the flags select.
func chosen(fast bool, pattern string) ([]*mutation, error) {
	mutations, err := parse(list)
	if err != nil {
		return nil, fmt.Errorf("list.txt: %w", err)
	}
	matching, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	mutations = slices.DeleteFunc(mutations, func(m *mutation) bool {
		return fast && !m.fast || !matching.MatchString(m.text)
	})
	if len(mutations) == 0 {
		return nil, errors.New("no mutation is selected")
	}
	return mutations, nil
}

// run tries the mutations in a copy of the repository that the program runs in.
func run(ctx context.Context, w io.Writer, mutations []*mutation) error {
	root, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("git: %w", err)
	}
	dir, err := os.MkdirTemp("", "storefront-mutations-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := newCopied(dir)
	if err := c.fill(ctx, strings.TrimSuffix(string(root), "\n")); err != nil {
		return err
	}
	return c.tryAll(ctx, w, mutations)
}

// An ending is how a test ends.
type ending string

const (
	passes     ending = "passes"
	fails      ending = "fails"
	panics     ending = "panics" // or the program ends otherwise
	hangs      ending = "hangs"
	doesNotRun ending = "does not compile"
)

// A test is given a time that it does not need by far. One that is to hang is given
// less, as all of it will pass.
const (
	timeout     = 5 * time.Minute
	hangTimeout = 30 * time.Second
)

// A copied is a copy of the repository.
type copied struct {
	dir    string
	binary string // the name of the program of a test
	output string // the name of the file that has what the last command wrote

	// lacking are the packages and patterns of the tests that need something that is
	// not installed.
	lacking map[[2]string]bool
}

func newCopied(dir string) *copied {
	return &copied{filepath.Join(dir, "repository"), filepath.Join(dir, "test"), filepath.Join(dir, "output"), make(map[[2]string]bool)}
}

// fill makes the copy of what is in root.
func (c *copied) fill(ctx context.Context, root string) error {
	names, err := exec.CommandContext(ctx, "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) { // deleted, but not in git
			continue
		}
		if err == nil {
			err = c.write(name, text)
		}
		info, statErr := os.Stat(filepath.Join(root, name))
		if err := errors.Join(err, statErr); err != nil {
			return err
		}
		if err := os.Chmod(filepath.Join(c.dir, name), info.Mode()); err != nil { // tests run scripts
			return err
		}
	}
	return nil
}

func (c *copied) write(name string, text []byte) error {
	name = filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

var errNotCaught = errors.New("not caught")

// tryAll tries the mutations one after the other and writes a line for each.
func (c *copied) tryAll(ctx context.Context, w io.Writer, mutations []*mutation) error {
	began := time.Now()
	if err := c.unchanged(ctx, mutations); err != nil {
		return err
	}
	fmt.Fprintf(w, "The tests pass without a mutation (%.1fs).\n", time.Since(began).Seconds())
	missed, untold := 0, 0
	for _, m := range mutations {
		began := time.Now()
		end, err := c.try(ctx, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.what, err)
		}
		verdict := "caught"
		switch {
		case end == m.ends:
		case end == passes && c.lacking[m.key()]:
			verdict = "not installed"
			untold++
		default:
			verdict = "MISSED"
			missed++
		}
		fmt.Fprintf(w, "%s %5.1fs  %s\n               by %s %s\n", verdict, time.Since(began).Seconds(), m.what, m.pkg, m.test)
		if verdict == "MISSED" {
			fmt.Fprintf(w, "               which %s:\n%s\n", end, c.said())
		}
	}
	fmt.Fprintf(w, "%d of %d mutations were caught (%.0fs).\n", len(mutations)-missed-untold, len(mutations), time.Since(began).Seconds())
	if untold > 0 {
		fmt.Fprintf(w, "%d would need what is not installed.\n", untold)
	}
	if missed > 0 {
		return fmt.Errorf("%d mutations were %w", missed, errNotCaught)
	}
	return nil
}

// unchanged returns an error unless all the tests pass in the copy as it is. It notes
// those that lack something.
func (c *copied) unchanged(ctx context.Context, mutations []*mutation) error {
	tests := make(map[string][]string)
	for _, m := range mutations {
		tests[m.pkg] = append(tests[m.pkg], m.pattern())
	}
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		patterns := slices.Compact(slices.Sorted(slices.Values(tests[pkg])))
		end, err := c.test(ctx, pkg, strings.Join(patterns, "|"), timeout, demanding)
		if err != nil {
			return err
		}
		if end == passes {
			continue
		}
		for _, pattern := range patterns {
			if err := c.unchangedTest(ctx, pkg, pattern); err != nil {
				return err
			}
		}
	}
	return nil
}

// unchangedTest is unchanged for one test, of a package with one that does not pass.
func (c *copied) unchangedTest(ctx context.Context, pkg, pattern string) error {
	end, err := c.test(ctx, pkg, pattern, timeout, demanding)
	if err != nil || end == passes {
		return err
	}
	wrong := fmt.Errorf("without a mutation, the test %s of %s %s:\n%s", pattern, pkg, end, c.said())
	end, err = c.test(ctx, pkg, pattern, timeout, skipping)
	if err != nil {
		return err
	}
	if end != passes || !c.skipped() {
		return wrong
	}
	c.lacking[[2]string{pkg, pattern}] = true
	return nil
}

// try returns how the test of m ends in the copy with the mutation, which is undone
// then.
func (c *copied) try(ctx context.Context, m *mutation) (end ending, err error) {
	folders := make(map[string]bool)
	for _, e := range m.edits {
		text, err := os.ReadFile(filepath.Join(c.dir, e.file))
		if err != nil {
			return "", err
		}
		changed, err := e.apply(string(text))
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, c.write(e.file, text)) }()
		if err := c.write(e.file, []byte(changed)); err != nil {
			return "", err
		}
		if filepath.Ext(e.file) == ".go" {
			folders[filepath.Dir(e.file)] = true
		}
	}
	// The test may run a program that it does not import.
	for folder := range folders {
		if exit, err := c.run(ctx, ".", "go", "build", "-o", os.DevNull, "./"+folder); err != nil || exit != 0 {
			return doesNotRun, err
		}
	}
	limit := timeout
	if m.ends == hangs {
		limit = hangTimeout
	}
	return c.test(ctx, m.pkg, m.pattern(), limit, !c.lacking[m.key()])
}

// A test that lacks something that it needs fails or is skipped.
const (
	demanding = true
	skipping  = false
)

// test returns how the tests end that a pattern matches.
func (c *copied) test(ctx context.Context, pkg, pattern string, limit time.Duration, demands bool) (ending, error) {
	exit, err := c.run(ctx, ".", "go", "test", "-c", "-o", c.binary, "./"+pkg)
	if err != nil || exit != 0 {
		return doesNotRun, err
	}
	environment := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, need.Variable+"=") })
	environment = append(environment, long.Variable+"=full") // with all that a test tries
	args := []string{c.binary, "-test.run", pattern, "-test.timeout", limit.String()}
	if demands {
		environment = append(environment, need.Variable+"=all")
	} else {
		args = append(args, "-test.v") // to see what is skipped
	}
	exit, err = c.runWith(ctx, environment, pkg, args...)
	if err != nil {
		return "", err
	}
	said, err := os.ReadFile(c.output)
	switch {
	case err != nil:
		return "", err
	case exit == 0:
		return passes, nil
	case bytes.Contains(said, []byte("panic: test timed out after")):
		return hangs, nil
	case exit == 1 && bytes.Contains(said, []byte("--- FAIL: ")):
		return fails, nil
	}
	return panics, nil
}

// run runs a program in a folder of the copy and returns its exit status.
func (c *copied) run(ctx context.Context, folder string, command ...string) (int, error) {
	return c.runWith(ctx, os.Environ(), folder, command...)
}

func (c *copied) runWith(ctx context.Context, environment []string, folder string, command ...string) (int, error) {
	output, err := os.Create(c.output)
	if err != nil {
		return 0, err
	}
	defer output.Close()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = filepath.Join(c.dir, folder)
	cmd.Env = environment
	cmd.Stdout, cmd.Stderr = output, output // a file, for what outlives the program
	err = cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); exited && ctx.Err() == nil {
		err = nil
	}
	return cmd.ProcessState.ExitCode(), errors.Join(ctx.Err(), err)
}

// skipped reports whether the last command, a test with -test.v, has skipped some of
// what it was to do, or all.
func (c *copied) skipped() bool {
	said, err := os.ReadFile(c.output)
	return err == nil && (bytes.Contains(said, []byte("--- SKIP: ")) || !bytes.Contains(said, []byte("--- PASS: ")))
}

// said returns the end of what the last command wrote.
func (c *copied) said() string {
	const most = 2 << 10
	text, err := os.ReadFile(c.output)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}
