// Command soak runs the tests that choose at random what they kill, freeze, cut off or fill, in
// turn and by one seed after the other, for as long as it is told. It runs in the root of the
// repository.
//
//	go run ./integration/soak -for 8h
//	go run ./integration/soak -for 1h -seed 7 -run 'clusters|Kills'
//
// integration/vitess/fetch has built Vitess before, unless -run leaves that out.
//
// It prints a line for each run. If a test fails, it also prints what the test has printed and the
// command that runs it again by its seed, and the exit status is 1.
package main

import (
	"cmp"
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

// A target is tests of a package.
type target struct {
	pkg, tests string
	flags      string // with {} for the seed, or {time} for the target's share of the time
}

// env returns what the go command must know to build the tests.
func (g target) env() []string {
	if g.pkg == "integration/vitess" {
		return []string{"GOWORK=off"} // it is in no workspace
	}
	return nil
}

var targets = []target{
	{"integration/faults", "^TestAtOnce$", "-seed={}"},
	{"integration/faults", "Cuts$", "-seed={}"},
	{"integration/faults", "Kills$", "-seed={}"},
	{"integration/clusters", ".", "-seed={}"},
	{"integration/releases", "SideBySide", ""},
	{"integration/clients", "^TestClientsPassTheSuite$", ""},
	{"integration/vitess", ".", ""},
	{"integration/soak", "^TestDurableDoesNotGrow$", "-seed={} -for={time}"},
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("soak: ")
	lasts := flag.Duration("for", 10*time.Minute,
		"begin no more tests after this `time`; each is run once in any case")
	pattern := flag.String("run", "", "only tests for which a part of package and name matches `regexp`")
	flag.Parse()
	chosen, err := matching(*pattern)
	if flag.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if err != nil {
		log.Print(err)
		os.Exit(2)
	}
	os.Setenv(long.Variable, "1")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := soak(ctx, os.Stdout, chosen, *long.Seed, *lasts); err != nil {
		log.Fatal(err)
	}
}

// matching returns the targets for which a part of package and name matches a pattern.
func matching(pattern string) ([]target, error) {
	r, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	chosen := slices.DeleteFunc(slices.Clone(targets),
		func(g target) bool { return !r.MatchString(g.pkg + " " + g.tests) })
	if len(chosen) == 0 {
		return nil, errors.New("no test matches")
	}
	return chosen, nil
}

// soak runs each of the targets once, and then round by round until the time is over. It returns
// an error if a run fails.
func soak(ctx context.Context, w io.Writer, targets []target, seed uint64, lasts time.Duration) error {
	dir, err := os.MkdirTemp("", "storefront-soak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	failed := 0
	for first, began := seed, time.Now(); ; seed++ {
		for _, g := range targets {
			if seed > first && time.Since(began) > lasts {
				if failed > 0 {
					return fmt.Errorf("%d runs failed", failed)
				}
				return nil
			}
			binary := filepath.Join(dir, strings.ReplaceAll(g.pkg, "/", "-"))
			if seed == first {
				build := exec.CommandContext(ctx, "go", "-C", g.pkg, "test", "-c", "-o", binary, ".")
				build.Env = append(os.Environ(), g.env()...)
				if out, err := build.CombinedOutput(); err != nil {
					return fmt.Errorf("%s does not compile: %w\n%s", g.pkg, err, out)
				}
			}
			flags := strings.NewReplacer("{}", strconv.FormatUint(seed, 10),
				"{time}", (lasts / time.Duration(len(targets))).String()).Replace(g.flags)
			started := time.Now()
			test := exec.CommandContext(ctx, binary,
				append([]string{"-test.run", g.tests, "-test.timeout", "0"}, strings.Fields(flags)...)...)
			test.Dir, test.Env = g.pkg, append(os.Environ(), g.env()...)
			out, err := test.CombinedOutput()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			fmt.Fprintf(w, "seed %d: %s %s: %v, %v\n",
				seed, g.pkg, g.tests, cmp.Or(err, errors.New("passed")),
				time.Since(started).Round(time.Second))
			if err != nil {
				failed++
				fmt.Fprintf(w, "%s\nTo run it again: %s=1 go -C %s test -timeout 0 -run '%s' . -args %s\n", out,
					strings.Join(append(g.env(), long.Variable), " "), g.pkg, g.tests, flags)
			}
		}
	}
}
