package integration

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"example.com/storefront"
	"example.com/storefront/internal/audit"
)

// As in: go test ./integration -run TestFailover -v -seed 2
var seed = flag.Uint64("seed", 1, "of the random choices of the fault tests")

const (
	faultOrders  = 10_000 // to be acknowledged, where a test does not say otherwise
	faultClients = 16
)

// TestReplicaKills kills replicas that share a PostgreSQL.
func TestReplicaKills(t *testing.T) {
	f := newFaultTest(t)
	server := startPostgres(t)
	f.start(3, server.URL())
	f.run(250, func() {
		f.killReplica()
	})
	f.check(func() *sql.DB { return openDatabase(t, "pgx", server.URL()) })
}

// TestPostgresKills kills the PostgreSQL that replicas share, and sometimes a
// replica.
func TestPostgresKills(t *testing.T) {
	f := newFaultTest(t)
	server := startPostgres(t)
	f.start(3, server.URL())
	f.run(800, func() {
		if f.rng.IntN(4) == 0 {
			f.killReplica()
			return
		}
		f.kills["PostgreSQL"]++
		server.restart(t)
	})
	f.check(func() *sql.DB { return openDatabase(t, "pgx", server.URL()) })
}

// TestMySQLKills kills the MySQL that replicas share.
func TestMySQLKills(t *testing.T) {
	f := newFaultTest(t)
	server := mySQL.start(t)
	f.start(3, mySQLURL(t, server.DSN()))
	f.orders = faultOrders / 4
	f.run(f.orders/4, func() {
		f.kills["MySQL"]++
		server.restart(t)
	})
	f.check(func() *sql.DB { return openDatabase(t, "mysql", server.DSN()) })
}

// TestFailover kills the primary of a PostgreSQL pair for good and promotes its
// synchronous standby. The killed one becomes the standby of the other, and so
// on in turn.
func TestFailover(t *testing.T) {
	f := newFaultTest(t)
	primary := startPostgres(t)
	standby := primary.startStandby(t)
	f.start(3, postgresURL("postgres", primary, standby))
	failOver := func() {
		f.kills["primary"]++
		primary.kill(t)
		standby.promote(t)
		primary, standby = standby, primary
	}
	f.run(2000, func() {
		failOver()
		standby.follow(t, primary)
	})
	f.check(func() *sql.DB {
		failOver() // what counts is what the standby has
		return openDatabase(t, "pgx", primary.URL())
	})
}

// TestSQLiteKills kills a server that keeps a SQLite file.
func TestSQLiteKills(t *testing.T) { testSQLiteKills(t, 1) }

func testSQLiteKills(t *testing.T, replicas int) {
	f := newFaultTest(t)
	file := filepath.Join(workFolder(t), "shop.db")
	f.start(replicas, file)
	f.run(250, func() {
		f.killReplica()
	})
	f.check(func() *sql.DB { return openDatabase(t, "sqlite", file) })
}

func openDatabase(t *testing.T, driver, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// A faultTest creates orders through replicas of the command durable while a
// test makes them, or what they depend on, fail, and then accounts for every order.
//
// A test that fails things by the number of acknowledged orders calls start, run
// and check. Others call start, begin, what they do and wait for meanwhile, end and
// check.
type faultTest struct {
	t        *testing.T
	orders   int // to be acknowledged, until begin
	began    time.Time
	rng      *rand.Rand // of the test's goroutine
	replicas []*replica
	urls     []string       // where clients find them
	kills    map[string]int // by what was killed, or whatever else was done
	admitted chan struct{}  // unless it is nil, each order takes one of it first
	audit    *audit.Audit   // since begin
	created  chan struct{}  // closed when no more orders are created
	faults   atomic.Int64
}

func newFaultTest(t *testing.T) *faultTest {
	if testing.Short() {
		t.Skip("creates thousands of orders")
	}
	t.Parallel() // much of it is waiting
	t.Logf("seed %d", *seed)
	return &faultTest{
		t:      t,
		orders: faultOrders,
		began:  time.Now(),
		rng:    rand.New(rand.NewPCG(*seed, 0)),
		kills:  make(map[string]int),
	}
}

// start starts replicas on a database and waits until they serve.
func (f *faultTest) start(replicas int, db string) {
	f.t.Helper()
	f.replicas = startReplicas(f.t, durableBinary, replicas, db)
	for _, r := range f.replicas {
		f.urls = append(f.urls, r.url)
	}
}

// startReplicas starts processes of a command on a database, and waits until they
// serve.
func startReplicas(t *testing.T, command func() (string, error), n int, db string) (replicas []*replica) {
	t.Helper()
	binary, err := command()
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		r := newReplica(t, binary, db)
		replicas = append(replicas, r)
		r.start()
	}
	for _, r := range replicas {
		r.waitUntilServing()
	}
	return replicas
}

// newReplica returns a process of a command on a database that is not started yet.
func newReplica(t *testing.T, binary, db string) *replica {
	t.Helper()
	addr := "127.0.0.1:" + strconv.Itoa(freePort())
	r := &replica{
		t:    t,
		args: []string{binary, "-addr", addr, "-db", db},
		url:  "http://" + addr,
		log:  filepath.Join(workFolder(t), "replica.log"),
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(logTail(r.log))
		}
		if r.process != nil {
			r.process.kill()
		}
	})
	return r
}

