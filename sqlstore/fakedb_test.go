package sqlstore_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
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
	errPassOn      = errors.New("the server is to answer")
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
	server *server // nil: open makes one of PostgreSQL

	// All of these may be nil. Each connection, and each statement of a kind, fails with the error of:
	connect func(ctx context.Context) error
	before  func(ctx context.Context, kind string) error

	// run answers the statements on the n-th connection, from 0 on, in place of the server. It returns the rows
	// of a query, or as many rows as a statement affects. The server itself answers if run returns errPassOn,
	// and it answers the questions by which the store finds out what it is connected to.
	run func(ctx context.Context, conn int, query string, args []driver.Value) ([][]driver.Value, error)

	names []string // of the servers that the connections lead to, in turn

	silent atomic.Int32  // how many of the first connections get no answers
	away   atomic.Bool   // the server says that it is starting up
	asks   time.Duration // after how long without use the driver asks whether the server is there; 0: never

	mu      sync.Mutex
	conns   []*fakeConn
	ran     []string // the statements, without those that the server always answers
	serving sync.WaitGroup
}

// newFakeDB returns a connector to a new server.
func newFakeDB(engine engine) *fakeDB { return &fakeDB{server: newServer(engine)} }

// open opens the database in the bubble that the test runs in.
func open(t *testing.T, f *fakeDB) *sql.DB {
	t.Helper()
	if f.server == nil {
		f.server = newServer(postgres)
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
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &fakeConn{server: f.server, db: f, n: len(f.conns), gone: make(chan struct{})}
	f.conns = append(f.conns, c)
	return c, nil
}

var (
	kinds     sync.Map // the kind of each statement, by its text
	qualifier = regexp.MustCompile(`("[^"]*"|\w+)\.(storefront_)`)
	subjected = regexp.MustCompile(`(?:FROM|INTO|UPDATE) storefront_(\w+)`)
)

// known are the kinds of statements by how these begin, but for those of one table. A NOTE is of an argument,
// if it has one.
var known = [][2]string{
	{"BEGIN", "BEGIN"}, {"COMMIT", "COMMIT"}, {"ROLLBACK TO ", "ROLLBACK TO"}, {"ROLLBACK", "ROLLBACK"},
	{"SAVEPOINT ", "SAVEPOINT"}, {"RELEASE ", "RELEASE"}, {"PING", "PING"}, {"NOTIFY ", "NOTIFY"},
	{"note ", "NOTE"}, {"INSERT INTO outbox", "NOTE"}, {"SELECT version()", "VERSION"},
	{"SELECT @@sql_select_limit, ", "LIMIT"}, {"SHOW VARIABLES ", "VARIABLES"},
	{"SHOW STATUS ", "VARIABLES"}, {"SHOW REPLICA STATUS", "SOURCE"}, {"SELECT decode(", "BYTES"},
	{"SELECT quote_ident(current_schema())", "SCHEMA"},
	{"SELECT coalesce(bool_and(has_function_privilege(", "EMITS"},
	{"SELECT (SELECT file FROM pragma_database_list", "PRAGMAS"},
	{"WITH RECURSIVE c AS (SELECT c.oid", "CATALOG"}, {"SELECT c.table_name, ", "CATALOG"},
	{"SELECT m.name, ", "CATALOG"}, {"SELECT pg_logical_emit_message(", "EMIT"},
	{"SELECT CAST(pg_postmaster_start_time()", "SERVER"},
	{"SELECT CONCAT(@@hostname, ':', @@port, ', server_id ', @@server_id) FOR UPDATE", "WRITER"},
	{"SELECT CONCAT(@@hostname", "SERVER"}, {"SELECT concat_ws(' ', pg_postmaster_start_time()", "SERVERS"},
	{"SELECT CONCAT_WS(' ', @@hostname", "SERVERS"}, {"SELECT CAST(", "CLOCK"},
	{"SELECT TIMESTAMPDIFF(", "CLOCK"}, {"SELECT key_hash FROM storefront_orders ", "TAKEN"},
	{"SELECT id, CASE ", "DUE KEYS"}, {"SELECT key_hash, CASE ", "DUE KEYS"},
	{"SELECT CASE WHEN i.indisvalid ", "INDEX"}, {"SELECT 'ready' FROM ", "INDEX"},
	{"SELECT id FROM storefront_orders WHERE key_hash = ", "LAST"},
	{"SELECT id, item, qty, fields, created_ms, scope, key_hash FROM storefront_orders ", "ORDERS"},
	{"CREATE INDEX ", "MAKE INDEX"}, {"DROP INDEX ", "DROP INDEX"}, {"SELECT 1", "PROBE"},
}

// ofTables are the kinds of statements by their table and verb. The other tables have resources.
var ofTables = map[string]string{
	"schema SELECT": "TABLES", "schema UPDATE": "FORGOTTEN", "orders INSERT": "INSERT",
	"orders SELECT": "REPLAY", "orders UPDATE": "FORGET", "replays INSERT": "SETTLE", "users INSERT": "PUT",
	"users DELETE": "DELETE", "users SELECT": "READ", "products SELECT": "READ", "widgets SELECT": "READ",
}

// kindOf returns a word for what a statement does, or "" if the statement is unknown. It goes
// by the verb and the table alone.
func kindOf(query string) string {
	if kind, ok := kinds.Load(query); ok {
		return kind.(string)
	}
	text := qualifier.ReplaceAllString(strings.Join(strings.Fields(query), " "), "$2")
	text = strings.Replace(text, "/*vt+ CONSOLIDATOR=disabled */ ", "", 1)
	kind := ""
	for _, k := range known {
		if kind == "" && strings.HasPrefix(text, k[0]) {
			kind = k[1]
		}
	}
	if table := subjected.FindStringSubmatch(text); kind == "" && table != nil {
		verb, _, _ := strings.Cut(text, " ")
		kind = ofTables[table[1]+" "+verb]
		if strings.HasPrefix(text, "SELECT version, COALESCE(") {
			kind = "KEPT"
		}
	}
	kinds.Store(query, kind)
	return kind
}

// A server is a database in memory. Nothing fails or takes time but what a test says.
type server struct {
	engine    engine
	variables map[string]string      // of MySQL
	says      map[string]any         // by the kind of a statement, its answer: a value, a row, rows or an error
	took      time.Duration          // how long a statement takes
	let       chan struct{}          // if it is not nil, each commit of orders receives once from it
	meets     func(kind string) fate // if it is not nil, decides the fate of a statement of a kind

	mu      sync.Mutex // never held while time passes
	orders  []*orderRow
	notes   map[any]int // how often each was noted
	locks   map[string]*tx
	early   bool       // the next statement of its own is answered before its commit
	commits [][]string // the items of the orders of each commit that has begun
}

type orderRow struct {
	id, item, fields, scope, hash string
	qty, ms                       int64
	fingerprint                   [32]byte
}

// A change is an order, or what was noted, or neither: a row that no test looks at.
type change struct {
	order *orderRow
	note  any
}

func newServer(engine engine) *server {
	s := &server{
		engine: engine, locks: make(map[string]*tx), notes: make(map[any]int),
		variables: map[string]string{
			"autocommit": "ON", "wsrep_provider_name": "", // as in MariaDB without Galera
		},
	}
	s.says = map[string]any{
		"VERSION": [...]any{
			"PostgreSQL 15.4 on x86_64-pc-linux-gnu", sqliteError("SQL logic error: no such function: version (1)"), "10.11.6-MariaDB",
		}[engine],
		"LIMIT":   []driver.Value{"18446744073709551615", int64(0)},
		"SCHEMA":  []driver.Value{"public", "UTF8", "UTF8", "origin"},
		"CATALOG": s.error("42501", "not authorized (23)", 1142), // for a role that may not know
		"PRAGMAS": []driver.Value{"shop.db", "wal", int64(0), int64(0)},
		"BYTES":   []byte(`\`),
		"EMITS":   true,
		"KEPT":    []driver.Value{int64(1), int64(0), int64(0)},
		"TABLES":  []driver.Value{int64(1), int64(1)}, // their version, and the oldest that may use them
		"SERVER":  "the server", "SERVERS": "the server", "WRITER": "the server",
	}
	// No key is due.
	for _, kind := range []string{"SOURCE", "READ", "PING", "PROBE", "NOTIFY", "DUE KEYS", "FORGET", "FORGOTTEN"} {
		s.says[kind] = [][]driver.Value{}
	}
	return s
}

// addOrder adds an order.
func (s *server) addOrder(key storefront.IdempotencyKey, o storefront.Order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders = append(s.orders, &orderRow{o.ID, o.Item, string(o.Fields), key.Scope, keyHash(key), o.Qty,
		o.CreatedAt.UnixMilli(), key.Fingerprint})
}

// order returns the order that has a key or, if hash is "", an ID; or nil.
func (s *server) order(hash, id string) *orderRow {
	for _, o := range s.orders {
		if hash != "" && o.hash == hash || hash == "" && o.id == id {
			return o
		}
	}
	return nil
}

// A row is one of an answer.
type row = []driver.Value

// rowOf returns the row of an order, as an OrderReader asks for it.
func rowOf(o storefront.Order, scope, key string) row {
	hash := keyHash(storefront.IdempotencyKey{Scope: scope, Value: key})
	return row{o.ID, o.Item, o.Qty, string(o.Fields), o.CreatedAt.UnixMilli(), []byte(scope), []byte(hash)}
}

// addResource makes r the resource that each read finds.
func (s *server) addResource(r storefront.Resource) {
	s.says["READ"] = []driver.Value{[]byte(r.ID()), r.String()}
}

// keyHash returns the value of the column key_hash, as the package's documentation has it.
func keyHash(key storefront.IdempotencyKey) string {
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, uint64(len(key.Scope))), key.Scope+key.Value...))
	return string(sum[:])
}

// error returns the one of three errors that fits the engine.
func (s *server) error(state stateError, text sqliteError, n uint16) error {
	return [...]error{postgres: state, sqlite: text, mysql: number(n)}[s.engine]
}

// errRejected returns the error of a constraint that rejects an order.
func (s *server) errRejected() error {
	return [...]error{postgres: stateError("23514"), sqlite: sqliteError("CHECK constraint failed: item (275)"), mysql: errChecked}[s.engine]
}

// A tx is a transaction in progress. It keeps its locks until it ends. If it has written
// nothing, its commit takes no time.
type tx struct {
	server  *server
	changes []change
	marks   []int // its savepoints: the number of changes before each
	failed  bool  // in PostgreSQL, it can only be rolled back
	ended   chan struct{}
}

func newTx(s *server) *tx { return &tx{server: s, ended: make(chan struct{})} }

// end ends the transaction, and releases its locks.
func (t *tx) end() {
	select {
	case <-t.ended:
		return
	default:
	}
	maps.DeleteFunc(t.server.locks, func(_ string, holder *tx) bool { return holder == t })
	close(t.ended)
}

// A fakeConn is a connection.
type fakeConn struct {
	*server
	db    *fakeDB
	n     int // the index in db.conns
	dead  bool
	used  time.Time       // when it was last used
	begun context.Context // the ctx of the transaction in progress

	detects bool // what the server is: a question for the version of the tables is a part of that

	// The server's end:
	tx        *tx
	readOnly  error         // the error of all writes
	gone      chan struct{} // closed when the client has left
	statement sync.WaitGroup
}

// answer returns what db.run answers, or errPassOn.
func (c *fakeConn) answer(ctx context.Context, query string, args []driver.Value) ([][]driver.Value, error) {
	kind := kindOf(query)
	if (kind == "SERVER" || kind == "WRITER") && c.db.names != nil {
		return [][]driver.Value{{c.db.names[c.n%len(c.db.names)]}}, nil
	}
	switch kind {
	case "VERSION", "LIMIT", "VARIABLES", "SCHEMA", "BYTES", "EMITS", "PRAGMAS", "CATALOG", "SERVER", "WRITER",
		"NOTIFY", "SOURCE":
		c.detects = c.detects || kind == "VERSION"
		return nil, errPassOn
	}
	detects := c.detects && kind == "TABLES"
	c.detects = false
	if detects || kind == "LAST" && c.db.run == nil { // otherwise the server does not know it
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

// A call is a statement on its way.
type call struct {
	kind, query string
	args        []driver.Value
	fate        fate
	left        chan struct{} // closed when the client no longer waits
}

// A reply is the server's answer to a statement.
type reply struct {
	rows     [][]driver.Value
	affected int
	err      error
}

var (
	errBroken = errors.New("the connection breaks")
	errSilent = errors.New("there is no answer")
)

// do runs a statement, which goes on when the client no longer waits for it.
func (c *fakeConn) do(ctx context.Context, query string, named []driver.NamedValue) (reply, error) {
	sent := &call{kind: kindOf(query), query: query, left: make(chan struct{})}
	for _, arg := range named {
		sent.args = append(sent.args, arg.Value)
	}
	if rows, err := c.answer(ctx, query, sent.args); err != errPassOn {
		return reply{rows: rows, affected: len(rows)}, err
	}
	if c.dead {
		return reply{}, driver.ErrBadConn
	}
	if err := ctx.Err(); err != nil {
		return reply{}, err
	}
	if c.meets != nil {
		sent.fate = c.meets(sent.kind)
	}
	c.used = time.Now()
	replies := make(chan reply, 1)
	c.statement.Go(func() { replies <- c.serve(sent) })
	begun := cmp.Or(c.begun, ctx) // when begun is done, database/sql rolls back, and waits for this call
	if c.engine == mysql {
		begun = ctx // the driver of MySQL looks at ctx alone
	}
	select {
	case r := <-replies:
		if r.err == errBroken {
			c.hangUp()
			if r.err = io.ErrUnexpectedEOF; c.engine == mysql {
				r.err = errInvalidConn
			}
		}
		return r, r.err
	case <-ctx.Done():
	case <-begun.Done():
	}
	close(sent.left)
	c.hangUp() // as pgx and go-sql-driver/mysql do; no statement of SQLite hangs
	return reply{}, cmp.Or(ctx.Err(), begun.Err())
}

// hangUp closes the connection. A statement under way goes on, and then the server rolls back the
// transaction that is left behind.
func (c *fakeConn) hangUp() {
	if c.dead {
		return
	}
	c.dead = true
	close(c.gone)
	c.db.serving.Go(func() {
		c.statement.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.abort()
	})
}

func (c *fakeConn) abort() {
	if c.tx != nil {
		c.tx.end()
		c.tx = nil
	}
}

// pass lets time pass until the client has gone. It unlocks the server meanwhile.
func (c *fakeConn) pass(d time.Duration) {
	if d <= 0 {
		return
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-time.After(d):
	case <-c.gone:
	}
}

// serve lets a statement travel, executes it, and lets the answer travel, if there is one.
func (c *fakeConn) serve(sent *call) reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pass(c.took / 2)
	r := c.process(sent)
	if r.err == errSilent {
		if sent.fate == hung || sent.fate == stuck {
			c.pass(time.Minute)
		}
		r.err = errBroken
	}
	c.pass(c.took / 2)
	return r
}

func (c *fakeConn) process(sent *call) (r reply) {
	switch {
	case c.tx != nil && c.tx.failed && sent.kind != "ROLLBACK TO" && sent.kind != "ROLLBACK":
		return reply{err: stateError("25P02")}
	case sent.fate == stuck:
		return reply{err: errSilent}
	case sent.fate == unsent:
		return reply{err: errBroken}
	case sent.fate == refused, sent.fate == aborted:
		return reply{err: c.refuse(sent)}
	case sent.fate == demoted:
		c.readOnly = c.error("25006", "", 1290)
	}
	t, alone := c.tx, c.tx == nil
	if alone {
		t = newTx(c.server)
	}
	before := len(t.changes)
	r.rows, r.affected, r.err = c.execute(t, sent)
	switch {
	case r.err == errSilent:
	case r.err != nil:
		t.changes, t.failed = t.changes[:before], c.engine == postgres
		if alone {
			t.end()
		}
	case alone && c.tx == nil: // it is no BEGIN
		r.err = c.commit(t, sent)
		c.early = !c.early
	}
	switch sent.fate {
	case hung:
		r.err = errSilent
	case lost:
		r.err = errBroken
	}
	// The server may send the rows before the commit.
	if r.err != nil && !(alone && c.early && c.engine != sqlite) {
		r.rows = nil
	}
	return r
}

// refuse ends a statement with an error that may pass, and its transaction where the engine does that.
func (c *fakeConn) refuse(sent *call) error {
	full := c.tx != nil && sent.fate == aborted // the disk of SQLite
	switch {
	case c.tx == nil:
	case c.engine == mysql && sent.kind != "ROLLBACK", c.engine == postgres && sent.kind == "COMMIT",
		c.engine == sqlite && full:
		c.abort()
	case c.engine == postgres:
		c.tx.failed = true
	}
	if full {
		return c.error("40001", "database or disk is full (13)", 1213)
	}
	return c.error("55P03", errBusy, 1020)
}

// execute executes a statement in t.
func (c *fakeConn) execute(t *tx, sent *call) (rows [][]driver.Value, affected int, err error) {
	if value, ok := c.says[sent.kind]; ok {
		switch value := value.(type) {
		case error:
			return nil, 0, value
		case [][]driver.Value:
			return value, 0, nil
		case []driver.Value:
			return [][]driver.Value{value}, 0, nil
		}
		return [][]driver.Value{{value}}, 0, nil
	}
	switch sent.kind {
	case "VARIABLES":
		for _, name := range slices.Sorted(maps.Keys(c.variables)) {
			if strings.Contains(sent.query, "'"+name+"'") || strings.HasPrefix(name, "rpl_") {
				rows = append(rows, []driver.Value{name, c.variables[name]})
			}
		}
	case "CLOCK":
		return [][]driver.Value{{time.Now().UnixMilli()}}, 0, nil
	case "NOTE":
		if len(sent.args) > 0 {
			t.changes = append(t.changes, change{note: sent.args[0]})
		}
	case "BEGIN":
		c.tx = newTx(c.server)
	case "SAVEPOINT":
		if c.tx == nil && c.engine == postgres {
			return nil, 0, stateError("25P01")
		}
		t.marks = append(t.marks, len(t.changes))
	case "RELEASE", "ROLLBACK TO":
		i := len(t.marks) - 1
		switch {
		case i < 0:
			return nil, 0, c.error("3B001", "no such savepoint: storefront", 1305)
		case sent.kind == "ROLLBACK TO":
			t.changes, t.failed = t.changes[:t.marks[i]], false
		default:
			t.marks = t.marks[:i]
		}
	case "COMMIT":
		c.tx = nil
		return nil, 0, c.commit(t, sent)
	case "ROLLBACK":
		c.abort()
	case "INSERT":
		return c.insert(t, sent)
	case "REPLAY":
		row := c.order(string(sent.args[0].([]byte)), "")
		if row != nil && c.engine == postgres {
			if err = c.readOnly; err == nil {
				t.changes = append(t.changes, change{}) // a record in the log, or a lock
			}
		}
		if row != nil && err == nil {
			rows = append(rows, []driver.Value{row.id, row.item, row.qty, row.fields, row.ms,
				row.fingerprint[:], []byte(row.hash)})
		}
	case "LAST":
		if row := c.order(string(sent.args[0].([]byte)), ""); row != nil {
			rows = [][]driver.Value{{row.id}}
		}
	case "TAKEN":
		for _, hash := range sent.args {
			if c.order(string(hash.([]byte)), "") != nil {
				rows = append(rows, []driver.Value{hash})
			}
		}
	case "EMIT", "PUT", "DELETE", "SETTLE": // a record in the log, or rows
		if err = c.readOnly; err == nil && sent.kind != "EMIT" {
			err = c.write(t, fmt.Sprint(sent.kind, sent.args[:min(1, len(sent.args))]))
		}
		if err == nil {
			t.changes = append(t.changes, change{})
			rows, affected = [][]driver.Value{{"0/1"}}, 1
		}
	default:
		err = c.error("42601", sqliteError("syntax error in "+sent.query), 1064)
	}
	return rows, affected, err
}

// write takes a lock for t, before it writes.
func (c *fakeConn) write(t *tx, lock string) error {
	if c.readOnly != nil {
		return c.readOnly
	}
	var patience <-chan time.Time
	switch c.engine {
	case sqlite:
		lock, patience = "database", time.After(100*time.Millisecond) // busy_timeout
	case mysql:
		patience = time.After(50 * time.Second) // innodb_lock_wait_timeout
	}
	for c.locks[lock] != nil && c.locks[lock] != t {
		ended := c.locks[lock].ended
		c.mu.Unlock()
		select {
		case <-ended:
			c.mu.Lock()
		case <-patience:
			c.mu.Lock()
			return c.error("55P03", errBusy, 1205)
		}
	}
	c.locks[lock] = t
	return nil
}

// insert inserts orders, except those whose key is taken. In MySQL, it fails if a key is.
func (c *fakeConn) insert(t *tx, sent *call) (rows [][]driver.Value, affected int, err error) {
	for row := range slices.Chunk(sent.args, 8) {
		o := &orderRow{row[0].(string), row[1].(string), row[7].(string), string(row[4].([]byte)),
			string(row[5].([]byte)), row[2].(int64), row[3].(int64), [32]byte(row[6].([]byte))}
		if o.item == "rejected" {
			return nil, 0, c.errRejected()
		}
		known := false
		for _, lock := range []string{"key " + o.hash, "id " + o.id} {
			if err := c.write(t, lock); err != nil {
				return nil, 0, err
			}
			known = known || c.order(o.hash, "") != nil
			if !known && c.order("", o.id) != nil || known && c.engine == mysql {
				return nil, 0, c.error("23505", "UNIQUE constraint failed: storefront_orders.id (1555)", 1062)
			}
		}
		if known {
			continue
		}
		t.changes = append(t.changes, change{order: o})
		affected++
		if strings.Contains(sent.query, " RETURNING ") {
			rows = append(rows, []driver.Value{[]byte(o.hash)})
		}
	}
	return rows, affected, nil
}

// commit commits t. A commit of orders waits as let says.
func (c *fakeConn) commit(t *tx, sent *call) error {
	defer t.end()
	if len(t.changes) == 0 {
		return nil
	}
	switch {
	case sent.fate == rolledBack:
		return c.error("40001", errBusy, 1180)
	case c.engine == mysql && c.readOnly != nil:
		return c.readOnly
	}
	var items []string
	for _, change := range t.changes {
		if change.order != nil {
			items = append(items, change.order.item)
		}
	}
	if len(items) > 0 {
		c.commits = append(c.commits, items)
		if !c.isLet(sent) {
			return errSilent
		}
	}
	for _, change := range t.changes {
		if change.order != nil {
			c.orders = append(c.orders, change.order)
		}
		if change.note != nil {
			c.notes[change.note]++
		}
	}
	return nil
}

// isLet waits for let, and reports whether it came before the client left.
func (c *fakeConn) isLet(sent *call) bool {
	if c.let == nil {
		return true
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-c.let:
		return true
	case <-sent.left:
		return false
	}
}

func (c *fakeConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	r, err := c.do(ctx, query, args)
	return driver.RowsAffected(r.affected), err
}

func (c *fakeConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	r, err := c.do(ctx, query, args)
	if err != nil && r.rows == nil {
		return nil, err
	}
	return &fakeRows{r.rows, err}, nil
}

func (c *fakeConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if _, err := c.do(ctx, "BEGIN", nil); err != nil {
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
	_, err := c.do(ctx, "COMMIT", nil)
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
		_, err := c.do(context.WithoutCancel(ctx), "ROLLBACK", nil)
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
func (c *fakeConn) IsValid() bool { return !c.dead }

func (c *fakeConn) Close() error {
	c.hangUp()
	return nil
}

func (c *fakeConn) Prepare(query string) (driver.Stmt, error) {
	if c.dead {
		return nil, driver.ErrBadConn
	}
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

// fakeRows may come before the commit of the statement: its error, err, comes after the last row.
type fakeRows struct {
	rows [][]driver.Value
	err  error
}

func (r *fakeRows) Columns() []string {
	if len(r.rows) == 0 {
		return nil
	}
	return make([]string, len(r.rows[0]))
}

func (r *fakeRows) Next(dest []driver.Value) error {
	if len(r.rows) == 0 {
		return cmp.Or(r.err, io.EOF)
	}
	copy(dest, r.rows[0])
	r.rows = r.rows[1:]
	return nil
}

func (r *fakeRows) Close() error { return r.err }

var (
	kettle = storefront.MustResource("kettle", nil)
	order  = storefront.Order{ID: "ord_1", Item: "kettle", Qty: 1, CreatedAt: time.UnixMilli(1_000_000_000_123).UTC()}
	key    = storefront.IdempotencyKey{Scope: "ada", Value: "k", Fingerprint: [32]byte{1}}
)
