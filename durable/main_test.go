package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/storefront/durable/shopdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// TestMain makes this binary the command itself when a test starts it again.
func TestMain(m *testing.M) {
	if os.Getenv("DURABLE_RUN_MAIN") != "" {
		main()
		os.Exit(0)
	}
	flag.Parse()
	flag.Set("test.parallel", "16") // two tests wait for half a minute
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self := must.Get(os.Executable())(t)
	cmd := exec.CommandContext(t.Context(), self, args...)
	// With the race detector, a program would sleep for a second before it exits.
	cmd.Env = append(os.Environ(), "DURABLE_RUN_MAIN=1", "GORACE=atexit_sleep_ms=0")
	cmd.Dir = t.TempDir() // where the default database is
	return cmd
}

// A running is a command that serves.
type running struct {
	*exec.Cmd
	base    string   // of its URLs
	printed []string // its first lines, up to the one that says how to end it
	out     *bufio.Scanner
}

// start starts the command on a port of its own and waits until it serves.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	p := must.Get(tryStart(t, args...))(t)
	return p
}

func tryStart(t *testing.T, args ...string) (*running, error) {
	cmd := command(t, append([]string{"-addr", "localhost:0", "-shutdown-delay", "0"}, args...)...)
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &running{Cmd: cmd, out: bufio.NewScanner(stdout)}
	for p.out.Scan() {
		p.printed = append(p.printed, p.out.Text())
		if strings.Contains(p.out.Text(), "Ctrl-C") {
			break
		}
	}
	if len(p.printed) == 0 {
		return nil, errors.New("nothing was printed")
	}
	p.base = regexp.MustCompile(`http://localhost:\d+`).FindString(p.printed[0])
	if p.base == "" {
		return nil, fmt.Errorf("the first line has no URL: %s", p.printed[0])
	}
	return p, nil
}

// end has the command end and checks that it ends well.
func (p *running) end(t *testing.T) {
	t.Helper()
	must.OK(t, p.Process.Signal(syscall.SIGTERM))
	p.wantSuccess(t)
}

func (p *running) wantSuccess(t *testing.T) {
	t.Helper()
	for p.out.Scan() {
	}
	if err := p.Wait(); err != nil {
		t.Errorf("the command ended with %v, want status 0", err)
	}
}

// kill ends the command as a crash would.
func (p *running) kill() {
	p.Process.Kill()
	p.Wait()
}

func do(t *testing.T, r *http.Request) (status int, body string, header http.Header) {
	t.Helper()
	result := must.Get(http.DefaultClient.Do(r))(t)
	defer result.Body.Close()
	text := must.Get(io.ReadAll(result.Body))(t)
	return result.StatusCode, string(text), result.Header
}

func get(t *testing.T, url string) (status int, body string, header http.Header) {
	t.Helper()
	return do(t, must.Get(http.NewRequest("GET", url, nil))(t))
}

// wantBody checks what there is at a URL.
func (p *running) wantBody(t *testing.T, path, want string) {
	t.Helper()
	if status, body, _ := get(t, p.base+path); status != http.StatusOK || body != want {
		t.Errorf("%s: %d %s, want 200 %s", path, status, body, want)
	}
}

// order creates an order, or has it replayed, and returns the response's body.
func (p *running) order(t *testing.T, key string, wantReplay bool) (body string) {
	t.Helper()
	r := must.Get(http.NewRequest("POST", p.base+"/v1/orders", strings.NewReader(`{"item":"teapot","qty":2}`)))(t)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	status, body, header := do(t, r)
	if status != http.StatusCreated {
		t.Fatalf("order: %d %s, want 201", status, body)
	}
	if replayed := header.Get("Idempotent-Replayed") == "true"; replayed != wantReplay {
		t.Errorf("order: replayed is %t, want %t", replayed, wantReplay)
	}
	return body
}

