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
	"strconv"
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
		"undefined table":     stateError("42P01"),
		"no right":            stateError("42501"),
		"constraint violated": stateError("23514"),
		"no SQLSTATE":         errors.New("no such table: storefront_users"),
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

// No connection is no connection, whatever the code, and tried again for. Only a file can be such that it never
// becomes a database.
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
			for _, m := range methods(t.Context(), sqlstore.New(db, nil))[2:6] { // GetProduct, CreateOrder, Put and Delete
				tries = 0
				if err := m.call(); tt.retried && err != nil || !tt.retried && !errors.Is(err, tt.failure) {
					t.Errorf("%s returned %v", m.name, err)
				}
			}
		})
	}
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

// Each transaction holds its locks for a moment only, none reads for long, and each order is passed once by its
// ID and once by its key: a place is remembered from one search to the next, and to the next call.
func TestForgetKeysForgetsAllByHundreds(t *testing.T) {
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
			case "CLOCK", "TABLES":
				return nil, errPassOn
			case "KEPT":
				return [][]driver.Value{{int64(1), int64(0), time.Hour.Milliseconds()}}, nil
			case "FORGOTTEN":
				remembered = args[0]
				return make([][]driver.Value, 1), nil
			case "DUE KEYS":
				searches++
				limit := must.Get(strconv.Atoi(query[strings.LastIndex(query, " ")+1:]))(t)
				from, ok := args[1].(string)
				if !ok { // by the key
					return nil, nil
				}
				n, found := slices.BinarySearch(ids, from)
				if found {
					n++
				}
				for ; n < keys && len(rows) < limit; n++ {
					if rows = append(rows, []driver.Value{ids[n], ids[n]}); n%3 == 0 {
						rows[len(rows)-1][1] = nil
					}
				}
				return rows, nil
			}
			for _, id := range args[1:] {
				forgotten[id.(string)] = true
			}
			if len(args) > 999 { // see TestStatementsAreSmall
				t.Errorf("a statement has %d parameters", len(args))
			}
			return make([][]driver.Value, len(args)-1), nil
		}}
		n, err := sqlstore.New(open(t, f), nil).ForgetKeys(t.Context(), before.Add(time.Hour)) // the one of keep_ms
		if err != nil || n != keys/3*2 || len(forgotten) != keys/3*2 || searches != 280 ||
			remembered != before.UnixMilli() {
			t.Errorf("ForgetKeys returned %d, %v after %d searches; %d are forgotten, and the next begins at %v",
				n, err, searches, len(forgotten), remembered)
		}
	})
}

