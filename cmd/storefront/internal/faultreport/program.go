package faultreport

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/faults"
)

const (
	processes  = 16              // of a program
	stuckAfter = 3 * time.Minute // without a request or a line; a try may take 150 s
	lingering  = time.Second     // after the last outcome: a client that goes on is seen
	endsWithin = 2 * time.Second // of the end of its standard input

	outages = 5                       // which are compared if they begin
	apart   = 2100 * time.Millisecond // from each other
)

// errStuck is the outcome of a call that has none.
var errStuck = errors.New("(it did not answer, and was left)")

// A process runs a program, which has a shop of its own.
type process struct {
	client *client
	dice   faults.Dice
	shop   *faults.Shop
	server *http.Server
	input  io.WriteCloser
	lines  chan []byte // closed when the process has ended
	ended  error       // how; set before that
	stuck  bool        // it does not answer

	// Whoever uses these is in view.
	calls   []*faults.Call
	current *faults.Call
}

// Run starts a program several times, with the URL of a shop in STOREFRONT_URL. It writes what the
// program is asked for on its standard input, and reads the outcomes from its standard output, all as
// lines of JSON, until each fault was met. What the program prints on its standard error comes out on
// this process's. An error says that the program cannot be judged.
func (s *Server) Run(ctx context.Context, command []string) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	cl := s.newClient(shown(strings.Join(command, " ")))
	all := make([]*process, processes)
	for i := range all {
		p := &process{client: cl, dice: faults.NewDice(s.seed, fmt.Sprint(i), faults.Minutes),
			lines: make(chan []byte)}
		p.shop = s.open(cl, faults.Lists(), p.dice, p.assign)
		all[i] = p
	}
	s.mu.Lock()
	s.clients = append(s.clients, cl)
	s.mu.Unlock()
	for i, p := range all {
		err := p.start(ctx, fail, command)
		if err != nil {
			fail(err)
			all = all[:i]
			break
		}
		defer p.server.Close()
		defer p.shop.Close()
	}

	// Where nothing is wrong, a client shows what it can do.
	calm, rest := cl.tasks()
	meet(ctx, fail, all, calm)
	for _, t := range calm {
		if !cl.can(t.kind) {
			rest = slices.DeleteFunc(rest, func(of task) bool { return of.kind == t.kind })
		}
	}
	meet(ctx, fail, all, rest)
	sleep(ctx, lingering)
	var ending sync.WaitGroup
	for _, p := range all {
		ending.Go(func() {
			p.input.Close()
			timer := time.AfterFunc(endsWithin, func() { fail(nil) })
			defer timer.Stop()
			for line := range p.lines {
				if _, err := p.take(line, nil, time.Time{}); err != nil {
					fail(err)
				}
			}
		})
	}
	ending.Wait()
	err := context.Cause(ctx)
	if err == context.Canceled {
		err = nil
	}
	if err == nil && len(cl.calls) == 0 {
		err = fmt.Errorf("the program does nothing: %s", strings.Join(cl.without, "; "))
	}
	return err
}

// A task is a call that a process is asked for.
type task struct {
	kind   conformance.Kind
	fault  *faults.Fault
	number int           // 0: it is not of the round, and short
	delay  time.Duration // before it
}

