package drive

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/storefront/internal/conformance"
)

// Processes is how many of a program run at the same time.
const Processes = 16

const (
	mostOutput = 1 << 20         // bytes of a line
	answersIn  = 2 * time.Minute // what it can do
	soon       = 5 * time.Second // somebody may wonder
	mostTail   = 2 << 10         // bytes of what it says before it dies
	endsIn     = 2 * time.Second // of the end of its standard input
)

// abilities are what a program may say that it can do, besides orders.
var abilities = []string{"resume", "lists", "products", "fields", "history", "find"}

// A brokenError says that a program does not do as docs/testing.md says.
type brokenError struct{ asked, how, stderr string }

func (e *brokenError) Error() string { return e.asked + e.how + e.stderr }

func broken(format string, args ...any) *brokenError {
	return &brokenError{how: printable(fmt.Sprintf(format, args...))}
}

// Same reports whether a program has broken off in the same way, whatever it was asked for.
func Same(a, b error) bool {
	x, _ := errors.AsType[*brokenError](a)
	y, _ := errors.AsType[*brokenError](b)
	return x != nil && y != nil && x.how == y.how
}

// Program starts a program to ask it what it can do, and returns what [Run.New] calls to make clients
// of it, each of which is a process. When ctx is done, all end.
func Program(ctx context.Context, command []string) (func(url string, way http.RoundTripper) *Client, error) {
	p := &process{ctx: ctx, command: command, url: "http://127.0.0.1:9"} // where nobody is
	waits := time.AfterFunc(soon, func() {
		fmt.Fprintf(os.Stderr, "The program has not answered its first request so far, and has %v for it. %s\n%s",
			answersIn, flushes, p.said.take())
	})
	able, err := p.start()
	waits.Stop()
	if err = cmp.Or(err, p.end()); err != nil {
		return nil, err
	}
	return func(url string, _ http.RoundTripper) *Client {
		p := &process{ctx: ctx, command: command, url: url}
		c := &Client{CreateOrder: p.createOrder, End: p.end, Start: func() error {
			_, err := p.start()
			return err
		}}
		if slices.Contains(able.Can, "resume") {
			c.ResumeOrder, c.Patience = p.resumeOrder, time.Duration(able.Patience*float64(time.Second))
		}
		if slices.Contains(able.Can, "find") {
			c.FindOrder = p.findOrder
		}
		if slices.Contains(able.Can, "fields") {
			c.CreateOrderWithFields = p.createOrderWithFields
		}
		if slices.Contains(able.Can, "history") {
			c.ListOrders = p.list("orders")
		}
		if slices.Contains(able.Can, "lists") {
			c.ListUsers, c.ListWidgets = p.list("users"), p.list("widgets")
		}
		if slices.Contains(able.Can, "products") {
			c.GetProduct = p.product
		}
		return c
	}, nil
}

// A process runs the program.
type process struct {
	ctx     context.Context
	command []string
	url     string

	stop  func()
	input io.WriteCloser
	lines chan string // closed when the process has ended
	ended error       // how; set before that
	order request     // the last

	printed string // the last line
	said    stderr
}

// flushes is what a program does not that seems to answer nothing.
const flushes = "Does it flush its standard output after each line?"

// A stderr holds back the end of what a program says, so that it is shown once, and not among what others say:
// on the own standard error when the program has answered, or in the error if it dies.
type stderr struct {
	mu   sync.Mutex
	text []byte
}

func (s *stderr) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, b...)
	if more := len(s.text) - mostTail; more > 0 {
		os.Stderr.Write(s.text[:more])
		s.text = append(s.text[:0], s.text[more:]...)
	}
	return len(b), nil
}

// take returns what is held back, and holds it back no more.
func (s *stderr) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := string(s.text)
	s.text = nil
	return text
}

// pass passes it on.
func (s *stderr) pass() { os.Stderr.WriteString(s.take()) }

// A request is a line that the program reads.
type request struct {
	Can     []string `json:"can,omitempty"`
	Item    string   `json:"item,omitempty"`
	Qty     int64    `json:"qty,omitempty"`
	Fields  string   `json:"fields,omitempty"`
	Resume  bool     `json:"resume,omitempty"`
	Find    bool     `json:"find,omitempty"`
	List    string   `json:"list,omitempty"`
	Product string   `json:"product,omitempty"`
}

// A reply is a line that it prints. Members that are not here mean nothing.
type reply struct {
	Can      []string `json:"can"`
	Patience float64  `json:"patience"` // seconds
	ID       string   `json:"id"`
	IDs      []string `json:"ids"`
	Name     string   `json:"name"`
	Error    *string  `json:"error"`
	Created  *bool    `json:"created"` // false: there is no order
}

