package sqlstore_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// newVtgate returns a database that says that it is vtgate, over three shards, with the settings of a cluster
// with semi-synchronous replicas. answer answers statements in its place.
func newVtgate(answer func(ctx context.Context, query string, args row) ([]row, error)) *fakeDB {
	f := newFakeDB(mysql)
	f.server.says["VERSION"] = "8.4.6-Vitess"
	f.server.says["LIMIT"] = []driver.Value{"0", int64(0)} // none
	f.server.variables = map[string]string{
		"autocommit": "1", "sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1",
		"rpl_semi_sync_source_enabled": "ON", "rpl_semi_sync_source_wait_point": "AFTER_SYNC",
		"rpl_semi_sync_source_timeout": "1000000000000000000",
	}
	f.run = func(ctx context.Context, _ int, query string, args []driver.Value) ([][]driver.Value, error) {
		if rows, err := answer(ctx, query, args); err != errPassOn {
			return rows, err
		}
		switch query {
		case "SELECT DATABASE()":
			return [][]driver.Value{{"shop"}}, nil
		case "SHOW VITESS_TABLETS":
			return [][]driver.Value{{"zone1", "other", "-20", "PRIMARY"}, {"zone1", "shop", "80-", "PRIMARY"},
				{"zone1", "shop", "40-80", "PRIMARY"}, {"zone1", "shop", "40-80", "REPLICA"},
				{"zone1", "shop", "-40", "PRIMARY"}}, nil
		case "SELECT @@transaction_mode":
			return [][]driver.Value{{"MULTI"}}, nil
		}
		return nil, errPassOn
	}
	return f
}

// Each statement stays in one shard, even if its keys are taken. One of two shards shows that the store has
// old bounds of them: it read these before a shard was divided.
func TestVitessStatementsStayInOneShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		crossed, made := 0, 0
		seen := make(map[string]map[int]bool) // the shards of all statements of a kind
		taken := []byte(keyHash(storefront.IdempotencyKey{Value: "taken"}))
		old := slices.Repeat([][]driver.Value{nil}, 300)
		for i := range old {
			hash := md5.Sum(fmt.Append(nil, i))
			old[i] = []driver.Value{fmt.Sprintf("ord_%026d", i), slices.Concat(hash[:], hash[:])}
		}
		store := sqlstore.New(open(t, newVtgate(func(_ context.Context, query string, args row) ([]row, error) {
			time.Sleep(time.Millisecond) // so that orders share a commit
			mu.Lock()
			defer mu.Unlock()
			if query == "SHOW VITESS_TABLETS" && crossed == 0 {
				return [][]driver.Value{{"zone1", "shop", "-", "PRIMARY"}}, nil
			}
			kind, isTaken, shard := kindOf(query), false, -1
			for i, arg := range args {
				id, ok := arg.([]byte) // a place, a key's hash, or the ID of a resource
				if !ok || kind == "INSERT" && i%9 != 5 && i%9 != 8 || kind == "DUE KEYS" {
					continue
				}
				isTaken = isTaken || bytes.Equal(id, taken)
				if len(id) != 8 && len(id) != 32 {
					sum := md5.Sum(id)
					id = sum[:]
				}
				n, _ := slices.BinarySearch([]byte{0x3f, 0x7f, 0xff}, id[0])
				if shard >= 0 && n != shard {
					crossed++
					return nil, &mySQLError{1105, "Error 1105 (HY000): multi-db transaction attempted"}
				}
				if shard = n; seen[kind] == nil {
					seen[kind] = make(map[int]bool)
				}
				seen[kind][n] = true
			}
			switch kind {
			case "INSERT":
				if isTaken {
					return nil, &mySQLError{1062, "Error 1062 (23000): Duplicate entry for key 'orders.key_hash'"}
				}
				for row := range slices.Chunk(args, 9) {
					want := sqlstore.Place(storefront.IdempotencyKey{Value: row[1].(string)})
					if !bytes.Equal(row[8].([]byte), want[:]) {
						t.Errorf("the order of the key %s has the place %x", row[1], row[8])
					}
				}
				made += len(args) / 9
				return make([][]driver.Value, len(args)/9), nil
			case "TAKEN":
				return [][]driver.Value{{taken}}, nil
			case "REPLAY":
				if isTaken {
					return [][]driver.Value{{"ord_there", "taken", int64(1), "", int64(0), make([]byte, 32), taken}}, nil
				}
				return nil, nil
			case "DUE KEYS":
				rows := old
				old = nil
				return rows, nil
			case "FORGET":
				return make([][]driver.Value, len(args)/2), nil
			case "LAST":
				if len(args) != 2 {
					t.Errorf("the last order is looked for in all shards, by %x", args)
				}
				return nil, errSilent
			case "SETTLE":
				t.Error("it looks for an order that is lost, as its shard does not answer")
			case "PUT", "DELETE":
				return nil, nil
			}
			return nil, errPassOn
		})), nil)
		var items, ids []string
		var resources []storefront.Resource
		for i := range 300 {
			items, ids = append(items, fmt.Sprint("kettle ", i)), append(ids, fmt.Sprint(i))
			resources = append(resources, storefront.MustResource(ids[i], nil))
		}
		create(t, store, items[:200]...).Wait()
		wg := create(t, store, items[200:220]...)
		replay := propose(t, store, "taken")
		wg.Go(create(t, store, items[220:]...).Wait)
		wg.Wait()
		replay.want(t, "ord_there")
		must.OK(t, store.Users.Put(t.Context(), resources...))
		must.OK(t, store.Users.Delete(t.Context(), ids...))
		n := must.Get(store.ForgetKeys(t.Context(), time.Now().Add(-25*time.Hour)))(t)
		// Four commits were under way when the shard was divided.
		if made != 300 || n != 300 || crossed == 0 || crossed > 4 || len(seen["TAKEN"]) != 1 {
			t.Errorf("of 300 each, %d orders were made, and %d keys forgotten; %d statements were of two shards, "+
				"and which keys are taken was asked of %v", made, n, crossed, seen["TAKEN"])
		}
		for _, kind := range []string{"INSERT", "PUT", "DELETE", "FORGET"} {
			if len(seen[kind]) != 3 {
				t.Errorf("the shards of all %s are %v, want 3", kind, seen[kind])
			}
		}
	})
}

