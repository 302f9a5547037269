package sqlstore_test

import (
	"bytes"
	"crypto/sha256"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/storefront"
)

// A server is a database in memory. Nothing fails or takes time but what a test says.
type server struct {
	engine    engine
	variables map[string]string      // of MySQL
	says      map[string]any         // by the kind of a statement, its answer: a value, a row, rows or an error
	took      time.Duration          // how long a statement takes
	let       chan struct{}          // if it is not nil, each commit of orders receives once from it
	meets     func(kind string) fate // if it is not nil, decides the fate of a statement of a kind

	mu      sync.Mutex // never held while time passes
	state   tables
	locks   map[string]*tx
	early   bool       // the next statement of its own is answered before its commit
	commits [][]string // the items of the orders of each commit that has begun
	misused bool       // a result was asked for its rows after its connection was given back
}

// tables have the rows that are committed.
type tables struct {
	orders    map[string]*orderRow // by ID
	keys      map[string]*orderRow // by key_hash
	resources map[string]string    // the bodies, by the table, a slash and the ID
	notes     map[any]int          // how often each was noted
}

type orderRow struct {
	id, item, fields, scope, hash string
	qty, ms                       int64
	fingerprint                   [32]byte
}

// A change changes one row. One of its fields is set, or resource and body, or none: a row that no
// test looks at.
type change struct {
	order    *orderRow
	note     any    // what was noted
	resource string // the table, a slash and the ID
	body     string // of the resource, or "" if it is deleted
}

func newServer(engine engine) *server {
	s := &server{
		engine: engine, locks: make(map[string]*tx),
		state: tables{make(map[string]*orderRow), make(map[string]*orderRow), make(map[string]string), make(map[any]int)},
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
		"PROBE":   int64(1),
		"SOURCE":  [][]driver.Value{},
		"KEPT":    []driver.Value{int64(1), int64(0), int64(0)},
		"TABLES":  []driver.Value{int64(1), int64(1)}, // their version, and the oldest that may use them
	}
	return s
}

// addOrder adds an order.
func (s *server) addOrder(key storefront.IdempotencyKey, o storefront.Order) {
	s.happen(change{order: &orderRow{o.ID, o.Item, string(o.Fields), key.Scope, keyHash(key), o.Qty, o.CreatedAt.UnixMilli(),
		key.Fingerprint}})
}

// addResource adds a resource to all collections.
func (s *server) addResource(r storefront.Resource) {
	for _, table := range []string{"users", "products", "widgets"} {
		s.happen(change{resource: table + "/" + r.ID(), body: r.String()})
	}
}

func (s *server) happen(c change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply([]change{c})
}

// begun returns the items of the orders of each commit that has begun.
func (s *server) begun() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.commits)
}

// mostShared returns how many orders the largest commit had.
func (s *server) mostShared() (most int) {
	for _, items := range s.commits {
		most = max(most, len(items))
	}
	return most
}

// keyHash returns the value of the column key_hash, as the package's documentation has it.
func keyHash(key storefront.IdempotencyKey) string {
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, uint64(len(key.Scope))), key.Scope+key.Value...))
	return string(sum[:])
}

func (s *server) apply(changes []change) {
	for _, c := range changes {
		switch {
		case c.order != nil:
			s.state.orders[c.order.id], s.state.keys[c.order.hash] = c.order, c.order
		case c.note != nil:
			s.state.notes[c.note]++
		case c.body != "":
			s.state.resources[c.resource] = c.body
		default:
			delete(s.state.resources, c.resource)
		}
	}
}

// endAll ends all transactions, as a server does that falls.
func (s *server) endAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, holder := range s.locks {
		holder.end()
	}
}

// error returns the one of three errors that fits the engine.
func (s *server) error(state stateError, text sqliteError, n uint16) error {
	return [...]error{postgres: state, sqlite: text, mysql: number(n)}[s.engine]
}

// A tx is a transaction in progress. It keeps its locks until it ends. If it has written
// nothing, its commit takes no time.
type tx struct {
	server  *server
	changes []change
	marks   []mark // its savepoints
	failed  bool   // in PostgreSQL, it can only be rolled back
	ended   chan struct{}
}

// A mark is a savepoint: its name and the number of changes before it.
type mark struct {
	name    string
	changes int
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

// A session is the server's end of a connection.
type session struct {
	*server
	tx       *tx
	readOnly error         // the error of all writes
	calls    chan *call    // the client's statements, until it leaves
	gone     chan struct{} // closed when the client has left
}

func (s *server) connect() *session {
	return &session{server: s, calls: make(chan *call, 1), gone: make(chan struct{})}
}

// run serves the client until it has gone, and rolls back the transaction that it has left behind.
func (s *session) run() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		s.mu.Unlock()
		c, ok := <-s.calls
		s.mu.Lock()
		if !ok {
			break
		}
		r := s.process(c)
		if r.err == errNoAnswer {
			if c.fate == hung || c.fate == stuck {
				s.pass(time.Minute)
			}
			r = s.broken()
		}
		c.replies <- r
	}
	s.abort()
}

