package sqlstore_test

import (
	"bytes"
	"cmp"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A tx is a transaction in progress. It keeps its locks until it ends. If it has written
// nothing, its commit takes no time.
type tx struct {
	changes  []change
	marks    []mark // its savepoints
	outside  bool   // it began with a statement other than BEGIN
	failed   bool   // in PostgreSQL, it can only be rolled back
	locked   bool   // in PostgreSQL, it has locked a row, which counts as a write
	snapshot int    // in SQLite, 1 and the length of the log when it first read
	waitsFor *tx
	member   *member
	wrote    []string // the rows that it wrote
	aborted  bool     // in a cluster, a commit of another member has ended it
	ended    chan struct{}
}

// A mark is a savepoint: its name and the number of changes before it.
type mark struct {
	name    string
	changes int
}

func newTx(m *member) *tx { return &tx{member: m, ended: make(chan struct{})} }

// end ends the transaction, and releases its locks.
func (t *tx) end() {
	select {
	case <-t.ended:
		return
	default:
	}
	for name, holder := range t.member.locks {
		if holder == t {
			delete(t.member.locks, name)
		}
	}
	close(t.ended)
}

// A session is the server's end of a connection.
type session struct {
	*server
	*member
	name     string
	born     int // the epoch in which it was connected
	tx       *tx
	readOnly error         // the error of all writes; if it is 3032 of MySQL, of all statements
	ended    bool          // the server has ended it
	older    bool          // the client has a release that does not know the column keyed_ms
	silent   time.Duration // from when on the server answers nothing; 0: never
	calls    chan *call    // the client's statements, until it leaves
	gone     chan struct{} // closed when the client has left
}

// travel returns how long a message takes.
func (s *session) travel(c *call) time.Duration {
	if s.instant {
		return s.took / 2
	}
	if c.fate == late || c.fate == cut {
		return between(c.Rand, 100*time.Microsecond, 8*time.Second)
	}
	return between(c.Rand, 20*time.Microsecond, time.Millisecond)
}

// run serves the client until it has gone. Once the server notices that, run rolls back the
// transaction that the client has left behind.
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
		s.serve(c)
	}
	if s.tx != nil {
		if s.patience == 0 {
			s.pass(s.delay(s.dice(s.name, "left"), time.Millisecond, 5*time.Second), nil)
		}
		s.abort()
	}
}

// serve answers a statement.
func (s *session) serve(c *call) {
	if s.silent != 0 && s.now() >= s.silent {
		s.count("statement that is never answered")
		if s.tx != nil {
			s.kept = append(s.kept, s.tx.wrote...)
		}
		s.pass(2*time.Minute, s.gone) // not for ever, as a driver without a deadline would wait as long
		c.replies <- s.broken(c)
		return
	}
	if c.fate == cut {
		s.pass(s.delay(c.Rand, 20*time.Microsecond, time.Millisecond), nil)
		c.replies <- s.broken(c)
	}
	r := s.process(c)
	if r.err == errNoAnswer {
		wait := s.travel(c)
		if c.fate == hung || s.born != s.epoch && s.former == hung && !s.isCalm() {
			wait = between(c.Rand, 30*time.Second, 2*time.Minute)
		}
		if s.engine == sqlite { // the disk hangs
			wait = between(c.Rand, time.Millisecond, 10*time.Second)
		}
		interrupt := c.interrupt
		if s.instant {
			interrupt = s.gone // no time passes while no client waits
		}
		s.pass(wait, interrupt)
		r = s.broken(c)
	}
	s.tell(s.name, "%s %s: %v", c.kind, c.subject(), r)
	c.replies <- r
}

// pass lets time pass, and reports whether all of it has passed without an interrupt. It
// unlocks the server meanwhile.
func (s *session) pass(d time.Duration, interrupt <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-time.After(s.plan(d)):
		return true
	case <-interrupt:
		return false
	}
}

func (s *session) isGone() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

func (s *session) abort() {
	if s.tx != nil {
		s.tx.end()
		s.tx = nil
	}
}

// broken returns the client's reply when a connection breaks.
func (s *session) broken(c *call) reply {
	if s.engine == mysql {
		return reply{broken: true, err: errInvalidConn}
	}
	return reply{broken: true, err: oneOf(c.Rand, io.ErrUnexpectedEOF, io.EOF, error(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}))}
}

// interrupted ends a statement of SQLite whose client did not wait. A write ends the
// transaction, too.
func (s *session) interrupted(c *call) reply {
	switch c.kind {
	case "INSERT", "WORK", "STOCK", "FORGET", "PUT", "DELETE":
		s.abort()
	}
	return reply{err: errInterrupted}
}

