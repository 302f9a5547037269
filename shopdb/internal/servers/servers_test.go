package servers

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"example.com/storefront/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeServer is a server in one of these states.
type fakeServer struct {
	name string

	mu    sync.Mutex
	state state
	asked []bool // for each connection that was tried, whether it had to be writable
}

type state int

const (
	up    state = iota
	reads       // can only be read
	down
	hangs
)

func (f *fakeServer) set(s state) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = s
}

func (f *fakeServer) connect(ctx context.Context, writable bool) (Conn, net.Conn, error) {
	f.mu.Lock()
	f.asked = append(f.asked, writable)
	state := f.state
	f.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case state == hangs:
		select {
		case <-time.After(ConnectLimit):
			return nil, nil, errors.New(f.name + ": timeout")
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	case state == down:
		return nil, nil, errors.New(f.name + ": refused")
	case state == reads && writable:
		return nil, nil, errors.Join(errors.New(f.name+": no commits"), ErrOnlyReadable)
	}
	c := &fakeConn{server: f.name}
	return c, &c.net, nil
}

// A fakeNet is a network connection that may be broken.
type fakeNet struct {
	net.Conn
	broken bool
}

func (n *fakeNet) Close() error {
	n.broken = true
	return nil
}

// A fakeConn is what fakeServer.connect returns.
type fakeConn struct {
	Conn   // none of its other methods is called
	server string
	net    fakeNet
	closed bool
}

func (c *fakeConn) ResetSession(context.Context) error { return nil }
func (c *fakeConn) IsValid() bool                      { return !c.closed }

func (c *fakeConn) Close() error {
	c.closed = true
	return nil
}

// fakes returns servers that are up, of the names a, b and so on.
func fakes(n int) (*servers, []*fakeServer) {
	var list []Server
	var all []*fakeServer
	for i := range n {
		f := &fakeServer{name: string(rune('a' + i))}
		all = append(all, f)
		list = append(list, f.connect)
	}
	return newServers(nil, list...), all
}

// connected returns a new connection, and the name of the server that it is to.
func connected(t *testing.T, s *servers) (*serverConn, string) {
	t.Helper()
	c := must.Get(s.Connect(t.Context()))(t)
	sc := c.(*serverConn)
	return sc, sc.Conn.(*fakeConn).server
}

func TestServersAreTriedInTurn(t *testing.T) {
	for _, row := range []struct {
		states string // of each server: up, can be read, down, hangs
		first  int    // the current server
		want   string // the server that is connected to, or the error
	}{
		{"uuu", 1, "b"},
		{"hdu", 0, "c"},
		{"rru", 0, "c"},
		{"rdh", 0, "a"},
		{"dhd", 0, "a: refused; b: timeout; c: refused"},
		{"r", 0, "a"},
	} {
		t.Run(row.states, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, all := fakes(len(row.states))
				s.current = row.first
				for i, c := range row.states {
					all[i].state = state(strings.IndexRune("urdh", c))
				}
				c, err := s.Connect(t.Context())
				got := fmt.Sprint(err)
				if err == nil {
					got = c.(*serverConn).Conn.(*fakeConn).server
				}
				if got != row.want {
					t.Errorf("it connected to %s, want %s", got, row.want)
				}
				if len(row.states) == 1 && all[0].asked[0] {
					t.Error("the only server had to be writable")
				}
			})
		})
	}
}

func TestConnectionsToTheOldServerAreDropped(t *testing.T) {
	s, all := fakes(2)
	old, _ := connected(t, s)
	if !old.IsValid() || old.ResetSession(t.Context()) != nil {
		t.Fatal("a connection to the current server is not valid")
	}
	closed, _ := connected(t, s)
	closed.Close()
	all[0].set(reads)
	c, server := connected(t, s)
	if server != "b" {
		t.Fatalf("it connected to %s, want b", server)
	}
	if old.IsValid() {
		t.Error("the connection to the old server is valid")
	}
	if err := old.ResetSession(t.Context()); err != driver.ErrBadConn {
		t.Errorf("ResetSession of the connection to the old server: %v, want ErrBadConn", err)
	}
	if !old.Conn.(*fakeConn).net.broken {
		t.Error("what uses the connection to the old server goes on")
	}
	if closed.Conn.(*fakeConn).net.broken {
		t.Error("what was closed long ago is broken")
	}
	if !c.IsValid() || c.ResetSession(t.Context()) != nil || c.Conn.(*fakeConn).net.broken {
		t.Error("the new connection is not valid")
	}
	c.Conn.Close()
	if c.IsValid() {
		t.Error("the connection is valid although the driver says that it is not")
	}
}

func TestSearchGoesOnWhenTheCallerHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, all := fakes(2)
		all[0].set(hangs)
		all[1].set(hangs)
		for range 2 { // the second knows why the first has failed
			ctx, cancel := context.WithTimeout(t.Context(), ConnectLimit+ConnectLimit/2)
			defer cancel()
			before := time.Now()
			_, err := s.Connect(ctx)
			took := time.Since(before)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "a: timeout") ||
				took > 2*ConnectLimit {
				t.Errorf("%v after %v", err, took)
			}
		}
		time.Sleep(2 * ConnectLimit)
		all[1].set(up)
		ctx, cancel := context.WithTimeout(t.Context(), ConnectLimit/2)
		defer cancel()
		if _, err := s.Connect(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want that of the deadline", err)
		}
		time.Sleep(ConnectLimit)
		synctest.Wait()
		if len(s.open) != 0 {
			t.Errorf("%d connections stay open that nobody has", len(s.open))
		}
		tried := len(all[0].asked)
		if _, server := connected(t, s); server != "b" || len(all[0].asked) > tried {
			t.Errorf("it connected to %s, having tried a again %d times", server, len(all[0].asked)-tried)
		}
	})
}

// Two searches may find different servers. The one that ends last must not bring back
// what the other has left.
func TestLateSearchDoesNotBringBackTheOldServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan struct{})
		first := true
		a, b := &fakeServer{name: "a"}, &fakeServer{name: "b"}
		s := newServers(nil, func(ctx context.Context, writable bool) (Conn, net.Conn, error) {
			if first {
				first = false
				<-late
				return a.connect(ctx, writable)
			}
			return nil, nil, errors.New("a: refused")
		}, b.connect)
		var old driver.Conn
		var err error
		go func() { old, err = s.Connect(t.Context()) }()
		synctest.Wait()
		d, _ := connected(t, s)
		close(late)
		synctest.Wait()
		must.OK(t, err)
		c := old.(*serverConn)
		if c.IsValid() || !d.IsValid() || d.Conn.(*fakeConn).net.broken {
			t.Errorf("valid: the connection to the old server: %t, to the new one: %t", c.IsValid(), d.IsValid())
		}
		if _, server := connected(t, s); server != "b" {
			t.Errorf("it connected to %s, want b", server)
		}
	})
}

// What waits for a server that hangs ends with the pool.
func TestCloseEndsTheSearchForAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := Open(nil, (&fakeServer{name: "a", state: hangs}).connect)
		failed := make(chan error)
		go func() { failed <- db.PingContext(context.Background()) }()
		synctest.Wait()
		began := time.Now()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if err := <-failed; err == nil {
			t.Error("the call has a connection")
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		if _, err := db.Conn(t.Context()); err == nil {
			t.Error("a closed pool has a connection")
		}
		db.Close() // again
	})
}
