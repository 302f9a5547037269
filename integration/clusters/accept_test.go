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

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

// A taking is a way for Accept to take a piece out of the stock, or else to refuse the
// order, in two steps between which a test has it wait.
type taking struct {
	name string

	// look returns whether there is a piece. It may have taken it by then.
	look func(context.Context, *sql.Tx, storefront.Order) (bool, error)

	// take, unless it is nil, is called if there is.
	take func(context.Context, *sql.Tx, storefront.Order) error

	// Whether two replicas on different nodes sell the last piece twice: where both look
	// before either takes, and where one does both between the other's two steps.
	oversells, oversellsBetween bool
}

// accept returns an Accept that calls wait between the two steps.
func (k *taking) accept(wait func()) testdb.Accept {
	return func(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order) error {
		found, err := k.look(ctx, tx, order)
		wait()
		switch {
		case err != nil:
			return err
		case !found:
			return new(testdb.SoldOut)
		case k.take == nil:
			return nil
		}
		return k.take(ctx, tx, order)
	}
}

// The table stock has the pieces of an item. Those that are sold are rows of sold in
// some of these, and taken out of stock in the others.
var takings = []taking{{
	name: "UPDATE that decides by itself",
	look: changesRow(`UPDATE stock SET pieces = pieces - 1 WHERE item = ? AND pieces >= 1`),
}, {
	name: "SELECT FOR UPDATE, then UPDATE of that row",
	look: selects(`SELECT pieces FROM stock WHERE item = ? FOR UPDATE`),
	take: executes(`UPDATE stock SET pieces = pieces - 1 WHERE item = ?`),
}, {
	name: "UPDATE of a row that all have in common, then SELECT FOR UPDATE of others",
	look: func(ctx context.Context, tx *sql.Tx, order storefront.Order) (bool, error) {
		// A first SELECT is what all others without FOR UPDATE are from.
		if _, err := selects(`SELECT pieces FROM stock WHERE item = ?`)(ctx, tx, order); err != nil {
			return false, err
		}
		if _, err := changesRow(`UPDATE stock SET decisions = decisions + 1 WHERE item = ?`)(ctx, tx, order); err != nil {
			return false, err
		}
		return selects(unsold+` FOR UPDATE`)(ctx, tx, order)
	},
	take: insertSold,
}, {
	name:             "SELECT, then UPDATE of that row",
	look:             selects(`SELECT pieces FROM stock WHERE item = ?`),
	take:             executes(`UPDATE stock SET pieces = 0 WHERE item = ?`),
	oversellsBetween: true,
}, {
	name: "SELECT FOR UPDATE, then INSERT of another row",
	look: func(ctx context.Context, tx *sql.Tx, order storefront.Order) (bool, error) {
		if _, err := selects(`SELECT pieces FROM stock WHERE item = ? FOR UPDATE`)(ctx, tx, order); err != nil {
			return false, err
		}
		return selects(unsold)(ctx, tx, order)
	},
	take:      insertSold,
	oversells: true, oversellsBetween: true,
}}

// unsold is the query for how many pieces of an item are left that are not in sold.
const unsold = `SELECT max(stock.pieces) - count(sold.item) FROM stock LEFT JOIN sold ON sold.item = stock.item WHERE stock.item = ?`

// selects returns a function that returns whether the number that the query returns for
// the order's item is more than 0.
func selects(query string) func(context.Context, *sql.Tx, storefront.Order) (bool, error) {
	return func(ctx context.Context, tx *sql.Tx, order storefront.Order) (bool, error) {
		var n int
		err := tx.QueryRowContext(ctx, query, order.Item).Scan(&n)
		return n > 0, err
	}
}

// changesRow returns a function that returns whether the statement has changed a row.
func changesRow(statement string) func(context.Context, *sql.Tx, storefront.Order) (bool, error) {
	return func(ctx context.Context, tx *sql.Tx, order storefront.Order) (bool, error) {
		result, err := tx.ExecContext(ctx, statement, order.Item)
		if err != nil {
			return false, err
		}
		n, err := result.RowsAffected()
		return n > 0, err
	}
}

func executes(statement string) func(context.Context, *sql.Tx, storefront.Order) error {
	return func(ctx context.Context, tx *sql.Tx, order storefront.Order) error {
		_, err := tx.ExecContext(ctx, statement, order.Item)
		return err
	}
}

