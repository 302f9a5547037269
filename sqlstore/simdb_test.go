package sqlstore_test

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A fate is what becomes of a statement.
type fate int

const (
	answered   fate = iota
	late            // executed and answered after a long time
	hung            // perhaps executed, and never answered
	unsent          // the connection breaks before the server has it
	cut             // the connection breaks, and later the server executes it
	lost            // executed, and the connection breaks before the answer
	refused         // not executed, with an error that may pass
	rolledBack      // executed, but the commit fails
	killed          // the server ends the connection and its transaction
	demoted         // the server is no longer the primary, and says so
	fates
)

func (f fate) String() string {
	return [fates]string{"answered", "late", "hung", "unsent", "cut", "lost", "refused", "rolled back", "killed", "demoted"}[f]
}

// A server is a database in memory. That of PostgreSQL is a primary with a
// synchronous standby: a commit is in the primary's log, then in the standby's, and
// then others see it and the client is answered. If the client goes while the primary
// waits for the standby, others see it at once. In a fail-over, the standby becomes
// the primary, with what it has. That of MySQL is the same, but others see a commit
// before the standby has it; for the standby, its disk could stand, and for the
// fail-over, a crash.
//
// There is no second primary beside the standby that has become one: the former
// primary is gone, off the network, or a standby itself.
type server struct {
	*world
	engine engine
	faults [fates]int // one statement in so many, or 0: none

	mu         sync.Mutex      // never held while time passes
	epoch      int             // how many fail-overs there were
	failed     []time.Duration // when they were
	former     fate            // of what is sent to the former primary: unsent, hung or demoted
	down       bool            // nobody takes connections
	stalled    bool            // the standby does not get what the primary writes, until link is closed
	link       chan struct{}
	log        [][]change
	replicated int // how much of the log the standby has
	state      tables
	locks      map[string]*tx
	sessions   int
	waited     bool // database/sql has rolled back, and others would have waited for a server that hangs
}

// tables are what all see.
type tables struct {
	orders map[string]*orderRow // by ID
	keys   map[string]*orderRow // by key_hash
	work   map[string]int       // how many rows Accept has written for the order with an ID
	taken  map[string]int       // from each shelf
}

type orderRow struct {
	id, item    string
	qty, ms     int64
	hash        string
	fingerprint [32]byte
}

func (o *orderRow) String() string {
	if o == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s (%s, %d)", o.id, o.item, o.qty)
}

// A change is that of one row: one of its fields.
type change struct {
	order   *orderRow
	work    string // the ID of an order
	shelf   string // one is taken from it
	settles bool   // it is a replay's
}

// stock is how many things there are on each shelf at first.
const stock = 2

func newServer(w *world, engine engine) *server {
	s := &server{world: w, engine: engine, link: make(chan struct{})}
	s.replay(nil)
	return s
}

// replay makes log all that has happened.
func (s *server) replay(log [][]change) {
	s.log, s.replicated = log, len(log)
	s.locks = make(map[string]*tx)
	s.state = tables{make(map[string]*orderRow), make(map[string]*orderRow), make(map[string]int), make(map[string]int)}
	for _, changes := range log {
		s.state.apply(changes)
	}
}

func (t *tables) apply(changes []change) {
	for _, c := range changes {
		switch {
		case c.order != nil:
			t.orders[c.order.id], t.keys[c.order.hash] = c.order, c.order
		case c.shelf != "":
			t.taken[c.shelf]++
		case !c.settles:
			t.work[c.work]++
		}
	}
}

// stall keeps from the standby what the primary writes from now on.
func (s *server) stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = true
	s.tell("standby", "is out of reach")
}

// rejoin lets the standby have all.
func (s *server) rejoin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell("standby", "is in reach again")
	s.replicated = len(s.log)
	s.relink()
}

func (s *server) relink() {
	s.stalled = false
	close(s.link)
	s.link = make(chan struct{})
}

