package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/conformance/drive"
	"example.com/storefront/internal/faults"
)

// A trial is of a client that is a program.
type trial struct {
	seed    uint64
	only    *regexp.Regexp // nil: all faults
	command []string

	set  bool // by flags
	list bool // the faults, in place of a trial
}

func defineTrial() *trial {
	t := new(trial)
	flag.Func("faults", "try a client, the program behind the flags, with faults; the\n`number` decides what is "+
		"left to chance; list prints the faults instead", func(text string) (err error) {
		if t.list = text == "list"; !t.list {
			t.seed, err = strconv.ParseUint(text, 0, 64)
		}
		return err
	})
	flag.Func("only", "with -faults: `regexp` of the faults, such as '^orders/.*lost'",
		func(text string) (err error) {
			t.only, err = regexp.Compile(text)
			return err
		})
	return t
}

// check returns an error if the flags, or the command behind them, are wrong.
func (t *trial) check() (err error) {
	var others []string
	flag.Visit(func(f *flag.Flag) {
		t.set = t.set || f.Name == "faults"
		others = append(others, f.Name)
	})
	others = slices.DeleteFunc(others, func(name string) bool { return name == "faults" || name == "only" })
	t.command = flag.Args()
	switch {
	case !t.set && t.only != nil:
		return fmt.Errorf("-only is for -faults")
	case !t.set && len(t.command) > 0:
		return fmt.Errorf("unexpected argument %q", t.command[0])
	case !t.set:
		return nil
	case len(others) > 0:
		return fmt.Errorf("-%s is not for -faults, which serves nothing but to its program", others[0])
	case t.list && len(t.command) > 0:
		return fmt.Errorf("-faults list needs no program")
	case len(t.command) == 0 && !t.list:
		return fmt.Errorf("-faults needs a program, as in: storefront -faults 7 -- python3 client.py")
	case !slices.ContainsFunc(drive.Kinds, func(kind conformance.Kind) bool { return t.wants(kind) }):
		return fmt.Errorf("-only %q matches no fault; -faults list prints their names", t.only)
	case t.list:
		return nil
	}
	_, err = exec.LookPath(t.command[0])
	return err
}

// names prints the faults that are chosen.
func (t *trial) names(out io.Writer) {
	for _, kind := range drive.Kinds {
		for _, f := range faults.Of(kind, faults.Minutes) {
			if t.chosen(kind, f) {
				fmt.Fprintf(out, "%s/%s\n", kind, f.Name)
			}
		}
	}
}

// wants reports whether a fault of a kind is asked for.
func (t *trial) wants(kind conformance.Kind) bool {
	return slices.ContainsFunc(faults.Of(kind, faults.Minutes),
		func(f *faults.Fault) bool { return t.chosen(kind, f) })
}

func (t *trial) chosen(kind conformance.Kind, f *faults.Fault) bool {
	return t.only == nil || t.only.MatchString(string(kind)+"/"+f.Name)
}

// A failure is that of a check.
type failure struct {
	kind       conformance.Kind
	check      *conformance.Check
	violations []conformance.Violation
}

