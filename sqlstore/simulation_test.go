package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

var (
	oneSeed = flag.Uint64("seed", 0, "simulate this seed alone and print its story")
	about   = flag.String("about", "", "print only the lines of the story that match this regular expression")
	first   = flag.Uint64("first", 1, "simulate the seeds from this one on")
	seeds   = flag.Uint64("seeds", 0, "simulate as many seeds (default 200; with -race, 20)")
)

// TestSimulation tests stores as a whole: three replicas of a program, with 16 callers each,
// on a database that fails in every way that it can. The seed decides everything. See
// newSimulation for the choices, and check for the promises that must be kept whatever
// happens.
//
//	go test ./sqlstore -run TestSimulation -timeout 0 -args -first 2001 -seeds 100000
//	go test ./sqlstore -run TestSimulation -args -seed 42 -about 'k7|WRONG'
func TestSimulation(t *testing.T) {
	from, n := *first, uint64(200)
	if raceDetected() {
		n /= 10
	}
	switch {
	case *oneSeed != 0:
		from, n = *oneSeed, 1
	case *seeds != 0:
		n = *seeds
	}
	times := make(map[string]int)
	for seed := from; seed < from+n; seed++ {
		m := simulate(t, seed)
		for what, n := range m.times {
			times[what] += n
		}
		if *oneSeed != 0 {
			matches := regexp.MustCompile(*about).MatchString
			fmt.Println(strings.Join(slices.DeleteFunc(m.told(), func(l string) bool { return !matches(l) }), "\n"))
		}
		if len(m.wrong) > 0 {
			t.Fatalf("seed %d (go test ./sqlstore -run '^TestSimulation$' -args -seed %d prints its story):\n%s",
				seed, seed, strings.Join(m.wrong, "\n"))
		}
	}
	t.Log(times)
	for _, what := range []string{
		"statement late", "statement hung", "statement unsent", "statement cut", "statement lost", "statement refused",
		"statement rolled back", "statement killed", "statement demoted", "deadlock", "commit of several orders",
		"shared commit in which keys are taken",
		"order seen by others and lost in a fail-over", "call that created", "call that replayed", "call with a key reused",
		"call that was refused", "call that panicked", "call of an order that fails", "call that was unavailable", "call that was unavailable soon",
		"call that was left", "instant at which more than one thing happens",
		"key that was forgotten", "ForgetKeys that was refused", "replay of an old key", "order with an old key",
		"commit that another member's was faster than", "transaction that another member's has ended", "read that waited for another member",
		"product that was found", "product that was not there yet",
		"statement that is never answered", "call that waited for a stranger",
	} {
		if times[what] == 0 && n > 100 {
			t.Errorf("there was no %s, so that is not tested", what)
		}
	}
}

func raceDetected() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// simulate runs a seed.
//
// When a shared commit ends, its calls go on in the same instant, and the scheduler decides
// in which sequence they queue for their next try. With one P, and no garbage collection to
// interrupt it, the scheduler decides the same each time.
func simulate(t *testing.T, seed uint64) (m *simulation) {
	// A seed takes a fraction of a second. This watch is outside of the bubble, because
	// time in the bubble may stand still.
	watch := time.AfterFunc(5*time.Minute, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("seed %d does not end", seed))
	})
	defer watch.Stop()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if seed%32 == 0 {
		runtime.GC()
	}
	defer func() {
		if v := recover(); v != nil { // the bubble panics if goroutines are left
			m.fault("%v", v)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		m = newSimulation(seed)
		m.run()
	})
	return m
}

// The item of an order decides its fate. Without Accept, only the first two are used.
const (
	plain        = "plain"
	rejected     = "rejected"      // a CHECK rejects the order, before the database looks at its key
	stocked      = "stocked"       // Accept takes one from each of two shelves, or refuses
	refusing     = "refused"       // Accept refuses after it has written
	failing      = "failing"       // Accept returns an error of its own
	panicking    = "panicking"     // Accept panics
	workRejected = "work rejected" // the constraint of another table rejects what Accept writes
	committing   = "committing"    // Accept commits the transaction, which it must not
	rollingBack  = "rolling back"  // Accept rolls the transaction back, which it must not
)

