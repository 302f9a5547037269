package sqlstore_test

import (
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// ordered returns a store whose database answers each statement that asks for orders, or for the index of
// their lists, with what answer returns, and the kinds of these statements.
func ordered(t *testing.T, engine engine, answer func(kind string) ([][]driver.Value, error)) (
	*sqlstore.Store, *[]string) {
	var asked []string
	f := newFakeDB(engine)
	f.run = func(_ context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
		switch kind := kindOf(query); kind {
		case "ORDERS", "INDEX", "MAKE INDEX", "DROP INDEX":
			asked = append(asked, kind)
			return answer(kind)
		}
		return nil, errPassOn
	}
	return sqlstore.New(open(t, f), &sqlstore.Options{OrderLists: true, Timeout: timeout}), &asked
}

// rowOf returns the row of an order.
func rowOf(o storefront.Order, scope string) []driver.Value {
	return []driver.Value{o.ID, o.Item, o.Qty, string(o.Fields), o.CreatedAt.UnixMilli(), []byte(scope)}
}

// A pooler may mix up the answers of its connections, and they may be of somebody else's orders.
func TestRowsOfAnotherScopeAreNobodys(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		later := order
		later.ID += "z"
		for name, wrong := range map[string][]driver.Value{
			"another's": rowOf(order, "bob"), "nobody's": rowOf(order, ""), "not asked for": rowOf(later, "alice"),
		} {
			first := false
			store, _ := ordered(t, engine, func(kind string) ([][]driver.Value, error) {
				switch {
				case kind == "INDEX":
					return [][]driver.Value{{"ready"}}, nil
				case first:
					first = false
					return [][]driver.Value{wrong}, nil
				}
				return [][]driver.Value{rowOf(order, "alice")}, nil
			})
			orders := store.OrderReader()
			for method, read := range map[string]func() ([]storefront.Resource, error){
				"ListOrders": func() ([]storefront.Resource, error) {
					return orders.ListOrders(t.Context(), "alice", later.ID, 10)
				},
				"GetOrder": func() ([]storefront.Resource, error) {
					got, err := orders.GetOrder(t.Context(), "alice", order.ID)
					return []storefront.Resource{got}, err
				},
				"GetOrderByKey": func() ([]storefront.Resource, error) {
					if name == "not asked for" { // every ID is
						return []storefront.Resource{storefront.MustResource(order.ID, order)}, nil
					}
					got, err := orders.GetOrderByKey(t.Context(), "alice", "key")
					return []storefront.Resource{got}, err
				},
			} {
				first = true
				if got, err := read(); err != nil || len(got) != 1 || got[0].ID() != order.ID {
					t.Errorf("after a row that is %s, %s returned %v, %v", name, method, got, err)
				}
			}
		}
	})
}

// A page of the program's own may pass on what a client has sent.
func TestIDThatNoOrderCanHaveIsNotFound(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		store, _ := ordered(t, engine, func(string) ([][]driver.Value, error) { return nil, stateError("22021") })
		for _, id := range []string{"\xff", "ord_\x00"} {
			if _, err := store.OrderReader().GetOrder(t.Context(), "alice", id); err != storefront.ErrNotFound {
				t.Errorf("GetOrder of %q returned %v", id, err)
			}
		}
	})
}

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
		state := ""
		store, asked := ordered(t, engine, func(kind string) ([][]driver.Value, error) {
			if kind == "INDEX" && state != "" {
				return [][]driver.Value{{state}}, nil
			}
			return nil, nil
		})
		for _, row := range []struct{ state, says string }{
			{"ready", "<nil>"}, {"", "no index on (scope, id)"}, {"invalid", "is invalid"},
			{"building", storefront.ErrUnavailable.Error()}, {"ready", "<nil>"},
		} {
			time.Sleep(time.Minute)
			*asked, state = nil, row.state
			_, err := store.OrderReader().ListOrders(t.Context(), "alice", "", 10)
			if !strings.Contains(fmt.Sprint(err), row.says) {
				t.Errorf("with the index %q, ListOrders returned %v, want %s", state, err, row.says)
			}
			if slices.Contains(*asked, "ORDERS") != (err == nil) {
				t.Errorf("with the index %q, ListOrders asked for %q", state, *asked)
			}
		}
		*asked = nil
		store.OrderReader().ListOrders(t.Context(), "alice", "", 10)
		if len(*asked) != 1 {
			t.Errorf("a list right after one asked for %q", *asked)
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
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				states := strings.Split(row.states, " ")
				store, asked := ordered(t, postgres, func(kind string) ([][]driver.Value, error) {
					if kind != "INDEX" {
						time.Sleep(time.Hour) // as long as it takes
						return nil, nil
					}
					state := states[0]
					if states = states[1:]; state == "" {
						return nil, nil
					}
					return [][]driver.Value{{state}}, nil
				})
				if err := store.Migrate(t.Context()); (err != nil) != row.fails {
					t.Errorf("Migrate returned %v", err)
				}
				made := slices.DeleteFunc(*asked, func(kind string) bool { return kind == "INDEX" })
				if strings.Join(made, " ") != row.made || len(states) > 0 {
					t.Errorf("Migrate ran %q, want %q; %q were left", made, row.made, states)
				}
			})
		})
	}
}
