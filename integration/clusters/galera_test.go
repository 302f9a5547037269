package clusters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/storefront/integration/internal/long"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/sqltap"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
	"example.com/storefront/storetest"
)

// galeraDatabases returns a new database of the cluster, with the tables of sqlstore, as
// each node has it.
func galeraDatabases(t *testing.T, c *dbserver.GaleraCluster) (nodes []*testdb.DB) {
	t.Helper()
	return clusterDatabases(t, c.Servers(), dbserver.Waiting)
}

// clusterDatabases returns a new database of servers that replicate to each other, as
// each of them has it by a data source name that set has changed.
func clusterDatabases(t *testing.T, servers []*dbserver.Server, set func(dsn string) string) (nodes []*testdb.DB) {
	t.Helper()
	name := servers[0].NewDatabase(t)
	for _, server := range servers {
		nodes = append(nodes, testdb.New(t, "mysql", set(server.DSNOf(name))))
	}
	return nodes
}

func TestStoreOnGalera(t *testing.T) {
	t.Parallel()
	testStoreOnCluster(t, galeraDatabases(t, dbserver.SharedGalera(t)))
}

// testStoreOnCluster sends each call to another node than the one before.
func testStoreOnCluster(t *testing.T, nodes []*testdb.DB) {
	nodes[0].Exec(t, "CREATE TABLE sold_out (item VARCHAR(255) NOT NULL PRIMARY KEY)")
	t.Run("without Accept", func(t *testing.T) {
		long.Test(t)
		storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
			return newRoundRobin(t, nodes, nil, contents)
		})
	})
	t.Run("with Accept", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
			return &refusingRoundRobin{newRoundRobin(t, nodes, &sqlstore.Options{Accept: testdb.UnlessSoldOut(nodes[0])}, contents)}
		})
	})
}

func TestSameKeysOnDifferentNodes(t *testing.T) {
	testSameKeysOnDifferentNodes(t, galeraDatabases(t, dbserver.SharedGalera(t)), long.Of(300, 3000), long.Of(100, 1000))
}

