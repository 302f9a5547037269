// Package netfault has the network between a client and a server fail while neither does.
package netfault

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/storefront/internal/must"
)

// A Proxy passes what clients send on to a server, and its answers back, until a
// test has it do something else. It is the network, where that fails and the
// processes do not.
type Proxy struct {
	addr    string
	server  string
	running sync.WaitGroup
	ended   chan struct{}

	mu      sync.Mutex
	links   map[*link]struct{}
	strikes []*Fault      // each for the next message of its direction, on whichever link
	held    chan struct{} // unless it is nil, everything waits until it is closed
}

// A Fault is what a proxy does to a message, which is what comes at once, and to the link that it is on.
type Fault struct {
	Answer bool    // of the server; otherwise, it is a request
	Pass   float64 // which part of the message is still passed on, from 0 to 1
	Then   Ending
}

// An Ending is what becomes of a link.
type Ending int

// The endings.
const (
	Silence Ending = iota // nothing passes any more, both connections stay open
	HangUp                // both connections are closed
	Reset                 // both connections are reset
	Endings
)

// Start starts a proxy for a server, which need not be up, for the time of the
// test.
func Start(t testing.TB, server string) *Proxy {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &Proxy{
		addr:   listener.Addr().String(),
		server: server,
		ended:  make(chan struct{}),
		links:  make(map[*link]struct{}),
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
func (p *Proxy) Addr() string { return p.addr }

// Strike has the next message of the fault's direction meet it, on whichever link that is.
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
func (p *Proxy) next(l *link, answer bool) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.strikes {
		if s.Answer == answer {
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
	both.Go(func() { l.passAll(l.client, l.server, false) })
	both.Go(func() { l.passAll(l.server, l.client, true) })
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

// passAll passes on what comes in one direction.
func (l *link) passAll(from, to *net.TCPConn, answers bool) {
	chunk := make([]byte, 64<<10)
	for open := true; ; {
		n, err := from.Read(chunk)
		if n > 0 && open {
			open = l.pass(chunk[:n], answers, to)
		}
		if err != nil {
			l.end(err, to)
			return
		}
	}
}

// pass passes on a message, or does with it what a fault says. It returns false if
// nothing more is to pass in this direction.
func (l *link) pass(message []byte, answer bool, to *net.TCPConn) (more bool) {
	if !l.proxy.wait() || l.silent.Load() {
		return false
	}
	s := l.proxy.next(l, answer)
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