// run has the program meet the faults, prints what it did wrong, and returns the exit status.
func (t *trial) run(ctx context.Context, out io.Writer) (status int) {
	newClient, err := drive.Program(ctx, t.command)
	if ctx.Err() != nil {
		return 3
	}
	if err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	run := &drive.Run{New: newClient, Pace: faults.Minutes, Seed: t.seed, Chance: fmt.Sprint("-faults ", t.seed)}
	able := newClient("", nil)

	// Where nothing is wrong, a client shows what it can do.
	var calm, all []*drive.Meeting
	rest := make(map[conformance.Kind][]*drive.Meeting)
	for _, kind := range drive.Kinds {
		switch meetings := run.Meetings(kind); {
		case !t.wants(kind):
		case !able.Can(kind):
			fmt.Fprintf(out, "%s: not tried: the program does not say that it can\n", kind)
		default:
			calm = append(calm, meetings[0])
			rest[kind] = slices.DeleteFunc(meetings[1:],
				func(m *drive.Meeting) bool { return !t.chosen(kind, m.Fault) })
		}
	}
	hold := func(meetings []*drive.Meeting) {
		run.Begin(ctx, drive.Processes, meetings...)
		for _, m := range meetings {
			m.Wait()
		}
	}
	hold(calm)
	all = slices.Clone(calm)
	for _, m := range calm {
		if ctx.Err() != nil {
			break
		}
		if m.Err != nil || slices.ContainsFunc(judge([]*drive.Meeting{m}, m.Kind, true), failure.failed) {
			fmt.Fprintf(out, "%s: the faults were not tried, as the client fails where nothing is wrong\n", m.Kind)
		} else {
			all = append(all, rest[m.Kind]...)
		}
	}
	hold(all[len(calm):])

	var failures []failure
	for _, m := range calm {
		judged := judge(all, m.Kind, false)
		failed := slices.DeleteFunc(slices.Clone(judged), func(f failure) bool { return !f.failed() })
		fmt.Fprintf(out, "%s: %d of %d checks passed\n", m.Kind, len(judged)-len(failed), len(judged))
		failures = append(failures, failed...)
	}
	slices.SortStableFunc(failures,
		func(a, b failure) int { return cmp.Compare(a.check.Weight, b.check.Weight) })
	for _, f := range failures {
		f.print(out, run)
		status = 1
	}
	died := slices.DeleteFunc(slices.Clone(all),
		func(m *drive.Meeting) bool { return m.Err == nil || ctx.Err() != nil })
	for len(died) > 0 {
		first, others := died[0], []string(nil)
		died = slices.DeleteFunc(died[1:], func(m *drive.Meeting) bool {
			same := drive.Same(m.Err, first.Err)
			if same {
				others = append(others, strconv.Quote(string(m.Kind)+"/"+m.Fault.Name))
			}
			return same
		})
		fmt.Fprintf(out, "\n--- FAIL: %s/%s\n%v\n", first.Kind, first.Fault.Name, first.Err)
		alsoFails(out, others)
		status = 1
	}
	for _, m := range all {
		stuck := slices.ContainsFunc(m.Calls, func(c *conformance.Call) bool {
			return slices.ContainsFunc(c.Results, func(r *conformance.Result) bool { return r.Stuck })
		})
		switch {
		case ctx.Err() != nil && m.Err != nil: // stopped
			status = cmp.Or(status, 3)
		case stuck:
			fmt.Fprintf(out, "\n%s/%s: the program did not say what came of it within 2 minutes "+
				"of its last request: has each try a limit?\n", m.Kind, m.Fault.Name)
			status = cmp.Or(status, 3)
		}
	}
	return status
}

// judge returns the checks of a kind that meetings have met: all, or those of single clients.
func judge(meetings []*drive.Meeting, kind conformance.Kind, single bool) (met []failure) {
	var calls []*conformance.Call
	for _, m := range meetings {
		if m.Kind == kind && m.Err == nil {
			calls = append(calls, m.Calls...)
		}
	}
	for _, check := range conformance.Checks(kind) {
		if single && check.Together() {
			continue
		}
		if can, violations := check.Judge(calls); can || violations != nil {
			met = append(met, failure{kind, check, violations})
		}
	}
	return met
}

func (f failure) failed() bool { return f.violations != nil }

// print says what the client did wrong once, and with which other faults.
func (f failure) print(out io.Writer, run *drive.Run) {
	first, others := f.violations[0], []string(nil)
	for _, v := range f.violations[1:] {
		if v.Call.Fault != first.Call.Fault {
			others = append(others, strconv.Quote(v.Call.Fault))
		}
	}
	fmt.Fprintf(out, "\n--- FAIL: %s/%s/%s\n%s\n", f.kind, first.Call.Fault, f.check.Name,
		run.Explain(f.check, first))
	alsoFails(out, slices.Compact(others))
}

// alsoFails says with which faults, in quotes, the client fails in the same way.
func alsoFails(out io.Writer, others []string) {
	const most = 8
	if more := len(others) - most; more > 0 {
		others = append(others[:most], fmt.Sprintf("and %d more", more))
	}
	if others != nil {
		fmt.Fprintf(out, "It fails also with the faults %s\n", strings.Join(others, ",\n  "))
	}
}
