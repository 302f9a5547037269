// Package pipes has connections in memory.
package pipes

import (
	"context"
	"net"
	"sync"
)

// A Listener accepts the other ends of the connections that Dial makes by [net.Pipe]: nothing is on the
// way, as who writes waits for the reader.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func Listen() *Listener {
	closed := make(chan struct{})
	return &Listener{make(chan net.Conn), closed, sync.OnceFunc(func() { close(closed) })}
}

// Dial is for [http.Transport.DialContext].
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *Listener) Close() error   { l.close(); return nil }
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{} }
