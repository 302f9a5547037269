package clusters

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb/mysql"
	"example.com/storefront/sqlstore"
)

// TestReplicaThatCanBeWrittenToIsNoPrimary has a replica that nobody has set read_only. While the primary
// stands still, no order may go there, even if replication has ended with an error: the primary has keys that
// it has not.
func TestReplicaThatCanBeWrittenToIsNoPrimary(t *testing.T) {
	for _, row := range []struct {
		kind            *dbserver.Kind
		grant           string // to the account of the shop; "": it is not told of replication
		source          string // the statement by which the replica follows the primary
		start, end, was string // of replication
		says            string // of the replica
	}{
		{dbserver.MariaDB, "", "CHANGE MASTER TO MASTER_HOST = '%s', MASTER_PORT = %s, MASTER_USER = 'root'",
			"START SLAVE", "STOP SLAVE", "RESET SLAVE ALL", "replicates from another server"},
		{dbserver.MariaDB, "REPLICA MONITOR", "CHANGE MASTER TO MASTER_HOST = '%s', MASTER_PORT = %s, MASTER_USER = 'root'",
			"START SLAVE", "STOP SLAVE", "RESET SLAVE ALL", "replicates from 127.0.0.1"},
		{dbserver.MySQL, "REPLICATION CLIENT", "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '%s', SOURCE_PORT = %s, SOURCE_USER = 'root'",
			"START REPLICA", "STOP REPLICA", "RESET REPLICA ALL", "replicates from 127.0.0.1"},
	} {
		t.Run(row.kind.Name+" "+row.grant, func(t *testing.T) {
			t.Parallel()
			primary := row.kind.Start(t, "server-id=1", "log-bin=primary")
			replica := row.kind.Start(t, "server-id=2")
			first, second := dbserver.Open(t, "mysql", primary.DSN()), dbserver.Open(t, "mysql", replica.DSN())
			host, port, _ := net.SplitHostPort(primary.Addr())
			must.Get(second.Exec(fmt.Sprintf(row.source, host, port)))(t)
			must.Get(second.Exec(row.start))(t)
			account := []string{"CREATE USER clerk@'%' IDENTIFIED BY 'secret'", "GRANT ALL ON shop.* TO clerk@'%'"}
			if row.grant != "" {
				account = append(account, "GRANT "+row.grant+" ON *.* TO clerk@'%'")
			}
			for _, statement := range account {
				must.Get(first.Exec(statement))(t)
			}
			db := must.Get(mysql.Open("mysql://clerk:secret@"+primary.Addr()+","+replica.Addr()+"/shop", nil))(t)
			t.Cleanup(func() { db.Close() })
			store := sqlstore.New(db.DB, &sqlstore.Options{Timeout: 5 * time.Second})
			must.OK(t, store.Migrate(t.Context()))

			order := must.Get(testdb.Create(t.Context(), store, "key", "kettle"))(t)
			for n := 0; n == 0; { // the replica gets it some time
				second.QueryRow("SELECT COUNT(*) FROM storefront_orders").Scan(&n)
			}
			for _, broken := range []bool{false, true} {
				if broken {
					must.Get(second.Exec(row.end))(t)
				}
				primary.Freeze(t)
				if got, err := testdb.Create(t.Context(), store, fmt.Sprint("meanwhile ", broken), "kettle"); !errors.Is(err, storefront.ErrUnavailable) {
					t.Errorf("while the primary stands still, CreateOrder returned %v, %v", got, err)
				}
				primary.Thaw(t)
				again, err := testdb.Create(t.Context(), store, "key", "kettle")
				for errors.Is(err, storefront.ErrUnavailable) { // a call has little time until the primary has answered one
					again, err = testdb.Create(t.Context(), store, "key", "kettle")
				}
				if err != nil || !again.Equal(order) {
					t.Errorf("then, the key has the order %v (%v), want %v", again, err, order)
				}
			}
			must.Get(second.Exec(row.start))(t)

			// Nor does a store with a pool of its own.
			clerk := dbserver.Open(t, "mysql", strings.Replace(replica.DSN(), "root@", "clerk:secret@", 1))
			alone := sqlstore.New(clerk, &sqlstore.Options{Timeout: time.Second})
			for said := false; !said; {
				_, err := testdb.Create(t.Context(), alone, "other", "kettle")
				if !errors.Is(err, storefront.ErrUnavailable) {
					t.Fatalf("by way of the replica alone, CreateOrder returned %v, want that it %s", err, row.says)
				}
				// On a busy machine, a call may end before it has connected.
				said = strings.Contains(err.Error(), row.says)
			}
			if row.grant == "" {
				return // the server says no more to this account until it starts again
			}

			// Once it is the primary, it takes orders.
			for _, statement := range []string{row.end, row.was} {
				must.Get(second.Exec(statement))(t)
			}
			primary.Kill(t)
			for _, s := range []*sqlstore.Store{store, alone} {
				again, err := testdb.Create(t.Context(), s, "key", "kettle")
				for errors.Is(err, storefront.ErrUnavailable) { // as above
					again, err = testdb.Create(t.Context(), s, "key", "kettle")
				}
				if err != nil || !again.Equal(order) {
					t.Errorf("on the new primary, the key has the order %v, %v, want %v", again, err, order)
				}
			}
		})
	}
}

// TestSubscriberIsNoPrimary has a PostgreSQL database that gets the orders of another one by logical replication,
// and can be written to.
func TestSubscriberIsNoPrimary(t *testing.T) {
	primary := testdb.New(t, "pgx", dbserver.Postgres.Start(t, "wal_level=logical").DSN())
	replica := testdb.New(t, "pgx", dbserver.Postgres.Database(t))
	primary.Exec(t, "CREATE PUBLICATION shop FOR TABLE storefront_orders")
	replica.Exec(t, "CREATE SUBSCRIPTION shop CONNECTION '"+primary.URL+"' PUBLICATION shop")
	_, err := testdb.Create(t.Context(), sqlstore.New(replica.Connect(t), nil), "key", "kettle")
	if err == nil || !strings.Contains(err.Error(), "the subscription shop writes into storefront_orders") {
		t.Errorf("CreateOrder returned %v", err)
	}
	must.Get(testdb.Create(t.Context(), sqlstore.New(primary.Pool, nil), "key", "kettle"))(t)
	replica.Exec(t, "DROP SUBSCRIPTION shop")
	must.Get(testdb.Create(t.Context(), sqlstore.New(replica.Connect(t), nil), "other", "kettle"))(t)
}
