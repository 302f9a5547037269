package commits

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// A curse is what the database does to an order for the item "cursed", by a trigger.
type curse struct {
	name string
	when string // it is run
	does string
	with []string // statements before
}

// takes is the name of a curse that is none: the row is there before it runs.
const takes = "ends itself"

const (
	after  = "AFTER INSERT ON storefront_orders"
	before = "BEFORE INSERT ON storefront_orders"
)

// triggers make the trigger of a curse, by when it is run and what it does.
var triggers = map[string][]string{
	"SQLite": {"CREATE TRIGGER curse {when} WHEN NEW.item = 'cursed' BEGIN {does}; END"},
	"PostgreSQL": {"CREATE FUNCTION curse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {does}; END $$",
		"CREATE {when} FOR EACH ROW WHEN (NEW.item = 'cursed') EXECUTE FUNCTION curse()"},
	"MariaDB": {"CREATE TRIGGER curse {when} FOR EACH ROW IF NEW.item = 'cursed' THEN {does}; END IF"},
	"MySQL":   {"CREATE TRIGGER curse {when} FOR EACH ROW IF NEW.item = 'cursed' THEN {does}; END IF"},
}

var curses = map[string][]curse{
	"PostgreSQL": {
		{"raises", "TRIGGER curse " + after, "RAISE EXCEPTION 'it is cursed'", nil},
		{"raises at the commit", "CONSTRAINT TRIGGER curse " + after + " DEFERRABLE INITIALLY DEFERRED",
			"RAISE EXCEPTION 'it is cursed'", nil},
		{"leaves it out", "TRIGGER curse " + before, "RETURN NULL", nil},
	},
	"SQLite": {
		{"undoes the statement", after, "SELECT RAISE(ABORT, 'it is cursed')", nil},
		{"undoes the transaction", after, "SELECT RAISE(ROLLBACK, 'it is cursed')", nil},
		// What the statement has done stays.
		{"fails", after, "SELECT RAISE(FAIL, 'it is cursed')", nil},
		// With the text of an error that passes.
		{"says that the database is locked", after, "SELECT RAISE(ABORT, 'database is locked')", nil},
		{"raises at the commit", after, "INSERT INTO children VALUES (1)", []string{
			"CREATE TABLE parents (id INTEGER PRIMARY KEY)",
			"CREATE TABLE children (parent INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)",
		}},
		{"leaves it out", before, "SELECT RAISE(IGNORE)", nil},
		{takes, after, "SELECT RAISE(IGNORE)", nil},
	},
	"MariaDB": mySQLCurses,
	"MySQL":   mySQLCurses,
}

var mySQLCurses = []curse{
	{"raises", after, "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'it is cursed'", nil},
	// With the error that a taken key has, too, and its text.
	{"finds a value taken that is called key_hash", after,
		"INSERT INTO curses VALUES (CONCAT(NEW.item, ' key_hash'))", []string{
			"CREATE TABLE curses (name VARCHAR(255) PRIMARY KEY)",
			"INSERT INTO curses VALUES ('cursed key_hash')",
		}},
}

// The database may have a reason of its own for not taking an order. The
// orders that share its commit are created all the same.
func TestOrderThatTheDatabaseRefuses(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		_, engine, _ := strings.Cut(t.Name(), "/")
		drop := "DROP TRIGGER curse"
		switch engine {
		case "SQLite":
			d.URL += "&_pragma=foreign_keys(1)"
		case "PostgreSQL":
			drop = "DROP FUNCTION curse CASCADE"
		}
		for _, curse := range curses[engine] {
			d.Exec(t, curse.with...)
			for _, statement := range triggers[engine] {
				d.Exec(t, strings.NewReplacer("{when}", curse.when, "{does}", curse.does).Replace(statement))
			}
			t.Run(curse.name, func(t *testing.T) {
				withAndWithout(t, d, func(t *testing.T, accept testdb.Accept) {
					checkCurse(t, d, curse.name, accept)
				})
			})
			d.Exec(t, drop)
		}
	})
}

func checkCurse(t *testing.T, d *testdb.DB, curse string, accept testdb.Accept) {
	t.Helper()
	cursed := func(item string) bool { return item == "cursed" && curse != takes }
	check := func(purchases []*testdb.Purchase) {
		for _, p := range purchases {
			// What is left out without an error may be there later.
			passes := errors.Is(p.Err, storefront.ErrUnavailable) && curse != "leaves it out"
			if (p.Err != nil) != cursed(p.Item) || passes {
				t.Errorf("%s of %s: %v", p.Key, p.Item, p.Err)
			}
		}
		testdb.CheckOrders(t, d, purchases, cursed, accept != nil)
	}
	for round := range 2 {
		purchases := mixed(round, "cursed")
		sendTogether(t, d, accept, purchases)
		check(purchases)
	}
	alone := &testdb.Purchase{Key: "alone", Item: "cursed"}
	alone.Send(t.Context(), d.OpenWith(t, &sqlstore.Options{Accept: accept}))
	check([]*testdb.Purchase{alone})
}

