package sqlstore_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
)

// An engine is a kind of database.
type engine int

const (
	postgres engine = iota
	sqlite
	mysql
)

var engines = []engine{postgres, sqlite, mysql}

func (e engine) String() string { return [...]string{"PostgreSQL", "SQLite", "MySQL"}[e] }

// onEach runs a test in a bubble on each engine.
func onEach(t *testing.T, test func(*testing.T, engine)) {
	for _, e := range engines {
		inBubble(t, e.String(), func(t *testing.T) { test(t, e) })
	}
}

// timeout is the Timeout of most stores.
const timeout = 10 * time.Second

// inBubble runs a subtest in a bubble.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// pause lets time pass, unless ctx is done before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hang waits for a server that does not answer.
func hang(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// A stateError is an error with an SQLSTATE, like those of pgx and lib/pq.
type stateError string

func (e stateError) Error() string    { return "ERROR (SQLSTATE " + string(e) + ")" }
func (e stateError) SQLState() string { return string(e) }

// A serverError is an error like those of pgx, with more of the server's answer.
type serverError struct{ Code, SeverityUnlocalized, Routine string }

func (e *serverError) Error() string    { return "ERROR (SQLSTATE " + e.Code + ")" }
func (e *serverError) SQLState() string { return e.Code }

// A mySQLError is an error like that of go-sql-driver/mysql, whose number is in a field.
type mySQLError struct {
	Number  uint16
	Message string
}

func (e *mySQLError) Error() string { return e.Message }

// number returns an error of MySQL.
func number(n uint16) error { return &mySQLError{n, fmt.Sprintf("Error %d", n)} }

// A sqliteError is the text of an error of SQLite.
type sqliteError string

func (e sqliteError) Error() string { return string(e) }

// Code returns the code behind the text, as that of modernc.org/sqlite, or 1.
func (e sqliteError) Code() int {
	if code := coded.FindStringSubmatch(string(e)); code != nil {
		n, _ := strconv.Atoi(code[1])
		return n
	}
	return 1
}

var coded = regexp.MustCompile(`\((\d+)\)`)

const errBusy = sqliteError("database is locked (5) (SQLITE_BUSY)")

var (
	errChecked     = number(4025)
	errInvalidConn = errors.New("invalid connection") // of go-sql-driver/mysql

	errNoAnswer = errors.New("there is no answer")
	errPassOn   = errors.New("the server is to answer")
)

// A fate is what happens to a statement.
type fate int

const (
	answered   fate = iota
	lost            // executed, and the connection breaks before the answer
	unsent          // not executed, as the connection breaks before
	hung            // executed, and never answered
	stuck           // neither executed nor answered
	refused         // not executed, with an error that may pass
	aborted         // the same, and its whole transaction is undone
	rolledBack      // not committed, with an error that may pass
	demoted         // the server is no longer the primary, and says so
)

func (f fate) String() string {
	return [...]string{"answered", "lost", "unsent", "hung", "stuck", "refused", "aborted", "rolled back", "demoted"}[f]
}

// A fakeDB is a driver.Connector.
type fakeDB struct {
	engine engine  // if server is nil, the engine of the server that open makes
	server *server // nil: open makes one

	// connect, if it is not nil, is called for each connection, which fails with its
	// error.
	connect func(ctx context.Context) error

	// before, if it is not nil, is called before each statement of a kind, which fails with
	// its error.
	before func(ctx context.Context, kind string) error

	// run, if it is not nil, answers the statements on the n-th connection, from 0 on, in
	// place of the server. It returns the rows of a query, or as many rows as a statement
	// affects. The server itself answers if run returns errPassOn, and it answers the
	// questions by which the store finds out what it is connected to.
	run func(ctx context.Context, conn int, query string, args []driver.Value) ([][]driver.Value, error)

	// catalog, if it is not nil, returns what the database says of its tables; it says nothing otherwise.
	catalog func() [][]driver.Value

	// names, if it is not nil, has the names of the servers that the connections lead to, in turn.
	names []string

	silent atomic.Int32 // how many of the first connections get no answers
	away   atomic.Bool  // the server says that it is starting up

	asks time.Duration // how long a connection must have been idle for the driver to ask whether the server is there; 0: it never asks

	mu       sync.Mutex
	conns    []*fakeConn
	ran      []string // the statements, without those that the server always answers
	prepared []string // the statements that were prepared
	serving  sync.WaitGroup
}

// newFakeDB returns a connector to a new server.
func newFakeDB(engine engine) *fakeDB { return &fakeDB{engine: engine, server: newServer(engine)} }

// open opens the database in the bubble that the test runs in.
func open(t *testing.T, f *fakeDB) *sql.DB {
	t.Helper()
	if f.server == nil {
		f.server = newServer(f.engine)
	}
	db := sql.OpenDB(f)
	t.Cleanup(func() {
		synctest.Wait()
		if n := db.Stats().InUse; n != 0 {
			t.Errorf("%d connections are still in use", n)
		}
		db.Close()
		f.hangUp()
		f.serving.Wait()
		// database/sql makes such a call wait for the next user of the connection.
		if f.server.misused {
			t.Error("a result was asked for its rows after its connection was given back")
		}
	})
	return db
}

// hangUp hangs up all connections, also those that were never given back.
func (f *fakeDB) hangUp() {
	for _, c := range f.conns {
		c.hangUp()
	}
}

func (f *fakeDB) Driver() driver.Driver { return nil }

func (f *fakeDB) Connect(ctx context.Context) (driver.Conn, error) {
	if f.connect != nil {
		if err := f.connect(ctx); err != nil {
			return nil, err
		}
	}
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &fakeConn{session: f.server.connect(), db: f, n: len(f.conns)}
	f.conns = append(f.conns, c)
	f.serving.Go(c.run)
	return c, nil
}

// A call is a statement on its way.
type call struct {
	kind    string
	query   string
	args    []driver.Value
	fate    fate
	left    chan struct{} // closed when the client no longer waits
	replies chan reply    // has room for two, so that no reply blocks
}

// A reply is the server's answer to a statement.
type reply struct {
	rows     [][]driver.Value
	affected int
	more     bool // another reply follows, and tells whether the statement was committed
	broken   bool // the connection breaks
	err      error
}

var (
	kinds     sync.Map // the kind of each statement, by its text
	qualifier = regexp.MustCompile(`("[^"]*"|\w+)\.(storefront_)`)
	subjected = regexp.MustCompile(`(?:FROM|INTO|UPDATE) storefront_(\w+)`)
)

// kindOf returns a word for what a statement does, or "" if the statement is unknown. It goes
// by the verb and the table alone.
func kindOf(query string) string {
	if kind, ok := kinds.Load(query); ok {
		return kind.(string)
	}
	text := qualifier.ReplaceAllString(strings.Join(strings.Fields(query), " "), "$2")
	text = strings.Replace(text, "/*vt+ CONSOLIDATOR=disabled */ ", "", 1)
	known := [][2]string{
		{"SELECT version()", "VERSION"},
		{"SELECT @@sql_select_limit, ", "LIMIT"},
		{"SHOW VARIABLES ", "VARIABLES"},
		{"SHOW STATUS ", "VARIABLES"},
		{"SHOW REPLICA STATUS", "SOURCE"},
		{"SELECT quote_ident(current_schema())", "SCHEMA"},
		{"PING", "PING"},
		{"SELECT 1", "PROBE"},
		{"SELECT pg_logical_emit_message(", "EMIT"},
		{"SELECT decode(", "BYTES"},
		{"SELECT coalesce(bool_and(has_function_privilege(", "EMITS"},
		{"WITH RECURSIVE c AS (SELECT c.oid", "CATALOG"},
		{"SELECT c.table_name, ", "CATALOG"},
		{"SELECT m.name, ", "CATALOG"},
		{"SELECT (SELECT file FROM pragma_database_list", "PRAGMAS"},
		{"SELECT CAST(pg_postmaster_start_time()", "SERVER"},
		{"SELECT CONCAT(@@hostname, ':', @@port, ', server_id ', @@server_id) FOR UPDATE", "WRITER"},
		{"SELECT CONCAT(@@hostname", "SERVER"},
		{"NOTIFY ", "NOTIFY"},
		{"SELECT concat_ws(' ', pg_postmaster_start_time()", "SERVERS"},
		{"SELECT CONCAT_WS(' ', @@hostname", "SERVERS"},
		{"SELECT CAST(", "CLOCK"},
		{"SELECT TIMESTAMPDIFF(", "CLOCK"},
		{"BEGIN", "BEGIN"},
		{"SAVEPOINT ", "SAVEPOINT"},
		{"RELEASE ", "RELEASE"},
		{"ROLLBACK TO ", "ROLLBACK TO"},
		{"ROLLBACK", "ROLLBACK"},
		{"COMMIT", "COMMIT"},
		{"note ", "NOTE"},
		{"INSERT INTO outbox", "NOTE"}, // of an argument, if it has one
		{"SELECT key_hash FROM storefront_orders ", "TAKEN"},
		{"SELECT id, item, qty, fields, created_ms, scope FROM storefront_orders ", "ORDERS"},
		{"SELECT CASE WHEN i.indisvalid ", "INDEX"},
		{"SELECT 'ready' FROM ", "INDEX"},
		{"CREATE INDEX ", "MAKE INDEX"},
		{"DROP INDEX ", "DROP INDEX"},
		{"SELECT id, CASE ", "DUE KEYS"},
		{"SELECT key_hash, CASE ", "DUE KEYS"},
	}
	if table := subjected.FindStringSubmatch(text); table != nil {
		known = append(known, map[string][][2]string{
			"schema":  {{"SELECT version, COALESCE(", "KEPT"}, {"SELECT", "TABLES"}, {"UPDATE", "FORGOTTEN"}},
			"orders":  {{"INSERT", "INSERT"}, {"SELECT", "REPLAY"}, {"UPDATE", "FORGET"}},
			"replays": {{"INSERT", "SETTLE"}},
		}[table[1]]...)
		if slices.Contains([]string{"users", "products", "widgets"}, table[1]) {
			known = append(known, [][2]string{{"INSERT", "PUT"}, {"DELETE", "DELETE"}, {"SELECT", "READ"}}...)
		}
	}
	kind := ""
	for _, k := range known {
		if strings.HasPrefix(text, k[0]) {
			kind = k[1]
			break
		}
	}
	kinds.Store(query, kind)
	return kind
}

// tableOf returns the table of a statement, such as users.
func tableOf(query string) string {
	return subjected.FindStringSubmatch(qualifier.ReplaceAllString(strings.Join(strings.Fields(query), " "), "$2"))[1]
}

// A fakeConn is the client's end of a connection.
type fakeConn struct {
	*session
	db    *fakeDB
	n     int // the index in db.conns
	dead  bool
	used  time.Time       // when it was last used
	begun context.Context // the ctx of the transaction in progress
	given int             // how often the connection was given back
}

// answer returns what db.run answers, or errPassOn.
func (c *fakeConn) answer(ctx context.Context, query string, args []driver.Value) ([][]driver.Value, error) {
	kind := kindOf(query)
	if kind == "CATALOG" && c.db.catalog != nil {
		return c.db.catalog(), nil
	}
	if (kind == "SERVER" || kind == "WRITER") && c.db.names != nil {
		return [][]driver.Value{{c.db.names[c.n%len(c.db.names)]}}, nil
	}
	switch kind {
	case "VERSION", "LIMIT", "VARIABLES", "SCHEMA", "BYTES", "EMITS", "PRAGMAS", "CATALOG", "SERVER", "WRITER",
		"NOTIFY", "SOURCE":
		return nil, errPassOn
	}
	c.db.mu.Lock()
	c.db.ran = append(c.db.ran, query)
	c.db.mu.Unlock()
	switch {
	case c.n < int(c.db.silent.Load()):
		return nil, hang(ctx, query)
	case c.db.away.Load():
		return nil, stateError("57P03")
	case c.db.before != nil:
		if err := c.db.before(ctx, kindOf(query)); err != nil {
			return nil, err
		}
	}
	if c.db.run == nil {
		return nil, errPassOn
	}
	return c.db.run(ctx, c.n, query, args)
}

// send sends a statement.
func (c *fakeConn) send(ctx context.Context, query string, args []driver.Value) (*call, error) {
	if c.dead {
		return nil, driver.ErrBadConn
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sent := &call{kind: kindOf(query), query: query, args: args, left: make(chan struct{}), replies: make(chan reply, 2)}
	if c.meets != nil {
		sent.fate = c.meets(sent.kind)
	}
	c.used = time.Now()
	c.calls <- sent
	return sent, nil
}

// await waits for the next reply.
func (c *fakeConn) await(ctx context.Context, sent *call) (reply, error) {
	begun := cmp.Or(c.begun, ctx) // when begun is done, database/sql rolls back, and waits for this call
	if c.engine == mysql {
		begun = ctx // the driver of MySQL looks at ctx alone
	}
	select {
	case r := <-sent.replies:
		if r.broken {
			c.hangUp()
		}
		return r, r.err
	case <-ctx.Done():
	case <-begun.Done():
	}
	close(sent.left)
	c.hangUp() // as pgx and go-sql-driver/mysql do; no statement of SQLite hangs
	return reply{}, cmp.Or(ctx.Err(), begun.Err())
}

// hangUp closes the client's end of the connection. A statement under way goes on.
func (c *fakeConn) hangUp() {
	if !c.dead {
		c.dead = true
		close(c.gone)
		close(c.calls)
	}
}

func (c *fakeConn) ExecContext(ctx context.Context, query string, named []driver.NamedValue) (driver.Result, error) {
	args := values(named)
	if rows, err := c.answer(ctx, query, args); err != errPassOn {
		return &fakeResult{c, c.given, len(rows)}, err
	}
	sent, err := c.send(ctx, query, args)
	if err != nil {
		return nil, err
	}
	r := reply{more: true}
	for r.more && err == nil {
		r, err = c.await(ctx, sent)
	}
	return &fakeResult{c, c.given, r.affected}, err
}

func (c *fakeConn) QueryContext(ctx context.Context, query string, named []driver.NamedValue) (driver.Rows, error) {
	args := values(named)
	if rows, err := c.answer(ctx, query, args); err != errPassOn {
		if err != nil && rows == nil {
			return nil, err
		}
		return &fakeRows{reply: reply{rows: rows, err: err}}, nil
	}
	sent, err := c.send(ctx, query, args)
	if err != nil {
		return nil, err
	}
	r, err := c.await(ctx, sent)
	if err != nil {
		return nil, err
	}
	return &fakeRows{ctx, c, sent, r}, nil
}

func values(named []driver.NamedValue) (args []driver.Value) {
	for _, arg := range named {
		args = append(args, arg.Value)
	}
	return args
}

func (c *fakeConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if _, err := c.ExecContext(ctx, "BEGIN", nil); err != nil {
		return nil, err
	}
	c.begun = ctx
	return c, nil
}

// Commit leaves no transaction behind if it fails, though SQLite itself would. In MySQL,
// Commit waits for as long as the server hangs.
func (c *fakeConn) Commit() error {
	ctx := c.begun
	if c.begun = nil; c.engine != postgres {
		ctx = context.WithoutCancel(ctx)
	}
	_, err := c.ExecContext(ctx, "COMMIT", nil)
	if err != nil && c.engine == sqlite {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.abort()
	}
	return err
}

// Rollback waits for as long as the server hangs, in MySQL. In the others it takes no time,
// nor if database/sql itself rolls back, as that holds a mutex meanwhile: in a bubble, time
// stands still while a goroutine waits for a mutex.
func (c *fakeConn) Rollback() error {
	ctx := c.begun
	c.begun = nil
	if c.dead {
		return driver.ErrBadConn
	}
	if c.engine == mysql && ctx.Err() == nil {
		_, err := c.ExecContext(context.WithoutCancel(ctx), "ROLLBACK", nil)
		return err
	}
	if _, err := c.answer(context.WithoutCancel(ctx), "ROLLBACK", nil); err != errPassOn {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.engine == postgres && ctx.Err() != nil {
		c.hangUp()
		return ctx.Err()
	}
	c.abort()
	return nil
}

// ResetSession is called before the pool hands out an idle connection. The driver may ask
// the server whether it is there, as pgx does after a while.
func (c *fakeConn) ResetSession(ctx context.Context) error {
	if !c.dead && c.db.asks != 0 && time.Since(c.used) > c.db.asks {
		if _, err := c.ExecContext(ctx, "PING", nil); err != nil {
			c.hangUp()
		}
	}
	if c.dead {
		return driver.ErrBadConn
	}
	return nil
}

// IsValid is called when the connection is given back.
func (c *fakeConn) IsValid() bool {
	c.given++
	return !c.dead
}

func (c *fakeConn) Close() error {
	c.hangUp()
	return nil
}

func (c *fakeConn) Prepare(query string) (driver.Stmt, error) {
	if c.dead {
		return nil, driver.ErrBadConn
	}
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	c.db.prepared = append(c.db.prepared, query)
	return &fakeStmt{conn: c, query: query}, nil
}

func (c *fakeConn) Begin() (driver.Tx, error) { panic("database/sql does not call it") }

// A fakeStmt is a prepared statement.
type fakeStmt struct {
	driver.Stmt // the methods that database/sql does not call
	conn        *fakeConn
	query       string
}

func (s *fakeStmt) Close() error  { return nil }
func (s *fakeStmt) NumInput() int { return -1 }

func (s *fakeStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.ExecContext(ctx, s.query, args)
}

func (s *fakeStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, s.query, args)
}

// A fakeResult belongs to the user of the connection: database/sql locks the connection
// whenever a result is asked for its rows.
type fakeResult struct {
	conn     *fakeConn
	given    int // how often the connection had been given back
	affected int
}

func (r *fakeResult) LastInsertId() (int64, error) { return 0, errors.ErrUnsupported }

func (r *fakeResult) RowsAffected() (int64, error) {
	if r.given != r.conn.given {
		r.conn.mu.Lock()
		defer r.conn.mu.Unlock()
		r.conn.misused = true
	}
	return int64(r.affected), nil
}

// fakeRows may come before the commit of the statement. Then the error of the commit comes
// after the last row, or from Close.
type fakeRows struct {
	ctx   context.Context
	conn  *fakeConn
	sent  *call
	reply reply
}

func (r *fakeRows) Columns() []string {
	if len(r.reply.rows) == 0 {
		return nil
	}
	return make([]string, len(r.reply.rows[0]))
}

func (r *fakeRows) Next(dest []driver.Value) error {
	if len(r.reply.rows) > 0 {
		copy(dest, r.reply.rows[0])
		r.reply.rows = r.reply.rows[1:]
		return nil
	}
	return cmp.Or(r.Close(), io.EOF)
}

func (r *fakeRows) Close() error {
	if r.reply.more {
		r.reply, r.reply.err = r.conn.await(r.ctx, r.sent)
		r.reply.rows, r.reply.more = nil, false
	}
	return r.reply.err
}

var (
	kettle = storefront.MustResource("kettle", nil)
	order  = storefront.Order{ID: "ord_1", Item: "kettle", Qty: 1, CreatedAt: time.UnixMilli(1_000_000_000_123).UTC()}
	key    = storefront.IdempotencyKey{Scope: "ada", Value: "k", Fingerprint: [32]byte{1}}
)
