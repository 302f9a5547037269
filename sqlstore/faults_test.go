package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// Whatever happens to any one statement, or to any two in a row: an order is there once, with what Accept
// has noted for it, and all calls with its key get it; or it is not there, and none does.
//
// With -race, which takes eight times as long, each case has every fifth statement, and the next case begins
// with the next one.
func TestFaultsOfAnyStatement(t *testing.T) {
	step, cases := 1, 0
	race := debug.BuildSetting{Key: "-race", Value: "true"}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, race) {
		step = 5
	}
	for _, engine := range engines {
		for _, accepts := range []bool{false, true} {
			for _, what := range []fate{lost, unsent, hung, stuck, refused, aborted, rolledBack, demoted} {
				for _, times := range []int{1, 2} {
					if engine == sqlite && (what == demoted || what == hung || what == stuck) {
						continue
					}
					t.Run(fmt.Sprintf("%v/Accept %t/%v/%d times", engine, accepts, what, times), func(t *testing.T) {
						cases++
						for nth := cases % step; ; nth += step {
							met := 0
							synctest.Test(t, func(t *testing.T) {
								met = testFaults(t, engine, accepts, what, nth, times)
							})
							if t.Failed() {
								t.Fatalf("with the fault of statement %d", nth)
							}
							if met < times {
								break
							}
						}
					})
				}
			}
		}
	}
}

// testFaults creates orders while the nth statement, and as many as times in all, meet their fate. It
// returns how many did.
func testFaults(t *testing.T, engine engine, accepts bool, what fate, nth, times int) (met int) {
	f := newFakeDB(engine)
	f.server.took = time.Millisecond
	var mu sync.Mutex
	seen := 0
	f.server.meets = func(string) (is fate) {
		mu.Lock()
		defer mu.Unlock()
		if seen++; seen > nth && met < times {
			met++
			is = what
		}
		return is
	}
	opts := &sqlstore.Options{Timeout: 10 * time.Second}
	refusal := &storefront.Refusal{Reason: "sold-out"}
	if accepts {
		opts.Accept = func(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, o storefront.Order) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO outbox", o.ID)
			if err == nil && o.Item == "refused" {
				err = refusal
			}
			return err
		}
	}
	db := open(t, f)
	db.SetMaxOpenConns(2 * times) // half of them for orders
	store := sqlstore.New(db, opts)
	items := []string{"a", "b", "rejected", "c", "refused"}
	got := make(map[string][]storefront.Order) // by item, the orders that calls returned, each once
	call := func(item, id string) {
		proposed := storefront.Order{ID: id, Item: item, Qty: 1, CreatedAt: order.CreatedAt}
		began := time.Now()
		o, err := store.CreateOrder(t.Context(), storefront.IdempotencyKey{Value: item}, proposed)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case time.Since(began) > opts.Timeout:
			t.Errorf("CreateOrder of %s took %v", item, time.Since(began))
		case item == "rejected" || accepts && item == "refused":
			if errors.Is(err, storefront.ErrUnavailable) && met > 0 {
				break
			}
			if item == "refused" && err != refusal || item == "rejected" && !errors.Is(err, f.server.errRejected()) {
				t.Errorf("CreateOrder of an order that is %s returned %v, %v", item, o, err)
			}
		case err == nil:
			if !slices.ContainsFunc(got[item], o.Equal) {
				got[item] = append(got[item], o)
			}
		case !errors.Is(err, storefront.ErrUnavailable):
			t.Errorf("CreateOrder of %s returned %v", item, err)
		}
	}
	for round := range 2 { // the second one is of clients who send their orders again
		var wg sync.WaitGroup
		for i, item := range append(items, "a") {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Microsecond) // some share a commit
				call(item, fmt.Sprint("ord_", round, i))
			})
		}
		wg.Wait()
		time.Sleep(2 * time.Minute) // until no statement of the round is under way
	}
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	for _, item := range items {
		stored := 0
		for _, row := range f.server.orders {
			if row.item != item {
				continue
			}
			stored++
			is := storefront.Order{ID: row.id, Item: row.item, Qty: row.qty, CreatedAt: order.CreatedAt}
			if len(got[item]) != 1 || !got[item][0].Equal(is) {
				t.Errorf("CreateOrder of %s returned %v, want %v", item, got[item], is)
			}
			if n := f.server.notes[row.id]; accepts && n != 1 {
				t.Errorf("the order of %s was noted %d times", item, n)
			}
		}
		if want := item != "rejected" && (!accepts || item != "refused"); stored != 1 && want || stored != 0 && !want {
			t.Errorf("there are %d orders of %s", stored, item)
		}
	}
	if accepts && len(f.server.notes) != 3 {
		t.Errorf("there are notes of %v, want 3", f.server.notes)
	}
	return met
}