// tasks returns one of each kind in which nothing is wrong, and those of a round, the longest first.
func (cl *client) tasks() (calm, rest []task) {
	for _, kind := range kinds {
		all := cl.server.faults(kind, func(f *faults.Fault) int {
			if f.Name == faults.Outage {
				return outages
			}
			return 1
		})
		if only := cl.server.Only; len(all) == 1 && only != nil && !only.MatchString(fullName(kind, all[0])) {
			continue // which is not asked for
		}
		r := new(round)
		r.begin(cl.dice, all)
		cl.rounds[kind] = r
		delay := time.Duration(0)
		for i, f := range all {
			t := task{kind: kind, fault: f, number: i + 1}
			if f.Name == faults.Outage {
				t.delay, delay = delay, delay+apart
			}
			rest = append(rest, t)
		}
		calm = append(calm, task{kind: kind, fault: all[0]})
	}
	cl.dice.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	rank := func(t task) int {
		switch {
		case t.fault.Slow(), t.fault.Name == faults.Outage: // of these there are fewer than processes
			return 0
		case t.kind == conformance.Products:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(rest, func(a, b task) int { return rank(a) - rank(b) })
	return calm, rest
}

// can reports whether the client has shown that it can do without any fault. If it has sent nothing, and
// says that it failed, it is for something else.
func (cl *client) can(kind conformance.Kind) (can bool) {
	cl.view(func() {
		cl.calls = slices.DeleteFunc(cl.calls, func(c *faults.Call) bool {
			cannot := c.Kind == kind && len(c.Exchanges) == 0 && len(c.Results) > 0 && !c.Results[0].Stuck &&
				c.Results[0].Err != nil
			if cannot {
				cl.without = append(cl.without, shown(fmt.Sprintf("%s: %v", kind, c.Results[0].Err)))
				delete(cl.rounds, kind)
			}
			return cannot
		})
		can = cl.rounds[kind] != nil
		for _, v := range cl.judge(kind, nil).Checks {
			can = can && v.Verdict != "failed"
		}
	})
	return can
}

// meet has processes do tasks.
func meet(ctx context.Context, fail func(error), all []*process, tasks []task) {
	queue := make(chan task, len(tasks))
	for _, t := range tasks {
		queue <- t
	}
	close(queue)
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(func() {
			for ctx.Err() == nil && !p.stuck {
				t, ok := <-queue
				if !ok {
					return
				}
				if err := p.do(ctx, t); err != nil {
					fail(err)
				}
			}
		})
	}
	wg.Wait()
}

// start starts the process and its server.
func (p *process) start(ctx context.Context, fail func(error), command []string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.server = &http.Server{Handler: p.shop, ErrorLog: log.New(io.Discard, "", 0)}
	go p.server.Serve(listener)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "STOREFRONT_URL=http://"+listener.Addr().String())
	cmd.Stderr, cmd.WaitDelay = os.Stderr, time.Second
	kill := inGroup(cmd)
	output, printed := io.Pipe()
	cmd.Stdout = printed
	if p.input, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.server.Close()
		return err
	}
	go func() {
		p.ended = cmp.Or(cmd.Wait(), errors.New("exit status 0"))
		kill() // what it has left running
		printed.Close()
	}()
	go func() {
		defer close(p.lines)
		in := bufio.NewScanner(output)
		in.Buffer(nil, mostOutcomeBytes)
		for in.Scan() {
			select {
			case p.lines <- slices.Clone(in.Bytes()):
			case <-ctx.Done():
			}
		}
		if in.Err() != nil {
			fail(fmt.Errorf("the program printed more than is an outcome: %w", in.Err()))
		}
		output.CloseWithError(io.ErrClosedPipe)
	}()
	return nil
}

// assign returns the call whose item is ordered, or the one that the process is asked for.
func (p *process) assign(r *http.Request, e *conformance.Exchange) *faults.Call {
	c := p.current
	if kindOf(r) == conformance.Orders {
		item, _ := e.Order()
		for _, earlier := range p.calls {
			if earlier.Kind == conformance.Orders && earlier.Item == item {
				c = earlier
			}
		}
	}
	if c == nil {
		c = p.shop.NewCall(kindOf(r), new(faults.Fault), faults.Dice{})
	}
	limit(c)
	return c
}

