package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	_ "modernc.org/sqlite"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// A shop is what the databases of a release have.
type shop struct {
	Users, Products, Widgets []string // the resources, in order
	Orders                   []sentOrder
}

// A sentOrder is a request and the order that it was answered with.
type sentOrder struct{ Account, Key, Body, Order string }

// recordDatabase makes a SQLite file with the store and has the service create
// orders in it.
func recordDatabase(release, _ string) (err error) {
	db, err := openSQLite(filepath.Join(release, "shop.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	store := sqlstore.New(db, nil)
	if err := stock(store); err != nil {
		return err
	}
	service := open(store)
	var s shop
	if s.Users, err = walk(service, "users"); err != nil {
		return err
	}
	if s.Widgets, err = walk(service, "widgets"); err != nil {
		return err
	}
	s.Products = s.Users
	for _, o := range []sentOrder{
		{Key: "first", Body: `{"item":"teapot","qty":2}`},
		{Key: `"first, but quoted"`, Body: `{"item":"kettle","qty":1}`},
		{Key: strings.Repeat("k", 255), Body: `{"item":"` + strings.Repeat("é", 255) + `","qty":9007199254740991}`},
		{Account: "ada", Key: "first", Body: `{"item":"another account's teapot 😀","qty":3}`},
		{Account: "éve", Key: "first", Body: `{"item":"teapot","qty":2}`},
	} {
		w := post(service, o.Body, "Idempotency-Key", o.Key, account, o.Account)
		if w.Code != http.StatusCreated || w.Header().Get("Idempotent-Replayed") != "" {
			return fmt.Errorf("%s: %d %s", o.Body, w.Code, w.Body)
		}
		o.Order = w.Body.String()
		s.Orders = append(s.Orders, o)
	}
	return writeJSON(release, "shop.json", s)
}

// stock makes the tables in an empty database, and puts resources into all lists.
func stock(store *sqlstore.Store) error {
	ctx := context.Background()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	for i, id := range ids {
		r, err := storefront.NewResource(id, json.RawMessage(members[i%len(members)]))
		if err != nil {
			return err
		}
		if err := errors.Join(store.Users.Put(ctx, r), store.Products.Put(ctx, r), store.Widgets.Put(ctx, r)); err != nil {
			return err
		}
	}
	return nil
}

// openSQLite opens a SQLite file as programs do.
func openSQLite(file string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(100)")
}

// account is the header by which the shop tells its scopes.
const account = "X-Account"

// open serves a store.
func open(store storefront.Store) http.Handler {
	options := quiet()
	options.Scope = func(r *http.Request) string { return r.Header.Get(account) }
	return storefront.NewWithOptions(store, options)
}

// walk returns the items of a list, following its pages.
func walk(service http.Handler, list string) (items []string, err error) {
	for query := "?limit=3"; query != ""; {
		w := get(service, lists[list][0]+query)
		var page struct {
			Data []json.RawMessage
			Next string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != http.StatusOK {
			return nil, fmt.Errorf("%s%s: %s", list, query, answer(w))
		}
		for _, item := range page.Data {
			items = append(items, string(item))
		}
		if query = ""; page.Next != "" {
			query = "?limit=3&" + lists[list][1] + "=" + page.Next
		}
	}
	return items, nil
}

// checkDatabase opens a copy of the released SQLite file.
func checkDatabase(release, _ string) (lines []string, err error) {
	content, err := os.ReadFile(filepath.Join(release, "shop.db"))
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "storefront-release")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "shop.db")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return nil, err
	}
	db, err := openSQLite(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	empty, err := openSQLite(filepath.Join(folder, "empty.db"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, empty.Close()) }()
	return checkShop(release, "sqlite", db, empty)
}

// checkShop migrates a database of the release, reads what is there, and sends every order
// again. The tables are then to be those that an empty database gets.
func checkShop(release, driver string, db, empty *sql.DB) (lines []string, err error) {
	s, err := readJSON[shop](release, "shop.json")
	if err != nil {
		return nil, err
	}
	store := sqlstore.New(db, nil)
	for _, each := range []*sqlstore.Store{store, sqlstore.New(empty, nil)} {
		if err := each.Migrate(context.Background()); err != nil {
			return nil, err
		}
	}
	service := open(store)
	fault := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }

	for list, want := range map[string][]string{"users": s.Users, "widgets": s.Widgets} {
		if items, err := walk(service, list); err != nil || !slices.Equal(items, want) {
			fault("%s are %q (%v), and were %q", list, items, err, want)
		}
	}
	for _, product := range s.Products {
		var r storefront.Resource
		if err := r.UnmarshalJSON([]byte(product)); err != nil {
			return nil, err
		}
		if w := get(service, "/v1/products/"+url.PathEscape(r.ID())); w.Code != http.StatusOK || w.Body.String() != product {
			fault("a product is %s, and was %s", answer(w), product)
		}
	}
	for _, o := range s.Orders {
		headers := []string{"Idempotency-Key", o.Key, account, o.Account}
		w := post(service, o.Body, headers...)
		if w.Code != http.StatusCreated || w.Header().Get("Idempotent-Replayed") != "true" || !hasMembers(w.Body.Bytes(), o.Order) {
			fault("the order %s, sent again, is answered with %s", o.Order, answer(w))
		}
		w = post(service, `{"item":"something else","qty":77}`, headers...)
		if w.Code != http.StatusUnprocessableEntity || !bytes.Contains(w.Body.Bytes(), []byte(":idempotency-key-reused")) {
			fault("another order with the key of %s is answered with %s", o.Order, answer(w))
		}
	}
	for _, headers := range [][]string{{"Idempotency-Key", "new"}, {"Idempotency-Key", s.Orders[0].Key, account, "a new one"}} {
		if w := post(service, s.Orders[0].Body, headers...); w.Code != http.StatusCreated || w.Header().Get("Idempotent-Replayed") != "" {
			fault("a new order with %q is answered with %s", headers, answer(w))
		}
	}

	want, err := tables(empty, driver)
	if err != nil {
		return nil, err
	}
	have, err := tables(db, driver)
	if err != nil {
		return nil, err
	}
	for _, part := range want {
		if !slices.Contains(have, part) {
			fault("Migrate does not make %q, which it makes in an empty database", part)
		}
	}
	for _, part := range have {
		if !slices.Contains(want, part) {
			fault("Migrate leaves %q, which it does not make in an empty database", part)
		}
	}

	stored, err := storedOrders(db)
	if err != nil {
		return nil, err
	}
	for _, o := range s.Orders {
		var order storefront.Order
		if err := json.Unmarshal([]byte(o.Order), &order); err != nil {
			return nil, err
		}
		if !stored[order] {
			fault("storefront_orders does not have %s", o.Order)
		}
	}
	if want := len(s.Orders) + 2; len(stored) != want {
		fault("storefront_orders has %d orders, want the %d of the release and 2 new ones", len(stored), want-2)
	}
	return lines, nil
}

