// Command soak runs the tests that choose at random, in turn, each time by another seed, for
// as long as it is told. It has to run in the root of the repository.
//
//	go run ./integration/soak -for 10m -seed 1
//	STOREFRONT_LONG=full go run ./integration/soak -for 8h -run 'clusters|TestSimulation'
//
// It prints a line for each run. TestHours of integration/hours, which needs as much time as it
// is given, has a flag -for of its own. A test that fails is named with the command that runs it
// again by its seed, and the exit status is then 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/storefront/integration/internal/long"
)

// A target is a test, or several of a package, that a seed decides.
type target struct {
	pkg, test string
	flags     string // with {} for the seed
}

var targets = []target{
	{"sqlstore", "^TestSimulation$", "-first={}01 -seeds=100"},
	{"integration/faults", "^TestAtOnce$", "-seed={}"},
	{"integration/faults", "Cuts$", "-seed={}"},
	{"integration/faults", "Kills$", "-seed={}"},
	{"integration/faults", "Power$", "-seed={}"},
	{"integration/overload", "^TestDiskFull$", "-seed={}"},
	{"integration/releases", "SideBySide", "-seed={}"},
	{"integration/clusters", "^TestFailover$|^TestSplitBrain$|^TestFrozenPrimary$|Kills$", "-seed={}"},
}

// args returns the flags of the test binary for a seed.
func (g target) args(seed uint64) []string {
	return strings.Fields(strings.ReplaceAll(g.flags, "{}", strconv.FormatUint(seed, 10)))
}

// command returns the command that runs the target alone by a seed.
func (g target) command(seed uint64) string {
	return fmt.Sprintf("%s=%s go test -timeout 0 ./%s -run '%s' -args %s", long.Variable, os.Getenv(long.Variable),
		g.pkg, g.test, strings.Join(g.args(seed), " "))
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("soak: ")
	lasts := flag.Duration("for", 10*time.Minute, "begin no more tests after this `time`; each is run once in any case")
	seed := flag.Uint64("seed", 1, "the first seed; each round of all tests has the next one")
	pattern := flag.String("run", "", "only tests for which a part of package and name matches `regexp`")
	flag.Parse()
	chosen, err := matching(targets, *pattern)
	if flag.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if err != nil {
		log.Print(err)
		os.Exit(2)
	}
	if !long.Run() {
		os.Setenv(long.Variable, "1") // else most tests are skipped
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	end := time.Now().Add(*lasts)
	failed, err := soak(ctx, os.Stdout, ".", chosen, *seed, func() bool { return time.Now().After(end) })
	if err != nil {
		log.Fatal(err)
	}
	if failed > 0 {
		log.Fatalf("%d runs failed", failed)
	}
}

// matching returns the targets for which a part of package and name matches a pattern.
func matching(targets []target, pattern string) ([]target, error) {
	r, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	targets = slices.DeleteFunc(slices.Clone(targets), func(g target) bool { return !r.MatchString(g.pkg + " " + g.test) })
	if len(targets) == 0 {
		return nil, errors.New("no test matches")
	}
	return targets, nil
}

// soak runs the targets of the repository in root, each once, and then round by round until
// it is over. It returns how many runs failed.
func soak(ctx context.Context, w io.Writer, root string, targets []target, seed uint64, over func() bool) (failed int, err error) {
	dir, err := os.MkdirTemp("", "storefront-soak-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	for first := seed; ; seed++ {
		for _, g := range targets {
			if ctx.Err() != nil || seed > first && over() {
				return failed, ctx.Err()
			}
			binary := filepath.Join(dir, strings.ReplaceAll(g.pkg, "/", "-"))
			if seed == first {
				build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "./"+g.pkg)
				build.Dir = root
				if out, err := build.CombinedOutput(); err != nil {
					return failed, fmt.Errorf("%s does not compile: %w\n%s", g.pkg, err, out)
				}
			}
			began := time.Now()
			test := exec.CommandContext(ctx, binary, append([]string{"-test.run", g.test, "-test.timeout", "0"}, g.args(seed)...)...)
			test.Dir = filepath.Join(root, g.pkg)
			out, err := test.CombinedOutput()
			if ctx.Err() != nil {
				return failed, ctx.Err()
			}
			took := time.Since(began).Round(time.Second)
			if err == nil {
				fmt.Fprintf(w, "seed %d: %s %s passed in %v\n", seed, g.pkg, g.test, took)
				continue
			}
			failed++
			fmt.Fprintf(w, "seed %d: %s %s failed in %v (%v)\n%s\nTo run it again: %s\n", seed, g.pkg, g.test, took, err, out, g.command(seed))
		}
	}
}
