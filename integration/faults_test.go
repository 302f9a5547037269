package integration

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
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
)

// As in: go test ./integration -run TestFailover -v -seed 2
var seed = flag.Uint64("seed", 1, "of the random choices of the fault tests")

const (
	faultOrders  = 10_000 // to be acknowledged, per test
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
func TestSQLiteKills(t *testing.T) {
	f := newFaultTest(t)
	file := filepath.Join(workFolder(t), "shop.db")
	f.start(1, file)
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
// test kills them or what they depend on, and then accounts for every order.
type faultTest struct {
	t        *testing.T
	began    time.Time
	rng      *rand.Rand // of the test's goroutine
	replicas []*replica
	client   http.Client
	kills    map[string]int // by what was killed

	acknowledged, retries, replays atomic.Int64

	mu     sync.Mutex
	orders []*testOrder
	faults int
}

// A testOrder is an order that a client has sent.
type testOrder struct {
	key, item string
	qty       int64
	body      []byte // of the first response that acknowledged it
	created   int    // how many responses say that they created it
}

func newFaultTest(t *testing.T) *faultTest {
	if testing.Short() {
		t.Skip("creates thousands of orders")
	}
	t.Logf("seed %d", *seed)
	f := &faultTest{
		t:     t,
		began: time.Now(),
		rng:   rand.New(rand.NewPCG(*seed, 0)),
		kills: make(map[string]int),
	}
	f.client.Transport = &http.Transport{MaxIdleConnsPerHost: faultClients}
	t.Cleanup(f.client.CloseIdleConnections)
	return f
}

// start starts replicas on a database and waits until they serve.
func (f *faultTest) start(replicas int, db string) {
	f.t.Helper()
	f.replicas = startReplicas(f.t, durableBinary, replicas, db)
}

// startReplicas starts processes of a command on a database, and waits until they
// serve.
func startReplicas(t *testing.T, command func() (string, error), n int, db string) (replicas []*replica) {
	t.Helper()
	binary, err := command()
	if err != nil {
		t.Fatal(err)
	}
	dir := workFolder(t)
	for i := range n {
		addr := "127.0.0.1:" + strconv.Itoa(freePort())
		r := &replica{
			t:    t,
			args: []string{binary, "-addr", addr, "-db", db},
			url:  "http://" + addr,
			log:  filepath.Join(dir, fmt.Sprintf("replica%d.log", i)),
		}
		replicas = append(replicas, r)
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(logTail(r.log))
			}
			if r.process != nil {
				r.process.kill()
			}
		})
		r.start()
	}
	for _, r := range replicas {
		r.waitUntilServing()
	}
	return replicas
}

// run has clients create orders until enough are acknowledged, and meanwhile
// calls fault whenever about every more of them are.
func (f *faultTest) run(every int, fault func()) {
	f.t.Helper()
	var clients sync.WaitGroup
	f.t.Cleanup(clients.Wait) // f.t.Context is done by then
	var taken atomic.Int64
	for i := range faultClients {
		rng := rand.New(rand.NewPCG(*seed, uint64(i+1)))
		clients.Go(func() {
			for f.t.Context().Err() == nil {
				n := int(taken.Add(1))
				if n > faultOrders {
					return
				}
				f.create(n, rng)
			}
		})
	}
	for next := 0; ; {
		next += every/2 + f.rng.IntN(every)
		if next >= faultOrders {
			break
		}
		f.waitUntilAcknowledged(next)
		fault()
	}
	f.waitUntilAcknowledged(faultOrders)
	clients.Wait()
}

// waitUntilAcknowledged fails the test if nothing is acknowledged for long.
func (f *faultTest) waitUntilAcknowledged(n int) {
	f.t.Helper()
	const limit = 30 * time.Second
	last, since := f.acknowledged.Load(), time.Now()
	for last < int64(n) {
		time.Sleep(time.Millisecond)
		if now := f.acknowledged.Load(); now > last {
			last, since = now, time.Now()
		}
		if f.t.Failed() {
			f.t.FailNow()
		}
		if time.Since(since) > limit {
			f.t.Fatalf("no order was acknowledged for %v, after %d", limit, last)
		}
	}
}