func TestVitessSettings(t *testing.T) {
	for _, test := range []struct {
		variable, value, want string // in the error; "": it fits
		passes                bool
	}{
		{variable: "version", value: "8.0.40"}, // that of a server
		{variable: "autocommit", value: "0", want: "autocommit"},
		{variable: "sync_binlog", value: "0", want: "sync_binlog"},
		{variable: "innodb_flush_log_at_trx_commit", value: "2", want: "innodb_flush_log_at_trx_commit"},
		{variable: "rpl_semi_sync_source_enabled", value: "OFF", want: "semi_sync", passes: true},
		{variable: "rpl_semi_sync_source_wait_point", value: "AFTER_COMMIT", want: "AFTER_SYNC", passes: true},
		{variable: "rpl_semi_sync_source_timeout", value: "10000", want: "10000", passes: true},
		{variable: "Accept", want: "transaction_mode = MULTI"},
	} {
		inBubble(t, test.variable, func(t *testing.T) {
			f := newVtgate(func(context.Context, string, row) ([]row, error) { return nil, errPassOn })
			f.server.variables[test.variable] = test.value
			f.server.says["VERSION"] = cmp.Or(f.server.variables["version"], "8.4.6-Vitess")
			opts := &sqlstore.Options{Timeout: time.Second}
			if test.variable == "Accept" {
				opts.Accept = always(nil)
			}
			_, err := sqlstore.New(open(t, f), opts).GetProduct(t.Context(), "none")
			if unavailable := errors.Is(err, storefront.ErrUnavailable); unavailable != test.passes ||
				test.want == "" && err != storefront.ErrNotFound || !strings.Contains(err.Error(), test.want) {
				t.Errorf("GetProduct returned %v, want an error that names %q", err, test.want)
			}
		})
	}
}

// onVtgate returns a store on newVtgate, where no order is there. fail fails statements.
func onVtgate(t *testing.T, fail func(context.Context, string) error) *sqlstore.Store {
	f := newVtgate(func(ctx context.Context, query string, args row) ([]row, error) {
		if err := fail(ctx, query); err != nil {
			return nil, err
		}
		switch kindOf(query) {
		case "INSERT":
			return make([][]driver.Value, len(args)/9), nil
		case "REPLAY", "LAST":
			return nil, nil
		}
		if query == "SELECT @@transaction_mode" {
			return [][]driver.Value{{"SINGLE"}}, nil
		}
		return nil, errPassOn
	})
	opts := &sqlstore.Options{Accept: always(nil), Timeout: timeout, Logger: slog.New(slog.DiscardHandler)}
	return sqlstore.New(open(t, f), opts)
}