// pass lets time pass until the client has gone. It unlocks the server meanwhile.
func (s *session) pass(d time.Duration) {
	if d <= 0 {
		return
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-time.After(d):
	case <-s.gone:
	}
}

func (s *session) abort() {
	if s.tx != nil {
		s.tx.end()
		s.tx = nil
	}
}

// broken returns the client's reply when a connection breaks.
func (s *session) broken() reply {
	if s.engine == mysql {
		return reply{broken: true, err: errInvalidConn}
	}
	return reply{broken: true, err: io.ErrUnexpectedEOF}
}

// process lets a statement travel, executes it, and lets the answer travel.
func (s *session) process(c *call) (r reply) {
	s.pass(s.took / 2)
	switch {
	case s.tx != nil && s.tx.failed && c.kind != "ROLLBACK TO" && c.kind != "ROLLBACK":
		return reply{err: stateError("25P02")}
	case c.fate == stuck:
		return reply{err: errNoAnswer}
	case c.fate == unsent:
		return s.broken()
	case c.fate == refused, c.fate == aborted:
		return s.refuse(c)
	case c.fate == demoted:
		s.readOnly = s.error("25006", "", 1290)
	}
	t, alone := s.tx, s.tx == nil
	if alone {
		t = newTx(s.server)
	}
	before := len(t.changes)
	r.rows, r.affected, r.err = s.execute(t, c)
	alone = alone && s.tx == nil // it is no BEGIN
	if r.err != nil {
		t.changes = t.changes[:before]
		if alone {
			t.end()
		}
		t.failed = s.engine == postgres
	} else if alone {
		if len(r.rows) > 0 && s.engine != sqlite {
			// The server may send the rows before the commit.
			if s.early = !s.early; s.early {
				s.pass(s.took / 2)
				c.replies <- reply{rows: r.rows, more: true}
			}
		}
		r.err = s.commit(t, c)
	}
	if r.err == errNoAnswer || c.fate == hung {
		return reply{err: errNoAnswer}
	}
	s.pass(s.took / 2)
	if c.fate == lost {
		return s.broken()
	}
	return r
}

// refuse ends a statement with an error that may pass, and its transaction where the engine does that.
func (s *session) refuse(c *call) reply {
	full := s.tx != nil && c.fate == aborted // the disk of SQLite
	switch {
	case s.tx == nil:
	case s.engine == mysql && c.kind != "ROLLBACK", s.engine == postgres && c.kind == "COMMIT", s.engine == sqlite && full:
		s.abort()
	case s.engine == postgres:
		s.tx.failed = true
	}
	if full {
		return reply{err: s.error("40001", "database or disk is full (13)", 1213)}
	}
	return reply{err: s.error("55P03", errBusy, 1020)}
}

// errRejected returns the error of a constraint that rejects an order.
func (s *server) errRejected() error {
	return [...]error{postgres: stateError("23514"), sqlite: sqliteError("CHECK constraint failed: item (275)"), mysql: errChecked}[s.engine]
}