// start starts the process, and returns what it can do.
func (p *process) start() (able reply, err error) {
	ctx, stop := context.WithCancel(p.ctx)
	p.stop = stop
	cmd := exec.CommandContext(ctx, p.command[0], p.command[1:]...)
	cmd.Env = append(os.Environ(), "STOREFRONT_URL="+p.url)
	cmd.Stderr, cmd.WaitDelay = &p.said, time.Second
	kill := inGroup(cmd)
	output, printed := io.Pipe()
	cmd.Stdout = printed
	if p.input, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return able, broken("the program does not start: %v", err)
	}
	p.lines = make(chan string)
	exited := make(chan error, 1)
	go func() {
		exited <- cmp.Or(cmd.Wait(), errors.New("exit status 0"))
		kill() // what it has left running
		printed.Close()
	}()
	go func() {
		defer close(p.lines)
		in := bufio.NewScanner(output)
		in.Buffer(nil, mostOutput)
		for in.Scan() {
			p.lines <- in.Text()
		}
		output.CloseWithError(io.ErrClosedPipe) // which ends a program whose line is too long
		p.ended = cmp.Or(in.Err(), <-exited)
	}()
	ctx, cancel := context.WithTimeout(ctx, answersIn)
	defer cancel()
	able, err = p.ask(ctx, request{Can: abilities})
	unknown := func(name string) bool { return !slices.Contains(abilities, name) }
	if err == nil && (able.Error != nil || slices.ContainsFunc(able.Can, unknown)) {
		err = broken("when the program was asked which of %q it can, it printed %s, but not a part of them in can",
			abilities, p.printed)
	}
	return able, err
}

// end ends the process.
func (p *process) end() error {
	if p.lines == nil {
		return nil
	}
	p.input.Close()
	timer := time.AfterFunc(endsIn, p.stop)
	defer timer.Stop()
	var err error
	for line := range p.lines {
		err = broken("the program printed %q, for which it was not asked", conformance.Excerpt(line, 200))
	}
	p.stop()
	p.said.pass()
	return err
}

// ask returns the line that the program prints when it is asked for something.
func (p *process) ask(ctx context.Context, what request) (got reply, err error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.Encode(what)
	asked := strings.TrimSpace(text.String())
	defer p.said.pass()
	go p.input.Write(text.Bytes()) // if it does not read, it does not answer
	wrong := func(format string, args ...any) (reply, error) {
		err := broken(format, args...)
		err.asked = printable("when the program was asked for " + asked + ", it ")
		if said := strings.TrimSpace(printable(p.said.take())); said != "" {
			err.stderr = "\nThe last that it wrote to its standard error:\n    " + strings.ReplaceAll(said, "\n", "\n    ")
		}
		return reply{}, err
	}
	select {
	case line, ok := <-p.lines:
		if !ok {
			return wrong("ended (%v)", p.ended)
		}
		p.printed = conformance.Excerpt(line, 200)
		if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &got) != nil {
			return wrong("printed %q; its standard output is for such lines of JSON alone as docs/testing.md has",
				p.printed)
		}
		if (got.ID != "" || got.IDs != nil || got.Name != "") && got.err() != nil {
			return wrong("printed %s, which is an outcome and an error", p.printed)
		}
		return got, nil
	case <-ctx.Done():
		return wrong("did not answer, and was stopped. %s", flushes)
	}
}

// err is the error of a call, which says that there is no order, or that nobody knows.
func (r reply) err() error {
	switch {
	case r.Created != nil && !*r.Created && r.Error != nil:
		return fmt.Errorf("%w: %s", conformance.ErrNotCreated, *r.Error)
	case r.Created != nil && !*r.Created:
		return conformance.ErrNotCreated
	case r.Error != nil:
		return errors.New(*r.Error)
	}
	return nil
}

func (p *process) createOrder(ctx context.Context, item string, qty int64) (string, error) {
	return p.createOrderWithFields(ctx, item, qty, "")
}

func (p *process) createOrderWithFields(ctx context.Context, item string, qty int64, fields string) (string,
	error) {
	p.order = request{Item: item, Qty: qty, Fields: fields}
	return p.place(ctx)
}

func (p *process) resumeOrder(ctx context.Context, _ error) (string, error) {
	p.order.Resume = true
	return p.place(ctx)
}

func (p *process) findOrder(ctx context.Context, _ error) (string, error) {
	p.order.Find = true
	return p.place(ctx)
}

func (p *process) place(ctx context.Context) (string, error) {
	got, err := p.ask(ctx, p.order)
	return got.ID, cmp.Or(err, got.err())
}

func (p *process) list(name string) func(ctx context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		got, err := p.ask(ctx, request{List: name})
		return got.IDs, cmp.Or(err, got.err())
	}
}

func (p *process) product(ctx context.Context, id string) (string, error) {
	got, err := p.ask(ctx, request{Product: id})
	return got.Name, cmp.Or(err, got.err())
}