// dataFile writes a file to serve and returns its name.
func dataFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "shop.json")
	must.OK(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestPrintedProductCanBeRequested(t *testing.T) {
	for _, row := range []struct{ products, want string }{
		{`{"id": "."}, {"id": ".."}, {"id": "/"}, {"id": "it's 1/2"}`, "/v1/products/it%27s%201%2F2"},
		{`{"id": "."}, {"id": ".."}, {"id": "/"}`, ""}, // no URL leads to these
		{``, ""},
	} {
		p := start(t, "-data", dataFile(t, `{"products": [`+row.products+`]}`))
		var want []string
		if row.want != "" {
			want = slices.Repeat([]string{p.base + row.want}, 2)
		}
		got := regexp.MustCompile(`[^']*/v1/products/[^']*`).FindAllString(strings.Join(p.printed, "\n"), -1)
		if !slices.Equal(got, want) {
			t.Errorf("with the products %s, the lines try %s, want %s", row.products, got, want)
		} else if row.want != "" {
			p.wantBody(t, row.want, `{"id":"it's 1/2"}`)
		}
		p.end(t)
	}
}

func TestOrderSurvives(t *testing.T) {
	for _, row := range []struct {
		name string
		end  func(*running, *testing.T)
	}{
		{"shutdown", (*running).end},
		{"crash", func(p *running, _ *testing.T) { p.kill() }},
	} {
		t.Run(row.name, func(t *testing.T) {
			db := filepath.Join(t.TempDir(), "shop.db")
			p := start(t, "-db", db)
			body := p.order(t, "k", false)
			row.end(p, t)
			p = start(t, "-db", db)
			if again := p.order(t, "k", true); again != body {
				t.Errorf("after a restart, the order is %s, want %s", again, body)
			}
			p.end(t)
		})
	}
}

func TestShop(t *testing.T) {
	const (
		none   = `{"data":[],"has_more":false}`
		sample = `{"data":[{"id":"ada","name":"Ada","since":2024},{"id":"grace","name":"Grace","since":2025},` +
			`{"id":"linus","name":"Linus","since":2026}],"has_more":false}`
		zoe  = `{"data":[{"id":"zoë","tags":["a",{"b":null}],"<&>":1.50}],"has_more":false}`
		both = `{"data":[{"id":"ada"},{"id":"zoë","n":2}],"has_more":false}`
	)
	type run struct {
		data  string // "": without -data
		users string // that are then served
	}
	const putZoe = `{"users": [{"id": "zoë", "tags": ["a", {"b": null}], "<&>": 1.50}]}`
	for _, row := range []struct {
		name string
		runs []run // one after the other on the same database
	}{
		{"a new database gets the sample shop", []run{{"", sample}}},
		{"a file instead of the sample shop", []run{{putZoe, zoe}}},
		{"what was put is kept", []run{{putZoe, zoe}, {"", zoe}}},
		{"a file adds and replaces", []run{
			{putZoe, zoe}, {`{"users": [{"id": "ada"}, {"id": "zoë", "n": 2}]}`, both},
		}},
		{"only a product is a shop, too", []run{{`{"products": [{"id": "p"}]}`, none}, {"", none}}},
		{"only a widget is a shop, too", []run{{`{"widgets": [{"id": "w"}]}`, none}, {"", none}}},
		{"an empty file is no shop", []run{{`{}`, none}, {"", sample}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			db := filepath.Join(t.TempDir(), "shop.db")
			for _, run := range row.runs {
				args := []string{"-db", db}
				if run.data != "" {
					args = append(args, "-data", dataFile(t, run.data))
				}
				p := start(t, args...)
				p.wantBody(t, "/v1/users", run.users)
				p.end(t)
			}
		})
	}
	t.Run("only an order is a shop, too", func(t *testing.T) {
		db := filepath.Join(t.TempDir(), "shop.db")
		p := start(t, "-db", db, "-data", dataFile(t, "{}"))
		p.order(t, "k", false)
		p.end(t)
		p = start(t, "-db", db)
		p.wantBody(t, "/v1/users", none)
		p.end(t)
	})
}

func TestExplorerIsAtTheRootAndNowhereElse(t *testing.T) {
	p := start(t)
	const problem = "application/problem+json"
	for path, want := range map[string]string{
		"/": "text/html; charset=utf-8", "//": problem, "/index.html": problem,
	} {
		if _, _, header := get(t, p.base+path); header.Get("Content-Type") != want {
			t.Errorf("%s is %s, want %s", path, header.Get("Content-Type"), want)
		}
	}
	if _, err := os.Stat(filepath.Join(p.Dir, "storefront.db")); err != nil {
		t.Errorf("the default database: %v", err)
	}
	p.end(t)
}

func TestMetrics(t *testing.T) {
	p := start(t, "-db", filepath.Join(t.TempDir(), "shop.db"))
	defer p.end(t)
	p.order(t, "k", false)
	wants := []string{
		`sqlstore_create_order_calls_total{outcome="created"} 1`,
		`requests_total{code="201",method="post",route="POST /v1/orders"} 1`,
		`go_sql_max_open_connections{db_name="shop"} 4`,
	}
	status, body, _ := get(t, p.base+"/metrics")
	for _, want := range wants {
		if status != 200 || !strings.Contains(body, want+"\n") {
			t.Errorf("/metrics: %d, without %s:\n%s", status, want, body)
		}
	}

	if status, body, _ := get(t, p.base+"/%6detrics"); status != http.StatusNotFound {
		t.Errorf("in another spelling, /metrics is %d %s, want 404", status, body)
	}

	q := start(t, "-db", filepath.Join(t.TempDir(), "shop.db"), "-metrics-addr", "localhost:0")
	defer q.end(t)
	if status, body, _ := get(t, q.base+"/metrics"); status != http.StatusNotFound {
		t.Errorf("with -metrics-addr, /metrics of -addr is %d %s, want 404", status, body)
	}
	for q.out.Scan() {
		if url := regexp.MustCompile(`http://.*/metrics`).FindString(q.out.Text()); url != "" {
			if status, body, _ := get(t, url); status != 200 || !strings.Contains(body, "sqlstore_calls{") {
				t.Errorf("%s: %d %s", url, status, body)
			}
			return
		}
	}
	t.Error("durable does not say where the metrics are")
}

func TestReplicasStartAtOnceOnANewFile(t *testing.T) {
	db := filepath.Join(t.TempDir(), "shop.db")
	replicas := make([]*running, 4)
	var starting sync.WaitGroup
	for i := range replicas {
		starting.Go(func() {
			var err error
			if replicas[i], err = tryStart(t, "-db", db); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	body := replicas[0].order(t, "k", false)
	for _, p := range replicas {
		if again := p.order(t, "k", true); again != body {
			t.Errorf("another replica has the order %s, want %s", again, body)
		}
		p.end(t)
	}
}

func TestOldKeysAreForgotten(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shop.db")
	db := must.Get(shopdb.Open(name, nil))(t)
	defer db.Close()
	must.OK(t, sqlstore.New(db.DB, nil).Migrate(t.Context()))
	for id, age := range map[string]time.Duration{
		"old": 26 * time.Hour, "young": 24*time.Hour + 30*time.Minute,
	} {
		_, err := db.ExecContext(t.Context(), `INSERT INTO storefront_orders
			(id, item, qty, created_ms, scope, key_hash, fingerprint, keyed_ms)
			VALUES ($1, 'teapot', 1, 0, '', $1, '', $2)`, id, time.Now().Add(-age).UnixMilli())
		must.OK(t, err)
	}
	p := start(t, "-db", name)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for remembered := ""; remembered != "young"; {
		const query = `SELECT group_concat(id) FROM storefront_orders WHERE key_hash IS NOT NULL`
		err := db.QueryRowContext(ctx, query).Scan(&remembered)
		if err != nil {
			t.Fatalf("the keys of %s are remembered, want young: %v", remembered, err)
		}
	}
	p.end(t)
}

func TestRefusalToStart(t *testing.T) {
	t.Parallel()
	taken := must.Get(net.Listen("tcp", "localhost:0"))(t)
	t.Cleanup(func() { taken.Close() }) // after the parallel subtests
	missing := filepath.Join(t.TempDir(), "missing", "shop.db")
	for _, row := range []struct {
		name   string
		args   []string
		status int
		says   []string
	}{
		{"bad data", []string{"-data", dataFile(t, `{"users": [{"id": 7}]}`)}, 2,
			[]string{"shop.json", "users[0]", `"id" is not a string`}},
		{"unexpected argument", []string{"postgres://shop:secret@localhost/shop"}, 2,
			[]string{"unexpected argument", "-db"}},
		{"unknown flag", []string{"-port", "80"}, 2, []string{"-port", "-addr", "-data", "-db", "-shutdown-delay"}},
		{"negative delay", []string{"-shutdown-delay", "-1s"}, 2, []string{"-shutdown-delay", "-1s", "negative"}},
		{"no database", []string{"-db", ""}, 2, []string{"-db", "no database"}},
		{"another database", []string{"-db", "oracle://shop:secret@localhost/shop"}, 2,
			[]string{"-db", "oracle", "postgres", "mysql"}},
		{"no such folder", []string{"-db", missing}, 2, []string{"-db", missing, "unable to open"}},
		{"address in use", []string{"-addr", taken.Addr().String()}, 1, []string{taken.Addr().String(), "in use"}},
		{"no MySQL server", []string{"-db", "mysql://shop:secret@127.0.0.1:1/shop"}, 1,
			[]string{"waiting for the database", "does not answer", "127.0.0.1:1", "refused"}},
		{"no server", []string{"-db", "postgres://shop:secret@127.0.0.1:1/shop?sslmode=disable"}, 1,
			[]string{"waiting for the database", "does not answer", "127.0.0.1:1", "refused"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			waits := slices.Contains(row.says, "does not answer")
			cmd := command(t, row.args...)
			if row.args[0] != "-addr" { // what would be served, is served on a port of its own
				cmd.Args = slices.Insert(cmd.Args, 1, "-addr", "localhost:0")
			}
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != row.status {
				t.Errorf("the command ended with %v, want status %d", err, row.status)
			}
			if stdout.Len() > 0 {
				t.Errorf("it serves: %s", &stdout)
			}
			for _, what := range row.says {
				if !strings.Contains(stderr.String(), what) {
					t.Errorf("the message does not say %s: %s", what, &stderr)
				}
			}
			if strings.Contains(stderr.String(), "secret") {
				t.Errorf("the message has the password: %s", &stderr)
			}
			lines := 1
			if waits { // a warning goes before
				lines = 2
			}
			if n := strings.Count(stderr.String(), "\n"); n != lines && row.name != "unknown flag" {
				t.Errorf("the message has %d lines, want %d: %s", n, lines, &stderr)
			}
		})
	}
}

func TestSignalEndsTheWaitForADatabase(t *testing.T) {
	silent := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer silent.Close()
	url := "postgres://shop@" + silent.Addr().String() + "/shop?sslmode=disable"
	cmd := command(t, "-addr", "localhost:0", "-db", url)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	must.OK(t, cmd.Start())
	conn := must.Get(silent.Accept())(t)
	defer conn.Close()
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
		t.Errorf("the command ended with %v and the message %q, want status 0 and none", err, &stderr)
	}
}

// A sending is an order whose body is on its way.
type sending struct {
	net.Conn
	in   *bufio.Reader
	rest string
}

// beginOrder returns once the handler waits for the body.
func beginOrder(t *testing.T, p *running) *sending {
	t.Helper()
	conn := must.Get(net.Dial("tcp", strings.TrimPrefix(p.base, "http://")))(t)
	t.Cleanup(func() { conn.Close() })
	const begin, rest = `{"item":"teapot",`, `"qty":2}`
	fmt.Fprintf(conn, "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\n"+
		"Content-Type: application/json\r\nIdempotency-Key: k\r\n"+
		"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(begin+rest))
	s := &sending{conn, bufio.NewReader(conn), rest}
	if status, _ := s.receive(t); status != http.StatusContinue {
		t.Fatalf("status %d, want 100", status)
	}
	fmt.Fprint(conn, begin)
	return s
}

func (s *sending) receive(t *testing.T) (status int, body string) {
	t.Helper()
	result := must.Get(http.ReadResponse(s.in, nil))(t)
	text := must.Get(io.ReadAll(result.Body))(t)
	return result.StatusCode, string(text)
}

// signal signals the command and waits until it says what it does.
func (p *running) signal(t *testing.T, sig os.Signal, says string) {
	t.Helper()
	must.OK(t, p.Process.Signal(sig))
	p.wantLine(t, says)
}

func (p *running) wantLine(t *testing.T, says string) {
	t.Helper()
	if !p.out.Scan() || !strings.Contains(p.out.Text(), says) {
		t.Fatalf("it says %q, want a line with %q", p.out.Text(), says)
	}
}

func TestSignalFinishesTheRequestInFlight(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			db := filepath.Join(t.TempDir(), "shop.db")
			p := start(t, "-db", db)
			s := beginOrder(t, p)
			p.signal(t, sig, "in flight")
			fmt.Fprint(s, s.rest)
			status, body := s.receive(t)
			if status != http.StatusCreated {
				t.Errorf("status %d, want 201", status)
			}
			p.wantSuccess(t)

			p = start(t, "-db", db)
			if again := p.order(t, "k", true); again != body {
				t.Errorf("after a restart, the order is %s, want %s", again, body)
			}
			p.end(t)
		})
	}
}

// A balancer that asks while the delay lasts learns that the process ends before it is
// refused a request.
func TestTermIsUnreadyAndServesOn(t *testing.T) {
	p := start(t, "-shutdown-delay", "1h")
	p.waitForReadyz(t, http.StatusOK)
	p.signal(t, syscall.SIGTERM, "another 1h0m0s")
	http.DefaultClient.CloseIdleConnections() // it takes new connections, too
	p.wantProbe(t, "/readyz", http.StatusServiceUnavailable, "not ready: it is about to end\n")
	p.wantProbe(t, "/livez", http.StatusOK, "ok\n")
	p.order(t, "k", false)
	p.kill()
}

// wantProbe checks what a probe is answered with.
func (p *running) wantProbe(t *testing.T, path string, status int, body string) {
	t.Helper()
	if gotStatus, got, _ := get(t, p.base+path); gotStatus != status || got != body {
		t.Errorf("%s: %d %q, want %d %q", path, gotStatus, got, status, body)
	}
}

// waitForReadyz returns once /readyz is answered with a status. An answer may be a
// second old, and on a busy machine, a check may take too long.
func (p *running) waitForReadyz(t *testing.T, status int) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got, body, _ := get(t, p.base+"/readyz")
		if got == status {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("/readyz: %d %s, want %d", got, body, status)
		}
	}
}

// Without its tables, the database takes no orders.
func TestReadyzAsksTheDatabase(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shop.db")
	p := start(t, "-db", name)
	p.waitForReadyz(t, http.StatusOK)
	db := must.Get(shopdb.Open(name, nil))(t)
	defer db.Close()
	for _, step := range []struct {
		statement string
		want      int
	}{
		{`ALTER TABLE storefront_schema RENAME TO hidden`, http.StatusServiceUnavailable},
		{`ALTER TABLE hidden RENAME TO storefront_schema`, http.StatusOK},
	} {
		_, err := db.ExecContext(t.Context(), step.statement)
		// The process forgets old keys at its start.
		for err != nil && strings.Contains(err.Error(), "SQLITE_BUSY") {
			_, err = db.ExecContext(t.Context(), step.statement)
		}
		must.OK(t, err)
		p.waitForReadyz(t, step.want)
	}
	p.wantProbe(t, "/livez", http.StatusOK, "ok\n")
	p.end(t)
}
