package integration

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/storefront"
)

// A proxy passes what clients send on to a server, and its answers back, until a
// test has it do something else. It is the network, where that fails and the
// processes do not.
type proxy struct {
	port     int // of 127.0.0.1
	protocol protocol
	server   string
	running  sync.WaitGroup
	ended    chan struct{}

	mu      sync.Mutex
	links   map[*link]struct{}
	strikes []*strike
	held    chan struct{} // unless it is nil, everything waits until it is closed
}

// A strike is a fault that is for the next message of its kind, on whichever link.
type strike struct {
	linkFault
	done chan struct{} // closed when it has struck
}

// A linkFault is what a proxy does to a message, and to the link that it is on.
type linkFault struct {
	to   messageKind
	pass float64 // which part of the message is still passed on, from 0 to 1
	then ending
}

// A messageKind tells apart what passes through a proxy.
type messageKind int

const (
	aRequest messageKind = iota // what a client has sent at once
	anAnswer                    // an answer of the server, whole
	aCommit                     // an answer that says that something was committed
	messageKinds
)

// An ending is what becomes of a link.
type ending int

const (
	silence   ending = iota // nothing passes any more, both connections stay open
	hangUp                  // both connections are closed
	halfClose               // the receiver is told that this was all; what it sends still passes
	reset                   // both connections are reset
	endings
)

func (f linkFault) String() string {
	passed := "cut"
	switch f.pass {
	case 0:
		passed = "lost"
	case 1:
		passed = "passed"
	}
	return [...]string{"request", "answer", "commit"}[f.to] + " " + passed + " and " +
		[...]string{"silence", "closed", "half-closed", "reset"}[f.then]
}

// startProxy starts a proxy for a server, which need not be up, for the time of the
// test.
func startProxy(t testing.TB, protocol protocol, server string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{
		port:     listener.Addr().(*net.TCPAddr).Port,
		protocol: protocol,
		server:   server,
		ended:    make(chan struct{}),
		links:    make(map[*link]struct{}),
	}
	p.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(client.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		close(p.ended)
		p.resetLinks(func(*link) bool { return true })
		p.running.Wait()
	})
	return p
}

func (p *proxy) addr() string { return "127.0.0.1:" + strconv.Itoa(p.port) }

// strike has the next message of the fault's kind meet it, on whichever link that
// is, and returns a channel that is closed when that has happened.
func (p *proxy) strike(f linkFault) (done <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &strike{f, make(chan struct{})}
	p.strikes = append(p.strikes, s)
	return s.done
}

// hold keeps what comes from now on, on links and from those who connect, until
// release.
func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = make(chan struct{})
}

// release passes on what was held.
func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// heal has no more messages meet a fault, passes on what was held, and resets the
// links that are silent.
func (p *proxy) heal() {
	p.mu.Lock()
	p.strikes = nil
	p.mu.Unlock()
	p.release()
	p.resetLinks(func(l *link) bool { return l.silent.Load() })
}

func (p *proxy) resetLinks(which func(*link) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if which(l) {
			l.reset()
			delete(p.links, l)
		}
	}
}

// wait waits while everything is held. It returns false if the test ends meanwhile.
func (p *proxy) wait() bool {
	for {
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		if held == nil {
			return true
		}
		select {
		case <-held:
		case <-p.ended:
			return false
		}
	}
}

// next returns the strike that a message on a link is to meet, or nil.
func (p *proxy) next(l *link, kind messageKind) *strike {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.strikes {
		if s.to == kind || s.to == anAnswer && kind == aCommit {
			p.strikes = slices.Delete(p.strikes, i, i+1)
			l.silent.Store(s.then == silence) // before the receiver may reply, and a heal does not see it
			return s
		}
	}
	return nil
}

// serve passes on what a client sends, until both sides have ended.
func (p *proxy) serve(client *net.TCPConn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		client.SetLinger(0)
		client.Close()
		return
	}
	l := &link{proxy: p, client: client, server: server.(*net.TCPConn)}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	select {
	case <-p.ended: // perhaps after it has reset all links that there were
		l.reset()
	default:
	}
	var both sync.WaitGroup
	both.Go(l.passRequests)
	both.Go(l.passAnswers)
	both.Wait()
	if l.silent.Load() {
		return // the side that has not ended is not to learn it from the other
	}
	l.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// A link is a client's connection and the one to the server that belongs to it.