// An order whose key is locked by someone else waits for them, and no other order
// waits with it.
func TestOrdersWhoseKeysAreLocked(t *testing.T) {
	// Not on one database: InnoDB locks more where rows have been deleted that it has not purged yet.
	for name, accept := range map[string]testdb.Accept{"without Accept": nil, "with Accept": testdb.Noted} {
		t.Run(name, func(t *testing.T) {
			testdb.OnSQLServers(t, func(t *testing.T, d *testdb.DB) {
				t.Parallel()
				d.Exec(t, "CREATE TABLE notes (order_id VARCHAR(255) NOT NULL)")
				checkLockedKeys(t, d, d.OpenWith(t, &sqlstore.Options{Accept: accept}))
			})
		})
	}
}

// An order that another program has locked, or is changing, replays meanwhile.
func TestReplaysOfLockedOrders(t *testing.T) {
	testdb.OnSQLServers(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		withAndWithout(t, d, func(t *testing.T, accept testdb.Accept) {
			store := d.OpenWith(t, &sqlstore.Options{Accept: accept, Timeout: 20 * time.Second})
			order := must.Get(testdb.Create(t.Context(), store, "key", "kettle"))(t)
			for _, statement := range []string{"SELECT id FROM storefront_orders WHERE id = '%s' FOR UPDATE",
				"UPDATE storefront_orders SET qty = qty + 1 WHERE id = '%s'", "DELETE FROM storefront_orders WHERE id = '%s'"} {
				tx := must.Get(d.Pool.BeginTx(t.Context(), nil))(t)
				must.Get(tx.Exec(fmt.Sprintf(statement, order.ID)))(t)
				if again, err := testdb.Create(t.Context(), store, "key", "kettle"); err != nil || !again.Equal(order) {
					t.Errorf("while another program has done %s, the replay is %v, %v", statement, again, err)
				}
				must.OK(t, tx.Rollback())
			}
		})
	})
}

func checkLockedKeys(t *testing.T, d *testdb.DB, store storefront.Store) {
	t.Helper()
	insert := d.SQL(`INSERT INTO storefront_orders (id, item, qty, created_ms, scope, key_hash, key_fingerprint) VALUES ($1, 'kettle', 1, 0, '', $2, $3)`)
	const locks, others = 6, 40 // more locks than commits of the store are under way
	var locked, free []*testdb.Purchase
	var holders []*sql.Tx
	fingerprint := [32]byte{1}
	for i := range locks {
		p := &testdb.Purchase{Key: fmt.Sprint("locked ", i), Item: "kettle"}
		hash := sha256.Sum256(append(make([]byte, 8), p.Key...))
		if d.Driver == "mysql" {
			// A transaction that waits for a key there keeps others from inserting keys
			// between it and the one before. In a table of many orders, these are few.
			before := new(big.Int).SetBytes(hash[:])
			before.Sub(before, big.NewInt(1))
			must.Get(d.Pool.Exec(insert, fmt.Sprint("ord_before_", i), before.FillBytes(make([]byte, 32)), fingerprint[:]))(t)
		}
		tx := must.Get(d.Pool.BeginTx(t.Context(), nil))(t)
		defer tx.Rollback()
		must.Get(tx.Exec(insert, fmt.Sprint("ord_of_another_", i), hash[:], fingerprint[:]))(t)
		locked, holders = append(locked, p), append(holders, tx)
	}
	for i := range others {
		free = append(free, &testdb.Purchase{Key: fmt.Sprint("free ", i), Item: "kettle"})
	}
	var waiting, sending sync.WaitGroup
	for i, p := range free {
		if i < len(locked) {
			waiting.Go(func() { locked[i].Send(t.Context(), store) })
		}
		sending.Go(func() { p.Send(t.Context(), store) })
	}
	sending.Wait()
	for i, tx := range holders {
		end := tx.Rollback
		if i%2 == 1 {
			end = tx.Commit
		}
		must.OK(t, end())
	}
	waiting.Wait()
	for _, p := range free {
		if p.Err != nil {
			t.Errorf("%s: %v", p.Key, p.Err)
		}
	}
	for i, p := range locked {
		want := ""
		if i%2 == 1 {
			want = fmt.Sprint("ord_of_another_", i)
		}
		if p.Err != nil || want != "" && p.Order.ID != want {
			t.Errorf("%s: %v, %v, want the order %s", p.Key, p.Order, p.Err, want)
		}
	}
	testdb.CheckOrders(t, d, append(locked, free...), func(string) bool { return false }, false)
}