// testSameKeysOnDifferentNodes has replicas on different nodes be sent the same order
// at the same time. None of them knows of the others before the commit.
func testSameKeysOnDifferentNodes(t *testing.T, nodes []*testdb.DB, keys, keysWithAccept int) {
	nodes[0].Exec(t, "CREATE TABLE notes (order_id VARCHAR(255) NOT NULL PRIMARY KEY)", "CREATE TABLE stock (item VARCHAR(255) NOT NULL PRIMARY KEY, taken BIGINT NOT NULL)")
	const items = 10
	for i := range items {
		nodes[0].Exec(t, fmt.Sprintf("INSERT INTO stock VALUES ('item %d', 0)", i))
	}
	for _, row := range []struct {
		name   string
		keys   int
		accept testdb.Accept
	}{
		{"without Accept", keys, nil},
		// So that orders meet which have nothing in common but what they write.
		{"with Accept", keysWithAccept, func(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, order storefront.Order) error {
			if _, err := tx.ExecContext(ctx, "UPDATE stock SET taken = taken + 1 WHERE item = ?", order.Item); err != nil {
				return err
			}
			return testdb.Noted(ctx, tx, key, order)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			nodes[0].Clear(t)
			var met [3]atomic.Int64 // errors that say that another was there first, by node
			var stores []storefront.Store
			for i, d := range nodes {
				db := sqltap.Open(t, d.Driver, d.URL, func(_ context.Context, _ sqltap.Statement, run func() error) error {
					err := run()
					if e, ok := errors.AsType[*mysql.MySQLError](err); ok && (e.Number == 1062 || e.Number == 1213 || e.Number == 3101) {
						met[i].Add(1)
					}
					return err
				})
				db.SetMaxOpenConns(8)
				db.SetMaxIdleConns(8)
				stores = append(stores, sqlstore.New(db, &sqlstore.Options{Accept: row.accept, Timeout: time.Minute}))
			}
			const callers = 8
			acknowledged := make([]storefront.Order, row.keys)
			var taken atomic.Int64
			var calling sync.WaitGroup
			for range callers {
				calling.Go(func() {
					for n := int(taken.Add(1)) - 1; n < row.keys; n = int(taken.Add(1)) - 1 {
						var orders [3]storefront.Order
						var same sync.WaitGroup
						for i, store := range stores {
							same.Go(func() {
								var err error
								if orders[i], err = testdb.Create(t.Context(), store, fmt.Sprint("key ", n), fmt.Sprintf("item %d", n%items)); err != nil {
									t.Errorf("key %d on node %d: %v", n, i, err)
								}
							})
						}
						same.Wait()
						if orders[1] != orders[0] || orders[2] != orders[0] {
							t.Errorf("key %d: the nodes returned %v", n, orders)
						}
						acknowledged[n] = orders[0]
					}
				})
			}
			calling.Wait()
			t.Logf("%d orders, each sent to three nodes at once, met another %d, %d and %d times", row.keys, met[0].Load(), met[1].Load(), met[2].Load())
			if met[0].Load()+met[1].Load()+met[2].Load() == 0 {
				t.Error("no order met another, so this test shows nothing")
			}
			byID := func(a, b storefront.Order) int { return strings.Compare(a.ID, b.ID) }
			slices.SortFunc(acknowledged, byID)
			for i, d := range nodes {
				stored := testdb.StoredOrders(t, d.Pool)
				slices.SortFunc(stored, byID)
				if diff := cmp.Diff(acknowledged, stored); diff != "" {
					t.Errorf("orders that were acknowledged (-) and that node %d has (+):\n%s", i, diff)
				}
				if row.accept == nil {
					continue
				}
				testdb.CheckOrders(t, d, nil, func(string) bool { return false }, true)
				if sum := testdb.Column(t, d.Pool, "SELECT sum(taken) FROM stock"); !slices.Equal(sum, []string{strconv.Itoa(row.keys)}) {
					t.Errorf("on node %d, %v pieces were taken for %d orders", i, sum, row.keys)
				}
			}
		})
	}

	// A call that has decided to create the order, and has not yet done so, and one
	// that refuses it because of what has changed since: their callers must not be told
	// different things.
	t.Run("decided differently", func(t *testing.T) {
		nodes[0].Clear(t)
		nodes[0].Exec(t, "CREATE TABLE sold_out (item VARCHAR(255) NOT NULL PRIMARY KEY)")
		decided, resume := make(chan struct{}), make(chan struct{})
		first := true
		creating := nodes[0].OpenWith(t, &sqlstore.Options{Timeout: time.Minute,
			Accept: func(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, order storefront.Order) error {
				err := testdb.UnlessSoldOut(nodes[0])(ctx, tx, key, order)
				if first {
					first = false
					close(decided)
					<-resume
				}
				return err
			}})
		refusing := nodes[1].OpenWith(t, &sqlstore.Options{Timeout: time.Minute, Accept: testdb.UnlessSoldOut(nodes[1])})
		slow := &testdb.Purchase{Key: "key", Item: "kettle"}
		var sending sync.WaitGroup
		sending.Go(func() { slow.Send(t.Context(), creating) })
		<-decided
		// In Galera, reads wait until the table is on the node, and no INSERT does.
		nodes[2].Exec(t, "SELECT item FROM sold_out", "INSERT INTO sold_out VALUES ('kettle')")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // it may also wait for the other call
		defer cancel()
		order, err := testdb.Create(ctx, refusing, "key", "kettle")
		close(resume)
		sending.Wait()
		refusal, _ := errors.AsType[*storefront.Refusal](err)
		if refusal != nil && slow.Err == nil {
			t.Errorf("one caller was told that there is none left, and then another that this was created: %v", slow.Order)
		}
		if slow.Err == nil && err == nil && order != slow.Order {
			t.Errorf("one key was acknowledged as %v and %v", slow.Order, order)
		}
		t.Logf("the slow call: %v, the other: %v", slow.Err, err)
		testdb.CheckOrders(t, nodes[2], []*testdb.Purchase{slow}, func(string) bool { return slow.Err != nil && err != nil }, false)
	})
}