// random is what no two new orders or incidents have in common.
var random = regexp.MustCompile(`ord_[A-Z2-7]{26}|urn:storefront:incident:[A-Z2-7]{26}|"created_at":"[^"]*"`)

// answer says what a request was answered with, and the same each time.
func answer(w *httptest.ResponseRecorder) string {
	if replayed := w.Header().Get("Idempotent-Replayed"); replayed != "" {
		return fmt.Sprintf("%d, Idempotent-Replayed: %s, %s", w.Code, replayed, w.Body)
	}
	return fmt.Sprintf("%d %s", w.Code, random.ReplaceAllString(w.Body.String(), "…"))
}

// storedOrders returns the orders as the owner of the database reads them.
func storedOrders(db *sql.DB) (map[storefront.Order]bool, error) {
	rows, err := db.Query(`SELECT id, item, qty, created_ms FROM storefront_orders`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	stored := make(map[storefront.Order]bool)
	for rows.Next() {
		var order storefront.Order
		var ms int64
		if err := rows.Scan(&order.ID, &order.Item, &order.Qty, &ms); err != nil {
			return nil, err
		}
		order.CreatedAt = time.UnixMilli(ms).UTC()
		stored[order] = true
	}
	return stored, rows.Err()
}

// tablesOf are queries, by driver, for a text for each column, constraint and index.
var tablesOf = map[string]string{
	"sqlite": `SELECT concat_ws(' ', m.name, c.name, c.type, c."notnull", c.dflt_value, c.pk)
			FROM sqlite_master AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'
		UNION ALL SELECT concat_ws(' ', m.name, i.name, i."unique", c.name, (SELECT sql FROM sqlite_master WHERE name = i.name))
			FROM sqlite_master AS m, pragma_index_list(m.name) AS i, pragma_index_info(i.name) AS c WHERE m.type = 'table'`,
	"pgx": `SELECT concat_ws(' ', table_name, column_name, data_type, collation_name, is_nullable, column_default)
			FROM information_schema.columns WHERE table_schema = 'public'
		UNION ALL SELECT concat_ws(' ', conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'`,
	"mysql": `SELECT concat_ws(' ', table_name, column_name, column_type, collation_name, is_nullable, column_default, extra)
			FROM information_schema.columns WHERE table_schema = database()
		UNION ALL SELECT concat_ws(' ', table_name, index_name, non_unique, seq_in_index, column_name, sub_part)
			FROM information_schema.statistics WHERE table_schema = database()
		UNION ALL SELECT concat_ws(' ', table_name, engine, table_collation) FROM information_schema.tables WHERE table_schema = database()`,
}

// tables returns what the tables of a database consist of.
func tables(db *sql.DB, driver string) (parts []string, err error) {
	rows, err := db.Query(tablesOf[driver])
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var part string
		if err := rows.Scan(&part); err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, rows.Err()
}

// hasMembers reports whether an object has all members of another one, and they
// are equal.
func hasMembers(object []byte, of string) bool {
	var have, want map[string]any
	if json.Unmarshal(object, &have) != nil || json.Unmarshal([]byte(of), &want) != nil {
		return false
	}
	for name, value := range want {
		if have[name] != value {
			return false
		}
	}
	return true
}