func insertSold(ctx context.Context, tx *sql.Tx, order storefront.Order) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO sold VALUES (?, ?)`, order.ID, order.Item)
	return err
}

// TestAcceptOnGalera holds sqlstore's documentation to what it says of Accept on a Galera
// cluster: which takings sell the last piece once, and that others do not, although all
// tables are the same on all nodes and every node waits for the others before it reads.
func TestAcceptOnGalera(t *testing.T) {
	nodes := galeraDatabases(t, dbserver.SharedGalera(t))
	nodes[0].Exec(t, "CREATE TABLE stock (item VARCHAR(255) NOT NULL PRIMARY KEY, pieces BIGINT NOT NULL, decisions BIGINT NOT NULL)",
		"CREATE TABLE sold (order_id VARCHAR(255) NOT NULL PRIMARY KEY, item VARCHAR(255) NOT NULL)")
	// Each item is of one subtest, as are the keys: an INSERT of a key that was deleted
	// locks what is beside it.
	items := 0
	stock := func(t *testing.T, pieces int) (item string) {
		t.Helper()
		items++
		item = fmt.Sprint("item ", items)
		nodes[0].Exec(t, fmt.Sprintf("INSERT INTO stock VALUES ('%s', %d, 0)", item, pieces))
		return item
	}
	for _, k := range takings {
		t.Run(k.name, func(t *testing.T) {
			oversellsBetween := k.oversellsBetween
			if !k.oversells && isOn(t, nodes[0], "innodb_snapshot_isolation") { // which finds this on one node
				oversellsBetween = false
			}
			for name, row := range map[string]struct{ between, oversells bool }{
				"both look before either takes":               {false, k.oversells},
				"one looks and takes between the other's two": {true, oversellsBetween},
			} {
				if !row.between && !row.oversells && oversellsBetween {
					continue // if one commits before the other takes, this is the other row
				}
				t.Run(name, func(t *testing.T) {
					purchases := sellLast(t, nodes[:2], &k, stock(t, 1), row.between)
					// Where it oversells, it need not: an order may be tried again for
					// another reason.
					for tries := 1; row.oversells && soldTo(t, purchases) == 1 && tries < 5; tries++ {
						purchases = sellLast(t, nodes[:2], &k, stock(t, 1), row.between)
					}
					want := 1
					if row.oversells {
						want = 2
					}
					if sold := soldTo(t, purchases); sold != want {
						t.Errorf("the last piece was sold %d times, want %d", sold, want)
					}
					testdb.CheckOrders(t, nodes[2], purchases, func(string) bool { return false }, false)
				})
			}
		})
	}

	// Many buyers, on all nodes at once.
	for _, k := range takings {
		if k.oversells || k.oversellsBetween {
			continue
		}
		t.Run("many buyers on all nodes: "+k.name, func(t *testing.T) {
			const pieces, buyers, callers = 50, 150, 5 // callers on each node
			item := stock(t, pieces)
			var asked, sold, refused, runs atomic.Int64
			var buying sync.WaitGroup
			for _, d := range nodes {
				store := d.OpenWith(t, &sqlstore.Options{Timeout: time.Minute, Accept: k.accept(func() { runs.Add(1) })})
				for range callers {
					buying.Go(func() {
						for n := asked.Add(1); n <= buyers; n = asked.Add(1) {
							_, err := testdb.Create(t.Context(), store, item+" "+strconv.FormatInt(n, 10), item)
							if _, ok := errors.AsType[*storefront.Refusal](err); ok {
								refused.Add(1)
							} else if err != nil {
								t.Errorf("key %d: %v", n, err)
							} else {
								sold.Add(1)
							}
						}
					})
				}
			}
			buying.Wait()
			t.Logf("%d buyers, of which %d got a piece and %d were refused, had Accept run %d times", buyers, sold.Load(), refused.Load(), runs.Load())
			for i, d := range nodes {
				left := testdb.Column(t, d.Pool, strings.Replace(unsold, "?", "'"+item+"'", 1))[0]
				orders := testdb.Column(t, d.Pool, "SELECT count(*) FROM storefront_orders WHERE item = '"+item+"'")[0]
				if sold.Load() != pieces || orders != strconv.Itoa(pieces) || left != "0" {
					t.Errorf("of %d pieces, %d were sold; node %d has %s orders, and %s pieces are left", pieces, sold.Load(), i, orders, left)
				}
			}
		})
	}
}

// sellLast has two replicas, each on a node of its own, sell the last piece. Both look
// before either takes it, or else the second looks, takes it and is seen on the first
// one's node between the first one's two steps.
func sellLast(t *testing.T, nodes []*testdb.DB, k *taking, item string, between bool) (purchases []*testdb.Purchase) {
	t.Helper()
	var stores []storefront.Store
	var looked, resume []chan struct{}
	for i, d := range nodes {
		looked, resume = append(looked, make(chan struct{})), append(resume, make(chan struct{}))
		first := true // an order that has lost is tried again
		stores = append(stores, d.OpenWith(t, &sqlstore.Options{Timeout: time.Minute, Accept: k.accept(func() {
			if first {
				first = false
				close(looked[i])
				<-resume[i]
			}
		})}))
		purchases = append(purchases, &testdb.Purchase{Key: fmt.Sprint(item, " ", i), Item: item})
	}
	var sending sync.WaitGroup
	sending.Go(func() { purchases[0].Send(t.Context(), stores[0]) })
	<-looked[0]
	if between {
		close(resume[1])
		purchases[1].Send(t.Context(), stores[1])
		testdb.StoredOrders(t, nodes[0].Pool) // returns when the node has the order
	} else {
		sending.Go(func() { purchases[1].Send(t.Context(), stores[1]) })
		<-looked[1]
		close(resume[1])
	}
	close(resume[0])
	sending.Wait()
	return purchases
}

// soldTo returns how many purchases have got a piece. The others must be refused.
func soldTo(t *testing.T, purchases []*testdb.Purchase) (sold int) {
	t.Helper()
	for _, p := range purchases {
		if p.Err == nil {
			sold++
		} else if _, refused := errors.AsType[*storefront.Refusal](p.Err); !refused {
			t.Errorf("%s: %v, want an order or a refusal", p.Key, p.Err)
		}
	}
	return sold
}

// isOn reports whether the server has a variable and it is ON.
func isOn(t *testing.T, d *testdb.DB, variable string) bool {
	t.Helper()
	value := testdb.Column(t, d.Pool, "SELECT variable_value FROM information_schema.global_variables WHERE variable_name = '"+variable+"'")
	return slices.Equal(value, []string{"ON"})
}