type link struct {
	proxy          *proxy
	client, server *net.TCPConn
	silent         atomic.Bool

	mu      sync.Mutex
	request []byte // the beginning of what the client has sent since the last answer
}

func (l *link) close() {
	l.client.Close()
	l.server.Close()
}

func (l *link) reset() {
	l.client.SetLinger(0)
	l.server.SetLinger(0)
	l.close()
}

func (l *link) passRequests() {
	chunk := make([]byte, 64<<10)
	for open := true; ; {
		n, err := l.client.Read(chunk)
		if n > 0 && open {
			l.note(chunk[:n])
			open = l.pass(chunk[:n], aRequest, l.server)
		}
		if err != nil {
			l.end(err, l.server)
			return
		}
	}
}

func (l *link) passAnswers() {
	chunk := make([]byte, 64<<10)
	var came []byte
	for open := true; ; {
		n, err := l.server.Read(chunk)
		came = append(came, chunk[:n]...)
		for open {
			size := l.proxy.protocol.answer(came)
			if size == 0 && err != nil {
				size = len(came) // what a server says before it ends
			}
			if size == 0 {
				break
			}
			open = l.pass(came[:size], l.kindOf(came[:size]), l.client)
			came = came[size:]
		}
		if !open {
			came = nil
		}
		if err != nil {
			l.end(err, l.client)
			return
		}
	}
}

// note keeps the beginning of a request.
func (l *link) note(request []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 64
	l.request = append(l.request, request[:min(len(request), most-len(l.request))]...)
}

func (l *link) kindOf(answer []byte) messageKind {
	l.mu.Lock()
	defer l.mu.Unlock()
	request := l.request
	l.request = nil
	if l.proxy.protocol.commits != nil && l.proxy.protocol.commits(request, answer) {
		return aCommit
	}
	return anAnswer
}

// pass passes on a message, or does with it what a fault says. It returns false if
// nothing more is to pass in this direction.
func (l *link) pass(message []byte, kind messageKind, to *net.TCPConn) (more bool) {
	if !l.proxy.wait() || l.silent.Load() {
		return false
	}
	s := l.proxy.next(l, kind)
	if s != nil {
		defer close(s.done)
		message = message[:int(s.pass*float64(len(message)))]
	}
	if _, err := to.Write(message); err != nil {
		l.reset()
		return false
	}
	switch {
	case s == nil:
		return true
	case s.then == hangUp:
		l.close()
	case s.then == halfClose:
		to.CloseWrite()
	case s.then == reset:
		l.reset()
	}
	return false
}

// end has the receiver of a direction learn how the sender has ended it.
func (l *link) end(err error, to *net.TCPConn) {
	switch {
	case errors.Is(err, net.ErrClosed) || !l.proxy.wait() || l.silent.Load():
	case err == io.EOF:
		to.CloseWrite()
	default:
		l.reset()
	}
}

// A protocol is what a proxy knows of the messages that it passes on.
type protocol struct {
	// answer returns the length of the first answer in what a server has sent, or 0
	// if that is not whole.
	answer func(b []byte) int

	// commits reports whether the answer to a request, of which there is only the
	// beginning, says that something was committed. It may be nil.
	commits func(request, answer []byte) bool
}

// anyProtocol knows nothing of messages: what comes at once is one.
var anyProtocol = protocol{answer: func(b []byte) int { return len(b) }}

// postgresProtocol is that of PostgreSQL (53.7 in its manual) without TLS. An answer
// goes up to the message ReadyForQuery, which comes after the commit, if there is one.
var postgresProtocol = protocol{
	answer: func(b []byte) int {
		for end := 0; len(b) >= end+5; {
			kind, size := b[end], 1+int(binary.BigEndian.Uint32(b[end+1:]))
			end += size
			if kind == 'Z' && len(b) >= end {
				return end
			}
		}
		return 0
	},
	commits: func(_, answer []byte) bool {
		changed := false
		for len(answer) >= 5 {
			size := min(1+int(binary.BigEndian.Uint32(answer[1:])), len(answer))
			switch text := answer[5:size]; answer[0] {
			case 'C': // CommandComplete
				changed = postgresCommits.Match(text)
			case 'E': // ErrorResponse
				return false
			case 'Z': // ReadyForQuery
				return changed && string(text) == "I" // not in a transaction
			}
			answer = answer[size:]
		}
		return false
	},
}

