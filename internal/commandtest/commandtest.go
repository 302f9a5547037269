// Package commandtest starts the command that a test binary is made of, as a process of its own.
package commandtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"example.com/storefront/internal/must"
)

// A T is a *testing.T.
type T interface {
	must.T
	Cleanup(func())
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Output() io.Writer
	TempDir() string
}

const isCommand = "COMMANDTEST_IS_COMMAND"

// Main is for TestMain: the binary is the command if Command has started it, and else it runs the tests.
func Main(command func(), tests func() (status int)) {
	if os.Getenv(isCommand) != "" {
		command()
		os.Exit(0)
	}
	os.Exit(tests())
}

// Command returns the command, to be started in a folder of its own.
func Command(t T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), must.Get(os.Executable())(t), args...)
	// With the race detector, a program would sleep for a second before it exits.
	cmd.Env = append(os.Environ(), isCommand+"=1", "GORACE=atexit_sleep_ms=0")
	cmd.Dir = t.TempDir()
	return cmd
}

// WantStatus checks the status of a command that has ended with err.
func WantStatus(t T, err error, want int) {
	t.Helper()
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		must.OK(t, err)
	}
	if got != want {
		t.Errorf("the command ended with status %d, want %d", got, want)
	}
}

// DataFile writes a file, shop.json, and returns its name.
func DataFile(t T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "shop.json")
	must.OK(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// WantRefusal checks that the command does not serve, but ends with a status and a message that says
// all of that, and returns the message.
func WantRefusal(t T, cmd *exec.Cmd, status int, says ...string) (message string) {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	if n, _ := stdout.Read(make([]byte, 1)); n > 0 {
		t.Errorf("it serves")
		cmd.Process.Kill()
	}
	WantStatus(t, cmd.Wait(), status)
	for _, what := range says {
		if !strings.Contains(stderr.String(), what) {
			t.Errorf("the message does not say %s: %s", what, &stderr)
		}
	}
	return stderr.String()
}

// A Running is a command that serves.
type Running struct {
	*exec.Cmd
	Base    string   // of its URLs
	Printed []string // its first lines, up to the one that says how to end it
	Out     *bufio.Scanner
	log     chan string // lines
}

// Start starts the command on a port of its own and waits until it serves.
func Start(t T, args ...string) *Running {
	t.Helper()
	p := Begin(t, args...)
	p.WaitUntilItServes(t)
	return p
}

// Begin starts the command on a port of its own.
func Begin(t T, args ...string) *Running {
	t.Helper()
	cmd := Command(t, append([]string{"-addr", "localhost:0", "-shutdown-delay", "0"}, args...)...)
	log := logged{t.Output(), make(chan string, 1000)}
	cmd.Stderr = log
	stdout := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	return &Running{Cmd: cmd, Out: bufio.NewScanner(stdout), log: log.lines}
}

// A logged command writes its log into the output of the test, and the first lines into a channel.
type logged struct {
	io.Writer
	lines chan string
}

func (l logged) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		select {
		case l.lines <- line:
		default:
		}
	}
	return l.Writer.Write(b)
}

func (p *Running) WaitUntilItServes(t T) {
	t.Helper()
	for p.Out.Scan() {
		p.Printed = append(p.Printed, p.Out.Text())
		if strings.Contains(p.Out.Text(), "Ctrl-C") {
			break
		}
	}
	p.Base = regexp.MustCompile(`http://localhost:\d+`).FindString(strings.Join(p.Printed, "\n"))
	if p.Base == "" {
		t.Fatalf("it prints no URL: %q", p.Printed)
	}
}

// Signal signals the command and waits for lines of its log.
func (p *Running) Signal(t T, sig os.Signal, lines ...string) {
	t.Helper()
	must.OK(t, p.Process.Signal(sig))
	for _, line := range lines {
		for !strings.Contains(<-p.log, line) {
		}
	}
}

// End has the command end and checks that it ends well.
func (p *Running) End(t T) (printed string) {
	t.Helper()
	p.Signal(t, os.Interrupt)
	return p.WantEnd(t)
}

// WantEnd checks that the command ends well, and returns what it prints.
func (p *Running) WantEnd(t T) (printed string) {
	t.Helper()
	for p.Out.Scan() {
		printed += p.Out.Text() + "\n"
	}
	WantStatus(t, p.Wait(), 0)
	return printed
}

// A Sending is an order whose body is on its way.
type Sending struct {
	conn net.Conn
	in   *bufio.Reader
	rest string
}

// BeginOrder returns once the handler waits for the rest of an order with the key k.
func (p *Running) BeginOrder(t T) *Sending {
	t.Helper()
	conn := must.Get(net.Dial("tcp", strings.TrimPrefix(p.Base, "http://")))(t)
	t.Cleanup(func() { conn.Close() })
	const begin, rest = `{"item":"teapot",`, `"qty":2}`
	fmt.Fprintf(conn, "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\n"+
		"Content-Type: application/json\r\nIdempotency-Key: k\r\n"+
		"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(begin+rest))
	s := &Sending{conn, bufio.NewReader(conn), rest}
	s.receive(t, http.StatusContinue)
	fmt.Fprint(conn, begin)
	return s
}

func (s *Sending) receive(t T, want int) (body string) {
	t.Helper()
	response := must.Get(http.ReadResponse(s.in, nil))(t)
	text := must.Get(io.ReadAll(response.Body))(t)
	if response.StatusCode != want {
		t.Fatalf("status %d %s, want %d", response.StatusCode, text, want)
	}
	return string(text)
}

// Finish sends the rest and returns the order.
func (s *Sending) Finish(t T) (body string) {
	t.Helper()
	fmt.Fprint(s.conn, s.rest)
	return s.receive(t, http.StatusCreated)
}

// Do sends a request.
func Do(t T, r *http.Request) (status int, body string, header http.Header) {
	t.Helper()
	response := must.Get(http.DefaultClient.Do(r))(t)
	defer response.Body.Close()
	text := must.Get(io.ReadAll(response.Body))(t)
	return response.StatusCode, string(text), response.Header
}

// Order sends an order.
func (p *Running) Order(t T, key, draft string) (status int, body string, header http.Header) {
	t.Helper()
	r := must.Get(http.NewRequest("POST", p.Base+"/v1/orders", strings.NewReader(draft)))(t)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	return Do(t, r)
}

// WantAt checks what there is at a path, and that it has a text.
func (p *Running) WantAt(t T, path string, want int, text string) {
	t.Helper()
	status, body := Get(t, p.Base+path)
	if status != want || !strings.Contains(body, text) {
		t.Errorf("%s: %d %s, want %d and %s in it", path, status, body, want, text)
	}
}

// Get gets what is at a URL.
func Get(t T, url string) (status int, body string) {
	t.Helper()
	status, body, _ = Do(t, must.Get(http.NewRequest("GET", url, nil))(t))
	return status, body
}
