package sqlstore_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"example.com/storefront"
)

// A server is a database in memory. PostgreSQL is a primary with a synchronous standby: a
// commit is in the primary's log, then in the standby's, and then others see it and the
// client gets its answer. If the client goes while the primary waits for the standby, others
// see the commit at once. In a fail-over, the standby becomes the primary, with the commits
// that it has. MySQL is the same, but others see a commit before the standby has it; one may
// also take the standby for the disk, and the fail-over for a crash.
//
// There are never two primaries: after a fail-over, the former primary is gone, off the
// network, or a standby itself.
//
// MySQL may also be a cluster: see cluster.
type server struct {
	*world
	engine    engine
	faults    [fates]int        // each fate befalls one statement in this number; 0: none
	variables map[string]string // of MySQL
	says      map[string]any    // by the kind of a question to the server about itself, its answer: a value or an error

	took  time.Duration              // how long a statement takes in an instant world
	let   chan struct{}              // if it is not nil, each commit of orders receives once from it
	fail  func(items []string) error // if it is not nil, returns the error of a commit of orders with these items
	meets func(kind string) fate     // if it is not nil, decides the fate of a statement of a kind

	// If patience is not 0, the server notices at once that a client has gone, and no client
	// waits for a lock for longer than patience.
	patience time.Duration

	mu         sync.Mutex      // never held while time passes
	epoch      int             // how many fail-overs there were
	failed     []time.Duration // when they were
	former     fate            // of statements to the former primary: unsent, hung or demoted
	down       bool            // the server takes no connections
	stalled    bool            // the standby does not get the commits of the primary, until link is closed
	link       chan struct{}
	log        []entry
	replicated int       // how many entries of the log the standby has
	members    []*member // one, or those of a group
	sessions   int
	commits    [][]string // the items of the orders of each commit that has begun
	forgotten  []forgetting
	kept       []string // the rows of transactions over connections without answers
	waited     bool     // database/sql has rolled back, so that a call would have waited for a server that hangs
	misused    bool     // a result was asked for its rows after its connection was given back
}

// tables have the rows that are committed.
type tables struct {
	orders    map[string]*orderRow // by ID
	keys      map[string]*orderRow // by key_hash, unless it is forgotten
	work      map[string]int       // how many rows Accept has written for the order with an ID
	taken     map[string]int       // how many things were taken from each shelf
	resources map[string]string    // the bodies, by the table, a slash and the ID
}

type orderRow struct {
	id, item    string
	qty, ms     int64
	keyed       int64 // the column keyed_ms, or unknown
	hash        string
	fingerprint [32]byte
	inserted    int64 // when, by the server's clock
}

// unknown stands for NULL, which is not less than any number.
const unknown = math.MaxInt64

// A forgetting records that a key was forgotten.
type forgetting struct {
	order *orderRow
	at    int64 // when, by the server's clock
}

func (o *orderRow) String() string {
	if o == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s (%s, %d)", o.id, o.item, o.qty)
}

// A change changes one row. One of its fields is set, or resource and body.
type change struct {
	order    *orderRow
	forgets  *orderRow // the order whose key is forgotten
	work     string    // the ID of an order
	shelf    string    // from which one thing is taken
	resource string    // the table, a slash and the ID
	body     string    // of the resource, or "" if it is deleted
}

// stock is how many things there are on each shelf at first.
const stock = 2

func newServer(w *world, engine engine) *server {
	s := &server{world: w, engine: engine, link: make(chan struct{}), variables: map[string]string{
		"autocommit": "ON", "wsrep_provider_name": "", // as in MariaDB without Galera
	}}
	s.members = []*member{{}}
	s.replay(nil)
	return s
}

// addOrder adds an order.
func (s *server) addOrder(key storefront.IdempotencyKey, o storefront.Order) {
	s.happen(change{order: &orderRow{o.ID, o.Item, o.Qty, o.CreatedAt.UnixMilli(), s.clock(), keyHash(key), key.Fingerprint, s.clock()}})
}

// addResource adds a resource to all collections.
func (s *server) addResource(r storefront.Resource) {
	for _, table := range []string{"users", "products", "widgets"} {
		s.happen(change{resource: table + "/" + r.ID(), body: r.String()})
	}
}

func (s *server) happen(changes ...change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, entry{changes: changes, at: make([]time.Duration, len(s.members))})
	s.replicated = len(s.log)
	for _, m := range s.members {
		m.state.apply(s.log[m.applied].changes)
		m.applied++
	}
}

// begun returns the items of the orders of each commit that has begun.
func (s *server) begun() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.commits)
}

// keyHash returns the value of the column key_hash, as the package's documentation has it.
func keyHash(key storefront.IdempotencyKey) string {
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, uint64(len(key.Scope))), key.Scope+key.Value...))
	return string(sum[:])
}

// connect returns a new session with one of the members.
func (s *server) connect(client string, member int) *session {
	s.sessions++
	c := &session{server: s, member: s.members[member%len(s.members)], name: client + "#" + strconv.Itoa(s.sessions), born: s.epoch, calls: make(chan *call, 1), gone: make(chan struct{})}
	s.tell(c.name, "is connected")
	return c
}

// replay makes the server have the log, and nothing else.
func (s *server) replay(log []entry) {
	s.log, s.replicated = log, len(log)
	for _, m := range s.members {
		m.locks, m.applied = make(map[string]*tx), len(log)
		m.state = tables{make(map[string]*orderRow), make(map[string]*orderRow), make(map[string]int), make(map[string]int), make(map[string]string)}
		for _, e := range log {
			m.state.apply(e.changes)
		}
	}
}

func (t *tables) apply(changes []change) {
	for _, c := range changes {
		switch {
		case c.order != nil:
			t.orders[c.order.id], t.keys[c.order.hash] = c.order, c.order
		case c.forgets != nil:
			if t.keys[c.forgets.hash] == c.forgets {
				delete(t.keys, c.forgets.hash)
			}
		case c.shelf != "":
			t.taken[c.shelf]++
		case c.work != "":
			t.work[c.work]++
		case c.body != "":
			t.resources[c.resource] = c.body
		case c.resource != "":
			delete(t.resources, c.resource)
		}
	}
}

// stall keeps all further commits from the standby.
func (s *server) stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = true
	s.tell("standby", "is out of reach")
}

// rejoin gives the standby all commits.
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

// failOver makes the standby the primary, which takes no connections yet. former is the fate
// of statements to the former primary: unsent, hung or demoted.
func (s *server) failOver(former fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	s.failed = append(s.failed, s.now())
	s.down = true
	s.former = former
	s.tell("standby", "is the primary, with %d of %d commits; to the former one, all is %v", s.replicated, len(s.log), s.former)
	primary := s.members[0]
	holders, seen := primary.locks, primary.state.orders
	s.replay(s.log[:s.replicated:s.replicated])
	s.relink()
	for id := range seen {
		if primary.state.orders[id] == nil {
			s.count("order seen by others and lost in a fail-over")
		}
	}
	for _, lock := range slices.Sorted(maps.Keys(holders)) {
		holders[lock].end()
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

// draw returns a fate.
func (s *server) draw(d *rand.Rand) fate {
	if s.instant || s.isCalm() {
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

// error returns the one of three errors that fits the engine.
func (s *server) error(state stateError, text sqliteError, n uint16) error {
	return [...]error{postgres: state, sqlite: text, mysql: number(n)}[s.engine]
}

func (s *server) errRejected() error {
	return [...]error{postgres: stateError("23514"), sqlite: sqliteError("CHECK constraint failed: item (275)"), mysql: errChecked}[s.engine]
}
