package sqlstore_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// newVtgate returns a database that says that it is vtgate, over three shards, with the settings of a
// cluster with semi-synchronous replicas. answer, if it is not nil, answers its other statements.
func newVtgate(answer func(query string, args []driver.Value) ([][]driver.Value, error)) *fakeDB {
	f := newFakeDB(mysql)
	f.server.says["VERSION"] = "8.4.6-Vitess"
	f.server.says["LIMIT"] = []driver.Value{"0", int64(0)} // none
	f.server.variables = map[string]string{
		"autocommit": "1", "sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1",
		"rpl_semi_sync_source_enabled": "ON", "rpl_semi_sync_source_wait_point": "AFTER_SYNC",
		"rpl_semi_sync_source_timeout": "1000000000000000000",
	}
	f.run = func(_ context.Context, _ int, query string, args []driver.Value) ([][]driver.Value, error) {
		switch query {
		case "SELECT DATABASE()":
			return [][]driver.Value{{"shop"}}, nil
		case "SHOW VITESS_SHARDS":
			return [][]driver.Value{{"other/-"}, {"shop/-40"}, {"shop/40-80"}, {"shop/80-"}}, nil
		case "SHOW VITESS_TABLETS":
			return [][]driver.Value{
				{"zone1", "shop", "-40", "PRIMARY", "SERVING", "zone1-100", "localhost", ""},
				{"zone1", "shop", "-40", "REPLICA", "SERVING", "zone1-101", "localhost", ""},
			}, nil
		case "SELECT @@transaction_mode":
			return [][]driver.Value{{"MULTI"}}, nil
		}
		if answer != nil {
			return answer(query, args)
		}
		return nil, errPassOn
	}
	return f
}

// shardOf returns the number of the shard of newVtgate that has a keyspace ID.
func shardOf(id []byte) int {
	n, _ := slices.BinarySearchFunc([]byte{0x3f, 0x7f, 0xff}, id[0], func(last, b byte) int { return int(last) - int(b) })
	return n
}

func TestVitessStatementsStayInOneShard(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		var mu sync.Mutex
		seen := make(map[string]map[int]bool) // the shards of all statements of a kind
		old := slices.Repeat([][]driver.Value{nil}, 300)
		for i := range old {
			hash := md5.Sum(fmt.Append(nil, i))
			old[i] = []driver.Value{fmt.Sprintf("ord_%026d", i), slices.Concat(hash[:], hash[:])}
		}
		f := newVtgate(func(query string, args []driver.Value) ([][]driver.Value, error) {
			kind := kindOf(query)
			var ids [][]byte // keyspace IDs of the rows
			var rows [][]driver.Value
			switch kind {
			case "INSERT":
				for row := range slices.Chunk(args, 9) {
					hash, place := row[5].([]byte), row[8].([]byte)
					want := sqlstore.Place(storefront.IdempotencyKey{Value: row[1].(string)})
					if !bytes.Equal(place, hash[:8]) || !bytes.Equal(place, want[:]) {
						t.Errorf("the order of the key %x has the place %x", hash, place)
					}
					ids = append(ids, place)
				}
				rows = slices.Repeat([][]driver.Value{{int64(1)}}, len(ids))
			case "PUT", "DELETE":
				for row := range slices.Chunk(args, map[string]int{"PUT": 2, "DELETE": 1}[kind]) {
					sum := md5.Sum(row[0].([]byte))
					ids = append(ids, sum[:])
				}
			case "DUE KEYS":
				if strings.Contains(query, "place") {
					t.Errorf("unexpected: %s", query)
				}
				rows, old = old, nil
				return rows, nil
			case "FORGET":
				args = args[1:]
				for i, place := range args[:len(args)/2] {
					if hash := args[len(args)/2+i].([]byte); !bytes.Equal(place.([]byte), hash[:8]) {
						t.Errorf("the key %x is forgotten at the place %x", hash, place)
					}
					ids = append(ids, place.([]byte))
				}
				rows = slices.Repeat([][]driver.Value{{int64(1)}}, len(ids))
			case "LAST":
				if hash, place := args[0].([]byte), args[1].([]byte); !bytes.Equal(place, hash[:8]) {
					t.Errorf("the last order, of the key %x, is looked for at the place %x", hash, place)
				}
				return nil, errSilent
			case "CLOCK", "TABLES", "KEPT", "FORGOTTEN":
				return nil, errPassOn
			default:
				t.Errorf("unexpected statement %s", query)
			}
			mu.Lock()
			defer mu.Unlock()
			if seen[kind] == nil {
				seen[kind] = make(map[int]bool)
			}
			for _, id := range ids {
				seen[kind][shardOf(id)] = true
				if shardOf(id) != shardOf(ids[0]) {
					t.Errorf("%s of two shards: %.100s", kind, query)
				}
			}
			return rows, nil
		})
		f.server.took = time.Millisecond
		store := sqlstore.New(open(t, f), nil)
		var items []string
		for i := range 200 {
			items = append(items, fmt.Sprint("kettle ", i))
		}
		create(t, store, items...).Wait()
		var resources []storefront.Resource
		var ids []string
		for i := range 300 {
			resources, ids = append(resources, storefront.MustResource(fmt.Sprint(i), nil)), append(ids, fmt.Sprint(i))
		}
		must.OK(t, store.Users.Put(t.Context(), resources...))
		must.OK(t, store.Users.Delete(t.Context(), ids...))
		n := must.Get(store.ForgetKeys(t.Context(), time.Now().Add(-25*time.Hour)))(t)
		if n != 300 {
			t.Errorf("%d of 300 keys were forgotten", n)
		}
		for _, kind := range []string{"INSERT", "PUT", "DELETE", "FORGET"} {
			if len(seen[kind]) != 3 {
				t.Errorf("the shards of all %s are %v, want 3", kind, seen[kind])
			}
		}
	})
}