const (
	replicas          = 3
	callersPerReplica = 16
	rounds            = 2 // for each caller
	tries             = 3 // in each round
)

var (
	errSoldOut = &storefront.Refusal{Reason: "sold-out"}
	errRefused = &storefront.Refusal{Reason: "refused"}
	errAccept  = errors.New("failed in Accept")
)

// A simulation is the run of one seed.
type simulation struct {
	*world
	server   *server
	dbs      []*sql.DB
	stores   []*sqlstore.Store
	accepts  bool
	timeout  time.Duration
	span     time.Duration // in which callers begin, and servers fail
	together bool          // all callers begin their rounds together, so that more commits are shared
	pool     int           // how many connections each store may have, or 0: any number
	items    [][2]string   // for each key, the items of the orders with its two fingerprints

	clocks    [replicas]time.Duration // how wrong the clocks of the replicas are
	older     [replicas]bool          // which replicas have a release without the column keyed_ms
	forgets   bool                    // ForgetKeys is called
	old       map[int]*orderRow       // by key, the orders whose keys are old enough to be forgotten, or soon
	gone      string                  // a connection or a lock that never comes back, while all else is in order
	strangers []*tx                   // the transactions that have the lock

	calling  sync.Mutex
	calls    []*attempt
	accepted []acceptance
	put      map[string]time.Duration // when products were there
	calmFrom time.Duration
	wrong    []string
}

// An attempt is a call of CreateOrder.
type attempt struct {
	who          string
	replica      int
	key, variant int
	proposed     storefront.Order
	began, ended time.Duration
	limit        time.Duration // when the call must have ended
	calm         bool          // the call began after all faults

	order    storefront.Order
	err      error
	ctxErr   error // ctx.Err() when the call ended
	panicked any
}

// An acceptance is a call of Accept.
type acceptance struct {
	at    time.Duration
	order string // the ID
	key   string
}

func newSimulation(seed uint64) *simulation {
	m := &simulation{world: newWorld(seed), put: make(map[string]time.Duration)}
	d := m.dice("plan")
	m.accepts = d.IntN(2) == 0
	m.timeout = between(d, time.Second, 10*time.Second)
	m.span = between(d, 20*time.Millisecond, time.Minute)
	m.together = d.IntN(2) == 0
	m.pool = oneOf(d, 0, 0, 0, 0, 0, 0, 1, 4)
	m.server = newServer(m.world, oneOf(d, postgres, sqlite, mysql))
	often := oneOf(d, 50, 200, 1000)
	for f := answered + 1; f < fates; f++ {
		m.server.faults[f] = oneOf(d, 0, often)
	}
	for range oneOf(d, 4, 8, 16, 32) {
		items := []string{plain, plain, plain, rejected}
		if m.accepts {
			items = []string{plain, plain, plain, plain, stocked, stocked, stocked, rejected, refusing, failing, panicking, workRejected, committing, rollingBack}
		}
		m.items = append(m.items, [2]string{oneOf(d, items...), oneOf(d, items...)})
	}
	m.planMore(m.dice("more"))
	for n := range replicas {
		r := m.dbOf(n)
		db := sql.OpenDB(r)
		db.SetMaxOpenConns(m.pool)
		db.SetMaxIdleConns(1000)
		opts := &sqlstore.Options{Timeout: m.timeout}
		if m.accepts {
			opts.Accept = m.accept
		}
		store := sqlstore.New(db, opts)
		store.SetJitter(func(least, most time.Duration) time.Duration {
			if m.grain > 0 { // the pauses of two calls that fail together end together, too
				return least + upTo(m.dice("pause"), most-least)/m.grain*m.grain
			}
			return m.plan(least + upTo(m.dice(r.name, "pause"), most-least))
		})
		m.dbs, m.stores = append(m.dbs, db), append(m.stores, store)
	}
	m.tell("seed", "%d: %v, Accept %t, %d connections, timeout %v, span %v, faults %v, keys %q", seed, m.server.engine, m.accepts, m.pool, m.timeout, m.span, m.server.faults, m.items)
	m.tell("seed", "grain %v, %d members, clocks %v, of an older release %v, keys that may be forgotten %v, gone: %q", m.grain, len(m.server.members), m.clocks, m.older, slices.Sorted(maps.Keys(m.old)), m.gone)
	return m
}