// The others have what a node has acknowledged, whatever becomes of it. A node that is
// not with most of the others acknowledges nothing, neither a new order nor an old
// one, and does not show what is no longer so.
func TestNodeThatIsNotWithTheOthers(t *testing.T) {
	long.Test(t)
	c := dbserver.StartGalera(t, 3)
	for _, row := range []struct {
		name  string
		leave func(t testing.TB)
		wake  func(t testing.TB) // has the node go on, which does not know yet what it has missed
		back  func(t testing.TB)
		alone bool // when it goes on
	}{
		{"cut off", c.Nodes[1].CutOff, func(testing.TB) {}, c.Nodes[1].Connect, true},
		{"frozen", c.Nodes[1].Freeze, c.Nodes[1].Thaw, func(testing.TB) {}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			nodes := galeraDatabases(t, c)
			at := func(node int, timeout time.Duration) *testdb.SQLStore {
				return nodes[node].OpenWith(t, &sqlstore.Options{Timeout: timeout})
			}
			const before = 50
			lonely := at(1, 2*time.Second)
			var acknowledged []storefront.Order
			var keys []string // of acknowledged
			var unknown []string
			try := func(key string) {
				order, err := testdb.Create(t.Context(), lonely, key, key)
				switch {
				case err == nil:
					acknowledged, keys = append(acknowledged, order), append(keys, key)
				case errors.Is(err, storefront.ErrUnavailable):
					unknown = append(unknown, key)
				default:
					t.Errorf("%s: %v, want it created or ErrUnavailable", key, err)
				}
			}
			for i := range before {
				try(fmt.Sprint("before ", i))
			}
			if len(acknowledged) != before {
				t.Fatalf("with all nodes there, %d of %d orders were created", len(acknowledged), before)
			}

			// Orders come while the node goes.
			gone := make(chan struct{})
			var leaving sync.WaitGroup
			leaving.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-gone:
						return
					default:
						try(fmt.Sprint("meanwhile ", i))
					}
				}
			})
			row.leave(t)
			others := at(0, time.Minute)
			if _, err := testdb.Create(t.Context(), others, "elsewhere", "elsewhere"); err != nil {
				t.Errorf("without the node, another does not create an order: %v", err)
			}
			if err := others.Users.Put(t.Context(), storefront.MustResource("ada", nil)); err != nil {
				t.Errorf("without the node, another does not put a user: %v", err)
			}
			c.WaitUntilSynced(t, c.Nodes[0], c.Nodes[2])
			row.wake(t)
			if list, err := at(1, time.Second).ListUsers(t.Context(), "", 10); err == nil && len(list) == 0 {
				t.Error("the node does not know of a user that another has")
			}
			close(gone)
			leaving.Wait()
			if row.alone {
				c.Nodes[1].WaitUntilRefusing(t)
				for _, key := range []string{"after", keys[0]} {
					if order, err := testdb.Create(t.Context(), lonely, key, key); !errors.Is(err, storefront.ErrUnavailable) {
						t.Errorf("%s: alone, the node returned %v, %v, want ErrUnavailable", key, order, err)
					}
				}
				unknown = append(unknown, "after")
			}
			stored := testdb.StoredOrders(t, nodes[0].Pool)
			for i, order := range acknowledged {
				if !slices.Contains(stored, order) {
					t.Errorf("%s was acknowledged, and another node does not have it", keys[i])
				}
			}

			row.back(t)
			c.WaitUntilSynced(t, c.Nodes...)
			for i, order := range acknowledged {
				for node := range nodes {
					if again, err := testdb.Create(t.Context(), at(node, time.Minute), keys[i], keys[i]); err != nil || again != order {
						t.Errorf("%s: node %d replays %v, %v, want %v", keys[i], node, again, err, order)
					}
				}
			}
			t.Logf("%d orders were acknowledged, %d were not", len(acknowledged), len(unknown))
			for _, key := range unknown {
				var orders [3]storefront.Order
				for node := range nodes {
					var err error
					if orders[node], err = testdb.Create(t.Context(), at(node, time.Minute), key, key); err != nil {
						t.Errorf("%s, sent again to node %d: %v", key, node, err)
					}
				}
				if orders[1] != orders[0] || orders[2] != orders[0] {
					t.Errorf("%s, sent again, is %v", key, orders)
				}
			}
			for node, d := range nodes {
				if n := len(testdb.StoredOrders(t, d.Pool)); n != len(acknowledged)+len(unknown)+1 {
					t.Errorf("node %d has %d orders, want %d", node, n, len(acknowledged)+len(unknown)+1)
				}
			}
		})
	}
}

