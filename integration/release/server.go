package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/sqlstore"
)

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

// sqliteAlone is the release of which no other database was recorded.
const sqliteAlone = "1.0.0-rc.1"

// record makes a database with what is in the SQLite file.
func (s server) record(release, _ string) error {
	recorded, err := readJSON[shop](release, "shop.json")
	if err != nil {
		return err
	}
	return s.onDatabase(func(d *dbserver.Database, db *sql.DB) error {
		store := sqlstore.New(db, nil)
		if err := stock(store); err != nil {
			return err
		}
		for _, o := range recorded.Orders {
			var order storefront.Order
			if err := json.Unmarshal([]byte(o.Order), &order); err != nil {
				return err
			}
			w := post(open(&sameOrder{store, order}), o.Body, "Idempotency-Key", o.Key, account, o.Account)
			if w.Code != http.StatusCreated || w.Body.String() != o.Order {
				return fmt.Errorf("the order %s is here %s", o.Order, answer(w))
			}
		}
		dump, err := d.Dump()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(release, s.file), dump, 0o644)
	})
}

// A sameOrder is a store that creates an order with the ID and the time of another one. The
// service takes it for a replay.
type sameOrder struct {
	storefront.Store
	order storefront.Order
}

func (s *sameOrder) CreateOrder(ctx context.Context, key storefront.IdempotencyKey, order storefront.Order) (storefront.Order, error) {
	order.ID, order.CreatedAt = s.order.ID, s.order.CreatedAt
	return s.Store.CreateOrder(ctx, key, order)
}

// check loads the released database into a server.
func (s server) check(release, _ string) (lines []string, err error) {
	dump, err := os.ReadFile(filepath.Join(release, s.file))
	if errors.Is(err, fs.ErrNotExist) && filepath.Base(release) == sqliteAlone {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = s.onDatabase(func(d *dbserver.Database, db *sql.DB) error {
		if err := s.load(d, string(dump)); err != nil {
			return fmt.Errorf("%s: %w", s.file, err)
		}
		return s.onDatabase(func(_ *dbserver.Database, empty *sql.DB) (err error) {
			lines, err = checkShop(release, s.driver, db, empty)
			return err
		})
	})
	return lines, err
}

// onDatabase calls f with an empty database and connections to it.
func (s server) onDatabase(f func(d *dbserver.Database, db *sql.DB) error) (err error) {
	d, err := s.kind.NewDatabase()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Drop()) }()
	db, err := sql.Open(s.driver, d.DSN())
	if err != nil {
		return err
	}
	defer db.Close()
	return f(d, db)
}

// load runs SQL over a connection of its own, whose settings the SQL changes.
func (s server) load(d *dbserver.Database, text string) error {
	db, err := sql.Open(s.driver, d.DSN()+s.many)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec(text)
	return err
}