// planMore makes the choices that were added to the simulation later. It has dice of its own,
// so that the story of a seed did not change when they were added.
func (m *simulation) planMore(d *rand.Rand) {
	if d.IntN(8) == 0 && m.pool == 0 {
		m.grain = oneOf(d, 10*time.Microsecond, time.Millisecond) // the least time of each message
		whole := 200 * m.grain                                    // makes such parts as an eighth of a fortieth of Timeout multiples of grain
		m.timeout = max(m.timeout+whole-1, 5000*m.grain) / whole * whole
	}
	if m.server.engine == mysql && d.IntN(2) == 0 {
		most := oneOf(d, time.Millisecond, 50*time.Millisecond, m.timeout/2)
		d.IntN(2) // once chose the kind of cluster
		m.server.group(upTo(d, most), upTo(d, most), upTo(d, most))
	}
	if d.IntN(6) == 0 && m.pool != 1 && m.grain == 0 {
		m.goForGood(d)
	}
	if m.forgets = m.gone == "" && d.IntN(2) == 0; m.forgets {
		m.ageKeys(d)
	}
	m.older[0] = d.IntN(4) == 0
}

// dbOf returns the connector of a replica.
func (m *simulation) dbOf(n int) *fakeDB {
	f := &fakeDB{server: m.server, name: fmt.Sprintf("r%d", n), member: n}
	if m.server.engine == postgres {
		f.asks = time.Second
	}
	d := m.dice("way", f.name)
	if m.gone == aConnection {
		f.silent = 1 + d.IntN(8)
	}
	f.older = m.older[n]
	return f
}

func (m *simulation) run() {
	var all sync.WaitGroup
	for n := range replicas {
		for i := range callersPerReplica {
			all.Go(func() { m.caller(n, fmt.Sprintf("r%d.%02d", n, i)) })
		}
	}
	if m.server.engine != sqlite && len(m.server.members) == 1 && m.gone == "" {
		all.Go(m.failOvers)
	}
	for n := range replicas {
		all.Go(func() { m.putter(n) })
		all.Go(func() { m.reader(n) })
		if m.forgets {
			all.Go(func() { m.forgetter(n) })
		}
	}
	all.Wait()
	m.calmDown()
	m.comeBack()
	m.tell("seed", "nothing fails any more")
	m.sleep(time.Hour) // until the server has noticed who has gone
	m.calmFrom = m.now()
	for round := range 2 { // the second round finds the orders of the first
		for key := range m.items {
			for n := range replicas {
				for variant := range 2 {
					if round == 1 && n != (key+variant)%replicas {
						continue
					}
					all.Go(func() {
						who := fmt.Sprintf("r%d.k%d.%d", n, key, variant)
						m.sleep(upTo(m.dice(who), 2*time.Millisecond))
						m.call(context.Background(), who, fmt.Sprintf("%s.%d", who, round), n, key, variant, m.timeout)
					})
				}
			}
		}
		all.Wait()
		if round == 0 {
			m.forgetAll() // by now, no connection of the pool is dead
		}
	}
	m.sleep(time.Minute) // a commit goes on when a caller has left it by a panic
	for n, db := range m.dbs {
		if used := db.Stats().InUse; used != 0 {
			m.fault("replica %d still uses %d connections", n, used)
		}
		db.Close()
	}
	m.sleep(time.Second) // until all members of a cluster have all commits
	m.check()
	m.sleep(time.Hour) // if a goroutine of the stores is left after it, the bubble panics
}