// failOver makes the standby the primary, which takes no connections yet.
func (s *server) failOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	s.failed = append(s.failed, s.now())
	s.down = true
	s.former = oneOf(s.dice("fail-over"), unsent, hung, demoted)
	s.tell("standby", "is the primary, with %d of %d commits; to the former one, all is %v", s.replicated, len(s.log), s.former)
	holders, seen := s.locks, s.state.orders
	s.replay(s.log[:s.replicated:s.replicated])
	s.relink()
	for id := range seen {
		if s.state.orders[id] == nil {
			s.count("order seen by others and lost in a fail-over")
		}
	}
	for _, lock := range slices.Sorted(maps.Keys(holders)) {
		holders[lock].end(s)
	}
}

// failOversBetween returns how many fail-overs there were.
func (s *server) failOversBetween(from, to time.Duration) (n int) {
	for _, at := range s.failed {
		if from <= at && at <= to {
			n++
		}
	}
	return n
}

func (s *server) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
	s.tell("standby", "takes connections")
}

// find returns the order with a key and the one with an ID, as t sees them.
func (s *server) find(t *tx, hash, id string) (byKey, byID *orderRow) {
	byKey, byID = s.state.keys[hash], s.state.orders[id]
	for _, c := range t.changes {
		if c.order != nil && c.order.hash == hash {
			byKey = c.order
		}
		if c.order != nil && c.order.id == id {
			byID = c.order
		}
	}
	return byKey, byID
}

// draw returns a fate.
func (s *server) draw(d *rand.Rand) fate {
	if s.isCalm() {
		return answered
	}
	for f := answered + 1; f < fates; f++ {
		if s.faults[f] != 0 && d.IntN(s.faults[f]) == 0 {
			s.count("statement " + f.String())
			return f
		}
	}
	return answered
}

// A sqliteError is the text of an error of SQLite.
type sqliteError string

func (e sqliteError) Error() string { return string(e) }

const errBusy = sqliteError("database is locked (5) (SQLITE_BUSY)")

// number returns an error of MySQL.
func number(n uint16) error { return &mySQLError{n, fmt.Sprintf("Error %d", n)} }

// isNumber reports whether err is one of these errors of MySQL.
func isNumber(err error, numbers ...uint16) bool {
	e, ok := errors.AsType[*mySQLError](err)
	return ok && slices.Contains(numbers, e.Number)
}

var (
	errChecked     = number(4025)
	errInvalidConn = errors.New("invalid connection") // of go-sql-driver/mysql
)

// error returns an error as the server words it.
func (s *server) error(state stateError, text sqliteError, n uint16) error {
	return [...]error{postgres: state, sqlite: text, mysql: number(n)}[s.engine]
}

func (s *server) errRejected() error {
	return [...]error{postgres: stateError("23514"), sqlite: sqliteError("CHECK constraint failed: item (275)"), mysql: errChecked}[s.engine]
}

// A tx is a transaction in progress. It keeps its locks until it ends. Nobody waits
// for the commit of one that has written nothing.
type tx struct {
	changes  []change
	marks    []mark // its savepoints
	outside  bool   // it began with a statement other than BEGIN
	failed   bool   // in PostgreSQL, it can only be rolled back
	locked   bool   // in PostgreSQL, it has locked a row, which is to write
	snapshot int    // in SQLite, 1 and the length of the log when it first read
	waitsFor *tx
	ended    chan struct{}
}

// A mark is a savepoint: its name and the number of changes before it.
type mark struct {
	name    string
	changes int
}

func newTx() *tx { return &tx{ended: make(chan struct{})} }

// end lets go of the locks.
func (t *tx) end(s *server) {
	select {
	case <-t.ended:
		return
	default:
	}
	for name, holder := range s.locks {
		if holder == t {
			delete(s.locks, name)
		}
	}
	close(t.ended)
}