// The program may give any time, and an operator write any numbers: no key is forgotten before its time.
func TestForgetKeysOfAnyNumbers(t *testing.T) {
	const most, least = 1<<63 - 1, -1 << 63
	due := time.Date(1999, 12, 1, 0, 0, 0, 0, time.UTC) // of the year 2000, in the bubble
	epoch := time.Unix(0, 0)
	for _, row := range []struct {
		before     time.Time
		last, keep int64 // of storefront_schema
		want       time.Time
		from       time.Time // the zero Time: ForgetKeys fails
	}{
		{due, 0, 0, due, epoch},
		{due, 0, -1, due, epoch},
		{due, 0, least, due, epoch},
		{due, 0, time.Hour.Milliseconds(), due.Add(-time.Hour), epoch},
		{due, 0, 9_999_999_999_999, epoch, epoch}, // more nanoseconds than a Duration has
		{due, 0, 1e13, epoch, epoch},
		{due, 0, most, epoch, epoch},
		{due, least/1000 - 1, 0, due, epoch}, // too early for microseconds
		{due, most, 0, due, due},
		{due, most, most, epoch, epoch},
		{time.Time{}, 0, 0, epoch, epoch},
		{time.Time{}, 0, most, epoch, epoch},
		{time.Unix(most, 0), 0, 0, epoch, epoch},              // a Time has as many, but not since 1970
		{time.Unix(least/1000-1, 0), 0, 0, epoch, epoch},      // too early for milliseconds
		{time.Unix(most/1000+1, 0), 0, 0, epoch, time.Time{}}, // too late for them
		{time.Unix(most-62135596800, 0), 0, most, epoch, time.Time{}},
	} {
		onEach(t, func(t *testing.T, engine engine) {
			f := newFakeDB(engine)
			// On Vitess, an upgrade adds a row.
			f.server.says["KEPT"] = [][]driver.Value{{int64(1), row.last, row.keep}, {int64(2), int64(0), int64(0)}}
			from, got := "", make(map[any]bool)
			f.run = func(_ context.Context, _ int, query string, args []driver.Value) ([][]driver.Value, error) {
				switch kind := kindOf(query); kind {
				case "DUE KEYS", "FORGOTTEN":
					got[args[0]] = true
					if id, ok := args[1].(string); ok {
						from = id
					}
				}
				return nil, errPassOn
			}
			_, err := sqlstore.New(open(t, f), nil).ForgetKeys(t.Context(), row.before)
			if row.from.IsZero() {
				if err == nil || len(got) > 0 {
					t.Errorf("before %v, ForgetKeys returned %v, and forgot what is before %v", row.before, err, got)
				}
			} else if err != nil || len(got) != 1 || !got[row.want.UnixMilli()] ||
				from != orderid.First(row.from.Add(-time.Hour)) {
				t.Errorf("%+v: ForgetKeys returned %v, and forgot what is before %v, from %s on", row, err, got, from)
			}
		})
	}
}

// Orders find the one lock of SQLite free for as long as keys were forgotten, and its callers
// need not wait for that.
func TestForgetKeysLeavesTimeToOrdersOnSQLite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const want = time.Second
		f := newFakeDB(sqlite)
		var ended time.Time // of the last statement
		var pauses []time.Duration
		f.run = func(_ context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
			switch {
			case slices.Contains([]string{"CLOCK", "TABLES", "KEPT"}, kindOf(query)):
				return nil, errPassOn
			case kindOf(query) == "DUE KEYS":
				return slices.Repeat([][]driver.Value{{"ord_0", "ord_0"}}, 900), nil
			case !ended.IsZero():
				pauses = append(pauses, time.Since(ended))
			}
			time.Sleep(time.Second)
			ended = time.Now()
			return make([][]driver.Value, 900), nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer cancel()
		n, err := sqlstore.New(open(t, f), nil).ForgetKeys(ctx, time.Now().Add(-2*storefront.KeyLifetime))
		if n == 0 || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil || time.Since(ended) > want {
			t.Errorf("ForgetKeys returned %d, %v, %v after its last statement", n, err, time.Since(ended))
		}
		if all := slices.Compact(slices.Clone(pauses)); len(all) != 1 || all[0] != want {
			t.Errorf("ForgetKeys has paused %v, want %v each time", pauses, want)
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
		young := time.Now().Add(time.Millisecond - storefront.KeyLifetime)
		if n, err := store.ForgetKeys(t.Context(), young); err == nil || len(f.ran) != 1 {
			t.Errorf("ForgetKeys of keys that must be remembered returned %d, %v, and sent %q", n, err, f.ran)
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

// The fewest parameters that a build of SQLite takes are 999, and the fewest bytes that MySQL may take 1 MiB.
func TestStatementsAreSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDB(postgres)
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
			size := map[int]int{0: 300, 1: 600, 2: 508}[i] // KiB
			body := map[string]string{"text": strings.Repeat("x", size<<10)}
			ids = append(ids, fmt.Sprintf("%03d", i))
			resources = append(resources, storefront.MustResource(ids[i], body))
		}
		store := sqlstore.New(open(t, f), nil)
		must.OK(t, store.Users.Put(t.Context(), resources...))
		must.OK(t, store.Users.Delete(t.Context(), ids...))
		if want := "[2 301 2 601 372 512 800 9 24 1 400 0 200 0]"; fmt.Sprint(got) != want {
			t.Errorf("the statements have %v, want %s", got, want)
		}
	})
}
