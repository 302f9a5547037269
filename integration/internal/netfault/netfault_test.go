package netfault

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
)

// potProtocol is that of a server which says "a pot." to "give", and commits at "keep".
var potProtocol = Protocol{
	answer:  func(b []byte) int { return 1 + bytes.IndexByte(b, '.') },
	commits: func(request, _ []byte) bool { return string(request) == "keep" },
}

// startPot starts such a server, and returns where it listens, and a channel for what
// each connection to it has brought, and how that has ended.
func startPot(t *testing.T) (addr string, brought <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	all := make(chan string, 1)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				select {
				case all <- talk(c, map[string]string{"give": "a pot.", "givekeep": "kept.", "keep": "kept."}):
				case <-t.Context().Done(): // not every test asks for all
				}
			}()
		}
	}()
	return listener.Addr().String(), all
}

// talk reads what comes over a connection, replies to some of what has come, and
// returns all of that, and how the connection has ended.
func talk(c net.Conn, replies map[string]string) string {
	text := ""
	chunk := make([]byte, 1<<10)
	for {
		n, err := c.Read(chunk)
		text += string(chunk[:n])
		if n > 0 && err == nil {
			_, err = c.Write([]byte(replies[text]))
		}
		switch {
		case err == io.EOF:
			return text + ended
		case errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
			return text + broken
		case err != nil:
			return text + "|" + err.Error()
		}
	}
}

const ended, broken = "|end", "|reset"

// A client says "give" and, at the answer or when the answers end, "keep".
func TestProxyFaults(t *testing.T) {
	for _, row := range []struct {
		fault          Fault
		client, server string // what has come there, and how it has ended
	}{
		{Fault{Request, 0, Silence}, broken, broken},
		{Fault{Request, 0.5, Silence}, broken, "gi" + broken},
		{Fault{Request, 1, Silence}, broken, "give" + broken},
		{Fault{Request, 0, HangUp}, ended, ended},
		{Fault{Request, 0.5, HangUp}, ended, "gi" + ended},
		{Fault{Request, 1, HalfClose}, "a pot." + ended, "give" + ended},
		{Fault{Request, 0.5, Reset}, broken, "gi" + broken},
		{Fault{Answer, 0, Silence}, broken, "give" + broken},
		{Fault{Answer, 0.5, Silence}, "a p" + broken, "give" + broken},
		{Fault{Answer, 1, Silence}, "a pot." + broken, "give" + broken},
		{Fault{Answer, 0, HangUp}, ended, "give" + ended},
		{Fault{Answer, 0.5, HangUp}, "a p" + ended, "give" + ended},
		{Fault{Answer, 0, HalfClose}, ended, "givekeep" + ended},
		{Fault{Answer, 0.5, HalfClose}, "a p" + ended, "givekeep" + ended},
		{Fault{Answer, 0.5, Reset}, "a p" + broken, "give" + broken},
		{Fault{Commit, 0, Silence}, "a pot." + broken, "givekeep" + broken},
		{Fault{Commit, 0, HangUp}, "a pot." + ended, "givekeep" + ended},
		{Fault{Commit, 0.5, Reset}, "a pot.ke" + broken, "givekeep" + broken},
	} {
		t.Run(fmt.Sprint(row.fault, row.fault.Pass), func(t *testing.T) {
			addr, brought := startPot(t)
			p := Start(t, potProtocol, addr)
			done := p.Strike(row.fault)
			c, err := net.Dial("tcp", p.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(30 * time.Second))
			go func() {
				<-done
				p.Heal() // else a silence would last
			}()
			c.Write([]byte("give"))
			client := talk(c, map[string]string{"a pot.": "keep"})
			if row.fault.Then == HalfClose {
				c.Write([]byte("keep"))
			}
			c.Close()
			if client != row.client {
				t.Fatalf("to the client came %q, want %q", client, row.client)
			}
			if server := <-brought; server != row.server {
				t.Errorf("to the server came %q, want %q", server, row.server)
			}
		})
	}
}

// An answer that says that something is committed is an answer, too.
func TestProxyFaultOfAnyAnswer(t *testing.T) {
	addr, _ := startPot(t)
	p := Start(t, potProtocol, addr)
	p.Strike(Fault{Answer, 0.5, HangUp})
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	c.Write([]byte("keep"))
	if client := talk(c, nil); client != "ke"+ended {
		t.Errorf("to the client came %q, want half of the answer", client)
	}
}