// TestGaleraNodeKills kills the nodes of a cluster that replicas share in turn, each of
// which has another node as its first.
func TestGaleraNodeKills(t *testing.T) {
	long.Test(t)
	f := faulttest.New(t)
	c := dbserver.StartGalera(t, 3)
	startOnNodes(t, f, c)
	next := 0
	f.Orders = long.Of(1600, 5000)
	f.Run(f.Orders/4, func() {
		f.Kills["node"]++
		c.Nodes[next].Kill(t)
		c.Nodes[next].Start(t)
		next = (next + 1) % len(c.Nodes)
	})
	c.WaitUntilSynced(t, c.Nodes...)
	f.Check(func() *sql.DB { return dbserver.Open(t, "mysql", dbserver.Waiting(c.Nodes[next].DSN())) })
}

// startOnNodes is f.start for replicas on a cluster, each of which has another node as its
// first.
func startOnNodes(t *testing.T, f *faulttest.Test, c *dbserver.GaleraCluster) {
	t.Helper()
	var hosts []string
	for _, node := range c.Nodes {
		hosts = append(hosts, node.Addr())
	}
	for range hosts {
		r := faulttest.StartReplicas(t, process.Durable, 1, "mysql://root@"+strings.Join(hosts, ",")+"/shop?wsrep_sync_wait=1")[0]
		f.Use(append(f.Replicas, r)...)
		hosts = append(hosts[1:], hosts[0])
	}
}

// TestGaleraCutsAndKills cuts one node of three off and kills another, at once or one
// after the other, so that the third is alone. Nobody orders then, and no node goes on
// by itself. When both are back, in whichever sequence, the cluster does so with all
// that was acknowledged, and nobody has to tell it which node is right.
func TestGaleraCutsAndKills(t *testing.T) {
	long.Test(t)
	f := faulttest.New(t)
	c := dbserver.StartGalera(t, 3)
	startOnNodes(t, f, c)
	// So that there are orders at each fault, and so few in between that a node that
	// comes back soon has what it has missed.
	const rounds, before, after, left = 10, 80, 20, 60
	f.Orders = rounds * (2*before + after)
	f.BeginAdmitting()
	order := func() {
		t.Helper()
		f.Admit(before)
		f.WaitUntilAcknowledged(f.Admitted - left)
	}
	for round := range rounds {
		order()
		nodes := f.Rand.Perm(len(c.Nodes))
		cut, killed, alone := c.Nodes[nodes[0]], c.Nodes[nodes[1]], c.Nodes[nodes[2]]
		switch round % 4 {
		case 1: // two are the whole cluster by then
			f.Kills["cut off, then killed"]++
			cut.CutOff(t)
			c.WaitUntilSynced(t, killed, alone)
			order()
			killed.Kill(t)
		case 3:
			f.Kills["killed, then cut off"]++
			killed.Kill(t)
			c.WaitUntilSynced(t, cut, alone)
			order()
			cut.CutOff(t)
		default:
			f.Kills["cut off and killed"]++
			cut.CutOff(t)
			killed.Kill(t)
		}
		cut.WaitUntilRefusing(t)
		alone.WaitUntilRefusing(t)
		f.Admit((round+1)*(2*before+after) - f.Admitted) // at least one for each client
		f.WaitUntilStuck()

		comeBack := []func(){
			func() { cut.Connect(t) },
			func() { killed.Relaunch(t) },
		}
		for _, i := range f.Rand.Perm(len(comeBack)) {
			comeBack[i]()
		}
		c.WaitUntilSynced(t, c.Nodes...)
	}
	f.End()
	f.Check(func() *sql.DB { return dbserver.Open(t, "mysql", dbserver.Waiting(c.Nodes[0].DSN())) })
}

