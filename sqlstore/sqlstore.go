package sqlstore

import (
	"context"
	"database/sql"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/slots"
	"example.com/storefront/internal/watchdog"
)

// A Store is a [storefront.Store] in a SQL database. Make one with [New]. Its
// methods may be called concurrently.
type Store struct {
	Users, Products, Widgets Collection

	db         *sql.DB
	opts       Options
	database   atomic.Pointer[database] // nil until a connection was asked for it
	server     atomic.Pointer[string]   // the name of the server that answered last; "": not known
	flights    flights
	made       time.Time
	reading    watchdog.Health
	ordering   watchdog.Health
	slots      slots.Slots             // the connections that orders may use at once
	checked    atomic.Pointer[checked] // nil: the next Check writes
	versioned  atomic.Bool             // Check has read the version of the tables
	looked     looked
	indexDue   atomic.Int64                 // when a list of orders looks for its index again
	inspectDue atomic.Int64                 // when the store inspects its tables again, as now returns it
	flaw       atomic.Pointer[error]        // what the last inspection has found wrong with them; nil: nothing
	last       atomic.Pointer[acknowledged] // the last order that the store has created
	stats      counters
	times      times
}

// Options are the options of a [Store]. The zero value of each field is a documented default.
type Options struct {
	// Accept, if it is not nil, is called for an order that is about to be created, in the transaction that
	// creates the order, and never for a replay. The rows that Accept writes are there if and only if the
	// order is: stock that is taken, an event for an outbox, a row in a table of the program's. If Accept
	// returns an error, none of its rows is there and CreateOrder returns that error; if the error matches
	// *storefront.Refusal, the service refuses the order.
	//
	// Accept may run more than once for an order: the store retries the whole transaction after serialization
	// failures, deadlocks, lost connections and the like, also when Accept returns the error of such a
	// failure. Only the work in tx is undone then. Accept returns the errors of its statements: after one
	// that failed, PostgreSQL refuses all others. Accept closes its rows before its next statement (or
	// drivers say that the connection is bad or busy), does not end tx, by a method or by SQL, and makes no
	// savepoint with the name storefront_order. If tx cannot go on after it, CreateOrder returns an error
	// that says so, but whatever Accept has committed stays. Accept uses the database through tx alone and
	// calls no method of the Store: with all connections in use, or in SQLite, it would wait for itself. ctx
	// has the values of CreateOrder's ctx until CreateOrder returns, and is done when the call's time is up.
	// tx must not be used after Accept has returned.
	//
	// If tx is still usable, errors from elsewhere are final, such as those of another database
	// (url.Error, driver.ErrBadConn) or of a deadline that Accept has set: the order is not
	// created, and CreateOrder returns the error. But the store treats an error with the code
	// of a conflict, a time limit or a read-only server as raised by tx.
	//
	// In SQLite, Accept should be quick: there is one writer at a time, so that all other orders wait. If
	// several orders share the commit there, the ctx of Accept is not done when CreateOrder's ctx is
	// cancelled. But it is done when the commit takes long, at present a quarter of Timeout, or half of the
	// time that another of its orders had left; Accept is then called again, in a commit of its own.
	Accept func(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, order storefront.Order) error

	// OrderLists says that OrderReader is used: Migrate makes an index of the orders of each scope.
	OrderLists bool

	// Logger gets a line when Migrate has made the tables of a new shop, when the database has lost an
	// order (see Store.Check), and when the driver has panicked where no call waits for it. If it is nil, it
	// is slog.Default().
	Logger *slog.Logger

	// Timeout is the most time that a call of a method of storefront.Store, or a transaction of another
	// method, may take, including the wait for a connection and all retries. After it, calls fail with
	// storefront.ErrUnavailable. An earlier deadline of ctx ends a call earlier. Timeout should be longer
	// than a fail-over that clients must not notice, but shorter than the 30 seconds after which the service
	// gives up an order. If it is 0, it is 10 seconds. It must not be negative.
	Timeout time.Duration

	// MaxCalls is how many calls of ListUsers, GetProduct and ListWidgets may be in progress at once, and how
	// many of CreateOrder. Calls that find no connection in the pool, of which orders use half, wait for one;
	// calls beyond MaxCalls return storefront.ErrUnavailable at once, so that under overload a call waits for
	// at most about MaxCalls others. Calls of CreateOrder that wait for another one with the same key do not
	// count. If it is 0, it is 1000. It must not be negative.
	MaxCalls int
}

// New returns the store in a database whose tables were made by [Store.Migrate]. It does not use the database
// yet, and never closes it. If opts is nil, the defaults are used; otherwise opts is copied.
//
// New panics if db is nil or an option is negative.
func New(db *sql.DB, opts *Options) *Store {
	if db == nil {
		panic("sqlstore: New with a nil DB")
	}
	s := &Store{db: db, made: time.Now().Add(-1)}
	s.server.Store(new(string))
	s.flights.IsFinal = result.hasOrder
	s.slots.Limit = s.ordersAtOnce
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
	s.times = timesOf(s.opts.Timeout)
	s.watches(&s.reading, func(*statements) string { return `SELECT 1` })
	s.watches(&s.ordering, func(st *statements) string { return st.write })
	s.Users = Collection{s, "storefront_users"}
	s.Products = Collection{s, "storefront_products"}
	s.Widgets = Collection{s, "storefront_widgets"}
	return s
}

// randomly returns a random duration from least to most.
func randomly(least, most time.Duration) time.Duration { return least + rand.N(most-least+1) }