// All that is held comes later, on links that were there before and on new ones.
func TestProxyHolds(t *testing.T) {
	addr, _ := startPot(t)
	p := Start(t, potProtocol, addr)
	connect := func() net.Conn {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	const answer = "a pot."
	receive := func(c net.Conn) string {
		b := make([]byte, len(answer))
		n, _ := io.ReadFull(c, b)
		return string(b[:n])
	}
	old := connect()
	old.Write([]byte("give"))
	if got := receive(old); got != answer {
		t.Fatalf("%q came before, want %q", got, answer)
	}
	p.Hold()
	held := connect()
	held.Write([]byte("give"))
	old.Write([]byte("keep"))
	for name, c := range map[string]net.Conn{"new": held, "old": old} {
		c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // long enough for what is not held
		if got := receive(c); got != "" {
			t.Errorf("%q came on the %s link while it was held", got, name)
		}
		c.SetReadDeadline(time.Now().Add(30 * time.Second))
	}
	p.Release()
	if got := receive(held); got != answer {
		t.Errorf("%q came on the new link, want %q", got, answer)
	}
	old.(*net.TCPConn).CloseWrite()
	if got := receive(old); got != "kept." {
		t.Errorf("%q came on the old link, want kept.", got)
	}
}

// Between the commit and its answer is where a fault of a commit strikes: the answer
// is lost, what was committed is not, and no other answer is taken for one.
func TestProxyKnowsCommits(t *testing.T) {
	const lost = true
	for name, through := range map[string]func(t *testing.T) (driver string, p *Proxy, via, direct string){
		"PostgreSQL": func(t *testing.T) (string, *Proxy, string, string) {
			s := dbserver.StartPostgres(t)
			p := Start(t, Postgres, s.Addr())
			return "pgx", p, s.DSNVia(p.Addr()), s.DSN()
		},
		"MariaDB": func(t *testing.T) (string, *Proxy, string, string) { return throughToMySQL(t, dbserver.MariaDB) },
		"MySQL":   func(t *testing.T) (string, *Proxy, string, string) { return throughToMySQL(t, dbserver.MySQL) },
	} {
		t.Run(name, func(t *testing.T) {
			driver, p, via, direct := through(t)
			db := dbserver.Open(t, driver, via)
			db.SetMaxOpenConns(1)
			do := func(statement string, wantLost bool) {
				t.Helper()
				if _, err := db.Exec(statement); (err != nil) != wantLost {
					t.Errorf("%s: %v, want an error: %v", statement, err, wantLost)
				}
			}
			do("CREATE TABLE kept (n BIGINT PRIMARY KEY)", !lost)

			commit := Fault{Commit, 0, HangUp}
			p.Strike(commit)
			do("CREATE TABLE nothing (n BIGINT)", !lost)
			do("SELECT 1", !lost)
			do("INSERT INTO kept SELECT 0 FROM nothing", !lost)
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("INSERT INTO kept VALUES (1)"); err != nil {
				t.Error(err)
			}
			if err := tx.Commit(); err == nil {
				t.Error("the answer to COMMIT was not lost")
			}
			p.Strike(commit)
			do("INSERT INTO kept VALUES (2)", lost)
			do("INSERT INTO kept VALUES (3)", !lost)

			var n int
			row := dbserver.Open(t, driver, direct).QueryRow("SELECT sum(n) FROM kept")
			if err := row.Scan(&n); err != nil || n != 1+2+3 {
				t.Errorf("the sum is %d, %v, want %d", n, err, 1+2+3)
			}
		})
	}
}

func throughToMySQL(t *testing.T, k *dbserver.Kind) (driver string, p *Proxy, via, direct string) {
	s := k.Start(t)
	p = Start(t, MySQL, s.Addr())
	return "mysql", p, s.DSNVia(p.Addr()), s.DSN()
}

func TestProxyKnowsCreatedOrders(t *testing.T) {
	store := new(storefront.MemStore)
	server := httptest.NewServer(storefront.New(store))
	t.Cleanup(server.Close)
	p := Start(t, HTTP, server.Listener.Addr().String())
	p.Strike(Fault{Commit, 0.5, HangUp})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	send := func(method, path string) (answer string, err error) {
		r, err := http.NewRequest(method, "http://"+p.Addr()+path, strings.NewReader(`{"item":"teapot","qty":1}`))
		if err != nil {
			t.Fatal(err)
		}
		r.GetBody = nil // else the transport would send it again
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "tea")
		w, err := client.Do(r)
		if err != nil {
			return "", err
		}
		defer w.Body.Close()
		_, err = io.Copy(io.Discard, w.Body)
		return w.Status + w.Header.Get("Idempotent-Replayed"), err
	}
	for _, path := range []string{"/openapi.json", "/nothing"} {
		if _, err := send("GET", path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := send("POST", "/v1/orders"); err == nil {
		t.Error("the answer to the order was not lost")
	}
	if answer, err := send("POST", "/v1/orders"); err != nil || answer != "201 Createdtrue" {
		t.Errorf("the order sent again: %s, %v, want a replay", answer, err)
	}
}