// While vtgate does not answer one of the store's statements, or answers it with an error of its own, calls
// end in their time, with ErrUnavailable, and the next ones succeed when it answers again. It answers none of
// them by asking etcd, which may be away for longer.
func TestVtgateDoesNotAnswerAStatement(t *testing.T) {
	asksEtcd := regexp.MustCompile(`^SHOW (VITESS_SHARDS|VITESS_KEYSPACES|KEYSPACES|DATABASES|SCHEMAS)`)
	statements := make(map[string]bool)
	inBubble(t, "all", func(t *testing.T) {
		store := onVtgate(t, func(_ context.Context, query string) error {
			if asksEtcd.MatchString(query) {
				t.Errorf("%s asks etcd", query)
			}
			if strings.Contains(query, " ") { // not BEGIN, COMMIT and ROLLBACK, as on all MySQL servers
				statements[query] = true
			}
			return nil
		})
		must.OK(t, store.Check(t.Context()))
		wantOrder(t, store)
	})
	for statement := range statements {
		for how, fail := range map[string]func(context.Context, string) error{
			"hangs": hang,
			"no etcd": func(context.Context, string) error { // where it has asked etcd, and waited for five seconds
				return &mySQLError{1105, "Error 1105 (HY000): keyspace names fetch error: deadline exceeded"}
			},
		} {
			inBubble(t, statement+"/"+how, func(t *testing.T) {
				var fails, met atomic.Bool
				store := onVtgate(t, func(ctx context.Context, query string) error {
					if query != statement || !fails.Load() {
						return nil
					}
					met.Store(true)
					return fail(ctx, query)
				})
				for range 2 { // from the start, and later
					fails.Store(true)
					began := time.Now()
					err := store.Check(t.Context())
					call := propose(t, store, "kettle")
					for _, err := range []error{err, call.wait()} {
						if took := time.Since(began); took > 2*timeout || call.took > timeout ||
							err != nil && !errors.Is(err, storefront.ErrUnavailable) {
							t.Errorf("Check or CreateOrder returned %v, both after %v", err, took)
						}
					}
					fails.Store(false)
					wantOrder(t, store)
					must.OK(t, store.Check(t.Context()))
				}
				if !met.Load() {
					t.Error("nothing failed")
				}
			})
		}
	}
}

// vttablet ends the text of an error with the statement and its arguments. No log gets these.
func TestErrorsOfVttabletAreLoggedWithoutValues(t *testing.T) {
	for number, test := range map[uint16]struct {
		text   string
		status int // of the answer
	}{
		1205: {"Lock wait timeout exceeded", 503},
		1406: {"Data too long for column 'item'", 500},
		1062: {"Duplicate entry 'kettle 1' for key 'orders.by_item'", 500}, // an index of the shop's
	} {
		inBubble(t, test.text, func(t *testing.T) {
			store := sqlstore.New(open(t, newVtgate(func(_ context.Context, query string, args row) ([]row, error) {
				switch kindOf(query) {
				case "INSERT", "ORDERS":
					time.Sleep(time.Millisecond) // so that orders share a commit
					return nil, &mySQLError{number, fmt.Sprintf("vttablet: %s (errno %d): Sql: %q, BindVars: {%q}",
						test.text, number, query, args)}
				case "REPLAY", "TAKEN":
					return nil, nil
				}
				return nil, errPassOn
			})), &sqlstore.Options{Timeout: timeout, OrderLists: true})
			log, wg := new(strings.Builder), new(sync.WaitGroup)
			service := storefront.NewWithOptions(store, &storefront.Options{
				Logger: slog.New(slog.NewTextHandler(log, nil))})
			for i := range 3 {
				r := httptest.NewRequest("POST", "/v1/orders", strings.NewReader(
					fmt.Sprintf(`{"item":"kettle %d","qty":1}`, i)))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Idempotency-Key", fmt.Sprintf(`"k%d"`, i))
				wg.Go(func() {
					w := httptest.NewRecorder()
					if service.ServeHTTP(w, r); w.Code != test.status {
						t.Errorf("the answer is %d %s, want %d", w.Code, w.Body, test.status)
					}
				})
			}
			wg.Wait()
			if strings.Count(log.String(), "vttablet: ") != 3 || strings.Contains(log.String(), "kettle") {
				t.Errorf("the log has not 3 errors without an item:\n%s", log)
			}
			_, err := store.OrderReader().GetOrder(t.Context(), "ada", "ord_1")
			if err == nil || strings.Contains(err.Error(), "ada") {
				t.Errorf("GetOrder returned %v, want an error without the scope", err)
			}
		})
	}
}