var postgresCommits = regexp.MustCompile(`^(COMMIT|INSERT 0 [1-9])`)

// mySQLProtocol is that of MySQL and MariaDB without TLS and compression. What counts
// as an answer is a packet. Statements with arguments are known for what they are if
// the client puts those into the text.
var mySQLProtocol = protocol{
	answer: func(b []byte) int {
		if len(b) < mySQLHeader {
			return 0
		}
		size := mySQLHeader + int(b[0]) + int(b[1])<<8 + int(b[2])<<16
		if len(b) < size {
			return 0
		}
		return size
	},
	commits: func(request, answer []byte) bool {
		const query, ok, inTransaction = 3, 0, 1
		if len(request) < mySQLHeader+1 || len(answer) < mySQLHeader+2 || request[mySQLHeader] != query || answer[mySQLHeader] != ok {
			return false
		}
		text, rest := request[mySQLHeader+1:], answer[mySQLHeader+1:]
		if none := rest[0] == 0; !bytes.HasPrefix(text, []byte("COMMIT")) && (none || !bytes.HasPrefix(text, []byte("INSERT"))) {
			return false
		}
		for range 2 { // the number of rows, and an ID
			size := 1
			if len(rest) > 0 && rest[0] > 0xFB {
				size += map[byte]int{0xFC: 2, 0xFD: 3, 0xFE: 8}[rest[0]]
			}
			rest = rest[min(size, len(rest)):]
		}
		return len(rest) > 0 && rest[0]&inTransaction == 0
	},
}

const mySQLHeader = 4 // bytes of each packet

// httpProtocol is HTTP/1.1, as far as the service answers orders in it.
var httpProtocol = protocol{
	answer: func(b []byte) int {
		end := bytes.Index(b, []byte("\r\n\r\n"))
		if end < 0 {
			return 0
		}
		size := end + 4
		if length := httpLength.FindSubmatch(b[:size]); length != nil {
			n, _ := strconv.Atoi(string(length[1]))
			size += n
		}
		if len(b) < size {
			return 0
		}
		return size
	},
	commits: func(_, answer []byte) bool { return bytes.HasPrefix(answer, []byte("HTTP/1.1 201 ")) },
}

var httpLength = regexp.MustCompile(`\r\nContent-Length: (\d+)\r\n`)