// do has the process do a task, as package clienttest has its clients.
func (p *process) do(ctx context.Context, t task) error {
	const most = 1<<53 - 1
	sleep(ctx, t.delay)
	o := &outcome{kind: t.kind, what: fmt.Sprint("teapot ", t.number)}
	switch {
	case t.kind == conformance.Orders:
		if o.qty = 2; t.fault.Hard {
			o.what, o.qty = fmt.Sprintf(`Café "Ötzi" <b>& 茶 %d`, t.number), most
		}
		return p.ask(ctx, p.begin(t, o), o)
	case isWalk(t.kind):
		o.what = string(t.kind)
		c := p.begin(t, o)
		if err := p.ask(ctx, c, o); err != nil || t.fault.Name != faults.TwoWalks {
			return err
		}
		c.Change()
		t.number = 0
		return p.ask(ctx, p.begin(t, o), o)
	}
	c := p.begin(t, o)
	if t.fault.Name == faults.Missing {
		return p.ask(ctx, c, o)
	}
	for i, name := range []string{"Teapot", "Teapot, blue", "Teapot, blue", "Teapot, green"} {
		p.shop.PutProduct(o.what, name)
		switch i {
		case 0:
		case 3:
			sleep(ctx, 2*faults.Minutes.MaxAge())
		default:
			sleep(ctx, t.fault.Pause(faults.Minutes))
		}
		o.result.Want = name
		if err := p.ask(ctx, c, o); err != nil || p.stuck || t.number == 0 {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (p *process) begin(t task, o *outcome) (c *faults.Call) {
	p.client.view(func() {
		c = p.shop.NewCall(t.kind, t.fault, p.dice)
		c.Qty, c.Patience = o.qty, p.client.server.Patience
		if !isWalk(t.kind) {
			c.Item = o.what
		}
		p.current, p.calls = c, append(p.calls, c)
		p.client.calls = append(p.client.calls, c)
		if r := p.client.rounds[t.kind]; t.number > 0 {
			r.rest = r.rest[1:]
		}
	})
	return c
}

// take takes a line that the process has printed, which answers what it is asked for, or is of an order that
// it has gone on with.
func (p *process) take(line []byte, asked *outcome, at time.Time) (answered bool, err error) {
	printed := conformance.Excerpt(string(line), 200)
	o, wrong := parseOutcome(line)
	if wrong != nil {
		return false, fmt.Errorf("the program printed %q, which is no outcome: %s: %s (its standard output "+
			"is for outcomes alone)", printed, wrong[0].Pointer, wrong[0].Detail)
	}
	p.client.view(func() {
		c := p.current
		answered = asked != nil && o.kind == asked.kind && o.what == asked.what &&
			(o.qty == 0 || o.qty == asked.qty)
		if answered {
			o.qty, o.result.Want = asked.qty, asked.result.Want
		} else if i := slices.IndexFunc(p.calls, func(c *faults.Call) bool {
			return c.Kind == conformance.Orders && o.kind == c.Kind && c.Item == o.what && len(c.Results) > 0
		}); i >= 0 {
			c = p.calls[i]
			at = c.Began
		} else {
			err = fmt.Errorf("the program printed %q, for which it was not asked", printed)
			return
		}
		if len(c.Results) < mostResults {
			add(c, o, at)
		}
	})
	return answered, err
}

// ask asks the process for o, and returns when it has answered, or is stuck.
func (p *process) ask(ctx context.Context, c *faults.Call, o *outcome) error {
	asked := time.Now()
	io.WriteString(p.input, o.ask()+"\n") // if the process has ended, so has its output
	timer := time.NewTimer(stuckAfter)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return fmt.Errorf("the program ended (%w) when it was asked for %s", p.ended, o.ask())
			}
			if answered, err := p.take(line, o, asked); answered || err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			var last time.Time
			p.shop.View(func() { last = lastAt(&c.Call) })
			if left := time.Until(last.Add(stuckAfter)); left > 0 {
				timer.Reset(left)
				continue
			}
			p.stuck = true
			stuck := *o
			stuck.result.Err, stuck.result.Stuck = errStuck, true
			p.client.view(func() { add(c, &stuck, asked) })
			return nil
		}
	}
}