// process lets a statement travel, executes it, and lets the answer travel.
func (s *session) process(c *call) (r reply) {
	if !s.pass(s.travel(c), c.interrupt) {
		return s.interrupted(c)
	}
	if r := s.meet(c); r.err != nil {
		return r
	}
	if err := s.sync(c); err != nil {
		return reply{err: err}
	}
	t := s.tx
	if t == nil {
		t = newTx(s.member)
		t.outside = true
	}
	before := len(t.changes)
	r.rows, r.affected, r.err = s.execute(t, c)
	alone := s.tx == nil && t.outside && c.kind != "RELEASE"
	switch {
	case r.err == errInterrupted:
		t.changes = t.changes[:before]
		if alone {
			t.end()
		}
		return s.interrupted(c)
	case r.err != nil:
		t.changes = t.changes[:before]
		t.failed = s.engine == postgres
		if alone {
			t.end()
		} else if isNumber(r.err, 1213, 3101) {
			s.abort()
		}
	case alone && len(r.rows) > 0 && s.engine != sqlite && c.IntN(2) == 0:
		// The server sends the rows before the commit.
		s.pass(s.travel(c), nil)
		if s.born != s.epoch {
			return reply{err: errNoAnswer}
		}
		early := reply{rows: r.rows, more: true}
		s.tell(s.name, "%s %s: %v", c.kind, c.subject(), early)
		c.replies <- early
		r.err = s.commit(t, c)
	case alone:
		r.err = s.commit(t, c)
	}
	if r.err == errNoAnswer || c.fate == hung {
		return reply{err: errNoAnswer}
	}
	s.pass(s.travel(c), c.interrupt)
	switch {
	case c.fate == lost:
		return s.broken(c)
	case s.born != s.epoch:
		return reply{err: errNoAnswer}
	}
	return r
}

// meet returns the reply to a statement that a fault keeps from being executed, or an empty
// reply.
func (s *session) meet(c *call) reply {
	if s.isGone() && c.fate != cut && c.IntN(2) == 0 {
		return reply{err: errNoAnswer}
	}
	if s.born != s.epoch {
		if s.tx != nil || s.former != demoted {
			s.abort()
			return reply{err: errNoAnswer}
		}
		s.demote(c)
	}
	switch {
	case s.ended || c.fate == unsent:
		// A driver may return driver.ErrBadConn only if the statement was surely not executed.
		return reply{broken: true, err: oneOf(c.Rand, driver.ErrBadConn, s.broken(c).err)}
	case c.fate == hung && c.IntN(2) == 0:
		return reply{err: errNoAnswer}
	case c.fate == killed:
		s.abort()
		s.ended = true
		if s.engine == mysql {
			err := oneOf(c.Rand, errInvalidConn, number(1053), number(1927))
			return reply{broken: err == errInvalidConn, err: err}
		}
		return reply{broken: true, err: stateError("57P01")}
	case c.fate == demoted:
		s.demote(c)
	case c.fate == refused && s.engine == mysql:
		if c.kind == "ROLLBACK" {
			break
		}
		err := number(oneOf[uint16](c.Rand, 1213, 1213, 1020, 1205, 1317, 1114))
		if c.kind == "COMMIT" || isNumber(err, 1213, 1020) {
			s.abort()
		}
		return reply{err: err}
	case c.fate == refused && s.engine == sqlite:
		if s.tx != nil && c.IntN(8) == 0 {
			s.abort()
			return reply{err: sqliteError("database or disk is full (13)")}
		}
		return reply{err: errBusy}
	case c.fate == refused:
		if c.kind == "COMMIT" {
			s.abort()
		} else if s.tx != nil {
			s.tx.failed = true
		}
		return reply{err: oneOf(c.Rand, stateError("40001"), "40P01", "57014", "55P03", "53100", "53200")}
	}
	if isNumber(s.readOnly, 3032) {
		s.abort()
		return reply{err: s.readOnly}
	}
	if s.tx != nil && s.tx.failed && c.kind != "ROLLBACK TO" && c.kind != "ROLLBACK" && c.kind != "COMMIT" {
		return reply{err: stateError("25P02")}
	}
	return reply{}
}

// demote makes the server of the session no longer be the primary.
func (s *session) demote(c *call) {
	if s.readOnly == nil {
		s.readOnly = s.error("25006", "", oneOf[uint16](c.Rand, 1290, 3032))
	}
}

