package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/internal/orderid"
	"example.com/storefront/sqlstore"
)

// A sqliteNetError is an error like those of ncruces/go-sqlite3, which have the methods of a net.Error.
type sqliteNetError string

func (e sqliteNetError) Error() string   { return string(e) }
func (e sqliteNetError) Code() uint8     { return map[bool]uint8{true: 5, false: 1}[e.Timeout()] }
func (e sqliteNetError) Timeout() bool   { return strings.Contains(string(e), "locked") }
func (e sqliteNetError) Temporary() bool { return e.Timeout() }

// A mySQLPacketError is an error like those of go-sql-driver/mysql, with a SQLSTATE.
type mySQLPacketError struct {
	Number   uint16
	SQLState [5]byte
}

func (e *mySQLPacketError) Error() string {
	return "Error 1153 (08S01): Got a packet bigger than 'max_allowed_packet' bytes"
}

// vtgate returns an error as vtgate and its tablets give it, if these are killed, moved and stopped.
func vtgate(n uint16, text string) error { return &mySQLError{n, fmt.Sprintf("Error %d: %s", n, text)} }

func TestErrorsThatPassAreRetried(t *testing.T) {
	for name, failure := range map[string]error{
		"serialization failure":          stateError("40001"),
		"connection failure":             stateError("08006"),
		"too many connections":           stateError("53300"),
		"disk full":                      stateError("53100"),
		"admin shutdown":                 stateError("57P01"),
		"statement timeout":              stateError("57014"),
		"lock not available":             stateError("55P03"),
		"no longer the primary":          stateError("25006"),
		"wrapped":                        fmt.Errorf("query: %w", stateError("40001")),
		"connection reset":               &net.OpError{Op: "read", Err: syscall.ECONNRESET},
		"server gone":                    io.ErrUnexpectedEOF,
		"server gone between statements": io.EOF,
		"bad connection":                 driver.ErrBadConn,
		"SQLITE_BUSY":                    errors.New("database is locked (5) (SQLITE_BUSY)"),
		"SQLITE_FULL":                    errors.New("database or disk is full (13)"),
		"SQLITE_SCHEMA":                  errors.New("database schema has changed: no such table: t (17)"),
		"SQLITE_PROTOCOL":                errors.New("locking protocol (15)"),
		"idle-in-transaction timeout":    stateError("25P03"),
		"prepared statement gone":        stateError("26000"),
		"a column's type changed":        &serverError{Code: "0A000", Routine: "RevalidateCachedQuery"},
		"the server ends the connection": &serverError{Code: "58000", SeverityUnlocalized: "FATAL"},
		"deadlock (MySQL)":               &mySQLError{Number: 1213},
		"conflict in a group":            &mySQLError{Number: 3101},
		"preempted in a group, and rolling back": &mySQLError{Number: 1181,
			Message: "Error 1181 (HY000): Got error 153 - 'No savepoint with that name' during ROLLBACK"},
		"preempted in a group": &mySQLError{Number: 1030,
			Message: "Error 1030 (HY000): Got error 153 - 'No savepoint with that name' from storage engine"},
		"has left the group":           &mySQLError{Number: 3100},
		"read-only (MySQL)":            &mySQLError{Number: 1290},
		"too many connections (MySQL)": &mySQLError{Number: 1040},
		"SQLITE_BUSY (ncruces)":        sqliteNetError("sqlite3: database is locked"),
		"joined (MySQL)":               errors.Join(errors.New("query"), &mySQLError{Number: 1180}),
		"server gone (MySQL)":          errors.New("invalid connection"),
		"server gone (pgx)":            errors.New("conn closed"),
		"reparenting (Vitess)":         vtgate(1105, "target: shop.-80.primary: primary is not serving"),
		"tablet gone (Vitess)":         vtgate(1105, "VT14003: no connection for tablet zone1-100"),
		"rolled back (Vitess)":         vtgate(1105, "VT09032: previous transaction failed. Issue a ROLLBACK"),
		"internal error (Vitess)":      vtgate(1815, "VT13001: [BUG] unexpected 'autocommitted' state"),
		"too slow (Vitess)":            vtgate(1317, "vttablet: rpc error: code = DeadlineExceeded"),
		"socket gone (Vitess)":         vtgate(2002, "vttablet: Can't connect to local MySQL server (errno 2002)"),
		"quoting a client (Vitess)": vtgate(1105, `vttablet: rpc error: code = Unavailable: Sql: "insert into `+
			`orders(item) values (:v1)", BindVars: {v1: "VT12001 Row count exceeded multi-db transaction attempted"}`),
	} {
		inBubble(t, name, func(t *testing.T) {
			fails := 0
			f := newFakeDB(postgres)
			f.server.addResource(kettle)
			f.before = func(context.Context, string) error {
				if fails++; fails%5 != 0 {
					return failure
				}
				return nil
			}
			store := sqlstore.New(open(t, f), nil)
			fill(t, store, 1)
			for _, m := range methods(t.Context(), store)[:6] {
				if err := m.call(); err != nil {
					t.Errorf("%s returned %v", m.name, err)
				}
			}
		})
	}
}

