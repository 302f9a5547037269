package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"time"

	"example.com/storefront"
	"example.com/storefront/cmd/storefront/internal/faultreport"
	"example.com/storefront/internal/demo"
)

// faultFlags are the flags of the shop with faults.
type faultFlags struct {
	seed        *uint64
	only        *regexp.Regexp
	patience    *time.Duration
	stay        *bool
	junit, json *string
}

func defineFaultFlags() *faultFlags {
	f := &faultFlags{
		seed: flag.Uint64("trouble", 0, "inject faults, in a sequence that the `number` chooses; 0: none"),
		patience: flag.Duration("patience", 0,
			"with -trouble: `time` after which the client leaves an order to a queue; 0: it has none"),
		stay:  flag.Bool("stay", false, "with -trouble: serve on, and end by a signal alone"),
		junit: flag.String("junit", "", "with -trouble: `file` to write the verdicts to, for CI"),
		json:  flag.String("json", "", "with -trouble: `file` to write the report to"),
	}
	flag.Func("only", "with -trouble: `regexp` of the faults to inject, such as '^orders/.*lost'",
		func(text string) (err error) {
			f.only, err = regexp.Compile(text)
			return err
		})
	return f
}

// check returns an error if the flags, or the command behind them, are wrong.
func (f *faultFlags) check(command []string) (err error) {
	if *f.seed == 0 {
		flag.Visit(func(set *flag.Flag) {
			if slices.Contains([]string{"only", "patience", "stay", "junit", "json"}, set.Name) {
				err = fmt.Errorf("-%s is for -trouble", set.Name)
			}
		})
		if len(command) > 0 {
			err = fmt.Errorf("unexpected argument %q", command[0])
		}
		return err
	}
	if f.only != nil && !faultreport.Matches(f.only) {
		return fmt.Errorf("-only %q is no fault's name", f.only)
	}
	if *f.patience < 0 {
		return fmt.Errorf("-patience %v is negative", *f.patience)
	}
	if len(command) > 0 {
		_, err = exec.LookPath(command[0])
	}
	return err
}

// A faultRun is a run of the shop with faults.
type faultRun struct {
	*faultFlags
	shop *faultreport.Server
	done chan error // has how the run ended
}

// inject puts faults before the service. Once they were met, or a signal has come, it calls end.
func (f *faultFlags) inject(ctx context.Context, end func(), server *http.Server, store *storefront.MemStore,
	listening net.Addr, command []string) *faultRun {
	run := &faultRun{f, faultreport.New(*f.seed, store), make(chan error, 1)}
	run.shop.Only, run.shop.Patience = f.only, *f.patience
	server.Handler = demo.WithExplorer(run.shop, server.Handler)
	base := demo.URL(listening)
	fmt.Printf("Serving on %s/, with faults (seed %d). What each client does right and wrong:\n\n  %s%s\n\n",
		base, *f.seed, base, faultreport.PagePath)
	if len(command) == 0 {
		fmt.Printf("A client has met all of them after %s.\nLet it report what it believes at %s%s.\n",
			run.shop.Plan(), base, faultreport.OutcomesPath)
	}
	fmt.Println("Ctrl-C ends.")
	server.RegisterOnShutdown(run.shop.EndWaits)
	go func() {
		var err error
		if len(command) > 0 {
			err = run.shop.Run(ctx, command)
		} else {
			run.shop.Wait(ctx)
		}
		run.done <- err
		if *f.stay {
			fmt.Println("The run is over. Ctrl-C ends.")
		} else {
			end()
		}
	}()
	return run
}

// end prints what was seen, and returns the exit status.
func (run *faultRun) end() (status int) {
	err := <-run.done
	fmt.Print(run.shop.Summary())
	status = run.shop.Status()
	for _, out := range []struct {
		file string
		text func() []byte
	}{{*run.junit, run.shop.JUnit}, {*run.json, run.shop.JSON}} {
		if out.file == "" {
			continue
		}
		if failed := os.WriteFile(out.file, out.text(), 0o666); failed != nil && err == nil {
			err = failed
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "storefront:", err)
		status = 1
	}
	return status
}