// A session is a connection as the server has it.
type session struct {
	*server
	name     string
	born     int // the epoch
	tx       *tx
	readOnly error         // with which writes fail; 1047 of MySQL: all statements
	ended    bool          // by the server
	calls    chan *call    // what the client sends, until it leaves
	gone     chan struct{} // closed when it has
}

// A call is a statement on its way.
type call struct {
	*rand.Rand
	kind      string
	query     string
	args      []driver.Value
	fate      fate
	left      chan struct{} // closed when the client no longer waits
	interrupt chan struct{} // the same, if that ends the statement
	replies   chan reply    // at most three, of which none blocks
}

// A reply is what the client learns of a statement.
type reply struct {
	rows     [][]driver.Value
	affected int
	more     bool // the next reply tells whether it was committed
	broken   bool // and so is the connection
	err      error
}

func (r reply) String() string {
	if r.err != nil {
		return r.err.Error()
	}
	return fmt.Sprintf("%d rows, %d affected", len(r.rows), r.affected)
}

var (
	errInterrupted = errors.New("interrupted (9)")
	errNoAnswer    = errors.New("there is no answer")
)

// kindOf returns what a statement does, or "" if no one here knows.
func kindOf(query string) string {
	for _, known := range [][2]string{
		{"SELECT version()", "VERSION"},
		{"SHOW VARIABLES ", "VARIABLES"},
		{"PING", "PING"},
		{"BEGIN", "BEGIN"},
		{"SAVEPOINT ", "SAVEPOINT"},
		{"RELEASE ", "RELEASE"},
		{"ROLLBACK TO ", "ROLLBACK TO"},
		{"ROLLBACK", "ROLLBACK"},
		{"COMMIT", "COMMIT"},
		{"INSERT INTO storefront_orders ", "INSERT"},
		{"SELECT key_hash FROM storefront_orders ", "TAKEN"},
		{"INSERT INTO storefront_replays ", "SETTLE"},
		{"SELECT id, item, qty, created_ms, fingerprint FROM storefront_orders ", "REPLAY"},
		{"INSERT INTO work ", "WORK"},
		{"UPDATE stock ", "STOCK"},
	} {
		if strings.HasPrefix(query, known[0]) {
			return known[1]
		}
	}
	return ""
}

// subject names what a statement is about.
func (c *call) subject() string {
	switch c.kind {
	case "INSERT":
		var ids []string
		for row := range slices.Chunk(c.args, 7) {
			ids = append(ids, row[0].(string))
		}
		return strings.Join(ids, " ")
	case "REPLAY":
		return fmt.Sprintf("%.3x", c.args[0])
	case "SETTLE":
		return fmt.Sprintf("%02x", c.args[0])
	case "WORK", "STOCK":
		return c.args[0].(string)
	}
	return ""
}

// travel returns how long a message takes.
func (c *call) travel() time.Duration {
	if c.fate == late || c.fate == cut {
		return between(c.Rand, 100*time.Microsecond, 8*time.Second)
	}
	return between(c.Rand, 20*time.Microsecond, time.Millisecond)
}

// run serves the client until it has gone, and once the server notices that, rolls
// back what was left behind.
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
		s.pass(between(s.dice(s.name, "left"), time.Millisecond, 5*time.Second), nil)
		s.abort()
	}
}

// serve is what the server does with a statement.
func (s *session) serve(c *call) {
	if c.fate == cut {
		s.pass(between(c.Rand, 20*time.Microsecond, time.Millisecond), nil)
		c.replies <- s.broken(c)
	}
	r := s.process(c)
	if r.err == errNoAnswer {
		wait := c.travel()
		if c.fate == hung || s.born != s.epoch && s.former == hung && !s.isCalm() {
			wait = between(c.Rand, 30*time.Second, 2*time.Minute)
		}
		if s.engine == sqlite { // it is the disk
			wait = between(c.Rand, time.Millisecond, 10*time.Second)
		}
		s.pass(wait, c.interrupt)
		r = s.broken(c)
	}
	s.tell(s.name, "%s %s: %v", c.kind, c.subject(), r)
	c.replies <- r
}