// create sends an order, in the ways that clients do, until it is acknowledged.
func (f *faultTest) create(n int, rng *rand.Rand) {
	o := &testOrder{key: fmt.Sprintf("key-%d", n), item: fmt.Sprintf("item %d", n), qty: int64(1 + n%9)}
	f.mu.Lock()
	f.orders = append(f.orders, o)
	f.mu.Unlock()
	const longestPause = 100 * time.Millisecond
	for pause, try := time.Millisecond, n; ; pause, try = min(2*pause, longestPause), try+1 {
		acknowledged, after := false, time.Duration(0)
		switch ctx := f.t.Context(); rng.IntN(10) {
		case 0: // twice at once
			var twin sync.WaitGroup
			var twinAcknowledged bool
			twin.Go(func() { twinAcknowledged, _, _ = f.send(ctx, o, try+1) })
			acknowledged, _, after = f.send(ctx, o, try)
			twin.Wait()
			acknowledged = acknowledged || twinAcknowledged
		case 1: // hang up early
			ctx, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(4000))*time.Microsecond)
			acknowledged, _, after = f.send(ctx, o, try)
			cancel()
		default:
			acknowledged, _, after = f.send(ctx, o, try)
		}
		if acknowledged {
			return
		}
		f.retries.Add(1)
		if after == 0 {
			after = rand.N(pause)
		}
		select {
		case <-time.After(min(after, longestPause)):
		case <-f.t.Context().Done():
			return
		}
	}
}

// send sends an order to a replica and checks the response, if one comes. An
// order is acknowledged if the response says so and was read to its end; else
// it may be sent again after some time.
func (f *faultTest) send(ctx context.Context, o *testOrder, replica int) (acknowledged, replayed bool, after time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", f.replicas[replica%len(f.replicas)].url+"/v1/orders",
		strings.NewReader(fmt.Sprintf(`{"item":%q,"qty":%d}`, o.item, o.qty)))
	if err != nil {
		f.fault("%v", err)
		return false, false, 0
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", o.key)
	w, err := f.client.Do(r)
	if err != nil {
		return false, false, 0
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		return false, false, 0
	}

	seconds, err := strconv.Atoi(w.Header.Get("Retry-After"))
	switch {
	case w.StatusCode == http.StatusCreated:
		replayed = w.Header.Get("Idempotent-Replayed") == "true"
		f.acknowledge(o, body, replayed)
		return true, replayed, 0
	case w.StatusCode != http.StatusConflict && w.StatusCode != http.StatusServiceUnavailable:
		f.fault("%s: %s\n%s", w.Status, body, f.logged(body))
	case err != nil || seconds < 1:
		f.fault("%s with Retry-After %q", w.Status, w.Header.Get("Retry-After"))
	}
	return false, false, time.Duration(seconds) * time.Second
}

// acknowledge records a response that acknowledges the order.
func (f *faultTest) acknowledge(o *testOrder, body []byte, replayed bool) {
	f.mu.Lock()
	first := o.body == nil
	if first {
		o.body = body
	}
	if !replayed {
		o.created++
	}
	same, created := bytes.Equal(body, o.body), o.created
	f.mu.Unlock()

	var order storefront.Order
	switch err := json.Unmarshal(body, &order); {
	case err != nil || order.Item != o.item || order.Qty != o.qty || order.ID == "" || order.CreatedAt.IsZero():
		f.fault("%s of %d was acknowledged as %s", o.item, o.qty, body)
	case !same:
		f.fault("%s is two orders:\n%s\n%s", o.key, o.body, body)
	case !replayed && created > 1:
		f.fault("%s was created %d times: %s", o.key, created, body)
	}
	if replayed {
		f.replays.Add(1)
	}
	if first {
		f.acknowledged.Add(1)
	}
}

