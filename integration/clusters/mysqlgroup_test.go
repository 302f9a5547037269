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

	"github.com/go-sql-driver/mysql"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/sqltap"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

// TestMySQLGroup has replicas on different members be sent the same order at the same time. None
// of them knows of the others before the commit.
func TestMySQLGroup(t *testing.T) {
	long.Test(t)
	var nodes []*testdb.DB
	for _, m := range dbserver.StartMySQLGroup(t).Members {
		nodes = append(nodes, testdb.New(t, "mysql", m.DSN()+before))
	}
	const keys, items = 300, 10
	nodes[0].Exec(t, "CREATE TABLE notes (order_id VARCHAR(255) NOT NULL PRIMARY KEY)",
		"CREATE TABLE stock (item VARCHAR(255) NOT NULL PRIMARY KEY, taken BIGINT NOT NULL)")
	for i := range items {
		nodes[0].Exec(t, fmt.Sprintf("INSERT INTO stock VALUES ('item %d', 0)", i))
	}
	for name, accept := range map[string]testdb.Accept{
		"without Accept": nil,
		// So that orders meet which have nothing in common but what they write.
		"with Accept": func(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, order storefront.Order) error {
			if _, err := tx.ExecContext(ctx, "UPDATE stock SET taken = taken + 1 WHERE item = ?", order.Item); err != nil {
				return err
			}
			return testdb.Noted(ctx, tx, key, order)
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes[0].Clear(t)
			var met atomic.Int64 // errors that say that another was there first
			var stores []storefront.Store
			for _, d := range nodes {
				db := sqltap.Open(t, d.Driver, d.URL, func(_ context.Context, _ sqltap.Statement, run func() error) error {
					err := run()
					if e, ok := errors.AsType[*mysql.MySQLError](err); ok && (e.Number == 1062 || e.Number == 1213 || e.Number == 3101) {
						met.Add(1)
					}
					return err
				})
				db.SetMaxOpenConns(8)
				db.SetMaxIdleConns(8)
				stores = append(stores, sqlstore.New(db, &sqlstore.Options{Accept: accept, Timeout: time.Minute}))
			}
			var purchases []*testdb.Purchase // each on all nodes
			for n := range keys {
				for range nodes {
					p := &testdb.Purchase{Key: fmt.Sprint("key ", n), Item: fmt.Sprint("item ", n%items)}
					purchases = append(purchases, p)
				}
			}
			var calling sync.WaitGroup
			for clerk := range 8 {
				calling.Go(func() {
					for n := clerk; n < keys; n += 8 {
						var same sync.WaitGroup
						for i, store := range stores {
							same.Go(func() { purchases[n*len(nodes)+i].Send(t.Context(), store) })
						}
						same.Wait()
					}
				})
			}
			calling.Wait()
			for i, p := range purchases {
				node := i % len(nodes)
				if first := purchases[i-node]; p.Err != nil || !p.Order.Equal(first.Order) {
					t.Errorf("%s: node %d returned %v, %v, and another one %v", p.Key, node, p.Order, p.Err, first.Order)
				}
			}
			if met.Load() == 0 {
				t.Error("no order met another, so this test shows nothing")
			}
			for i, d := range nodes {
				testdb.CheckOrders(t, d, purchases, func(string) bool { return false }, accept != nil)
				if n := len(testdb.StoredOrders(t, d.Pool)); n != keys {
					t.Errorf("node %d has %d orders, want %d", i, n, keys)
				}
				if accept == nil {
					continue
				}
				if sum := testdb.Column(t, d.Pool, "SELECT sum(taken) FROM stock"); !slices.Equal(sum, []string{strconv.Itoa(keys)}) {
					t.Errorf("on node %d, %v pieces were taken for %d orders", i, sum, keys)
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
		nodes[2].Exec(t, "INSERT INTO sold_out VALUES ('kettle')")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // it may also wait for the other call
		defer cancel()
		order, err := testdb.Create(ctx, refusing, "key", "kettle")
		close(resume)
		sending.Wait()
		refusal, _ := errors.AsType[*storefront.Refusal](err)
		if refusal != nil && slow.Err == nil {
			t.Errorf("one caller was told that there is none left, and then another that this was created: %v", slow.Order)
		}
		if slow.Err == nil && err == nil && !order.Equal(slow.Order) {
			t.Errorf("one key was acknowledged as %v and %v", slow.Order, order)
		}
		t.Logf("the slow call: %v, the other: %v", slow.Err, err)
		testdb.CheckOrders(t, nodes[2], []*testdb.Purchase{slow}, func(string) bool { return slow.Err != nil && err != nil }, false)
	})
}

// TestMySQLMemberKills kills the members of a group in which all take writes, in turn,
// and replicas that have each another member as their first.
func TestMySQLMemberKills(t *testing.T) {
	long.Test(t)
	f := faulttest.New(t)
	g := dbserver.StartMySQLGroup(t)
	var hosts []string
	for _, m := range g.Members {
		hosts = append(hosts, m.Addr())
	}
	for range hosts {
		url := "mysql://shop@" + strings.Join(hosts, ",") + "/shop?" + before[1:]
		f.Use(append(f.Replicas, faulttest.StartReplicas(t, process.Storefrontd, 1, url)...)...)
		hosts = append(hosts[1:], hosts[0])
	}
	f.Orders = 1200
	f.Begin()
	for i, m := range g.Members {
		f.WaitUntilAcknowledged((i + 1) * f.Orders / 4)
		g.WaitUntilOnline(t) // the others must be most of them
		f.Kills["member"]++
		m.Kill(t)
		m.Start(t)
	}
	f.End()
	g.WaitUntilOnline(t)
	f.Check(func() *sql.DB { return dbserver.Open(t, "mysql", g.Members[0].DSN()+before) })
}

// before is for data source names with which a transaction waits until the member
// has what was committed before on any member.
const before = "&group_replication_consistency='BEFORE'"
