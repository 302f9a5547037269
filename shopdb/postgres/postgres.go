// Package postgres opens a database of PostgreSQL for a shop, with all that the promises of its store need
// of the servers and of the driver.
//
//	db, err := postgres.Open("postgres://shop@db1,db2/shop", nil)
//
// [shopdb] says how to go on. A URL has one or several servers. Its parameters are those of
// github.com/jackc/pgx. In a user or a password, characters such as / are escaped (%2F).
//
// A password in a URL is seen by whoever sees the command line of the program. Give it in a password file
// of libpq, which the environment variable PGPASSFILE or the parameter passfile names, or ~/.pgpass. For
// several servers, the line of the first is used. The file is read anew for each connection, and so are
// those of certificates. To change a password, write the file right after the change: open connections go
// on. While the server refuses the password, the database is unavailable; WaitFor returns the error at
// once.
//
// Orders go on after a fail-over, and none is acknowledged by a server that cannot commit it. Of several
// servers, all connections are to the one that takes orders, the primary. When it takes no orders any more,
// all connections move to the next one that does, within a few seconds, and what hangs on the old one ends.
// A server is asked before it is used: it must not be read-only, and, if there are several servers, must
// commit. A primary that has lost its synchronous standby, perhaps because the standby is the primary now,
// is used for reads only, until there is a better one. With target_session_attrs=any, or any other value
// than read-write and primary, the driver chooses, and nothing of this applies. Give each server its own
// name: if a name has several addresses, the driver chooses.
//
// What a server keeps of an acknowledged order is up to its settings (docs/databases.md of the repository).
// The pool has 20 connections, so that four replicas fit into the server's default of 100. They are
// replaced after 30 minutes.
package postgres

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"example.com/storefront/shopdb"
	"example.com/storefront/shopdb/internal/servers"
)

const checkLimit = time.Second // for a commit

// Options are settings of [Open]. Zero values are defaults.
type Options struct {
	// Logger is told what WaitFor waits for, and why keys are not forgotten. If it is nil, it is
	// slog.Default().
	Logger *slog.Logger
}

// Open returns the database of a URL. If opts is nil, the defaults are used. A server need not answer yet,
// see [shopdb.DB.WaitFor]. No error has a password.
func Open(url string, opts *Options) (*shopdb.DB, error) {
	if opts == nil {
		opts = new(Options)
	}
	if err := servers.CheckURL(url, "PostgreSQL", "postgres", "postgresql"); err != nil {
		return nil, err
	}
	pool, err := open(url)
	if err != nil {
		return nil, err
	}
	return shopdb.New(pool, &shopdb.Options{Logger: opts.Logger}), nil
}

// open returns the database of a URL. Of several servers, it follows the primary. Of one, too, the primary
// is meant: what has become a standby takes no orders. That is unless
// target_session_attrs says something else than read-write or primary, such as any or
// standby: then it is pgx that chooses, and nothing more is checked.
func open(name string) (*sql.DB, error) {
	config, err := parse(name)
	if err != nil {
		return nil, err
	}
	switch sessionAttrs(name) {
	case "", "read-write", "primary":
		list := make([]servers.Server, len(hosts(config)))
		for i := range list {
			list[i] = func(ctx context.Context, writable bool) (servers.Conn, net.Conn, error) {
				config, err := parse(name) // anew, as its files may have changed
				if err != nil {
					return nil, nil, err
				}
				again := hosts(config)
				if len(again) != len(list) { // in a service file
					return nil, nil, errors.New("the number of servers has changed since the start")
				}
				c, netConn, err := connect(ctx, *again[i], writable)
				if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "28P01" {
					if none := withoutPassword(name, config); none != nil {
						err = fmt.Errorf("%w: %w", err, none)
					}
				}
				return c, netConn, err
			}
		}
		return servers.Open(stdlib.GetDefaultDriver(), list...), nil
	default:
		db := stdlib.OpenDB(*config, stdlib.OptionBeforeConnect(func(
			_ context.Context, c *pgx.ConnConfig) error {
			config, err := parse(name)
			if err == nil {
				*c = *config
			}
			return err
		}))
		servers.SetPool(db)
		return db, nil
	}
}

// parse returns what the driver makes of a URL, and of the environment and the files of
// libpq, such as that of passwords, of which it does not say why they have none.
func parse(name string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(name)
	if e, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		e.ConnString = "…" // which may have a password, in whatever part
	}
	if err != nil {
		return nil, err
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = servers.ConnectLimit
	}
	if file := parameter(name, "passfile"); file != "" && config.Password == "" {
		if _, err := os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("passfile: %w", err)
		}
	}
	return config, nil
}