// A method is a call of a method of a store.
type method struct {
	name string
	call func() error
}

// methods returns a call of each method that returns an error.
func methods(ctx context.Context, store *sqlstore.Store) []method {
	return []method{
		{"ListUsers", func() error { _, err := store.ListUsers(ctx, "", 1); return err }},
		{"ListWidgets", func() error { _, err := store.ListWidgets(ctx, "", 1); return err }},
		{"GetProduct", func() error { _, err := store.GetProduct(ctx, "kettle"); return err }},
		{"CreateOrder", func() error { _, err := store.CreateOrder(ctx, key, order); return err }},
		{"Put", func() error { return store.Users.Put(ctx, kettle) }},
		{"Delete", func() error { return store.Users.Delete(ctx, "kettle") }},
		{"Migrate", func() error { return store.Migrate(ctx) }},
		{"ForgetKeys", func() error { _, err := store.ForgetKeys(ctx, time.Now().Add(-48*time.Hour)); return err }},
		{"Check", func() error { return store.Check(ctx) }},
	}
}

func TestOtherErrorsAreReturnedAtOnce(t *testing.T) {
	for name, failure := range map[string]error{
		"undefined table":                    stateError("42P01"),
		"no right":                           stateError("42501"),
		"no SQLSTATE":                        errors.New("no such table: storefront_users"),
		"malformed file":                     errors.New("database disk image is malformed (11)"),
		"a rule of the table":                &serverError{Code: "0A000", Routine: "transformOnConflictClause"},
		"not an SQLSTATE":                    stateError("40"),
		"constraint violated":                stateError("23514"),
		"no table (MySQL)":                   &mySQLError{Number: 1146, Message: "invalid connection"},
		"too large (MySQL)":                  &mySQLPacketError{Number: 1153, SQLState: [5]byte([]byte("08S01"))},
		"no table (ncruces)":                 sqliteNetError("sqlite3: SQL logic error: no such table: storefront_users"),
		"what a trigger of SQLite says":      sqliteError("database is locked (1811)"),
		"a text that quotes one that passes": errors.New("no item database is locked for you"),
		"no keyspace ID (Vitess)":            vtgate(1105, "VT09023: could not map [NULL] to a keyspace id"),
		"too many rows (Vitess)":             vtgate(1317, "Row count exceeded 10000"),
		"two shards (Vitess)":                vtgate(1105, "multi-db transaction attempted"),
		"corruption (MySQL)":                 &mySQLError{Number: 1030, Message: "Error 1030 (HY000): Got error 180 - 'Index corrupted' from storage engine"},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := &fakeDB{before: func(context.Context, string) error { return failure }}
			store := sqlstore.New(open(t, f), nil)
			for _, m := range methods(t.Context(), store)[:5] {
				if err := m.call(); !errors.Is(err, failure) || errors.Is(err, storefront.ErrUnavailable) {
					t.Errorf("%s returned %v", m.name, err)
				}
			}
			if len(f.ran) != 6 { // CreateOrder also looks for its key
				t.Errorf("5 calls sent %d statements", len(f.ran))
			}
			if err := store.Migrate(t.Context()); !errors.Is(err, failure) {
				t.Errorf("Migrate returned %v", err)
			}
		})
	}
}

