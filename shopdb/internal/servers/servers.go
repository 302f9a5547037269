// Package servers connects to a database of several servers, of which one takes the orders. It knows no
// driver.
package servers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// ConnectLimit is for a connection: a server that is off the network must leave time for the next one.
const ConnectLimit = 2 * time.Second

// A Server connects to one of several servers of a database, within a few seconds. It
// returns the connection, and the network connection below it, whose Close breaks the
// former while it is in use.
//
// If writable is true, the server has proved that it can take orders at this moment. If
// it cannot, but can be read, the error matches ErrOnlyReadable.
type Server func(ctx context.Context, writable bool) (Conn, net.Conn, error)

// ErrOnlyReadable is the error of a [Server] that cannot be written to.
var ErrOnlyReadable = errors.New("it can be read, but takes no orders now")

// servers is a driver.Connector for several servers of which one takes the orders
// at a time, or any does.
//
// It connects to the server that was writable last, or else to the next one that is.
// From then on, that is the current server: connections to
// the others are broken, whatever they are doing, and the pool drops them. So once
// one connection has found the new primary, all do, and a statement that hangs on the
// old one is tried again at once. If no server is writable, one that is readable will do;
// reads work then.
type servers struct {
	list   []Server
	driver driver.Driver

	mu       sync.Mutex
	current  int   // in list
	failed   error // what a server was last passed over for
	open     map[*serverConn]struct{}
	searches sync.WaitGroup     // none begins once ctx is done
	ctx      context.Context    // of the searches, until Close
	cancel   context.CancelFunc // of ctx
}

func newServers(d driver.Driver, list ...Server) *servers {
	s := &servers{list: list, driver: d, open: make(map[*serverConn]struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close ends the searches. The pool calls it, see sql.DB.Close.
func (s *servers) Close() error {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.searches.Wait()
	return nil
}

// Driver implements driver.Connector.
func (s *servers) Driver() driver.Driver { return s.driver }

// Connect implements driver.Connector. The search goes on when the caller has left,
// so that the next one begins where it ended, and not with a server that hangs.
func (s *servers) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var c *serverConn
	var err error
	found := make(chan struct{})
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return nil, errors.New("the pool is closed")
	}
	s.searches.Go(func() {
		c, err = s.search(s.ctx)
		select {
		case found <- struct{}{}:
		case <-ctx.Done():
			if err == nil {
				c.Close()
			}
		}
	})
	s.mu.Unlock()
	select {
	case <-found:
		if err != nil {
			return nil, err
		}
		return c, nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.failed == nil {
			return nil, ctx.Err()
		}
		return nil, serverErrors{ctx.Err(), s.failed}
	}
}

// search returns a connection to the first server, from the current one on, that is
// writable, or else to the first that is readable.
func (s *servers) search(ctx context.Context) (*serverConn, error) {
	s.mu.Lock()
	first := s.current
	s.mu.Unlock()
	var errs serverErrors
	readable := -1
	for i := range s.list {
		n := (first + i) % len(s.list)
		c, netConn, err := s.list[n](ctx, len(s.list) > 1) // a single server need not be writable
		if err == nil {
			return s.settle(c, netConn, n, first), nil
		}
		errs = append(errs, err)
		s.mu.Lock()
		s.failed = err
		s.mu.Unlock()
		if readable < 0 && errors.Is(err, ErrOnlyReadable) {
			readable = n
		}
	}
	if readable >= 0 {
		c, netConn, err := s.list[readable](ctx, false)
		if err == nil {
			return s.settle(c, netConn, readable, first), nil
		}
		errs = append(errs, err)
	}
	return nil, errs
}

// settle makes n the current server, unless another search has made another one that
// since the current one was first.
func (s *servers) settle(c Conn, netConn net.Conn, n, first int) *serverConn {
	sc := &serverConn{c, netConn, s, n}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[sc] = struct{}{}
	if n != s.current && s.current == first {
		s.current = n
		for other := range s.open {
			if other.server != n {
				other.net.Close()
			}
		}
	}
	return sc
}

// A Conn is what both drivers' connections are: all of database/sql/driver's
// interfaces for one that are not about what became of it.
type Conn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.NamedValueChecker
	driver.SessionResetter
}