// failOvers makes the standby the primary, now and then.
func (m *simulation) failOvers() {
	d := m.dice("fail-overs")
	for range d.IntN(3) {
		m.sleep(between(d, time.Millisecond, m.span))
		m.server.stall()
		m.sleep(oneOf(d, between(d, time.Microsecond, m.timeout), upTo(d, 3*m.timeout)))
		if d.IntN(4) == 0 {
			m.server.rejoin()
			continue
		}
		m.server.failOver(oneOf(m.server.dice("fail-over"), unsent, hung, demoted))
		m.sleep(between(d, time.Microsecond, 5*time.Second))
		m.server.open()
	}
}

// caller is a client of one replica. It repeats a call that is not answered, at that replica
// or another one.
func (m *simulation) caller(replica int, who string) {
	d := m.dice(who)
	for round := range rounds {
		if m.together {
			m.sleep(time.Duration(round)*m.span/rounds - m.now() + upTo(d, time.Millisecond))
		} else {
			m.sleep(between(d, 10*time.Microsecond, m.span/rounds))
		}
		key, variant := d.IntN(len(m.items)), d.IntN(6)/5
		at := replica
		for try := range tries {
			ctx, cancel := context.WithCancel(context.Background())
			limit := m.timeout
			if kind := d.IntN(6); kind < 2 {
				limit = m.plan(between(d, time.Millisecond, m.timeout))
				if kind == 0 {
					time.AfterFunc(limit, cancel)
				} else {
					ctx, cancel = context.WithTimeout(context.Background(), limit)
				}
			}
			done := m.call(ctx, who, fmt.Sprintf("%s.%d.%d", who, round, try), at, key, variant, limit)
			cancel()
			if done {
				break
			}
			m.sleep(between(d, 10*time.Microsecond, time.Second))
			if d.IntN(2) == 0 {
				at = d.IntN(replicas)
			}
		}
	}
}

// call calls CreateOrder of a replica, and reports whether it is answered.
func (m *simulation) call(ctx context.Context, who, id string, replica, key, variant int, limit time.Duration) bool {
	a := &attempt{who: who, replica: replica, key: key, variant: variant, began: m.now(), calm: m.isCalm()}
	a.limit = a.began + min(limit, m.timeout)
	a.proposed = storefront.Order{ID: id, Item: m.items[key][variant], Qty: int64(variant + 1), CreatedAt: time.UnixMilli(time.Now().Add(m.clocks[replica]).UnixMilli()).UTC()}
	m.tell(who, "CreateOrder with %s/%d of %s as %s", keyName(key), variant, a.proposed.Item, id)
	func() {
		defer func() { a.panicked = recover() }()
		a.order, a.err = m.stores[replica].CreateOrder(context.WithValue(ctx, callerKey{}, who), m.keyOf(key, variant), a.proposed)
	}()
	a.ended, a.ctxErr = m.now(), ctx.Err()
	m.tell(who, "%v", a)
	m.calling.Lock()
	defer m.calling.Unlock()
	m.calls = append(m.calls, a)
	return a.err == nil || a.panicked != nil || errors.Is(a.err, storefront.ErrKeyReused) || m.isOwn(a)
}

func (m *simulation) keyOf(key, variant int) storefront.IdempotencyKey {
	return storefront.IdempotencyKey{Scope: "simulation", Value: keyName(key), Fingerprint: fingerprint(variant)}
}

func keyName(key int) string { return fmt.Sprintf("k%d", key) }

func fingerprint(variant int) [32]byte { return [32]byte{byte(variant) + 1} }