// No connection is no connection, whatever the code. Only a file can be such that it never becomes a database.
func TestFailureToConnect(t *testing.T) {
	for name, tt := range map[string]struct {
		failure error
		retried bool
	}{
		"refused":               {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		"SQLite file not there": {errors.New("unable to open database file (14)"), true},
		"no database file":      {sqliteError("file is not a database (26)"), false},
		"blocked (MySQL)":       {&mySQLError{Number: 1129}, true},
	} {
		inBubble(t, name, func(t *testing.T) {
			tries := 0
			f := newFakeDB(postgres)
			f.server.addResource(kettle)
			f.connect = func(context.Context) error {
				if tries++; tries < 10 {
					return tt.failure
				}
				return nil
			}
			db := open(t, f)
			db.SetMaxOpenConns(2) // one for orders
			db.SetMaxIdleConns(-1)
			for _, m := range methods(t.Context(), sqlstore.New(db, nil))[2:4] { // GetProduct and CreateOrder
				tries = 0
				if err := m.call(); tt.retried && err != nil || !tt.retried && !errors.Is(err, tt.failure) {
					t.Errorf("%s returned %v", m.name, err)
				}
			}
		})
	}
}

func TestClosedPoolIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, &fakeDB{})
		db.Close()
		began := time.Now()
		_, err := sqlstore.New(db, nil).GetProduct(t.Context(), "kettle")
		if err == nil || errors.Is(err, storefront.ErrUnavailable) || time.Since(began) != 0 {
			t.Errorf("GetProduct returned %v after %v", err, time.Since(began))
		}
	})
}

func TestDatabaseThatStaysAwayIsUnavailable(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, f := range map[string]*fakeDB{
		"cannot be reached":   {connect: func(context.Context) error { return refused }},
		"fails":               {before: func(context.Context, string) error { return refused }},
		"hangs":               {before: hang},
		"hangs on connecting": {connect: func(ctx context.Context) error { return hang(ctx, "") }},
	} {
		inBubble(t, name, func(t *testing.T) {
			db := open(t, f)
			for i := range methods(t.Context(), nil) {
				m := methods(t.Context(), sqlstore.New(db, &sqlstore.Options{Timeout: 3 * time.Second}))[i]
				began := time.Now()
				err := m.call()
				// The reason is in the error.
				if !errors.Is(err, storefront.ErrUnavailable) || errors.Is(err, refused) != !strings.HasPrefix(name, "hangs") {
					t.Errorf("%s returned %v", m.name, err)
				}
				if after := time.Since(began); after != 3*time.Second {
					t.Errorf("%s returned after %v, not after Options.Timeout", m.name, after)
				}
			}
		})
	}
}

// So the store does not overload a database that is starting, and soon finds it back.
func TestDatabaseThatIsAwayIsAskedAFewTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last time.Time
		asked := 0
		f := &fakeDB{before: func(context.Context, string) error {
			if gap := time.Since(last); asked > 0 && gap > 500*time.Millisecond {
				t.Errorf("it was not asked for %v", gap)
			}
			last = time.Now()
			asked++
			return stateError("57P03")
		}}
		const timeout = 20 * time.Minute
		store := sqlstore.New(open(t, f), &sqlstore.Options{Timeout: timeout})
		store.GetProduct(t.Context(), "kettle")
		if most := int(5 * timeout / time.Second); asked > most { // 4 a second on the average, and 70 make no 1 more
			t.Errorf("it was asked %d times in %v, want up to %d", asked, timeout, most)
		}
	})
}

// A read could return an order that is not yet on the disk, or on the synchronous standbys. InnoDB
// commits a mere lock at once.
func TestReplayWaitsForACommit(t *testing.T) {
	for _, row := range []struct {
		engine engine
		emits  bool // whether the role may call pg_logical_emit_message
		want   string
	}{
		{postgres, true, " AND pg_logical_emit_message(true, 'storefront', '') IS NOT NULL"},
		{postgres, false, " FOR KEY SHARE"},
		{mysql, false, " UPDATE number = number + 1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeDB(row.engine)
			f.server.says["EMITS"] = row.emits
			f.server.addOrder(key, order)
			again := order // also if it has the same ID, the stored one is returned
			again.CreatedAt = again.CreatedAt.Add(time.Hour)
			got, err := sqlstore.New(open(t, f), nil).CreateOrder(t.Context(), key, again)
			if last := f.ran[len(f.ran)-1]; err != nil || !got.Equal(order) || !strings.HasSuffix(strings.Join(strings.Fields(last), " "), row.want) {
				t.Errorf("%v: CreateOrder returned %v, %v after %s", row.engine, got, err, last)
			}
		})
	}
}

