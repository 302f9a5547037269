package sqlstore_test

import (
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// An index has no room for a scope of any length.
func TestScopesHaveColumnsOfTheirOwn(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		columns := make(map[string]bool)
		f := newFakeDB(engine)
		f.run = func(_ context.Context, _ int, query string, args []driver.Value) ([][]driver.Value, error) {
			if kindOf(query) == "ORDERS" {
				columns[string(args[1].([]byte))] = true
				return nil, nil
			}
			return nil, errPassOn
		}
		store := sqlstore.New(open(t, f), &sqlstore.Options{OrderLists: true})
		longest := strings.Repeat("s", 255)
		sum := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(longest+"1")))
		for n, scope := range []string{"", "alice", longest, longest + "1", longest + "2", sum, "sha256:"} {
			store.OrderReader().GetOrder(t.Context(), scope, "ord_1")
			if len(columns) != n+1 {
				t.Errorf("the scope %q has the column of another one", scope)
			}
		}
		for column := range columns {
			if len(column) > 255 {
				t.Errorf("a column has %d bytes, and MySQL has room for 255", len(column))
			}
		}
	})
}

// Without its index, a list would read all orders.
func TestNoListWithoutItsIndex(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		f := newFakeDB(engine)
		f.server.says["ORDERS"] = [][]driver.Value{}
		store := sqlstore.New(open(t, f), &sqlstore.Options{OrderLists: true})
		list := func() (asked int, err error) {
			before := len(f.ran)
			_, err = store.OrderReader().ListOrders(t.Context(), "alice", "", 10)
			return len(f.ran) - before, err
		}
		for _, row := range []struct{ state, says string }{
			{"ready", "<nil>"}, {"", "no index on (scope, id)"}, {"invalid", "is invalid"},
			{"building", storefront.ErrUnavailable.Error()}, {"ready", "<nil>"},
		} {
			time.Sleep(time.Minute)
			f.server.says["INDEX"] = row.state
			_, err := list()
			asked := kindOf(f.ran[len(f.ran)-1])
			if !strings.Contains(fmt.Sprint(err), row.says) || (asked == "ORDERS") != (err == nil) {
				t.Errorf("with the index %q, ListOrders returned %v after %s, want %s", row.state, err, asked, row.says)
			}
		}
		if n, err := list(); err != nil || n != 1 {
			t.Errorf("a list right after one sent %d statements, and returned %v", n, err)
		}
	})
}

func TestMigrateMakesTheIndexOfLists(t *testing.T) {
	for _, row := range []struct {
		name   string
		states string // of the index, one after the other
		made   string
		fails  bool
	}{
		{name: "that is not there", states: " ready", made: "MAKE INDEX"},
		{name: "that is there", states: "ready"},
		{name: "that somebody makes", states: "building building ready"},
		{name: "whose making was interrupted", states: "invalid ready", made: "DROP INDEX MAKE INDEX"},
		{name: "that the server does not make", states: "   ", made: "MAKE INDEX MAKE INDEX MAKE INDEX", fails: true},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			states, made := strings.Split(row.states, " "), ""
			f := newFakeDB(postgres)
			f.run = func(_ context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
				switch kind := kindOf(query); kind {
				case "MAKE INDEX", "DROP INDEX":
					made += kind + " "
					time.Sleep(time.Hour) // as long as it takes
					return nil, nil
				case "INDEX":
					state := states[0]
					states = states[1:]
					return [][]driver.Value{{state}}, nil
				}
				return nil, errPassOn
			}
			store := sqlstore.New(open(t, f), &sqlstore.Options{OrderLists: true, Timeout: timeout})
			if err := store.Migrate(t.Context()); (err != nil) != row.fails {
				t.Errorf("Migrate returned %v", err)
			}
			if strings.TrimSpace(made) != row.made || len(states) > 0 {
				t.Errorf("Migrate ran %q, want %q; %q were left", made, row.made, states)
			}
		})
	}
}
