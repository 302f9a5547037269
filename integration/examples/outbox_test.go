package examples

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb/examples/outbox"
	"example.com/storefront/sqlstore"
)

// An outboxDatabase is a database with an outbox.
type outboxDatabase struct {
	*testdb.DB
	record  testdb.Accept
	publish func(context.Context, *sql.DB, func(ctx context.Context, event string) error) (int, error)
}

// withOutbox makes the outbox of a database.
func withOutbox(t *testing.T, d *testdb.DB) outboxDatabase {
	t.Helper()
	table, o := outbox.PostgresTable, outboxDatabase{d, outbox.Record, outbox.PublishPostgres}
	switch d.Driver {
	case "sqlite":
		table, o.publish = outbox.SQLiteTable, outbox.PublishSQLite
	case "mysql":
		table, o.record, o.publish = outbox.MySQLTable, outbox.RecordMySQL, outbox.PublishMySQL
	}
	d.Exec(t, table)
	return o
}

// orders creates n orders and returns their IDs.
func (d outboxDatabase) orders(t *testing.T, n int) (ids []string) {
	t.Helper()
	store := d.OpenWith(t, &sqlstore.Options{Accept: d.record})
	for i := range n {
		order := must.Get(testdb.Create(t.Context(), store, fmt.Sprint("key ", i), "kettle"))(t)
		ids = append(ids, order.ID)
	}
	return ids
}

// An inbox is what receives events.
type inbox struct {
	mu       sync.Mutex
	received []string // the IDs of the orders
}

func (b *inbox) send(_ context.Context, event string) error {
	var order storefront.Order
	if err := json.Unmarshal([]byte(event), &order); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.received = append(b.received, order.ID)
	return nil
}

// publishAll publishes until nothing is left. The locks of a publisher may end a
// little later than its connection, except in SQLite.
func (d outboxDatabase) publishAll(t *testing.T, send func(ctx context.Context, event string) error) {
	t.Helper()
	for len(testdb.Column(t, d.Pool, "SELECT position FROM outbox LIMIT 1")) > 0 {
		must.Get(d.publish(t.Context(), d.Pool, send))(t)
	}
}

// expectOrders compares the IDs of orders, in any sequence.
func expectOrders(t *testing.T, what string, want, got []string) {
	t.Helper()
	want, got = slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestOutboxPublishesAgainWhatItCouldNotDelete(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, database *testdb.DB) {
		t.Parallel()
		d := withOutbox(t, database)
		for _, cancelled := range []bool{false, true} { // the publisher is, or the receiver fails
			d.Clear(t)
			created := d.orders(t, 150)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var inbox inbox
			if _, err := d.publish(ctx, d.Pool, func(ctx context.Context, event string) error {
				if err := inbox.send(ctx, event); err != nil || len(inbox.received) != 5 {
					return err
				}
				if cancelled {
					cancel()
					return nil
				}
				return errors.New("the receiver is away")
			}); err == nil {
				t.Error("the failure was not reported")
			}
			d.publishAll(t, inbox.send)
			twice := created[4:5] // those before it are deleted all the same
			if cancelled {
				twice = created[:100] // a batch
			}
			expectOrders(t, "orders whose events were received", slices.Concat(created, twice), inbox.received)
		}
	})
}

// While a publisher is slow to send an event, another one sends and deletes it, and there is
// a new one.
func TestOutboxDeletesNoEventThatIsNew(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, database *testdb.DB) {
		t.Parallel()
		d := withOutbox(t, database)
		created := d.orders(t, 1)
		store := d.OpenWith(t, &sqlstore.Options{Accept: d.record})
		var inbox inbox
		if _, err := d.publish(t.Context(), d.Pool, func(context.Context, string) error {
			if _, err := d.publish(t.Context(), d.Pool, inbox.send); err != nil {
				return err
			}
			order, err := testdb.Create(t.Context(), store, "meanwhile", "teapot")
			created = append(created, order.ID)
			return err
		}); err != nil {
			t.Error(err)
		}
		d.publishAll(t, inbox.send)
		for _, id := range created[1:] {
			if !slices.Contains(inbox.received, id) {
				t.Errorf("the event of %s was not received", id)
			}
		}
	})
}

// Publishers pass over what another one has in hand, which is not lost when that one is killed.
func TestOutboxPublishersShareTheEvents(t *testing.T) {
	testdb.OnSQLServers(t, func(t *testing.T, database *testdb.DB) {
		t.Parallel()
		d := withOutbox(t, database)
		created := d.orders(t, 300)
		var killed, other inbox
		sent, resume, ended := make(chan struct{}), make(chan struct{}), make(chan error)
		go func() {
			_, err := d.publish(t.Context(), d.Connect(t), func(ctx context.Context, event string) error {
				if len(killed.received) == 3 {
					close(sent)
					<-resume
				}
				return killed.send(ctx, event)
			})
			ended <- err
		}()
		<-sent
		var publishing sync.WaitGroup
		for range 3 {
			db := d.Connect(t)
			publishing.Go(func() {
				for n := 1; n > 0; {
					var err error
					if n, err = d.publish(t.Context(), db, other.send); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		publishing.Wait()
		expectOrders(t, "what others publish meanwhile", created[100:], other.received)
		publishers := `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'`
		kill := "SELECT pg_terminate_backend(%s)"
		if d.Driver == "mysql" {
			publishers = `SELECT id FROM information_schema.processlist JOIN information_schema.innodb_trx ON id = trx_mysql_thread_id
				WHERE db = database()`
			kill = "KILL %s"
		}
		ids := testdb.Column(t, d.Pool, publishers)
		if len(ids) != 1 {
			t.Fatalf("there are the publishers %v, want one", ids)
		}
		d.Exec(t, fmt.Sprintf(kill, ids[0]))
		close(resume)
		if err := <-ended; err == nil {
			t.Error("the publisher that was killed returned no error")
		}
		d.publishAll(t, other.send)
		expectOrders(t, "what others have published at last", created, other.received)
	})
}

// Positions are given before the commit.
func TestOutboxPublishesAnEventThatAppearsBeforeOthers(t *testing.T) {
	testdb.OnSQLServers(t, func(t *testing.T, sqlDB *testdb.DB) {
		t.Parallel()
		d := withOutbox(t, sqlDB)
		late := must.Get(d.Pool.BeginTx(t.Context(), nil))(t)
		defer late.Rollback()
		must.OK(t, d.record(t.Context(), late, storefront.IdempotencyKey{}, storefront.Order{ID: "ord_late"}))
		created := d.orders(t, 1)
		var inbox inbox
		must.Get(d.publish(t.Context(), d.Pool, func(ctx context.Context, event string) error {
			return errors.Join(inbox.send(ctx, event), late.Commit())
		}))(t)
		d.publishAll(t, inbox.send)
		expectOrders(t, "orders whose events were received", append(created, "ord_late"), inbox.received)
	})
}