// group returns the variables of a member of a group of MySQL.
func group(singlePrimary, consistency string) map[string]string {
	return map[string]string{
		"group_replication_group_name":          "8a94f357-aab4-11df-86ab-c80aa9429562",
		"group_replication_single_primary_mode": singlePrimary,
		"group_replication_consistency":         consistency,
	}
}

func TestListThatBreaksOffBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		rows := [][]driver.Value{{[]byte("a"), `{"id":"a"}`}, {[]byte("b"), `{"id":"b"}`}, {[]byte("c"), `{"id":"c"}`}}
		store := sqlstore.New(open(t, &fakeDB{run: func(context.Context, int, string, []driver.Value) ([][]driver.Value, error) {
			if tries++; tries == 1 {
				return rows[:2], io.ErrUnexpectedEOF
			}
			return rows, nil
		}}), nil)
		list, err := store.ListUsers(t.Context(), "", 10)
		if err != nil || fmt.Sprint(list) != `[{"id":"a"} {"id":"b"} {"id":"c"}]` {
			t.Errorf("ListUsers returned %v, %v", list, err)
		}
	})
}

// wantRefused checks that each method refuses to work, and says what is wrong.
func wantRefused(t *testing.T, f *fakeDB, want string) {
	t.Helper()
	for _, m := range methods(t.Context(), sqlstore.New(open(t, f), nil)) {
		err := m.call()
		// No error of tables that are not there, which nobody has looked for.
		if err == nil || !strings.HasPrefix(err.Error(), "sqlstore: ") || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "not there") || errors.Is(err, storefront.ErrUnavailable) {
			t.Errorf("%s returned %v, want an error that says %q", m.name, err, want)
		}
	}
	if len(f.ran) != 0 {
		t.Errorf("it was sent %q", f.ran)
	}
}

func TestRowsThatAreNoResources(t *testing.T) {
	for name, body := range map[string]string{
		"not JSON":          `kettle`,
		"no ID":             `{"name":"Kettle"}`,
		"another ID":        `{"id":"teapot"}`,
		"duplicate members": `{"id":"kettle","a":1,"a":2}`,
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFakeDB(postgres)
			f.server.says["READ"] = []driver.Value{[]byte("kettle"), body}
			for _, m := range methods(t.Context(), sqlstore.New(open(t, f), nil))[:3] { // those that read
				if err := m.call(); err == nil || !strings.Contains(err.Error(), `"kettle"`) {
					t.Errorf("%s returned %v, want an error that names the row", m.name, err)
				}
			}
		})
	}
}

// Its tables are no other shop, although they were not there a moment before.
func TestMigrateBesideOneThatIsFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, made := newFakeDB(postgres), false
		f.catalog = func() (rows [][]driver.Value) {
			if !made {
				return nil
			}
			for column, kind := range map[string]string{"id": "text", "item": "text", "qty": "bigint", "created_ms": "bigint",
				"scope": "bytea", "key_hash": "bytea", "key_fingerprint": "bytea", "fields": "text"} {
				rows = append(rows, []driver.Value{"storefront_orders", column, kind}, []driver.Value{"storefront_orders", column, "unique"})
			}
			return rows
		}
		f.run = func(_ context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
			switch {
			case kindOf(query) == "TABLES" && !made:
				return nil, stateError("42P01")
			case strings.HasPrefix(query, "SELECT 'schema '"):
				made = true
				return [][]driver.Value{{"schema public"}}, nil
			}
			return nil, nil
		}
		if err := sqlstore.New(open(t, f), nil).Migrate(t.Context()); err != nil || !made {
			t.Errorf("Migrate returned %v; it asked for another shop: %t", err, made)
		}
	})
}

// A Migrate elsewhere may be faster at each step, and of a later release.
func TestMigrateBesideAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, below := 0, 0
		failed := make(map[string]bool)
		states := []stateError{"42P07", "42710", "XX000", "23505", "42701"} // of what is there, in turn
		f := &fakeDB{run: func(_ context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
			switch {
			case strings.HasPrefix(query, "SELECT version, oldest"):
				return nil, stateError("42P01") // the table is not there yet
			case !strings.HasPrefix(query, "SELECT") && !failed[query]:
				failed[query] = true
				return nil, states[len(failed)%len(states)]
			}
			fmt.Sscanf(query, "UPDATE public.storefront_schema SET version = %d, oldest = 1 WHERE version < %d",
				&set, &below)
			return nil, nil
		}}
		must.OK(t, sqlstore.New(open(t, f), nil).Migrate(t.Context()))
		if set != 1 || below != 1 || len(failed) < len(states) {
			t.Errorf("after %d failures, the tables of versions below %d are said to have version %d, want 1 and 1",
				len(failed), below, set)
		}
	})
}