// execute executes a statement in t.
func (s *session) execute(t *tx, c *call) (rows [][]driver.Value, affected int, err error) {
	if value, ok := s.says[c.kind]; ok {
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
	switch c.kind {
	case "VARIABLES":
		for _, name := range slices.Sorted(maps.Keys(s.variables)) {
			if strings.Contains(c.query, "'"+name+"'") || strings.HasPrefix(name, "rpl_") {
				rows = append(rows, []driver.Value{name, s.variables[name]})
			}
		}
	case "SERVER", "SERVERS", "WRITER":
		return [][]driver.Value{{"the server"}}, 0, nil
	case "CLOCK":
		return [][]driver.Value{{time.Now().UnixMilli()}}, 0, nil
	case "PING", "NOTIFY", "DUE KEYS", "FORGET", "FORGOTTEN": // no key is due
	case "NOTE":
		if len(c.args) > 0 {
			t.changes = append(t.changes, change{note: c.args[0]})
		}
	case "BEGIN":
		s.tx = newTx(s.server)
	case "SAVEPOINT":
		if s.tx == nil && s.engine == postgres {
			return nil, 0, stateError("25P01")
		}
		t.marks = append(t.marks, mark{lastWord(c.query), len(t.changes)})
	case "RELEASE", "ROLLBACK TO":
		i := len(t.marks) - 1
		for i >= 0 && t.marks[i].name != lastWord(c.query) {
			i--
		}
		switch {
		case i < 0:
			return nil, 0, s.error("3B001", "no such savepoint: storefront", 1305)
		case c.kind == "ROLLBACK TO":
			t.changes = t.changes[:t.marks[i].changes]
			t.marks, t.failed = t.marks[:i+1], false
		default:
			t.marks = t.marks[:i]
		}
	case "COMMIT":
		s.tx = nil
		return nil, 0, s.commit(t, c)
	case "ROLLBACK":
		s.abort()
	case "INSERT":
		return s.insert(t, c)
	case "REPLAY":
		row := s.state.keys[string(c.args[0].([]byte))]
		if row != nil && s.engine == postgres {
			if err = s.readOnly; err == nil {
				t.changes = append(t.changes, change{}) // a record in the log, or a lock
			}
		}
		if row != nil && err == nil {
			rows = append(rows, []driver.Value{row.id, row.item, row.qty, row.fields, row.ms,
				row.fingerprint[:], []byte(row.hash)})
		}
	case "TAKEN":
		for _, hash := range c.args {
			if s.state.keys[string(hash.([]byte))] != nil {
				rows = append(rows, []driver.Value{hash})
			}
		}
	case "READ":
		rows = s.resources(c)
	case "PUT", "DELETE":
		n := 1
		if c.kind == "PUT" {
			n = 2 // the ID and the body
		}
		for row := range slices.Chunk(c.args, n) {
			r := change{resource: tableOf(c.query) + "/" + string(row[0].([]byte))}
			if n == 2 {
				r.body = row[1].(string)
			}
			if err = s.write(t, r.resource); err != nil {
				break
			}
			t.changes = append(t.changes, r)
			affected++
		}
	case "EMIT": // a record in the log
		if err = s.readOnly; err == nil {
			t.changes = append(t.changes, change{})
			rows = [][]driver.Value{{"0/1"}}
		}
	case "SETTLE":
		if err = s.write(t, fmt.Sprint("slot ", c.args)); err == nil {
			t.changes = append(t.changes, change{})
			affected = 1
		}
	default:
		err = s.error("42601", sqliteError("syntax error in "+c.query), 1064)
	}
	return rows, affected, err
}

// resources returns the IDs and bodies of a page, or of one resource.
func (s *session) resources(c *call) (rows [][]driver.Value) {
	table, from, most := tableOf(c.query)+"/", c.args[0].([]byte), 1
	if len(c.args) > 1 {
		most = int(c.args[1].(int64))
	}
	for _, name := range slices.Sorted(maps.Keys(s.state.resources)) {
		id, ok := strings.CutPrefix(name, table)
		if !ok || len(rows) == most {
			continue
		}
		at := bytes.Compare([]byte(id), from)
		if at == 0 && strings.Contains(c.query, "=") || at > 0 && strings.Contains(c.query, ">") {
			rows = append(rows, []driver.Value{[]byte(id), s.state.resources[name]})
		}
	}
	return rows
}

func lastWord(query string) string { return query[strings.LastIndexByte(query, ' ')+1:] }

// write takes a lock for t, before it writes.
func (s *session) write(t *tx, lock string) error {
	if s.readOnly != nil {
		return s.readOnly
	}
	var patience <-chan time.Time
	switch s.engine {
	case sqlite:
		lock, patience = "database", time.After(100*time.Millisecond) // busy_timeout
	case mysql:
		patience = time.After(50 * time.Second) // innodb_lock_wait_timeout
	}
	for s.locks[lock] != nil && s.locks[lock] != t {
		ended := s.locks[lock].ended
		s.mu.Unlock()
		select {
		case <-ended:
			s.mu.Lock()
		case <-patience:
			s.mu.Lock()
			return s.error("55P03", errBusy, 1205)
		}
	}
	s.locks[lock] = t
	return nil
}

// insert inserts orders, except those whose key is taken. In MySQL, it fails if a key is.
func (s *session) insert(t *tx, c *call) (rows [][]driver.Value, affected int, err error) {
	for row := range slices.Chunk(c.args, 8) {
		o := &orderRow{row[0].(string), row[1].(string), row[7].(string), string(row[4].([]byte)),
			string(row[5].([]byte)), row[2].(int64), row[3].(int64), [32]byte(row[6].([]byte))}
		if o.item == "rejected" {
			return nil, 0, s.errRejected()
		}
		known := false
		for _, lock := range []string{"key " + o.hash, "id " + o.id} {
			if err := s.write(t, lock); err != nil {
				return nil, 0, err
			}
			known = s.state.keys[o.hash] != nil
			if !known && s.state.orders[o.id] != nil || known && s.engine == mysql {
				return nil, 0, s.error("23505", "UNIQUE constraint failed: storefront_orders.id (1555)", 1062)
			}
			if known {
				break
			}
		}
		if known {
			continue
		}
		t.changes = append(t.changes, change{order: o})
		affected++
		if strings.Contains(c.query, " RETURNING ") {
			rows = append(rows, []driver.Value{[]byte(o.hash)})
		}
	}
	return rows, affected, nil
}

// commit commits t. A commit of orders waits as let says.
func (s *session) commit(t *tx, c *call) error {
	defer t.end()
	if len(t.changes) == 0 {
		return nil
	}
	switch {
	case c.fate == rolledBack:
		return s.error("40001", errBusy, 1180)
	case s.engine == mysql && s.readOnly != nil:
		return s.readOnly
	}
	var items []string
	for _, change := range t.changes {
		if change.order != nil {
			items = append(items, change.order.item)
		}
	}
	if len(items) > 0 {
		s.commits = append(s.commits, items)
		if !s.isLet(c) {
			return errNoAnswer
		}
	}
	s.apply(t.changes)
	return nil
}

// isLet waits for let, and reports whether it came before the client left.
func (s *session) isLet(c *call) bool {
	if s.let == nil {
		return true
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-s.let:
		return true
	case <-c.left:
		return false
	}
}