// A roundRobin sends each call to another store than the one before.
type roundRobin struct {
	stores []*testdb.SuiteStore
	calls  atomic.Uint64
}

var _ interface {
	storetest.Clock
	storetest.Editor
	storetest.OrderLister
	storetest.Reopener
} = (*roundRobin)(nil)

func newRoundRobin(t *testing.T, nodes []*testdb.DB, opts *sqlstore.Options, contents storetest.Contents) *roundRobin {
	t.Helper()
	r := new(roundRobin)
	for i, d := range nodes {
		if i == 0 {
			r.stores = append(r.stores, testdb.NewSuiteStore(t, d, opts, contents))
		} else {
			r.stores = append(r.stores, testdb.OpenSuiteStore(t, d, opts))
		}
	}
	return r
}

func (r *roundRobin) next() *testdb.SuiteStore { return r.stores[r.calls.Add(1)%uint64(len(r.stores))] }

func (r *roundRobin) ListUsers(ctx context.Context, after string, limit int) ([]storefront.Resource, error) {
	return r.next().ListUsers(ctx, after, limit)
}

func (r *roundRobin) CreateOrder(ctx context.Context, key storefront.IdempotencyKey, order storefront.Order) (storefront.Order, error) {
	return r.next().CreateOrder(ctx, key, order)
}

func (r *roundRobin) GetProduct(ctx context.Context, id string) (storefront.Resource, error) {
	return r.next().GetProduct(ctx, id)
}

func (r *roundRobin) ListWidgets(ctx context.Context, start string, limit int) ([]storefront.Resource, error) {
	return r.next().ListWidgets(ctx, start, limit)
}

func (r *roundRobin) Put(ctx context.Context, contents storetest.Contents) error {
	return r.next().Put(ctx, contents)
}

func (r *roundRobin) Delete(ctx context.Context, contents storetest.Contents) error {
	return r.next().Delete(ctx, contents)
}

func (r *roundRobin) Orders() []storefront.Order { return r.next().Orders() }

func (r *roundRobin) Advance(d time.Duration) {
	s := r.next()
	s.Orders() // waits until the node has them all, which an UPDATE does not
	s.Advance(d)
}

func (r *roundRobin) Reopen(t *testing.T) storefront.Store { return r.reopen(t) }

func (r *roundRobin) reopen(t *testing.T) *roundRobin {
	t.Helper()
	reopened := new(roundRobin)
	for _, s := range r.stores {
		reopened.stores = append(reopened.stores, s.Reopened(t))
	}
	return reopened
}

// A refusingRoundRobin is a roundRobin of stores like a RefusingStore.
type refusingRoundRobin struct{ *roundRobin }

var _ interface {
	storetest.Refuser
	storetest.Reopener
} = (*refusingRoundRobin)(nil)

func (r *refusingRoundRobin) SellOut(ctx context.Context, item string) (storefront.Refusal, error) {
	return (&testdb.RefusingStore{SuiteStore: r.next()}).SellOut(ctx, item)
}

func (r *refusingRoundRobin) Restock(ctx context.Context, item string) error {
	return (&testdb.RefusingStore{SuiteStore: r.next()}).Restock(ctx, item)
}

// Reopen hides that of roundRobin.
func (r *refusingRoundRobin) Reopen(t *testing.T) storefront.Store {
	t.Helper()
	return &refusingRoundRobin{r.reopen(t)}
}