func (a *attempt) String() string {
	result := fmt.Sprint("the order ", a.order.ID)
	switch {
	case a.panicked != nil:
		result, _, _ = strings.Cut(fmt.Sprint("panic: ", a.panicked), "\n")
	case a.err != nil:
		result = a.err.Error()
	}
	return fmt.Sprintf("%s/%d, %s (%s): %s", keyName(a.key), a.variant, a.proposed.ID, a.proposed.Item, result)
}

// accept is Options.Accept.
func (m *simulation) accept(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, order storefront.Order) error {
	m.calling.Lock()
	m.accepted = append(m.accepted, acceptance{m.now(), order.ID, key.Value})
	m.calling.Unlock()
	m.tell("Accept", "of %s (%s)", order.ID, order.Item)
	if d := m.dice("Accept", order.ID); !m.isCalm() && m.gone == "" && d.IntN(20) == 0 {
		select {
		case <-time.After(m.plan(between(d, time.Millisecond, 3*time.Second))):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO work (order_id) VALUES ($1)`, order.ID); err != nil {
		return fmt.Errorf("work: %w", err)
	}
	switch order.Item {
	case stocked:
		shelves := []string{"left", "right"}
		if order.Qty > 1 {
			slices.Reverse(shelves) // to make deadlocks
		}
		for _, shelf := range shelves {
			result, err := tx.ExecContext(ctx, `UPDATE stock SET count = count - 1 WHERE shelf = $1 AND count > 0`, shelf)
			if err != nil {
				return fmt.Errorf("stock: %w", err)
			}
			if n, _ := result.RowsAffected(); n == 0 {
				return errSoldOut
			}
		}
	case refusing:
		return errRefused
	case failing:
		return errAccept
	case panicking:
		panic(errAccept)
	case workRejected:
		_, err := tx.ExecContext(ctx, `INSERT INTO work (order_id, note) VALUES ($1, $2)`, order.ID, "")
		return err
	case committing, rollingBack: // Accept must not do this, by a method or by SQL
		method, query := tx.Commit, "COMMIT"
		if order.Item == rollingBack {
			method, query = tx.Rollback, "ROLLBACK"
		}
		// In MySQL, tx.Commit and tx.Rollback would hang with the server.
		if m.server.engine != mysql && m.dice("end", order.ID).IntN(2) == 0 {
			return method()
		}
		_, err := tx.ExecContext(ctx, query)
		return err
	}
	return nil
}

// isOwn reports whether a failed because of its order, and not because of a fault.
func (m *simulation) isOwn(a *attempt) bool {
	switch a.proposed.Item {
	case rejected, workRejected:
		return errors.Is(a.err, m.server.errRejected())
	case stocked:
		return errors.Is(a.err, errSoldOut)
	case refusing:
		return errors.Is(a.err, errRefused)
	case failing:
		return errors.Is(a.err, errAccept)
	case panicking:
		err, _ := a.panicked.(error)
		return errors.Is(err, errAccept)
	case committing, rollingBack:
		return a.err != nil && strings.Contains(a.err.Error(), "cannot go on after Accept")
	}
	return false
}

func (m *simulation) fault(format string, args ...any) {
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
	m.tell("WRONG", format, args...)
}

// check checks the promises of storefront.Store and Options.Accept.
func (m *simulation) check() {
	m.server.catchUp(m.server.members[0])
	state := m.server.members[0].state
	proposed := make(map[string]*attempt)
	known := make(map[int]time.Duration) // by key, when its order was there at the latest; not for keys that may be forgotten
	for key, row := range m.old {
		proposed[row.id] = &attempt{key: key, proposed: storefront.Order{ID: row.id, Item: row.item, Qty: row.qty, CreatedAt: time.UnixMilli(row.ms)}}
	}
	for _, a := range m.calls {
		proposed[a.proposed.ID] = a
		if at, ok := known[a.key]; m.old[a.key] == nil && a.err == nil && a.panicked == nil && (!ok || a.ended < at) {
			known[a.key] = a.ended
		}
	}
	stored := make(map[int]*orderRow) // by key, unless it is forgotten
	taken := 0
	for _, id := range slices.Sorted(maps.Keys(state.orders)) {
		row, a := state.orders[id], proposed[id]
		if state.keys[row.hash] == row || m.old[a.key] == nil {
			if stored[a.key] != nil {
				m.fault("%s has two orders: %s and %s", keyName(a.key), stored[a.key].id, id)
			}
			stored[a.key] = row
		}
		if _, ok := known[a.key]; !ok && !a.calm && m.old[a.key] == nil {
			known[a.key] = m.calmFrom
		}
		if fingerprint(a.variant) != row.fingerprint || row.item != a.proposed.Item || row.qty != a.proposed.Qty || row.ms != a.proposed.CreatedAt.UnixMilli() {
			m.fault("%s is stored as %v, was proposed as %v", id, row, a.proposed)
		}
		if row.item == stocked {
			taken++
		}
		if rows := state.work[id]; m.accepts && rows != 1 {
			m.fault("%s is there, and %d rows of Accept", id, rows)
		}
	}
	for id, rows := range state.work {
		if state.orders[id] == nil {
			m.fault("%s is not there, but %d rows of Accept", id, rows)
		}
	}
	if m.server.waited {
		m.fault("a transaction was left to database/sql, so that whoever gives the connection back waits for as long as the server hangs")
	}
	if m.accepts && (state.taken["left"] != taken || state.taken["right"] != taken) {
		m.fault("%v are taken for %d orders", state.taken, taken)
	}
	for _, a := range m.accepted {
		key, since := proposed[a.order].key, a.at
		if len(m.server.members) > 1 {
			since = proposed[a.order].began // Accept may not see a commit on another member since then, but its transaction cannot commit
		}
		if at, ok := known[key]; ok && since > at {
			m.fault("at %v, Accept was called for %s, after %s had an order", a.at, a.order, keyName(key))
		}
	}
	m.checkStats()
	for _, a := range m.calls {
		row := stored[a.key]
		if old := m.old[a.key]; old != nil && a.panicked == nil {
			switch there := state.orders[a.order.ID]; {
			case a.err == nil && there != nil && there.hash == old.hash:
				m.count(map[bool]string{true: "order with an old key", false: "replay of an old key"}[a.order.ID == a.proposed.ID])
				row = there // another order may have followed it
			case errors.Is(a.err, storefront.ErrKeyReused) && fingerprint(a.variant) != old.fingerprint:
				row = old
			case a.err != nil && state.orders[a.proposed.ID] != nil:
				row = state.orders[a.proposed.ID]
			}
		}
		if wrong := m.checkCall(a, row, known); wrong != "" {
			m.fault("%s: %v, and %v is stored", wrong, a, row)
		}
	}
	m.checkForgotten()
	if m.server.misused {
		m.fault("a result was asked for its rows after its connection was given back")
	}
}

// checkStats checks that each store has counted each of its calls once, as what it was.
func (m *simulation) checkStats() {
	want := make([]sqlstore.Stats, replicas)
	for _, a := range m.calls {
		s := &want[a.replica]
		switch {
		case a.panicked != nil:
			s.Failed++
		case a.err == nil:
			s.Created++
		case errors.Is(a.err, storefront.ErrKeyReused):
			s.KeyReused++
		case errors.Is(a.err, storefront.ErrUnavailable):
			s.Unavailable++
		default:
			s.Failed++
		}
	}
	for n, store := range m.stores {
		s := store.Stats()
		// A call that has failed by itself may count as canceled if its ctx is done, too.
		got := sqlstore.Stats{Created: s.Created + s.Replayed, KeyReused: s.KeyReused, Unavailable: s.Unavailable, Failed: s.Refused + s.Canceled + s.Failed}
		if got != want[n] {
			m.fault("replica %d has the stats %+v, want %+v", n, got, want[n])
		}
		if s.Committed < s.Created || s.Committed < s.Commits {
			m.fault("replica %d has the stats %+v", n, s)
		}
	}
}

// checkCall returns the fault in the result of a call, or "". In the end, row is stored with
// its key, or nothing if row is nil.
func (m *simulation) checkCall(a *attempt, row *orderRow, known map[int]time.Duration) string {
	at, ok := known[a.key]
	switch {
	case a.ended > a.limit && m.accepts && m.server.engine == sqlite && a.ctxErr == context.Canceled && a.ended <= a.began+m.timeout:
		m.count("call that was left") // in a shared commit, it returns once Accept has returned
	case a.ended > a.limit && m.server.engine == sqlite && (a.proposed.Item == committing || a.proposed.Item == rollingBack):
		// tx.Commit or tx.Rollback in Accept waits, and no ctx ends that.
	case a.ended > a.limit:
		return fmt.Sprintf("it ended %v after its time", a.ended-a.limit)
	case m.gone != "" && a.ctxErr == nil && errors.Is(a.err, storefront.ErrUnavailable) && !m.isOwn(a) && !a.calm:
		if !m.waitsForAStranger(a) {
			return "it could have been served"
		}
		m.count("call that waited for a stranger")
	case a.err != nil && a.ctxErr == nil && !errors.Is(a.err, storefront.ErrUnavailable) && a.proposed.Item != committing && row != nil && row.id == a.proposed.ID:
		return "its order is there all the same"
	case a.panicked == nil && a.err == nil:
		m.count("call that " + map[bool]string{true: "created", false: "replayed"}[a.order.ID == a.proposed.ID])
		switch {
		case row == nil || row.id != a.order.ID:
			return "the order that it returned is not there"
		case fingerprint(a.variant) != row.fingerprint:
			return "it returned the order of another fingerprint"
		case a.order.Item != row.item || a.order.Qty != row.qty || !a.order.CreatedAt.Equal(time.UnixMilli(row.ms)):
			return fmt.Sprintf("the order that it returned differs: %v", a.order)
		}
	case errors.Is(a.err, storefront.ErrKeyReused):
		m.count("call with a key reused")
		if row == nil || fingerprint(a.variant) == row.fingerprint {
			return "there is no other order with its key"
		}
	case a.ctxErr != nil && errors.Is(a.err, a.ctxErr):
		m.count("call that was left")
	case a.ctxErr == nil && errors.Is(a.err, storefront.ErrUnavailable) && a.ended == a.limit && !a.calm:
		m.count("call that was unavailable")
	case a.ctxErr == nil && errors.Is(a.err, storefront.ErrUnavailable) && a.ended-a.began >= m.timeout/10 &&
		strings.Contains(a.err.Error(), "has not answered for more than") && !a.calm:
		m.count("call that was unavailable soon")
		for _, b := range m.calls {
			if b.replica == a.replica && b.err == nil && b.panicked == nil && b.ended <= a.began-m.grain && b.ended > a.ended-m.timeout {
				return fmt.Sprintf("it gave up soon, although %s was answered shortly before", b.who)
			}
		}
	case errors.Is(a.err, storefront.ErrUnavailable) && (errors.Is(a.err, stateError("23505")) || isNumber(a.err, 1062)) && !a.calm:
		// An earlier try had created an order with this ID, and a fail-over lost it before the
		// store looked for the key.
	case isNumber(a.err, 1062) && m.server.failOversBetween(a.began, a.ended)+m.forgottenBetween(a) > 1:
		// More than one order with the key was lost in a fail-over, or its key forgotten, while
		// the call was under way.
	case m.isOwn(a): // perhaps unavailable as well, if a try before may have created it
		switch {
		case a.panicked != nil:
			m.count("call that panicked")
		case a.proposed.Item == stocked || a.proposed.Item == refusing:
			m.count("call that was refused")
		default:
			m.count("call of an order that fails")
		}
		if ok && a.began > at {
			return "it was decided anew, although its key had an order"
		}
	case a.calm:
		return "it failed without a fault"
	default:
		return "unexpected"
	}
	return ""
}
