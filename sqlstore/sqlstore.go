package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/slots"
)

// A Store is a [storefront.Store] in a SQL database. Make one with [New]. Its
// methods may be called concurrently.
type Store struct {
	Users, Products, Widgets Collection

	db        *sql.DB
	opts      Options
	database  atomic.Pointer[database] // nil until a connection was asked for it
	server    atomic.Pointer[string]   // the name of the server that answered last; "": not known
	inFlight  inFlight
	made      time.Time
	reading   health
	ordering  health
	checked   atomic.Pointer[checked] // nil: the next Check writes
	versioned atomic.Bool             // Check has read the version of the tables
	looked    looked
	lookDue   atomic.Int64          // when the store looks at its tables again, as now returns it
	flaw      atomic.Pointer[error] // what the last look has found wrong with them; nil: nothing
	stats     counters
	jitter    func(least, most time.Duration) time.Duration
}

// Options are the options of a [Store]. The zero value of each field is a
// documented default.
type Options struct {
	// Accept, if it is not nil, is called for an order that is about to be created, in the
	// transaction that creates the order, and never for a replay. The rows that Accept writes
	// are there if and only if the order is: stock that is taken, an event for an outbox, a row
	// in a table of the program's. If Accept returns an error, none of its rows is there and
	// CreateOrder returns that error; if the error matches *storefront.Refusal, the service
	// refuses the order.
	//
	// Accept may run more than once for an order: the store retries the whole transaction
	// after serialization failures, deadlocks, lost connections and the like, also when
	// Accept returns the error of such a failure. Only the work in tx is undone then. Accept
	// returns the errors of its statements: after one that failed, PostgreSQL refuses all
	// others. Accept closes its rows, does not end tx, by a method or by SQL, and makes no
	// savepoint with the name storefront_order. If tx cannot go on after it, CreateOrder
	// returns an error that says so, but whatever Accept has committed stays. Accept uses the
	// database through tx alone and calls no method of the Store: with all connections in use,
	// or in SQLite, it would wait for itself. ctx has the values of CreateOrder's ctx until
	// CreateOrder returns, and is done when the call's time is up. tx must not be used after
	// Accept has returned.
	//
	// While tx can go on, the error of a lost connection, such as a url.Error or
	// driver.ErrBadConn of another database, or of a deadline that Accept has set, is final:
	// the order is not created, and CreateOrder returns the error. But the store treats an
	// error with the code of a conflict, a time limit or a read-only server as raised by tx.
	//
	// In SQLite, Accept should be quick: there is one writer at a time, so that all other
	// orders wait. If several orders share the commit there, the ctx of Accept is not done
	// when CreateOrder's ctx is cancelled. But it is done when the commit has taken a quarter
	// of Timeout, or half of the time that another of its orders had left; Accept is then
	// called again, in a commit of its own.
	Accept func(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, order storefront.Order) error

	// Logger gets a line when Migrate has made the tables of a new shop, and when the driver has
	// panicked where no call waits for it. If it is nil, it is slog.Default().
	Logger *slog.Logger

	// Timeout is the most time that a call of a method of storefront.Store, or a
	// transaction of another method, may take, including the wait for a connection
	// and all retries. After it, calls fail with storefront.ErrUnavailable. An earlier
	// deadline of ctx ends a call earlier. Timeout should be longer than a fail-over
	// that clients must not notice, but shorter than the 30 seconds after which
	// the service gives up an order. If it is 0, it is 10 seconds. It must not be
	// negative.
	Timeout time.Duration

	// MaxCalls is how many calls of ListUsers, GetProduct and ListWidgets may be in
	// progress at once, and how many of CreateOrder. Calls that find no connection in the
	// pool, of which orders use half, wait for one; calls beyond MaxCalls return
	// storefront.ErrUnavailable at once, so that under overload a call waits for
	// at most about MaxCalls others. Calls of CreateOrder that wait for another one with
	// the same key do not count. If it is 0, it is 1000. It must not be negative.
	MaxCalls int
}