// execute executes a statement in t.
func (s *session) execute(t *tx, c *call) (rows [][]driver.Value, affected int, err error) {
	if value, ok := s.says[c.kind]; ok {
		if err, ok := value.(error); ok {
			return nil, 0, err
		}
		if row, ok := value.([]driver.Value); ok {
			return [][]driver.Value{row}, 0, nil
		}
		return [][]driver.Value{{value}}, 0, nil
	}
	switch c.kind {
	case "VERSION":
		if s.engine == sqlite {
			return nil, 0, sqliteError("SQL logic error: no such function: version (1)")
		}
		version := [...]string{postgres: "PostgreSQL 15.4 on x86_64-pc-linux-gnu", mysql: "10.11.6-MariaDB"}
		return [][]driver.Value{{version[s.engine]}}, 0, nil
	case "VARIABLES":
		for _, name := range slices.Sorted(maps.Keys(s.variables)) {
			if strings.Contains(c.query, "'"+name+"'") {
				rows = append(rows, []driver.Value{name, s.variables[name]})
			}
		}
	case "SCHEMA":
		return [][]driver.Value{{"public", "UTF8", "UTF8"}}, 0, nil
	case "CATALOG": // for a role that may not know
		return nil, 0, s.error("42501", "not authorized (23)", 1142)
	case "PRAGMAS":
		return [][]driver.Value{{"shop.db", "wal", int64(0), int64(0)}}, 0, nil
	case "BYTES":
		return [][]driver.Value{{[]byte(`\`)}}, 0, nil
	case "SERVER", "SERVERS":
		return [][]driver.Value{{fmt.Sprintf("server %d", s.born)}}, 0, nil
	case "PROBE":
		return [][]driver.Value{{int64(1)}}, 0, nil
	case "TABLES":
		return [][]driver.Value{{int64(2), int64(2)}}, 0, nil // their version, and the oldest that may use them
	case "CLOCK":
		return [][]driver.Value{{s.clock()}}, 0, nil
	case "PING", "NOTE":
	case "BEGIN":
		if s.tx != nil && s.engine == mysql {
			err = s.commit(t, c)
		} else if s.tx != nil {
			return nil, 0, s.error("25001", "cannot start a transaction within a transaction", 0)
		}
		s.tx = newTx(s.member)
	case "SAVEPOINT":
		if s.tx == nil {
			switch s.engine {
			case postgres:
				return nil, 0, stateError("25P01")
			case mysql:
				return nil, 0, nil // the savepoint ends with the statement
			}
			s.tx = t
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
			if i == 0 && t.outside {
				s.tx = nil
				return nil, 0, s.commit(t, c)
			}
		}
	case "COMMIT":
		if s.tx == nil && s.engine == sqlite {
			return nil, 0, sqliteError("cannot commit - no transaction is active")
		}
		s.tx = nil
		if t.failed {
			t.end()
			return nil, 0, errors.New("commit unexpectedly resulted in rollback")
		}
		return nil, 0, s.commit(t, c)
	case "ROLLBACK":
		s.abort()
	case "INSERT":
		return s.insert(t, c)
	case "REPLAY":
		s.read(t)
		hash := string(c.args[0].([]byte))
		if row, _ := s.find(t, hash, ""); row != nil && strings.HasSuffix(c.query, " UPDATE") {
			err = s.write(t, c, "row "+hash)
			t.locked = s.engine == postgres
		}
		if row, _ := s.find(t, hash, ""); row != nil && err == nil {
			rows = append(rows, []driver.Value{row.id, row.item, row.qty, row.ms, row.fingerprint[:]})
		}
	case "TAKEN":
		s.count("shared commit in which keys are taken")
		for _, hash := range c.args {
			if row, _ := s.find(t, string(hash.([]byte)), ""); row != nil {
				rows = append(rows, []driver.Value{hash})
			}
		}
	case "READ":
		s.read(t)
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
			if err = s.write(t, c, r.resource); err != nil {
				break
			}
			t.changes = append(t.changes, r)
			affected++
		}
	case "FORGET":
		affected, err = s.forgetKeys(t, c)
	case "EMIT": // a record in the log
		if err = s.readOnly; err == nil {
			t.changes = append(t.changes, change{})
			rows = [][]driver.Value{{"0/1"}}
		}
	case "SETTLE":
		if err = s.write(t, c, "slot "+c.subject()); err == nil {
			t.changes = append(t.changes, change{})
			affected = 1
		}
	case "WORK":
		if err = s.write(t, c, "work "+c.args[0].(string)); err == nil {
			t.changes = append(t.changes, change{work: c.args[0].(string)})
			affected = 1
			if len(c.args) > 1 {
				err = s.errRejected()
			}
		}
	case "STOCK":
		shelf := c.args[0].(string)
		if err = s.write(t, c, "shelf "+shelf); err == nil {
			left := stock - s.state.taken[shelf]
			for _, c := range t.changes {
				if c.shelf == shelf {
					left--
				}
			}
			if left > 0 {
				t.changes = append(t.changes, change{shelf: shelf})
				affected = 1
			}
		}
	default:
		err = s.error("42601", sqliteError("syntax error in "+c.query), 1064)
	}
	return rows, affected, err
}

// clock returns the time by the server's clock, in milliseconds.
func (s *server) clock() int64 { return time.Now().UnixMilli() }

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

// forgetKeys forgets keys by the column of the time that the statement names.
func (s *session) forgetKeys(t *tx, c *call) (n int, err error) {
	s.read(t)
	since := func(o *orderRow) int64 {
		if s.older || !strings.Contains(c.query, "keyed_ms") {
			return o.ms
		}
		return o.keyed
	}
	before, most := c.args[0].(int64), 1000
	if len(c.args) > 1 {
		most = int(c.args[1].(int64))
	}
	old := slices.Collect(maps.Values(s.state.keys))
	old = slices.DeleteFunc(old, func(o *orderRow) bool { return since(o) >= before })
	slices.SortFunc(old, func(a, b *orderRow) int {
		return cmp.Or(cmp.Compare(since(a), since(b)), strings.Compare(a.id, b.id))
	})
	for _, o := range old[:min(most, len(old))] {
		if err := s.write(t, c, "row "+o.hash); err != nil {
			return 0, err
		}
		if err := s.write(t, c, "key "+o.hash); err != nil {
			return 0, err
		}
		if byKey, _ := s.find(t, o.hash, ""); byKey == o { // no other ForgetKeys was faster
			t.changes = append(t.changes, change{forgets: o})
			n++
		}
	}
	return n, nil
}

// find returns the order with a key and the one with an ID, as t sees them.
func (s *session) find(t *tx, hash, id string) (byKey, byID *orderRow) {
	byKey, byID = s.state.keys[hash], s.state.orders[id]
	for _, c := range t.changes {
		if c.order != nil && c.order.hash == hash {
			byKey = c.order
		}
		if c.forgets != nil && c.forgets == byKey {
			byKey = nil
		}
		if c.order != nil && c.order.id == id {
			byID = c.order
		}
	}
	return byKey, byID
}

func lastWord(query string) string { return query[strings.LastIndexByte(query, ' ')+1:] }

// read takes the snapshot of t, unless it has one.
func (s *session) read(t *tx) {
	if t.snapshot == 0 {
		t.snapshot = 1 + len(s.log)
	}
}

// write takes a lock for t, before it writes.
func (s *session) write(t *tx, c *call, lock string) error {
	if s.readOnly != nil {
		return s.readOnly
	}
	if s.engine == sqlite {
		lock = "database"
	}
	var patience <-chan time.Time
	interrupt := c.interrupt
	if s.patience != 0 {
		patience = time.After(s.plan(s.patience))
		if s.engine == postgres {
			interrupt = c.left // the driver asks to cancel the statement
		}
	}
	for s.locks[lock] != nil && s.locks[lock] != t {
		holder := s.locks[lock]
		for other := holder; other != nil; other = other.waitsFor {
			if other == t {
				s.count("deadlock")
				return s.error("40P01", "", 1213)
			}
		}
		if patience == nil && s.patience == 0 {
			switch s.engine {
			case sqlite:
				patience = time.After(s.plan(between(c.Rand, time.Millisecond, 100*time.Millisecond))) // busy_timeout
			case mysql:
				patience = time.After(s.plan(between(c.Rand, time.Second, 50*time.Second))) // innodb_lock_wait_timeout
			}
		}
		var err error
		t.waitsFor = holder
		s.mu.Unlock()
		select {
		case <-holder.ended:
		case <-patience:
			err = s.error("55P03", errBusy, 1205)
		case <-interrupt:
			err = errInterrupted
			if s.engine == postgres {
				err = stateError("57014")
			}
		}
		s.mu.Lock()
		t.waitsFor = nil
		if err != nil {
			return err
		}
		// Any of the transactions that wait may be the next.
		s.pass(s.delay(c.Rand, time.Microsecond, 50*time.Microsecond), nil)
		if s.born != s.epoch {
			return errNoAnswer
		}
		if s.catchUp(s.member); t.aborted {
			return number(1213)
		}
	}
	if s.engine == sqlite {
		s.read(t)
		if t.snapshot != 1+len(s.log) {
			return sqliteError("database is locked (517) (SQLITE_BUSY_SNAPSHOT)")
		}
	}
	s.locks[lock] = t
	t.wrote = append(t.wrote, lock)
	return nil
}

// insert inserts orders, except those whose key is taken. In MySQL, it fails if a key is.
func (s *session) insert(t *tx, c *call) (rows [][]driver.Value, affected int, err error) {
	for row := range slices.Chunk(c.args, 7) {
		o := &orderRow{row[0].(string), row[1].(string), row[2].(int64), row[3].(int64), s.clock(), string(row[5].([]byte)), [32]byte(row[6].([]byte)), s.clock()}
		if s.engine == sqlite && (s.older || !strings.Contains(c.query, "keyed_ms")) {
			o.keyed = unknown // in other databases, the column has a default
		}
		if o.item == rejected {
			return nil, 0, s.errRejected()
		}
		key, id := "key "+o.hash, "id "+o.id
		locks := []string{key, id}
		if s.engine == mysql || s.locks[id] != nil && c.IntN(2) == 0 {
			locks = []string{id, key} // another transaction may have inserted the ID and not yet the key
		}
		known := false
		for _, lock := range locks {
			if err := s.write(t, c, lock); err != nil {
				return nil, 0, err
			}
			byKey, byID := s.find(t, o.hash, o.id)
			known = lock == key && byKey != nil
			if lock == id && byID != nil || known && s.engine == mysql {
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

// commit commits t.
func (s *session) commit(t *tx, c *call) error {
	switch {
	case len(t.changes) == 0 && !t.locked:
		t.end()
		return nil
	case c.fate == rolledBack:
		t.end()
		return s.error("40001", errBusy, oneOf[uint16](c.Rand, 1213, 1180))
	case s.engine == mysql && s.readOnly != nil:
		t.end()
		return s.readOnly
	}
	if err := s.announce(t, c); err != nil {
		t.end()
		return err
	}
	if len(s.members) > 1 {
		if err := s.certify(t, c); err != nil {
			return err
		}
	} else {
		s.log = append(s.log, entry{changes: t.changes})
	}
	n := len(s.log)
	if s.engine == postgres && !s.replicate(n, c) {
		return errNoAnswer
	}
	if len(s.members) == 1 {
		s.state.apply(t.changes)
		s.applied = n
	}
	orders := 0
	for _, change := range t.changes {
		if change.order != nil {
			s.tell(s.name, "order %s is there", change.order.id)
			orders++
		}
		if change.forgets != nil {
			s.tell(s.name, "the key of order %s is forgotten", change.forgets.id)
			s.count("key that was forgotten")
			s.forgotten = append(s.forgotten, forgetting{change.forgets, s.clock()})
		}
	}
	if orders > 1 {
		s.count("commit of several orders")
	}
	t.end()
	if s.engine == mysql && !s.replicate(n, c) {
		return errNoAnswer
	}
	return nil
}

// announce notes a commit of orders, and lets it wait and fail as let and fail say.
func (s *session) announce(t *tx, c *call) error {
	var items []string
	for _, change := range t.changes {
		if change.order != nil {
			items = append(items, change.order.item)
		}
	}
	if len(items) == 0 {
		return nil
	}
	s.commits = append(s.commits, items)
	if s.let != nil {
		s.mu.Unlock()
		defer s.mu.Lock()
		select {
		case <-s.let:
		case <-c.left:
			return errNoAnswer
		}
	}
	if s.fail != nil {
		return s.fail(items)
	}
	return nil
}

// replicate waits until the standby has n commits, or, in PostgreSQL, until the client has
// gone. It reports whether there was no fail-over meanwhile.
func (s *session) replicate(n int, c *call) bool {
	s.pass(s.delay(c.Rand, 20*time.Microsecond, time.Millisecond), nil)
	for s.born == s.epoch && s.stalled {
		link, gone := s.link, s.gone
		if s.engine == mysql {
			gone = nil
		}
		s.mu.Unlock()
		select {
		case <-link:
		case <-gone:
		}
		s.mu.Lock()
		s.pass(s.delay(c.Rand, time.Microsecond, 50*time.Microsecond), nil)
		if s.born == s.epoch && s.stalled && s.isGone() && gone != nil {
			s.tell(s.name, "no longer waits for the standby")
			return true
		}
	}
	if s.born == s.epoch {
		s.replicated = max(s.replicated, n)
	}
	return s.born == s.epoch
}