// A serverConn is a connection to one of the servers.
type serverConn struct {
	Conn
	net     net.Conn
	servers *servers
	server  int
}

func (c *serverConn) isCurrent() bool {
	c.servers.mu.Lock()
	defer c.servers.mu.Unlock()
	return c.server == c.servers.current
}

// IsValid implements driver.Validator.
func (c *serverConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return c.isCurrent() && (!ok || v.IsValid())
}

// ResetSession implements driver.SessionResetter.
func (c *serverConn) ResetSession(ctx context.Context) error {
	if !c.isCurrent() {
		return driver.ErrBadConn
	}
	return c.Conn.ResetSession(ctx)
}

// Close implements driver.Conn.
func (c *serverConn) Close() error {
	c.servers.mu.Lock()
	delete(c.servers.open, c)
	c.servers.mu.Unlock()
	return c.Conn.Close()
}

// serverErrors says for each server why it was not connected to.
type serverErrors []error

func (e serverErrors) Error() string {
	var texts []string
	for _, err := range e {
		texts = append(texts, strings.Join(strings.Fields(err.Error()), " ")) // pgx's has lines
	}
	return strings.Join(texts, "; ")
}

func (e serverErrors) Unwrap() []error { return e }

// Open returns the pool of a database of servers, of which the first is asked first. They need not answer
// yet.
func Open(d driver.Driver, list ...Server) *sql.DB {
	db := sql.OpenDB(newServers(d, list...))
	SetPool(db)
	return db
}

// SetPool sets the size of the pool of a database that is a server.
func SetPool(db *sql.DB) {
	// PostgreSQL serves 100 connections by default, MySQL 151: enough for four
	// replicas. Cores and disk are busy with fewer than 20, and more would wait
	// for each other there rather than here.
	db.SetMaxOpenConns(20)
	// A connection costs the server a process or thread, which a burst should not
	// pay twice.
	db.SetMaxIdleConns(20)
	db.SetConnMaxIdleTime(5 * time.Minute)
	// So that replicas spread anew over servers behind a proxy or a changed name.
	db.SetConnMaxLifetime(30 * time.Minute)
}

// CheckURL returns an error if a URL has none of the schemes of a database, if it is not sure which part of
// it is the password, or if something else is wrong with its servers. Nothing of the URL is said or looked
// up: it may be a part of the password.
func CheckURL(url, database string, schemes ...string) error {
	scheme, rest, isURL := strings.Cut(url, "://")
	if !isURL || !slices.Contains(schemes, scheme) {
		return fmt.Errorf("%s is named by a URL: %s://user@host/database", database, schemes[0])
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	if strings.Count(authority, "@") > 1 || strings.Contains(rest[len(authority):], "@") ||
		strings.Contains(rest, "#") {
		return errors.New("the URL can be read in several ways: in a user, a password or a parameter," +
			" @ is written %40, / is %2F, ? is %3F and # is %23")
	}
	hosts := authority[strings.IndexByte(authority, '@')+1:]
	for host := range strings.SplitSeq(hosts, ",") {
		_, port, _ := strings.Cut(host[strings.LastIndexByte(host, ']')+1:], ":")
		if strings.Trim(port, "0123456789") != "" {
			return errors.New("a port in the URL is none: a server is host, host:port or [address]:port;" +
				" with a password, the URL is user:password@host")
		}
	}
	return nil
}

// Lasting returns an error that does not pass while somebody waits.
func Lasting(err error) error { return lastingError{err} }

// IsLasting reports whether err, or one that it wraps, is of [Lasting].
func IsLasting(err error) bool {
	_, lasting := errors.AsType[lastingError](err)
	return lasting
}

type lastingError struct{ error }

func (e lastingError) Unwrap() error { return e.error }