// potProtocol is that of a server which says "a pot." to "give", and commits at "keep".
var potProtocol = protocol{
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
				all <- talk(c, map[string]string{"give": "a pot.", "givekeep": "kept.", "keep": "kept."})
				c.Close()
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
		fault          linkFault
		client, server string // what has come there, and how it has ended
	}{
		{linkFault{aRequest, 0, silence}, broken, broken},
		{linkFault{aRequest, 0.5, silence}, broken, "gi" + broken},
		{linkFault{aRequest, 1, silence}, broken, "give" + broken},
		{linkFault{aRequest, 0, hangUp}, ended, ended},
		{linkFault{aRequest, 0.5, hangUp}, ended, "gi" + ended},
		{linkFault{aRequest, 1, halfClose}, "a pot." + ended, "give" + ended},
		{linkFault{aRequest, 0.5, reset}, broken, "gi" + broken},
		{linkFault{anAnswer, 0, silence}, broken, "give" + broken},
		{linkFault{anAnswer, 0.5, silence}, "a p" + broken, "give" + broken},
		{linkFault{anAnswer, 1, silence}, "a pot." + broken, "give" + broken},
		{linkFault{anAnswer, 0, hangUp}, ended, "give" + ended},
		{linkFault{anAnswer, 0.5, hangUp}, "a p" + ended, "give" + ended},
		{linkFault{anAnswer, 0, halfClose}, ended, "givekeep" + ended},
		{linkFault{anAnswer, 0.5, halfClose}, "a p" + ended, "givekeep" + ended},
		{linkFault{anAnswer, 0.5, reset}, "a p" + broken, "give" + broken},
		{linkFault{aCommit, 0, silence}, "a pot." + broken, "givekeep" + broken},
		{linkFault{aCommit, 0, hangUp}, "a pot." + ended, "givekeep" + ended},
		{linkFault{aCommit, 0.5, reset}, "a pot.ke" + broken, "givekeep" + broken},
	} {
		t.Run(fmt.Sprint(row.fault, row.fault.pass), func(t *testing.T) {
			addr, brought := startPot(t)
			p := startProxy(t, potProtocol, addr)
			done := p.strike(row.fault)
			c, err := net.Dial("tcp", p.addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(30 * time.Second))
			go func() {
				<-done
				p.heal() // else a silence would last
			}()
			c.Write([]byte("give"))
			client := talk(c, map[string]string{"a pot.": "keep"})
			if row.fault.then == halfClose {
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
	p := startProxy(t, potProtocol, addr)
	p.strike(linkFault{anAnswer, 0.5, hangUp})
	c, err := net.Dial("tcp", p.addr())
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

// What is held comes later, on links that were there before and on new ones, and is
// all there.
func TestProxyHolds(t *testing.T) {
	addr, _ := startPot(t)
	p := startProxy(t, potProtocol, addr)
	connect := func() net.Conn {
		c, err := net.Dial("tcp", p.addr())
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
	p.hold()
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
	p.release()
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
	for name, through := range map[string]func(t *testing.T) (driver string, p *proxy, via, direct string){
		"PostgreSQL": func(t *testing.T) (string, *proxy, string, string) {
			s := startPostgres(t)
			p := startProxy(t, postgresProtocol, s.addr())
			return "pgx", p, postgresURL("postgres", &postgresServer{port: p.port}), s.URL()
		},
		"MariaDB": func(t *testing.T) (string, *proxy, string, string) { return throughToMySQL(t, mariaDB) },
		"MySQL":   func(t *testing.T) (string, *proxy, string, string) { return throughToMySQL(t, mySQL) },
	} {
		t.Run(name, func(t *testing.T) {
			driver, p, via, direct := through(t)
			db := openDatabase(t, driver, via)
			db.SetMaxOpenConns(1)
			do := func(statement string, wantLost bool) {
				t.Helper()
				if _, err := db.Exec(statement); (err != nil) != wantLost {
					t.Errorf("%s: %v, want an error: %v", statement, err, wantLost)
				}
			}
			do("CREATE TABLE kept (n BIGINT PRIMARY KEY)", !lost)

			commit := linkFault{aCommit, 0, hangUp}
			p.strike(commit)
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
			p.strike(commit)
			do("INSERT INTO kept VALUES (2)", lost)
			do("INSERT INTO kept VALUES (3)", !lost)

			var n int
			row := openDatabase(t, driver, direct).QueryRow("SELECT sum(n) FROM kept")
			if err := row.Scan(&n); err != nil || n != 1+2+3 {
				t.Errorf("the sum is %d, %v, want %d", n, err, 1+2+3)
			}
		})
	}
}

func throughToMySQL(t *testing.T, k *mySQLKind) (driver string, p *proxy, via, direct string) {
	s := k.start(t)
	p = startProxy(t, mySQLProtocol, "127.0.0.1:"+strconv.Itoa(s.port))
	return "mysql", p, mySQLDSN("shop", &mySQLServer{port: p.port}), s.DSN()
}

func TestProxyKnowsCreatedOrders(t *testing.T) {
	store := new(storefront.MemStore)
	server := httptest.NewServer(storefront.New(store))
	t.Cleanup(server.Close)
	p := startProxy(t, httpProtocol, server.Listener.Addr().String())
	p.strike(linkFault{aCommit, 0.5, hangUp})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	send := func(method, path string) (answer string, err error) {
		r, err := http.NewRequest(method, "http://"+p.addr()+path, strings.NewReader(`{"item":"teapot","qty":1}`))
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