// run has clients create orders until enough are acknowledged, and meanwhile
// calls fault whenever about every more of them are.
func (f *faultTest) run(every int, fault func()) {
	f.t.Helper()
	f.begin()
	for next := 0; ; {
		next += every/2 + f.rng.IntN(every)
		if next >= f.orders {
			break
		}
		f.waitUntilAcknowledged(next)
		fault()
	}
	f.end()
}

// begin has clients begin to create orders. A fault ends that, and the test where
// it waits next.
func (f *faultTest) begin() {
	ctx, cancel := context.WithCancel(f.t.Context())
	f.audit = audit.New(audit.Config{
		URLs:     f.urls,
		Orders:   f.orders,
		Clients:  faultClients,
		Seed:     *seed,
		Prefix:   "key-",
		Timeout:  5 * time.Second,
		Patience: 10 * time.Minute, // a cluster on a busy machine may be long without a majority
		Before:   f.waitUntilAdmitted,
		OnFault: func(fault audit.Fault) {
			cancel()
			f.fault("%v\n%s", fault, f.logged(fault.Body))
		},
	})
	f.created = make(chan struct{})
	go func() {
		defer close(f.created)
		defer cancel()
		f.audit.Create(ctx)
	}()
	f.t.Cleanup(func() { <-f.created }) // f.t.Context is done by then
}

// waitUntilAdmitted waits until a client may send one more order.
func (f *faultTest) waitUntilAdmitted(ctx context.Context) {
	if f.admitted == nil {
		return
	}
	select {
	case <-f.admitted:
	case <-ctx.Done():
	}
}

// end waits until all orders are acknowledged.
func (f *faultTest) end() {
	f.t.Helper()
	f.waitUntilAcknowledged(f.orders)
	<-f.created
}

// waitUntilAcknowledged waits until n orders are acknowledged.
func (f *faultTest) waitUntilAcknowledged(n int) {
	f.t.Helper()
	f.waitUntil(fmt.Sprintf("%d orders are acknowledged", n), func(p audit.Progress) bool { return p.Acknowledged >= n })
}

// waitUntil waits until the clients have come as far as a test wants. It ends the
// test if they will not, or if anything else is wrong.
func (f *faultTest) waitUntil(what string, enough func(audit.Progress) bool) {
	f.t.Helper()
	came := f.audit.Wait(f.t.Context(), enough)
	if f.t.Failed() {
		f.t.FailNow()
	}
	if !came {
		f.t.Fatalf("not so far that %s: %+v", what, f.audit.Progress())
	}
}

// fault fails the test, with a message for the first faults.
func (f *faultTest) fault(format string, args ...any) {
	f.t.Helper()
	if f.faults.Add(1) <= 10 {
		f.t.Errorf(format, args...)
	} else {
		f.t.Fail()
	}
}

// logged returns what the replicas have logged about the incident that a problem
// names.
func (f *faultTest) logged(problem []byte) string {
	var p struct{ Instance string }
	if json.Unmarshal(problem, &p); p.Instance == "" {
		return ""
	}
	for _, r := range f.replicas {
		text, _ := os.ReadFile(r.log)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, p.Instance) {
				return line
			}
		}
	}
	return "not logged"
}

// killReplica kills one of the replicas and starts it again.
func (f *faultTest) killReplica() {
	f.t.Helper()
	f.kills["replica"]++
	r := f.replicas[f.rng.IntN(len(f.replicas))]
	if state, ended := r.process.hasEnded(); ended {
		f.t.Fatalf("a replica has ended by itself: %v", state)
	}
	r.process.kill()
	r.start()
}

// check sends every order to every replica once more, ends the replicas, and
// compares what was acknowledged with what the database has.
func (f *faultTest) check(open func() *sql.DB) {
	f.t.Helper()
	for _, r := range f.replicas {
		r.waitUntilServing()
	}
	f.audit.Replay(f.t.Context())
	r := f.audit.Result()
	if r.Again > 0 {
		f.fault("keys had to be sent again %d times although all is well", r.Again)
	}
	if want := f.orders * len(f.urls); r.Replayed != want {
		f.fault("%d orders were replayed %d times, want %d", f.orders, r.Replayed, want)
	}
	for _, r := range f.replicas {
		r.end()
	}

	lost, duplicated, unknown := account(f.audit.Orders(), storedOrders(f.t, open()))
	for _, list := range []struct {
		what   string
		orders []string
	}{{"lost", lost}, {"duplicated", duplicated}, {"unknown", unknown}} {
		if len(list.orders) > 0 {
			f.t.Errorf("%d orders are %s: %q…", len(list.orders), list.what, list.orders[:min(5, len(list.orders))])
		}
	}
	f.t.Logf("seed %d: %d acknowledged, %d lost, %d duplicated, %d retries, %d replays; %d keys sent again replayed %d times; killed: %v; longest gap %v; %v",
		*seed, r.Acknowledged, len(lost), len(duplicated), r.Retries, r.Replays,
		r.Acknowledged, r.Replayed, f.kills, r.LongestGap.Round(time.Millisecond), time.Since(f.began).Round(100*time.Millisecond))
}