// pass lets time pass, and reports whether it was not interrupted. The server is
// not locked meanwhile.
func (s *session) pass(d time.Duration, interrupt <-chan struct{}) bool {
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
		s.tx.end(s.server)
		s.tx = nil
	}
}

// broken is what the client sees of a connection that breaks.
func (s *session) broken(c *call) reply {
	if s.engine == mysql {
		return reply{broken: true, err: errInvalidConn}
	}
	return reply{broken: true, err: oneOf(c.Rand, io.ErrUnexpectedEOF, io.EOF, error(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}))}
}

// interrupted is the end of a statement of SQLite whose client did not wait. That of
// a write ends the transaction, too.
func (s *session) interrupted(c *call) reply {
	if c.kind == "INSERT" || c.kind == "WORK" || c.kind == "STOCK" {
		s.abort()
	}
	return reply{err: errInterrupted}
}

// process lets a statement travel, executes it, and lets the answer travel.
func (s *session) process(c *call) (r reply) {
	if !s.pass(c.travel(), c.interrupt) {
		return s.interrupted(c)
	}
	if r := s.meet(c); r.err != nil {
		return r
	}
	t := s.tx
	if t == nil {
		t = newTx()
		t.outside = true
	}
	before := len(t.changes)
	r.rows, r.affected, r.err = s.execute(t, c)
	alone := s.tx == nil && t.outside && c.kind != "RELEASE"
	switch {
	case r.err == errInterrupted:
		t.changes = t.changes[:before]
		if alone {
			t.end(s.server)
		}
		return s.interrupted(c)
	case r.err != nil:
		t.changes = t.changes[:before]
		t.failed = s.engine == postgres
		if alone {
			t.end(s.server)
		} else if isNumber(r.err, 1213) {
			s.abort()
		}
	case alone && len(r.rows) > 0 && s.engine != sqlite && c.IntN(2) == 0:
		// The rows are sent before the commit.
		s.pass(c.travel(), nil)
		if s.born != s.epoch {
			return reply{err: errNoAnswer}
		}
		c.replies <- reply{rows: r.rows, more: true}
		r.err = s.commit(t, c)
	case alone:
		r.err = s.commit(t, c)
	}
	if r.err == errNoAnswer || c.fate == hung {
		return reply{err: errNoAnswer}
	}
	s.pass(c.travel(), c.interrupt)
	switch {
	case c.fate == lost:
		return s.broken(c)
	case s.born != s.epoch:
		return reply{err: errNoAnswer}
	}
	return r
}

// meet returns the reply to a statement that is not executed, or none.
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
		// Only where it surely was not executed may a driver return this error.
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
	if isNumber(s.readOnly, 1047) {
		s.abort()
		return reply{err: s.readOnly}
	}
	if s.tx != nil && s.tx.failed && c.kind != "ROLLBACK TO" && c.kind != "ROLLBACK" && c.kind != "COMMIT" {
		return reply{err: stateError("25P02")}
	}
	return reply{}
}

// demote has the server be the primary no longer.
func (s *session) demote(c *call) {
	if s.readOnly == nil {
		s.readOnly = s.error("25006", "", oneOf[uint16](c.Rand, 1290, 1047))
	}
}