// withoutPassword returns why a config has no password, or nil if it has one.
func withoutPassword(name string, config *pgx.ConnConfig) error {
	file := cmp.Or(parameter(name, "passfile"), os.Getenv("PGPASSFILE"))
	switch _, err := os.ReadFile(file); {
	case config.Password != "":
		return nil
	case file == "":
		return errors.New("no password is given: name a file of passwords by passfile in the URL")
	case err != nil:
		return fmt.Errorf("passfile: %w", err)
	}
	host := config.Host
	if network, _ := pgconn.NetworkAddress(host, config.Port); network == "unix" {
		host = "localhost"
	}
	return fmt.Errorf(`passfile: %s has no line host:port:database:user:password for %s:%d:%s:%s (* is any, `+
		`: in a part is \:, and \ is \\)`, file, host, config.Port, config.Database, config.User)
}

// parameter returns a parameter of a URL, or "" if there is none.
func parameter(name, key string) string {
	_, query, _ := strings.Cut(name, "?")
	// To pgx, as to libpq, + and ; are themselves, and the last of several counts.
	values, err := url.ParseQuery(strings.NewReplacer("+", "%2B", ";", "%3B").Replace(query))
	if err != nil || len(values[key]) == 0 {
		return ""
	}
	return values[key][len(values[key])-1]
}

// sessionAttrs returns target_session_attrs, or "" if there is none: in the config,
// none cannot be told from any.
func sessionAttrs(name string) string {
	return cmp.Or(parameter(name, "target_session_attrs"), os.Getenv("PGTARGETSESSIONATTRS"))
}

// hosts returns a config for each of a config's hosts. A host has several entries if
// TLS is preferred, but not required.
func hosts(config *pgx.ConnConfig) (list []*pgx.ConnConfig) {
	first := &pgconn.FallbackConfig{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}
	all := append([]*pgconn.FallbackConfig{first}, config.Fallbacks...)
	for _, entry := range all {
		if n := len(list) - 1; n >= 0 && list[n].Host == entry.Host && list[n].Port == entry.Port {
			list[n].Fallbacks = append(list[n].Fallbacks, entry)
			continue
		}
		host := config.Copy()
		host.Host, host.Port, host.TLSConfig, host.Fallbacks = entry.Host, entry.Port, entry.TLSConfig, nil
		list = append(list, host)
	}
	return list
}

// connect connects to a server that is not read-only. It is writable if it can
// commit. A primary whose synchronous standby has gone, perhaps to be promoted,
// cannot: it takes connections, says that it can be written to, and answers reads.
func connect(ctx context.Context, config pgx.ConnConfig, writable bool) (servers.Conn, net.Conn, error) {
	var unwritable error
	config.ValidateConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		if err := isPrimary(ctx, c); err != nil || !writable {
			return err
		}
		// pgx cancels it on the server, too, where it would go on to occupy one of
		// max_connections.
		ctx, cancel := context.WithTimeout(ctx, checkLimit)
		defer cancel()
		unwritable = commits(ctx, c)
		return unwritable
	}
	lookUp := config.LookupFunc
	config.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, config.ConnectTimeout)
		defer cancel()
		return lookUp(ctx, host)
	}
	c, err := stdlib.GetConnector(config).Connect(ctx)
	switch {
	case err != nil && unwritable != nil:
		return nil, nil, fmt.Errorf("%w: %w", servers.ErrOnlyReadable, err)
	case err != nil:
		return nil, nil, err
	}
	pc := c.(*stdlib.Conn)
	netConn := pc.Conn().PgConn().Conn()
	if t, ok := netConn.(*tls.Conn); ok {
		netConn = t.NetConn() // whose Close does not wait for the server
	}
	return pc, netConn, nil
}

// isPrimary returns an error if the server is read-only.
func isPrimary(ctx context.Context, c *pgconn.PgConn) error {
	readOnly, err := value(ctx, c, `SHOW transaction_read_only`)
	if err != nil || readOnly != "on" {
		return err
	}
	if recovering, err := value(ctx, c, `SELECT pg_is_in_recovery()`); err != nil {
		return err
	} else if recovering == "t" {
		return errors.New("it is a standby")
	}
	source, err := value(ctx, c, `SELECT source FROM pg_settings`+
		` WHERE name = 'default_transaction_read_only' AND setting = 'on'`)
	if err != nil {
		return fmt.Errorf("it is read-only (%w)", err)
	}
	const text = "default_transaction_read_only is on (%s), and orders have to be written"
	return servers.Lasting(fmt.Errorf(text, source))
}

// commits returns an error if the server does not commit. A message in its log is the
// least that it can commit; nobody reads it.
func commits(ctx context.Context, c *pgconn.PgConn) error {
	_, err := value(ctx, c, `SELECT pg_logical_emit_message(true, 'storefront', '')`)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case "42883", "42501": // it has no such function, as others that speak its SQL, or not for everyone
			return nil
		}
	}
	return err
}

// value returns the only value of the only row of a query.
func value(ctx context.Context, c *pgconn.PgConn, query string) (string, error) {
	results, err := c.Exec(ctx, query).ReadAll()
	if err != nil {
		return "", err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != 1 {
		return "", fmt.Errorf("%s: not one value", query)
	}
	return string(results[0].Rows[0][0]), nil
}