// New returns the store in a database whose tables were made by [Store.Migrate].
// It does not use the database yet, and never closes it. If opts is nil, the
// defaults are used; otherwise opts is copied.
//
// New panics if db is nil or an option is negative.
func New(db *sql.DB, opts *Options) *Store {
	if db == nil {
		panic("sqlstore: New with a nil DB")
	}
	s := &Store{db: db, made: time.Now().Add(-1), jitter: randomly}
	s.server.Store(new(string))
	s.reading.question = func(*statements) string { return `SELECT 1` }
	s.ordering.question = func(st *statements) string { return st.write }
	s.ordering.slots = &slots.Slots{Limit: s.ordersAtOnce}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Timeout < 0 || s.opts.MaxCalls < 0 {
		panic("sqlstore: New with a negative option")
	}
	if s.opts.Logger == nil {
		s.opts.Logger = slog.Default()
	}
	if s.opts.Timeout == 0 {
		s.opts.Timeout = 10 * time.Second
	}
	if s.opts.MaxCalls == 0 {
		s.opts.MaxCalls = 1000
	}
	s.Users = Collection{s, "storefront_users"}
	s.Products = Collection{s, "storefront_products"}
	s.Widgets = Collection{s, "storefront_widgets"}
	return s
}

// randomly returns a random duration from least to most.
func randomly(least, most time.Duration) time.Duration { return least + rand.N(most-least+1) }

// ListUsers implements [storefront.Store].
func (s *Store) ListUsers(ctx context.Context, after string, limit int) ([]storefront.Resource, error) {
	return s.read(ctx, limit, func(st *statements) string { return st.users },
		func(id string) bool { return id > after }, []byte(after), limit)
}

// ListWidgets implements [storefront.Store].
func (s *Store) ListWidgets(ctx context.Context, start string, limit int) ([]storefront.Resource, error) {
	return s.read(ctx, limit, func(st *statements) string { return st.widgets },
		func(id string) bool { return id >= start }, []byte(start), limit)
}

// GetProduct implements [storefront.Store].
func (s *Store) GetProduct(ctx context.Context, id string) (storefront.Resource, error) {
	found, err := s.read(ctx, 1, func(st *statements) string { return st.product },
		func(found string) bool { return found == id }, []byte(id))
	switch {
	case err != nil:
		return storefront.Resource{}, err
	case len(found) == 0:
		return storefront.Resource{}, storefront.ErrNotFound
	}
	return found[0], nil
}

// read runs a query whose rows are IDs and bodies, at most n, and returns the resources. Each ID is one
// that was asked for.
func (s *Store) read(ctx context.Context, n int, query func(*statements) string, asked func(id string) bool,
	args ...any) ([]storefront.Resource, error) {
	if n <= 0 {
		return nil, ctx.Err()
	}
	s.stats.calls.Add(1)
	defer s.stats.calls.Add(-1)
	c, err := s.begin(ctx, time.Now().Add(s.opts.Timeout), &s.reading)
	if err != nil {
		return nil, err
	}
	defer c.end()
	for {
		list, err := s.readOnce(c.ctx, c.watch, n, query, asked, args)
		if err == nil {
			return list, nil
		}
		if err = c.next(err); err != nil {
			return nil, err
		}
	}
}

func (s *Store) readOnce(ctx context.Context, w *watch, n int, query func(*statements) string,
	asked func(id string) bool, args []any) (list []storefront.Resource, err error) {
	ctx, c, err := s.session(ctx, w)
	if err != nil {
		return nil, err
	}
	defer func() { err = c.close(err) }()
	rows, err := c.query(ctx, query(c.database.sql()), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list, err = resources(rows, n)
	if slices.ContainsFunc(list, func(r storefront.Resource) bool { return !asked(r.ID()) }) {
		return nil, errOfAnother
	}
	return list, err
}

func resources(rows *sql.Rows, n int) ([]storefront.Resource, error) {
	list := make([]storefront.Resource, 0, min(n, 512))
	var id, body sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&id, &body); err != nil {
			return nil, err
		}
		var r storefront.Resource
		if err := r.UnmarshalJSON(body); err != nil {
			return nil, fmt.Errorf("sqlstore: the body of the row with the ID %q: %w", id, err)
		}
		// A client that walks a list by wrong IDs would miss items, or never end.
		if r.ID() != string(id) {
			return nil, fmt.Errorf("sqlstore: the body of the row with the ID %q has the ID %q", id, r.ID())
		}
		list = append(list, r)
	}
	return list, rows.Err()
}