// fault fails the test, with a message for the first faults.
func (f *faultTest) fault(format string, args ...any) {
	f.t.Helper()
	f.mu.Lock()
	f.faults++
	n := f.faults
	f.mu.Unlock()
	if n <= 10 {
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
	var clients sync.WaitGroup
	var next, again atomic.Int64
	for range faultClients {
		clients.Go(func() {
			for f.t.Context().Err() == nil {
				n := int(next.Add(1)) - 1
				if n >= len(f.orders) {
					return
				}
				for i, r := range f.replicas {
					acknowledged, replayed, _ := f.send(f.t.Context(), f.orders[n], i)
					switch {
					case !acknowledged:
						f.fault("%s: %s does not answer although all is well", f.orders[n].key, r.url)
					case !replayed:
						f.fault("%s: %s does not replay it", f.orders[n].key, r.url)
					default:
						again.Add(1)
					}
				}
			}
		})
	}
	clients.Wait()
	for _, r := range f.replicas {
		r.end()
	}

	lost, duplicated, unknown := account(f.orders, storedOrders(f.t, open()))
	for _, list := range []struct {
		what   string
		orders []string
	}{{"lost", lost}, {"duplicated", duplicated}, {"unknown", unknown}} {
		if len(list.orders) > 0 {
			f.t.Errorf("%d orders are %s: %q…", len(list.orders), list.what, list.orders[:min(5, len(list.orders))])
		}
	}
	f.t.Logf("seed %d: %d acknowledged, %d lost, %d duplicated, %d retries, %d replays; %d keys sent again replayed %d times; killed: %v; %v",
		*seed, f.acknowledged.Load(), len(lost), len(duplicated), f.retries.Load(), f.replays.Load()-again.Load(),
		len(f.orders), again.Load(), f.kills, time.Since(f.began).Round(100*time.Millisecond))
}

// account compares orders that clients have sent with those in the database, and
// returns the items of those acknowledged that are not there as they were
// acknowledged, of those there more than once, and of those that no client has
// sent.
func account(sent []*testOrder, stored []storefront.Order) (lost, duplicated, unknown []string) {
	have := make(map[string][]storefront.Order) // by item
	for _, o := range stored {
		have[o.Item] = append(have[o.Item], o)
	}
	for _, o := range sent {
		there := have[o.item]
		delete(have, o.item)
		if len(there) > 1 {
			duplicated = append(duplicated, o.item)
		}
		if o.body == nil {
			continue
		}
		found := 0
		for _, stored := range there {
			if text, err := json.Marshal(stored); err == nil && bytes.Equal(text, o.body) {
				found++
			}
		}
		if found != 1 {
			lost = append(lost, o.item)
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
	acknowledged := &testOrder{item: "tea", body: body}
	tea := storefront.Order{ID: "a", Item: "tea", Qty: 2, CreatedAt: at}
	for _, row := range []struct {
		name                      string
		sent                      *testOrder
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
		{"not acknowledged and gone", &testOrder{item: "tea"}, nil, 0, 0, 0},
		{"not acknowledged and there", &testOrder{item: "tea"}, []storefront.Order{tea}, 0, 0, 0},
		{"not acknowledged and twice", &testOrder{item: "tea"}, []storefront.Order{tea, tea}, 0, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			lost, duplicated, unknown := account([]*testOrder{row.sent}, row.stored)
			if len(lost) != row.lost || len(duplicated) != row.duplicated || len(unknown) != row.unknown {
				t.Errorf("lost %q, duplicated %q, unknown %q; want %d, %d, %d", lost, duplicated, unknown, row.lost, row.duplicated, row.unknown)
			}
		})
	}
}

var durableBinary, stockBinary = binaryOf("durable"), binaryOf("stock")

// binaryOf returns a function that returns one of this module's commands, which it
// builds when it is called for the first time.
func binaryOf(command string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		g, err := theProcessGroup()
		if err != nil {
			return "", err
		}
		name := filepath.Join(g.dir, command)
		build := exec.Command("go", "build", "-o", name, "./"+command)
		build.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.id} // else it may write the file after all is removed
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build ./%s: %w\n%s", command, err, out)
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

// end ends the replica as an operator would.
func (r *replica) end() {
	r.t.Helper()
	if err := r.process.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	<-r.process.ended
	if r.process.state != nil {
		r.t.Errorf("%s ended with %v, want status 0", r.url, r.process.state)
	}
}