// account compares orders that clients have sent with those in the database, and
// returns the items of those acknowledged that are not there as they were
// acknowledged, of those there more than once, and of those that no client has
// sent.
func account(sent []audit.Order, stored []storefront.Order) (lost, duplicated, unknown []string) {
	have := make(map[string][]storefront.Order) // by item
	for _, o := range stored {
		have[o.Item] = append(have[o.Item], o)
	}
	for _, o := range sent {
		there := have[o.Item]
		delete(have, o.Item)
		if len(there) > 1 {
			duplicated = append(duplicated, o.Item)
		}
		if o.Body == nil {
			continue
		}
		found := 0
		for _, stored := range there {
			if text, err := json.Marshal(stored); err == nil && bytes.Equal(text, o.Body) {
				found++
			}
		}
		if found != 1 {
			lost = append(lost, o.Item)
		}
	}
	for item := range have {
		unknown = append(unknown, item)
	}
	return lost, duplicated, unknown
}

func TestAccount(t *testing.T) {
	at := time.UnixMilli(1).UTC()
	body := []byte(`{"id":"a","item":"tea","qty":2,"created_at":"1970-01-01T00:00:00.001Z"}`)
	acknowledged := audit.Order{Item: "tea", Body: body}
	tea := storefront.Order{ID: "a", Item: "tea", Qty: 2, CreatedAt: at}
	for _, row := range []struct {
		name                      string
		sent                      audit.Order
		stored                    []storefront.Order
		lost, duplicated, unknown int
	}{
		{"there", acknowledged, []storefront.Order{tea}, 0, 0, 0},
		{"gone", acknowledged, nil, 1, 0, 0},
		{"another ID", acknowledged, []storefront.Order{{ID: "b", Item: "tea", Qty: 2, CreatedAt: at}}, 1, 0, 0},
		{"another quantity", acknowledged, []storefront.Order{{ID: "a", Item: "tea", Qty: 3, CreatedAt: at}}, 1, 0, 0},
		{"another time", acknowledged, []storefront.Order{{ID: "a", Item: "tea", Qty: 2, CreatedAt: at.Add(time.Millisecond)}}, 1, 0, 0},
		{"twice", acknowledged, []storefront.Order{tea, {ID: "b", Item: "tea", Qty: 2, CreatedAt: at}}, 0, 1, 0},
		{"never sent", acknowledged, []storefront.Order{tea, {ID: "b", Item: "cup", Qty: 2, CreatedAt: at}}, 0, 0, 1},
		{"not acknowledged and gone", audit.Order{Item: "tea"}, nil, 0, 0, 0},
		{"not acknowledged and there", audit.Order{Item: "tea"}, []storefront.Order{tea}, 0, 0, 0},
		{"not acknowledged and twice", audit.Order{Item: "tea"}, []storefront.Order{tea, tea}, 0, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			lost, duplicated, unknown := account([]audit.Order{row.sent}, row.stored)
			if len(lost) != row.lost || len(duplicated) != row.duplicated || len(unknown) != row.unknown {
				t.Errorf("lost %q, duplicated %q, unknown %q; want %d, %d, %d", lost, duplicated, unknown, row.lost, row.duplicated, row.unknown)
			}
		})
	}
}

var durableBinary, stockBinary, storefrontBinary = binaryOf("durable"), binaryOf("durable/examples/stock"), binaryOf("cmd/storefront")

// binaryOf returns a function that returns one of the commands in the repository,
// which it builds when it is called for the first time.
func binaryOf(command string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		g, err := theProcessGroup()
		if err != nil {
			return "", err
		}
		name := filepath.Join(g.dir, path.Base(command))
		build := exec.Command("go", "build", "-o", name, "example.com/storefront/"+command)
		build.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.id} // else it may write the file after all is removed
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build %s: %w\n%s", command, err, out)
		}
		return name, nil
	})
}

// A replica is a process of a command, or one after the other.
type replica struct {
	t       *testing.T
	args    []string
	url     string
	log     string
	process *process
}

func (r *replica) start() {
	r.t.Helper()
	var err error
	if r.process, err = startProcess(exec.Command(r.args[0], r.args[1:]...), r.log); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) waitUntilServing() {
	r.t.Helper()
	waitFor(r.t, r.url+" serves", 30*time.Second, r.process, func() error {
		w, err := http.Get(r.url + "/v2/widgets?limit=1")
		if err != nil {
			return err
		}
		w.Body.Close()
		if w.StatusCode != http.StatusOK {
			return errors.New(w.Status)
		}
		return nil
	})
}

// end ends the replica as an operator would, without the delay after SIGTERM.
func (r *replica) end() {
	r.t.Helper()
	if err := r.process.Process.Signal(os.Interrupt); err != nil {
		r.t.Fatal(err)
	}
	<-r.process.ended
	if r.process.state != nil {
		r.t.Errorf("%s ended with %v, want status 0", r.url, r.process.state)
	}
}