// A statement of two shards shows that the bounds of the shards are old ones. Orders of a shared commit whose
// keys are taken are replays.
func TestVitessShardsMayChange(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		var mu sync.Mutex
		crossed, inserts, made := false, 0, 0
		taken := []byte(keyHash(storefront.IdempotencyKey{Value: "taken"}))
		f := newVtgate(func(query string, args []driver.Value) ([][]driver.Value, error) {
			switch kindOf(query) {
			case "INSERT":
				mu.Lock()
				defer mu.Unlock()
				if inserts++; inserts > 4 && !crossed {
					crossed = true
					return nil, &mySQLError{1105, "Error 1105 (HY000): multi-db transaction attempted"}
				}
				for row := range slices.Chunk(args, 9) {
					if bytes.Equal(row[5].([]byte), taken) {
						return nil, &mySQLError{1062, "Error 1062 (23000): Duplicate entry for key 'orders.key_hash'"}
					}
				}
				made += len(args) / 9
				return slices.Repeat([][]driver.Value{{int64(1)}}, len(args)/9), nil
			case "TAKEN":
				if places := args[:len(args)/2]; len(places) == 0 || shardOf(places[0].([]byte)) != shardOf(taken) {
					t.Errorf("which keys are taken was asked of another shard: %x", args)
				}
				return [][]driver.Value{{taken}}, nil
			case "REPLAY":
				return [][]driver.Value{{"ord_there", "taken", int64(1), "", int64(0), make([]byte, 32), taken}}, nil
			}
			return nil, errPassOn
		})
		f.server.took = time.Millisecond
		run := f.run
		f.run = func(ctx context.Context, conn int, query string, args []driver.Value) ([][]driver.Value, error) {
			time.Sleep(time.Millisecond) // so that orders share a commit
			return run(ctx, conn, query, args)
		}
		store := sqlstore.New(open(t, f), nil)
		wg := create(t, store, strings.Split("abcdefgh", "")...)
		replay := propose(t, store, "taken")
		wg.Go(create(t, store, strings.Split("ijklmnop", "")...).Wait)
		wg.Wait()
		replay.want(t, "ord_there")
		bounds := 0
		for _, query := range f.ran {
			if query == "SHOW VITESS_SHARDS" {
				bounds++
			}
		}
		if !crossed || bounds < 2 || made != 16 {
			t.Errorf("after a statement of two shards (%t), their bounds were read %d times, and %d orders inserted, "+
				"want 16", crossed, bounds, made)
		}
	})
}