// The clock of one replica may be wrong.
func TestForgetKeysGoesByTheClockOfTheDatabase(t *testing.T) {
	for _, test := range []struct {
		name    string
		ahead   time.Duration // the program's clock
		before  time.Duration // by it, and ago
		refused bool
	}{
		{"the least", 0, storefront.KeyLifetime, false},
		{"a millisecond less", 0, storefront.KeyLifetime - time.Millisecond, true},
		{"ahead", time.Minute, storefront.KeyLifetime, true},
		{"ahead within the margin", time.Minute, storefront.KeyLifetime + time.Minute, false},
		{"behind", -time.Minute, storefront.KeyLifetime, false},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			f := newFakeDB(postgres)
			f.server.says["CLOCK"] = time.Now().Add(-test.ahead).UnixMilli()
			_, err := sqlstore.New(open(t, f), nil).ForgetKeys(t.Context(), time.Now().Add(-test.before))
			if (err != nil) != test.refused || (len(f.ran) == 1) != test.refused {
				t.Errorf("ForgetKeys returned %v and sent %q", err, f.ran)
			}
		})
	}
}

// Each transaction holds its locks for a moment only, none reads for long, and each order is passed once by its
// ID and once by its key: a place is remembered from one search to the next, and to the next call.
func TestForgetKeysForgetsAllByThousands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 250_500
		before := time.Now().Add(-2 * storefront.KeyLifetime)
		forgotten := make(map[string]bool)
		ids := make([]string, keys) // of an order each second, up to an hour after that time
		for i := range ids {
			ids[i] = orderid.First(before.Add(time.Hour - time.Duration(keys-i)*time.Second))
		}
		searches, remembered := 0, driver.Value(nil)
		f := &fakeDB{run: func(_ context.Context, _ int, query string, args []driver.Value) (
			rows [][]driver.Value, _ error) {
			switch kindOf(query) {
			case "CLOCK":
				return nil, errPassOn
			case "KEPT":
				return [][]driver.Value{{int64(1), int64(0), time.Hour.Milliseconds()}}, nil
			case "FORGOTTEN":
				remembered = args[0]
				return make([][]driver.Value, 1), nil
			case "DUE KEYS":
				searches++
				from, ok := args[1].(string)
				if !ok { // by the key
					return nil, nil
				}
				n, found := slices.BinarySearch(ids, from)
				if found {
					n++
				}
				for ; n < keys && len(rows) < 1000; n++ {
					if rows = append(rows, []driver.Value{ids[n], ids[n]}); n%3 == 0 {
						rows[len(rows)-1][1] = nil
					}
				}
				return rows, nil
			}
			for _, id := range args[1:] {
				forgotten[id.(string)] = true
			}
			if len(args) > 1001 {
				t.Errorf("a statement has forgotten %d keys", len(args)-1)
			}
			return make([][]driver.Value, len(args)-1), nil
		}}
		n, err := sqlstore.New(open(t, f), nil).ForgetKeys(t.Context(), before.Add(time.Hour)) // the one of keep_ms
		if err != nil || n != keys/3*2 || len(forgotten) != keys/3*2 || searches != 252 ||
			remembered != before.UnixMilli() {
			t.Errorf("ForgetKeys returned %d, %v after %d searches; %d are forgotten, and the next begins at %v",
				n, err, searches, len(forgotten), remembered)
		}
	})
}

// Orders find the one lock of SQLite free for as long as keys were forgotten, and its callers
// need not wait for that.
func TestForgetKeysLeavesTimeToOrdersOnSQLite(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		var want time.Duration
		if engine == sqlite {
			want = time.Second
		}
		f := newFakeDB(engine)
		var ended time.Time // of the last statement
		var pauses []time.Duration
		f.run = func(_ context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
			switch {
			case kindOf(query) == "CLOCK", kindOf(query) == "KEPT":
				return nil, errPassOn
			case kindOf(query) == "DUE KEYS":
				return slices.Repeat([][]driver.Value{{"ord_0", "ord_0"}}, 1000), nil
			case !ended.IsZero():
				pauses = append(pauses, time.Since(ended))
			}
			time.Sleep(time.Second)
			ended = time.Now()
			return make([][]driver.Value, 1000), nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer cancel()
		n, err := sqlstore.New(open(t, f), nil).ForgetKeys(ctx, time.Now().Add(-2*storefront.KeyLifetime))
		if n == 0 || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil || time.Since(ended) > want {
			t.Errorf("%v: ForgetKeys returned %d, %v, %v after its last statement", engine, n, err, time.Since(ended))
		}
		if all := slices.Compact(slices.Clone(pauses)); len(all) != 1 || all[0] != want {
			t.Errorf("%v: ForgetKeys has paused %v, want %v each time", engine, pauses, want)
		}
	})
}

func TestNothingIsAskedForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDB(postgres)
		store := sqlstore.New(open(t, f), nil)
		err := store.Users.Put(t.Context(), kettle, storefront.Resource{})
		list, none := store.ListUsers(t.Context(), "", -1)
		if err == nil || none != nil || len(list) != 0 || len(f.ran) != 0 {
			t.Errorf("Put of the zero Resource returned %v, ListUsers %v, %v, and sent %q", err, list, none, f.ran)
		}
	})
}

func TestProgrammersMistakePanics(t *testing.T) {
	for name, make := range map[string]func(){
		"nil DB":            func() { sqlstore.New(nil, nil) },
		"no OrderLists":     func() { sqlstore.New(new(sql.DB), nil).OrderReader() },
		"negative Timeout":  func() { sqlstore.New(new(sql.DB), &sqlstore.Options{Timeout: -1}) },
		"negative MaxCalls": func() { sqlstore.New(new(sql.DB), &sqlstore.Options{MaxCalls: -1}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			make()
		})
	}
}

func TestUnknownOutcomeIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		f := &fakeDB{before: func(context.Context, string) error {
			if tries++; tries == 1 {
				return io.ErrUnexpectedEOF // perhaps committed
			}
			return stateError("42501")
		}}
		_, err := sqlstore.New(open(t, f), nil).CreateOrder(t.Context(), key, order)
		if !errors.Is(err, storefront.ErrUnavailable) || !errors.Is(err, stateError("42501")) {
			t.Errorf("CreateOrder returned %v", err)
		}
	})
}

func TestDeadConnectionsOfThePoolAreSkippedWithoutPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = 50
		f := newProductDB()
		f.run = func(_ context.Context, conn int, _ string, _ []driver.Value) ([][]driver.Value, error) {
			if conn < idle {
				return nil, driver.ErrBadConn
			}
			return nil, errPassOn
		}
		db := open(t, f)
		db.SetMaxIdleConns(idle)
		var conns []*sql.Conn
		for range idle {
			conns = append(conns, must.Get(db.Conn(t.Context()))(t))
		}
		for _, conn := range conns {
			conn.Close()
		}
		if took := fill(t, sqlstore.New(db, nil), 1); took > 4*time.Millisecond {
			t.Errorf("GetProduct took %v", took)
		}
	})
}

// The fewest parameters that a build of SQLite takes are 999, and the fewest bytes that MySQL may take 1 MiB.
func TestStatementsAreSmall(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		f := newFakeDB(engine)
		var got []string // the parameters of each statement, and the KiB of its bodies
		f.run = func(_ context.Context, _ int, query string, args []driver.Value) ([][]driver.Value, error) {
			size := 0
			if kindOf(query) == "PUT" {
				for pair := range slices.Chunk(args, 2) {
					size += len(pair[1].(string))
				}
			}
			got = append(got, fmt.Sprint(len(args), " ", (size+1023)>>10))
			return nil, errPassOn
		}
		var resources []storefront.Resource
		var ids []string
		for i := range 600 {
			size := 0
			if large := []int{100, 200, 300, 600, 1, 511}; i < len(large) { // KiB
				size = large[i]<<10 - 100
			}
			ids = append(ids, fmt.Sprintf("%03d", i))
			body := map[string]string{"text": strings.Repeat("x", size)}
			resources = append(resources, storefront.MustResource(ids[i], body))
		}
		store := sqlstore.New(open(t, f), nil)
		must.OK(t, store.Users.Put(t.Context(), resources...))
		must.OK(t, store.Users.Delete(t.Context(), ids...))
		if want := "[4 300 2 300 2 600 18 512 800 9 374 5 400 0 200 0]"; fmt.Sprint(got) != want {
			t.Errorf("%v: the statements have %v, want %s", engine, got, want)
		}
	})
}