// execute executes a statement in t.
func (s *session) execute(t *tx, c *call) (rows [][]driver.Value, affected int, err error) {
	switch c.kind {
	case "VERSION":
		if s.engine == sqlite {
			return nil, 0, sqliteError("SQL logic error: no such function: version (1)")
		}
		version := [...]string{postgres: "PostgreSQL 15.4 on x86_64-pc-linux-gnu", mysql: "10.11.6-MariaDB"}
		return [][]driver.Value{{version[s.engine]}}, 0, nil
	case "VARIABLES":
		return [][]driver.Value{{"wsrep_on", "OFF"}}, 0, nil
	case "PING":
	case "BEGIN":
		if s.tx != nil && s.engine == mysql {
			err = s.commit(t, c)
		} else if s.tx != nil {
			return nil, 0, s.error("25001", "cannot start a transaction within a transaction", 0)
		}
		s.tx = newTx()
	case "SAVEPOINT":
		if s.tx == nil {
			switch s.engine {
			case postgres:
				return nil, 0, stateError("25P01")
			case mysql:
				return nil, 0, nil // it ends with the statement
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
			t.end(s.server)
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
	case "SETTLE":
		if err = s.write(t, c, "slot "+c.subject()); err == nil {
			t.changes = append(t.changes, change{settles: true})
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

func lastWord(query string) string { return query[strings.LastIndexByte(query, ' ')+1:] }

// read notes what t sees.
func (s *session) read(t *tx) {
	if t.snapshot == 0 {
		t.snapshot = 1 + len(s.log)
	}
}

// write takes a lock for t, which is to write.
func (s *session) write(t *tx, c *call, lock string) error {
	if s.readOnly != nil {
		return s.readOnly
	}
	if s.engine == sqlite {
		lock = "database"
	}
	var patience <-chan time.Time
	for s.locks[lock] != nil && s.locks[lock] != t {
		holder := s.locks[lock]
		for other := holder; other != nil; other = other.waitsFor {
			if other == t {
				s.count("deadlock")
				return s.error("40P01", "", 1213)
			}
		}
		if patience == nil {
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
			err = s.error("", errBusy, 1205)
		case <-c.interrupt:
			err = errInterrupted
		}
		s.mu.Lock()
		t.waitsFor = nil
		if err != nil {
			return err
		}
		// Of those who wait, any may be the next.
		s.pass(between(c.Rand, time.Microsecond, 50*time.Microsecond), nil)
		if s.born != s.epoch {
			return errNoAnswer
		}
	}
	if s.engine == sqlite {
		s.read(t)
		if t.snapshot != 1+len(s.log) {
			return sqliteError("database is locked (517) (SQLITE_BUSY_SNAPSHOT)")
		}
	}
	s.locks[lock] = t
	return nil
}

// insert inserts orders, but none whose key is taken. In MySQL, it fails for those.
func (s *session) insert(t *tx, c *call) (rows [][]driver.Value, affected int, err error) {
	for row := range slices.Chunk(c.args, 7) {
		o := &orderRow{row[0].(string), row[1].(string), row[2].(int64), row[3].(int64), string(row[5].([]byte)), [32]byte(row[6].([]byte))}
		if o.item == rejected {
			return nil, 0, s.errRejected()
		}
		key, id := "key "+o.hash, "id "+o.id
		locks := []string{key, id}
		if s.engine == mysql || s.locks[id] != nil && c.IntN(2) == 0 {
			locks = []string{id, key} // another transaction may have inserted the ID, and not yet the key
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
		if strings.HasSuffix(c.query, " RETURNING key_hash") {
			rows = append(rows, []driver.Value{[]byte(o.hash)})
		}
	}
	return rows, affected, nil
}

// commit commits t.
func (s *session) commit(t *tx, c *call) error {
	switch {
	case len(t.changes) == 0 && !t.locked:
		t.end(s.server)
		return nil
	case c.fate == rolledBack:
		t.end(s.server)
		return s.error("40001", errBusy, oneOf[uint16](c.Rand, 1213, 1180))
	case s.engine == mysql && s.readOnly != nil:
		t.end(s.server)
		return s.readOnly
	}
	s.log = append(s.log, t.changes)
	n := len(s.log)
	if s.engine == postgres && !s.replicate(n, c) {
		return errNoAnswer
	}
	s.state.apply(t.changes)
	orders := 0
	for _, change := range t.changes {
		if change.order != nil {
			s.tell(s.name, "order %s is there", change.order.id)
			orders++
		}
	}
	if orders > 1 {
		s.count("commit of several orders")
	}
	t.end(s.server)
	if s.engine == mysql && !s.replicate(n, c) {
		return errNoAnswer
	}
	return nil
}

// replicate waits until the standby has n commits, or, in PostgreSQL, the client has
// gone. It reports whether there was no fail-over.
func (s *session) replicate(n int, c *call) bool {
	s.pass(between(c.Rand, 20*time.Microsecond, time.Millisecond), nil)
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
		s.pass(between(c.Rand, time.Microsecond, 50*time.Microsecond), nil)
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

// A replica is a driver.Connector: the way of one process to the server.
type replica struct {
	*server
	name   string
	barred time.Duration // until when its password is wrong
}

func (r *replica) Driver() driver.Driver { return nil }

func (r *replica) Connect(ctx context.Context) (driver.Conn, error) {
	d := r.dice(r.name, callerOf(ctx), "connect")
	fate := r.draw(d)
	wait := between(d, 50*time.Microsecond, 2*time.Millisecond)
	switch fate {
	case late:
		wait = between(d, time.Millisecond, 8*time.Second)
	case hung:
		wait = between(d, 10*time.Second, 2*time.Minute)
	}
	select {
	case <-time.After(r.plan(wait)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if fate == refused && r.engine != sqlite && !r.down {
		r.barred = r.now() + between(d, time.Millisecond, time.Second)
	}
	if r.now() < r.barred && !r.isCalm() {
		err := r.error("28P01", "", 1045)
		r.tell(r.name, "cannot connect: %v", err)
		return nil, err
	}
	if r.down || fate != answered && fate != late {
		err := oneOf[error](d, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, stateError("57P03"), stateError("53300"))
		if s, ok := err.(stateError); ok || r.engine == sqlite {
			err = r.error(s, "unable to open database file (14)", 1040)
		}
		r.tell(r.name, "cannot connect: %v", err)
		return nil, err
	}
	r.sessions++
	s := &session{server: r.server, name: r.name + "#" + strconv.Itoa(r.sessions), born: r.epoch, calls: make(chan *call, 1), gone: make(chan struct{})}
	r.tell(s.name, "is connected")
	go s.run()
	return &simConn{session: s, replica: r}, nil
}

// callerKey is the key, in a context, of the name of who called the store.
type callerKey struct{}

func callerOf(ctx context.Context) string {
	caller, _ := ctx.Value(callerKey{}).(string)
	return caller
}

// A simConn is a connection as the client has it.
type simConn struct {
	*session
	replica *replica
	dead    bool
	used    time.Duration   // when it was, the last time
	begun   context.Context // of the transaction in progress
}

// send sends a statement.
func (c *simConn) send(ctx context.Context, query string, args []driver.NamedValue) (*call, error) {
	if c.dead {
		return nil, driver.ErrBadConn
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sent := &call{kind: kindOf(query), query: query, left: make(chan struct{}), replies: make(chan reply, 3)}
	for _, arg := range args {
		sent.args = append(sent.args, arg.Value)
	}
	sent.Rand = c.dice(c.replica.name, callerOf(ctx), sent.kind, sent.subject())
	sent.fate = c.draw(sent.Rand)
	if c.engine == sqlite {
		sent.interrupt = sent.left
		if sent.fate == demoted || sent.fate == killed || sent.fate == cut {
			sent.fate = refused
		}
	}
	c.tell(c.name, "%s %s (%v)", sent.kind, sent.subject(), sent.fate)
	c.used = c.now()
	c.calls <- sent
	return sent, nil
}

// await waits for the next reply.
func (c *simConn) await(ctx context.Context, sent *call) (reply, error) {
	begun := cmp.Or(c.begun, ctx) // when it is done, database/sql rolls back, and waits for us
	if c.engine == mysql {
		begun = ctx // which is all that it looks at
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
	if c.engine == sqlite {
		<-sent.replies // at once
	} else {
		c.hangUp() // as pgx and go-sql-driver/mysql do
	}
	return reply{}, cmp.Or(ctx.Err(), begun.Err())
}

// hangUp leaves the connection. Any statement goes on.
func (c *simConn) hangUp() {
	if !c.dead {
		c.dead = true
		close(c.gone)
		close(c.calls)
	}
}

func (c *simConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	sent, err := c.send(ctx, query, args)
	if err != nil {
		return nil, err
	}
	r := reply{more: true}
	for r.more && err == nil {
		r, err = c.await(ctx, sent)
	}
	return driver.RowsAffected(r.affected), err
}

func (c *simConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	sent, err := c.send(ctx, query, args)
	if err != nil {
		return nil, err
	}
	r, err := c.await(ctx, sent)
	if err != nil {
		return nil, err
	}
	return &simRows{ctx, c, sent, r}, nil
}

func (c *simConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if _, err := c.ExecContext(ctx, "BEGIN", nil); err != nil {
		return nil, err
	}
	c.begun = ctx
	return c, nil
}

// Commit leaves no transaction behind if it fails, as SQLite would. In MySQL, it
// waits for as long as the server hangs.
func (c *simConn) Commit() error {
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

// Rollback waits for as long as the server hangs, in MySQL. In the others it takes no
// time, nor where it is database/sql that rolls back: it holds a mutex meanwhile, and
// in a bubble, time stands still while a goroutine waits for one.
func (c *simConn) Rollback() error {
	ctx := c.begun
	c.begun = nil
	if c.dead {
		return driver.ErrBadConn
	}
	if c.engine == mysql && ctx.Err() == nil {
		_, err := c.ExecContext(context.WithoutCancel(ctx), "ROLLBACK", nil)
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waited = c.waited || c.engine == mysql
	if c.engine == postgres && ctx.Err() != nil {
		c.hangUp()
		return ctx.Err()
	}
	c.tell(c.name, "ROLLBACK")
	c.abort()
	return nil
}

// ResetSession asks the server whether it is there, as pgx does after a while.
func (c *simConn) ResetSession(ctx context.Context) error {
	if !c.dead && c.engine == postgres && c.now()-c.used > time.Second {
		if _, err := c.ExecContext(ctx, "PING", nil); err != nil {
			c.hangUp()
		}
	}
	if c.dead {
		return driver.ErrBadConn
	}
	return nil
}

func (c *simConn) Close() error {
	c.hangUp()
	return nil
}

func (c *simConn) Prepare(query string) (driver.Stmt, error) {
	return &simStmt{conn: c, query: query}, c.ResetSession(context.Background())
}

func (c *simConn) Begin() (driver.Tx, error) { panic("database/sql does not call it") }
func (c *simConn) IsValid() bool             { return !c.dead }

// A simStmt is a prepared statement.
type simStmt struct {
	driver.Stmt // the methods that database/sql does not call
	conn        *simConn
	query       string
}

func (s *simStmt) Close() error  { return nil }
func (s *simStmt) NumInput() int { return -1 }

func (s *simStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.ExecContext(ctx, s.query, args)
}

func (s *simStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, s.query, args)
}

// simRows may come before the commit of the statement. The error of that is then the
// one at their end, or that of Close.
type simRows struct {
	ctx   context.Context
	conn  *simConn
	sent  *call
	reply reply
}

func (r *simRows) Columns() []string {
	if len(r.reply.rows) == 0 {
		return nil
	}
	return make([]string, len(r.reply.rows[0]))
}

func (r *simRows) Next(dest []driver.Value) error {
	if len(r.reply.rows) > 0 {
		copy(dest, r.reply.rows[0])
		r.reply.rows = r.reply.rows[1:]
		return nil
	}
	return cmp.Or(r.Close(), io.EOF)
}

func (r *simRows) Close() error {
	if r.reply.more {
		r.reply, r.reply.err = r.conn.await(r.ctx, r.sent)
		r.reply.rows, r.reply.more = nil, false
		if r.reply.err == io.EOF {
			r.reply.err = io.ErrUnexpectedEOF // the other tells database/sql that all is well
		}
	}
	return r.reply.err
}