// TestVitessErrors has what vtgate and tablets answered while tablets were killed, moved and stopped.
func TestVitessErrors(t *testing.T) {
	for text, want := range map[string]error{
		`1105: target: shop.-80.primary: vttablet: rpc error: code = Unavailable desc = error reading from server: EOF`: nil,
		`1105: target: shop.-80.primary: primary is not serving, there may be a reparent operation in progress`:         nil,
		`1105: target: shop.80-.primary: vttablet: rpc error: code = FailedPrecondition desc = operation not allowed in ` +
			`state SHUTTING_DOWN`: nil,
		`1105: target: shop.-80.primary: inconsistent state detected, primary is serving but initially found no available ` +
			`tablet`: nil,
		`1105: target: shop.0.primary: no healthy tablet available for 'keyspace:"shop" shard:"0" tablet_type:PRIMARY'`: nil,
		`1105: vttablet: rpc error: code = ClusterEvent desc = disallowed due to rule: enforce denied tables`:           nil,
		`1105: VT14003: no connection for tablet zone1-100`:                                                             nil,
		`1105: VT09032: previous transaction failed. Issue a ROLLBACK to resolve the failure.`:                          nil,
		`1815: target: shop.-80.primary: vttablet: rpc error: code = Internal desc = stream terminated by RST_STREAM`:   nil,
		`1317: target: shop.-80.primary: vttablet: rpc error: code = DeadlineExceeded desc = context deadline exceeded`: nil,
		`1203: vttablet: rpc error: code = ResourceExhausted desc = transaction pool connection limit exceeded`:         nil,
		`2002: vttablet: Can't connect to local MySQL server through socket (errno 2002) (sqlstate HY000)`:              nil,
		`2013: vttablet: Lost connection to MySQL server during query (errno 2013) (sqlstate HY000)`:                    nil,
		`1290: The MySQL server is running with the --super-read-only option (errno 1290) (sqlstate HY000)`:             nil,
		`1815: VT13001: [BUG] unexpected 'autocommitted' state in transaction`:                                          nil,
		`1105: VT09023: could not map [NULL] to a keyspace id`:                                                          errAny,
		`1105: VT12001: unsupported: multi-shard UPDATE with LIMIT`:                                                     errAny,
		`1317: Row count exceeded 10000`: errAny,
		// What a client has sent decides nothing.
		`1105: target: shop.-80.primary: vttablet: rpc error: code = Unavailable desc = gone (CallerID: shop): Sql: "insert into ` +
			`storefront_orders(item) values (:v1)", BindVars: {v1: "VT12001 Row count exceeded multi-db transaction attempted"}`: nil,
	} {
		inBubble(t, text, func(t *testing.T) {
			failed := false
			f := newVtgate(func(query string, args []driver.Value) ([][]driver.Value, error) {
				switch kind := kindOf(query); {
				case kind == "REPLAY":
					return [][]driver.Value{}, nil
				case kind == "INSERT" && failed && want == nil:
					return [][]driver.Value{{int64(1)}}, nil
				}
				failed = true
				var n uint16
				fmt.Sscanf(text, "%d", &n)
				return nil, &mySQLError{n, "Error " + text}
			})
			_, err := sqlstore.New(open(t, f), nil).CreateOrder(t.Context(), storefront.IdempotencyKey{Value: "key"},
				storefront.Order{ID: "order", Item: "kettle", Qty: 1, CreatedAt: time.Now()})
			if (err != nil) != (want != nil) || errors.Is(err, storefront.ErrUnavailable) {
				t.Errorf("CreateOrder returned %v", err)
			}
		})
	}
}

var errAny = errors.New("any error")

func TestVitessSettings(t *testing.T) {
	for name, test := range map[string]struct {
		variables   map[string]string
		accept      bool
		unavailable bool   // as it may pass
		want        string // in the error
	}{
		"as they must be":                    {},
		"under another version's name":       {variables: map[string]string{"version": "8.0.40"}},
		"without autocommit":                 {variables: map[string]string{"autocommit": "0"}, want: "autocommit"},
		"without flushes of the binary log":  {variables: map[string]string{"sync_binlog": "0"}, want: "sync_binlog"},
		"without flushes at a commit":        {variables: map[string]string{"innodb_flush_log_at_trx_commit": "2"}, want: "innodb_flush_log_at_trx_commit"},
		"without replicas that acknowledge":  {variables: map[string]string{"rpl_semi_sync_source_enabled": "OFF"}, unavailable: true, want: "semi_sync"},
		"with acknowledgements after a view": {variables: map[string]string{"rpl_semi_sync_source_wait_point": "AFTER_COMMIT"}, unavailable: true, want: "AFTER_SYNC"},
		"with acknowledgements for a time":   {variables: map[string]string{"rpl_semi_sync_source_timeout": "10000"}, unavailable: true, want: "10000"},
		"with Accept in two shards":          {accept: true, want: "transaction_mode = MULTI"},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newVtgate(nil)
			for variable, value := range test.variables {
				f.server.variables[variable] = value
			}
			if version := test.variables["version"]; version != "" {
				f.server.says["VERSION"] = version
			}
			opts := &sqlstore.Options{Timeout: time.Second}
			if test.accept {
				opts.Accept = func(context.Context, *sql.Tx, storefront.IdempotencyKey, storefront.Order) error { return nil }
			}
			_, err := sqlstore.New(open(t, f), opts).GetProduct(t.Context(), "none")
			if test.want == "" {
				if err != storefront.ErrNotFound {
					t.Errorf("GetProduct returned %v", err)
				}
			} else if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, storefront.ErrUnavailable) != test.unavailable {
				t.Errorf("GetProduct returned %v, want an error that names %s", err, test.want)
			}
		})
	}
}
