package releases

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// A shop is what the databases of a release have.
type shop struct {
	Users, Products, Widgets []string // the resources, in order
	Orders                   []sentOrder
}

// A sentOrder is a request and the order that it was answered with.
type sentOrder struct{ Account, Key, Body, Order string }

func (o sentOrder) order(t *testing.T) (order storefront.Order) {
	t.Helper()
	must.OK(t, json.Unmarshal([]byte(o.Order), &order))
	return order
}

func send(service http.Handler, o sentOrder) *httptest.ResponseRecorder {
	return post(service, o.Body, "Idempotency-Key", o.Key, account, o.Account)
}

func isCreated(w *httptest.ResponseRecorder, replayed string) bool {
	return w.Code == http.StatusCreated && w.Header().Get("Idempotent-Replayed") == replayed
}

// fill makes the tables in an empty database, and has the service put into them what the
// databases of the last release have. It writes that to the release, too.
func fill(t *testing.T, db *sql.DB, last, release string) {
	t.Helper()
	s, ctx, store := fromJSON[shop](t, last, "shop.json"), t.Context(), sqlstore.New(db, &sqlstore.Options{OrderLists: true})
	must.OK(t, store.Migrate(ctx))
	for _, text := range s.Users { // which all lists have
		r := resource(t, text)
		err := errors.Join(store.Users.Put(ctx, r), store.Products.Put(ctx, r), store.Widgets.Put(ctx, r))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range s.Orders {
		w := send(serve(&sameOrder{store, o.order(t)}), o)
		if w.Code != http.StatusCreated || w.Body.String() != o.Order {
			t.Fatalf("the order %s is here %s", o.Order, answer(w))
		}
	}
	write(t, release, "shop.json", toJSON(t, s))
}

// A sameOrder is a store that creates an order with the ID and the time of another one. The
// service takes it for a replay.
type sameOrder struct {
	storefront.Store
	order storefront.Order
}

func (s *sameOrder) CreateOrder(
	ctx context.Context, key storefront.IdempotencyKey, order storefront.Order,
) (storefront.Order, error) {
	order.ID, order.CreatedAt = s.order.ID, s.order.CreatedAt
	return s.Store.CreateOrder(ctx, key, order)
}

// sqlite opens a file as programs do.
func sqlite(t *testing.T, file string) *testdb.DB {
	return testdb.Open(t, "sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
}

func recordSQLite(t *testing.T, last, release string) {
	db := sqlite(t, filepath.Join(release, "shop.db")).Pool
	defer db.Close() // after which all of it is in the file
	fill(t, db, last, release)
}

// checkSQLite opens a copy of the released SQLite file.
func checkSQLite(t *testing.T, release string) []string {
	folder := t.TempDir()
	write(t, folder, "shop.db", []byte(read(t, filepath.Join(release, "shop.db"))))
	return checkShop(t, release, sqlite(t, folder+"/shop.db"), sqlite(t, folder+"/empty.db"))
}

// A server is a kind of database server. A release has a database of it as SQL that the
// server's own tool has written: people read that, and later servers load it.
type server struct {
	kind   *dbserver.Kind
	driver string
	many   string // what a data source name ends with to have many statements run at once
	file   string
}

var (
	postgres   = server{dbserver.Postgres, "pgx", "", "shop.postgresql.sql"}
	postgres18 = server{dbserver.Postgres18, "pgx", "", postgres.file}
	mariaDB    = server{dbserver.MariaDB, "mysql", "&multiStatements=true", "shop.mariadb.sql"}
	mySQL      = server{dbserver.MySQL, "mysql", "&multiStatements=true", "shop.mysql.sql"}
)

func (s server) record(t *testing.T, last, release string) {
	server, name := s.kind.NewDatabase(t)
	fill(t, dbserver.Open(t, s.driver, server.DSNOf(name)), last, release)
	write(t, release, s.file, server.Dump(t, name))
}

// check loads the released database into a server.
func (s server) check(t *testing.T, release string) []string {
	url := s.kind.Database(t)
	// The SQL changes the settings of its connection.
	testdb.Open(t, s.driver, url+s.many).Exec(t, read(t, filepath.Join(release, s.file)))
	return checkShop(t, release, testdb.Open(t, s.driver, url), testdb.Open(t, s.driver, s.kind.Database(t)))
}

// checkShop migrates a database of the release, reads what is there, and sends every order
// again. Then the tables must be those that an empty database gets.
func checkShop(t *testing.T, release string, d, empty *testdb.DB) (lines []string) {
	t.Helper()
	s := fromJSON[shop](t, release, "shop.json")
	store := sqlstore.New(d.Pool, &sqlstore.Options{OrderLists: true})
	if err := store.Migrate(t.Context()); err != nil {
		return []string{err.Error()}
	}
	empty.Migrate(t)
	service := serve(store)
	fault := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }

	for list, want := range map[string][]string{"users": s.Users, "widgets": s.Widgets} {
		if items := walk(service, list); !slices.Equal(items, want) {
			fault("%s are %q, and were %q", list, items, want)
		}
	}
	for _, product := range s.Products {
		path := "/v1/products/" + url.PathEscape(resource(t, product).ID())
		if w := get(service, path); w.Code != http.StatusOK || w.Body.String() != product {
			fault("a product is %s, and was %s", answer(w), product)
		}
	}
	for _, o := range s.Orders {
		w := send(service, o)
		if !isCreated(w, "true") || !hasMembers(w.Body.Bytes(), o.Order) {
			fault("the order %s, sent again, is answered with %s", o.Order, answer(w))
		}
		o.Body = `{"item":"something else","qty":77}`
		if w := send(service, o); !strings.Contains(w.Body.String(), ":idempotency-key-reused\"") {
			fault("another order with the key of %s is answered with %s", o.Order, answer(w))
		}
	}
	body := s.Orders[0].Body
	for _, o := range []sentOrder{{Key: "new", Body: body}, {Key: s.Orders[0].Key, Account: "new", Body: body}} {
		if w := send(service, o); !isCreated(w, "") {
			fault("the new order %v is answered with %s", o, answer(w))
		}
	}

	// Their owner reads orders by SQL.
	stored := testdb.StoredOrders(t, d.Pool)
	for _, o := range s.Orders {
		if !slices.ContainsFunc(stored, o.order(t).Equal) {
			fault("storefront_orders does not have %s", o.Order)
		}
	}
	want, have := testdb.Column(t, empty.Pool, tables[d.Driver]), testdb.Column(t, d.Pool, tables[d.Driver])
	for _, part := range slices.Concat(want, have) {
		if slices.Contains(want, part) != slices.Contains(have, part) {
			fault("of these tables after Migrate, and those that it makes, only one has %q", part)
		}
	}
	return lines
}

// walk returns the items of a list, following its pages, and an answer that has none.
func walk(service http.Handler, list string) (items []string) {
	for query := "?limit=3"; query != ""; {
		w := get(service, lists[list][0]+query)
		var page struct {
			Data []json.RawMessage
			Next string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != http.StatusOK {
			return append(items, answer(w))
		}
		for _, item := range page.Data {
			items = append(items, string(item))
		}
		if query = ""; page.Next != "" {
			query = "?limit=3&" + lists[list][1] + "=" + page.Next
		}
	}
	return items
}

// answer says what a request was answered with.
func answer(w *httptest.ResponseRecorder) string {
	return fmt.Sprintf("%d, Idempotent-Replayed: %q, %s", w.Code, w.Header().Get("Idempotent-Replayed"), w.Body)
}

// hasMembers reports whether an object has all members of another one, and they are equal.
func hasMembers(object []byte, of string) bool {
	var have, want map[string]any
	if json.Unmarshal(object, &have) != nil || json.Unmarshal([]byte(of), &want) != nil {
		return false
	}
	both := maps.Clone(have)
	maps.Copy(both, want)
	return reflect.DeepEqual(both, have)
}

// tables are queries, by driver, for a text for each column, constraint and index.
var tables = map[string]string{
	"sqlite": `
		SELECT concat_ws(' ', m.name, c.name, c.type, c."notnull", c.dflt_value, c.pk)
		FROM sqlite_master AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'
		UNION ALL SELECT concat_ws(' ', m.name, i."unique", c.name, s.sql)
		FROM sqlite_master AS m, pragma_index_list(m.name) AS i, pragma_index_info(i.name) AS c, sqlite_master AS s
		WHERE m.type = 'table' AND s.name = i.name`,
	"pgx": `
		SELECT concat_ws(' ', table_name, column_name, data_type, collation_name, is_nullable, column_default)
		FROM information_schema.columns WHERE table_schema = 'public'
		UNION ALL SELECT concat_ws(' ', conrelid::regclass, pg_get_constraintdef(oid))
		FROM pg_constraint WHERE connamespace = 'public'::regnamespace
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'`,
	"mysql": `
		SELECT concat_ws(' ', table_name, column_name, column_type, collation_name, is_nullable, column_default,
			extra)
		FROM information_schema.columns WHERE table_schema = database()
		UNION ALL SELECT concat_ws(' ', table_name, index_name, non_unique, seq_in_index, column_name, sub_part)
		FROM information_schema.statistics WHERE table_schema = database()
		UNION ALL SELECT concat_ws(' ', table_name, engine, table_collation)
		FROM information_schema.tables WHERE table_schema = database()`,
}

func recordVSchema(t *testing.T, _, release string) {
	write(t, release, "vschema.json", []byte(read(t, root+"/sqlstore/vschema.json")))
}

// checkVSchema compares by what Vitess places the rows of each table. By anything else, those
// that there are would be looked for in other shards.
func checkVSchema(t *testing.T, release string) []string {
	var old, now struct{ Vindexes, Tables json.RawMessage }
	must.OK(t, json.Unmarshal([]byte(read(t, release+"/vschema.json")), &old))
	must.OK(t, json.Unmarshal([]byte(read(t, root+"/sqlstore/vschema.json")), &now))
	if !hasMembers(now.Tables, string(old.Tables)) || !hasMembers(now.Vindexes, string(old.Vindexes)) {
		return []string{"sqlstore/vschema.json places rows by something else than it did"}
	}
	return nil
}
