// Package netfault has the network between a client and a server fail while neither does.
package netfault

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/storefront/internal/must"
)

// A Proxy passes what clients send on to a server, and its answers back, until a
// test has it do something else. It is the network, where that fails and the
// processes do not.
type Proxy struct {
	Port     int // of 127.0.0.1, but for StartAt
	protocol Protocol
	server   string
	running  sync.WaitGroup
	ended    chan struct{}

	mu      sync.Mutex
	links   map[*link]struct{}
	strikes []*Fault      // each for the next message of its kind, on whichever link
	held    chan struct{} // unless it is nil, everything waits until it is closed
}

// A Fault is what a proxy does to a message, and to the link that it is on.
type Fault struct {
	To   MessageKind
	Pass float64 // which part of the message is still passed on, from 0 to 1
	Then Ending
}

// A MessageKind tells apart what passes through a proxy.
type MessageKind int

// The kinds of messages.
const (
	Request MessageKind = iota // what a client has sent at once
	Answer                     // an answer of the server, whole
	Commit                     // an answer that says that something was committed
	MessageKinds
)

// An Ending is what becomes of a link.
type Ending int

// The endings.
const (
	Silence   Ending = iota // nothing passes any more, both connections stay open
	HangUp                  // both connections are closed
	HalfClose               // the receiver is told that this was all; what it sends still passes
	Reset                   // both connections are reset
	Endings
)

// Start starts a proxy for a server, which need not be up, for the time of the
// test.
func Start(t testing.TB, protocol Protocol, server string) *Proxy {
	t.Helper()
	return StartAt(t, "127.0.0.1:0", protocol, server)
}

// StartAt is Start for a proxy that clients must find at an address.
func StartAt(t testing.TB, addr string, protocol Protocol, server string) *Proxy {
	t.Helper()
	listener := must.Get(net.Listen("tcp", addr))(t)
	p := &Proxy{
		Port:     listener.Addr().(*net.TCPAddr).Port,
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

// Addr returns where clients connect.
func (p *Proxy) Addr() string { return "127.0.0.1:" + strconv.Itoa(p.Port) }

// Strike has the next message of the fault's kind meet it, on whichever link that is.
func (p *Proxy) Strike(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.strikes = append(p.strikes, &f)
}

// Hold keeps what comes from now on, on links and from those who connect, until
// release.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = make(chan struct{})
}

// Release passes on what was held.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// Heal has no more messages meet a fault, passes on what was held, and resets the
// links that are silent.
func (p *Proxy) Heal() {
	p.mu.Lock()
	p.strikes = nil
	p.mu.Unlock()
	p.Release()
	p.resetLinks(func(l *link) bool { return l.silent.Load() })
}

func (p *Proxy) resetLinks(which func(*link) bool) {
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
func (p *Proxy) wait() bool {
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

// next returns the fault that a message on a link is to meet, or nil.
func (p *Proxy) next(l *link, kind MessageKind) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.strikes {
		if s.To == kind || s.To == Answer && kind == Commit {
			p.strikes = slices.Delete(p.strikes, i, i+1)
			l.silent.Store(s.Then == Silence) // before the receiver may reply, and a heal does not see it
			return s
		}
	}
	return nil
}

// serve passes on what a client sends, until both sides have ended.
func (p *Proxy) serve(client *net.TCPConn) {
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
	proxy          *Proxy
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
			open = l.pass(chunk[:n], Request, l.server)
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

func (l *link) kindOf(answer []byte) MessageKind {
	l.mu.Lock()
	defer l.mu.Unlock()
	request := l.request
	l.request = nil
	if l.proxy.protocol.commits != nil && l.proxy.protocol.commits(request, answer) {
		return Commit
	}
	return Answer
}

// pass passes on a message, or does with it what a fault says. It returns false if
// nothing more is to pass in this direction.
func (l *link) pass(message []byte, kind MessageKind, to *net.TCPConn) (more bool) {
	if !l.proxy.wait() || l.silent.Load() {
		return false
	}
	s := l.proxy.next(l, kind)
	if s != nil {
		message = message[:int(s.Pass*float64(len(message)))]
	}
	if _, err := to.Write(message); err != nil {
		l.reset()
		return false
	}
	switch {
	case s == nil:
		return true
	case s.Then == HangUp:
		l.close()
	case s.Then == HalfClose:
		to.CloseWrite()
	case s.Then == Reset:
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

// A Protocol is what a proxy knows of the messages that it passes on.
type Protocol struct {
	// answer returns the length of the first answer in what a server has sent, or 0
	// if that is not whole.
	answer func(b []byte) int

	// commits reports whether the answer to a request, of which there is only the
	// beginning, says that something was committed. It may be nil.
	commits func(request, answer []byte) bool
}

// AnyProtocol knows nothing of messages: what comes at once is one.
var AnyProtocol = Protocol{answer: func(b []byte) int { return len(b) }}

// Postgres is that of PostgreSQL (53.7 in its manual) without TLS. An answer
// goes up to the message ReadyForQuery, which comes after the commit, if there is one.
var Postgres = Protocol{
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

// MySQL is that of MySQL and MariaDB without TLS and compression. Each
// packet counts as an answer. Statements with arguments are known for what they are if
// the client puts those into the text.
var MySQL = Protocol{
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
		if len(request) < mySQLHeader+1 || len(answer) < mySQLHeader+2 || request[mySQLHeader] != query ||
			answer[mySQLHeader] != ok {
			return false
		}
		text, rest := request[mySQLHeader+1:], answer[mySQLHeader+1:]
		if none := rest[0] == 0; !bytes.HasPrefix(text, []byte("COMMIT")) &&
			(none || !bytes.HasPrefix(text, []byte("INSERT"))) {
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
