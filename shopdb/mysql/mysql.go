// Package mysql opens a database of MySQL or MariaDB for a shop, with all that the promises of its store
// need of the servers and of the driver.
//
//	db, err := mysql.Open("mysql://shop@db1,db2:3307,db3/shop", nil) // or mariadb://…
//
// [shopdb] says how to go on. A URL has one or several servers, each a name or address with or without a
// port, or the path of a socket with its slashes as %2F. Its parameters are those of
// github.com/go-sql-driver/mysql, such as tls=true, with system variables. In a user or a password,
// characters such as / are escaped (%2F).
//
// A password in a URL is seen by whoever sees the command line of the program. Give it in a file that has
// the password alone, and that only the program reads, which the parameter password_file of the URL names.
// Without it, the password is that of the environment variable MYSQL_PWD. The file is read anew for each
// connection. To change a password, have the server take both for a while, or write the file right after
// the change: open connections go on. While the server refuses the password, the database is unavailable;
// WaitFor returns the error at once.
//
// Orders go on after a fail-over, and none is acknowledged by a server that cannot commit it. Of several
// servers, all connections are to the one that takes orders, the primary. When it takes no orders any more,
// all connections move to the next one that does, within a few seconds, and what hangs on the old one ends.
// A server is asked before it is used: it must not be read_only and, if there are several servers, must not
// replicate from another one, which the account must be told: GRANT REPLICATION CLIENT (MariaDB: REPLICA
// MONITOR). A primary whose commits hang for other reasons, such as one in the minority of a group
// replication, is not noticed. Give each server its own name: if a name has several addresses, the driver
// chooses.
//
// What a server keeps of an acknowledged order is up to its settings (docs/databases.md of the repository).
// No order waits for long for a caller who has gone: innodb_lock_wait_timeout is a second unless the URL
// has it, and sqlstore tries again. The pool has 20 connections, which are replaced after 30 minutes.
package mysql

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"example.com/storefront/shopdb"
	"example.com/storefront/shopdb/internal/servers"
)

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
	if err := servers.CheckURL(url, "MySQL", "mysql", "mariadb"); err != nil {
		return nil, err
	}
	configs, passwordFile, err := parse(url)
	if err != nil {
		return nil, err
	}
	password := func(given string) (string, error) { return given, nil }
	if passwordFile != "" {
		password = func(string) (string, error) { return readPassword(passwordFile) }
	}
	if _, err := password(""); err != nil {
		return nil, err
	}
	var list []servers.Server
	for _, config := range configs {
		list = append(list, func(ctx context.Context, several bool) (servers.Conn, net.Conn, error) {
			config := config.Clone()
			var err error
			if config.Passwd, err = password(config.Passwd); err != nil {
				return nil, nil, err
			}
			return connect(ctx, config, several)
		})
	}
	pool := servers.Open(mysql.MySQLDriver{}, list...)
	return shopdb.New(pool, &shopdb.Options{Logger: opts.Logger}), nil
}

// readPassword returns the password in a file, which may have a line's end behind it.
func readPassword(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("password_file: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// parse returns a config for each server of a URL, and the file that has the password, or "".
// A URL is such as
//
//	mysql://shop:pass%40word@db1,db2:3307,[::1]/shop?tls=true
//
// A server is a name or address with or without a port (3306), or the path of a socket
// with its slashes as %2F. The parameters are those of the driver's own form of names, and
// password_file. Without a password, it is that of the environment variable MYSQL_PWD. Errors do
// not quote what may be a password.
func parse(name string) (configs []*mysql.Config, passwordFile string, err error) {
	_, rest, _ := strings.Cut(name, "://")
	rest, query, _ := strings.Cut(rest, "?")
	authority, database, _ := strings.Cut(rest, "/")
	user, hosts := "", authority
	if before, after, ok := strings.Cut(authority, "@"); ok {
		user, hosts = before, after
	}
	user, password, hasPassword := strings.Cut(user, ":")
	user, userErr := url.PathUnescape(user)
	password, passwordErr := url.PathUnescape(password)
	database, databaseErr := url.PathUnescape(database)
	switch {
	case userErr != nil || passwordErr != nil:
		return nil, "", errors.New("the user or password in the MySQL URL has a % that is not an escape;" +
			" % itself is written %25")
	case databaseErr != nil:
		return nil, "", errors.New("the database in the MySQL URL has a % that is not an escape")
	case user == "" || database == "" || strings.Contains(database, "/"):
		return nil, "", errors.New("MySQL is named by a URL like mysql://user@host/database;" +
			" / in a password is written %2F, ? %3F")
	}
	query, passwordFile, err = cutPasswordFile(query)
	switch {
	case err != nil:
		return nil, "", err
	case passwordFile != "" && hasPassword:
		return nil, "", errors.New("the MySQL URL has a password and a password_file")
	case passwordFile == "" && !hasPassword:
		password = os.Getenv("MYSQL_PWD")
	}
	for host := range strings.SplitSeq(hosts, ",") {
		network, addr, err := address(host)
		if err != nil {
			return nil, "", err
		}
		config, err := parameters(network, addr, query)
		if err != nil {
			return nil, "", err
		}
		config.User, config.Passwd, config.DBName = user, password, database
		configs = append(configs, config)
	}
	return configs, passwordFile, nil
}

// cutPasswordFile cuts the parameter password_file out of a query, as the driver would take it for a
// system variable.
func cutPasswordFile(query string) (rest, file string, err error) {
	var others []string
	for parameter := range strings.SplitSeq(query, "&") {
		value, ok := strings.CutPrefix(parameter, "password_file=")
		if !ok {
			others = append(others, parameter)
			continue
		}
		if file != "" {
			return "", "", errors.New("the MySQL URL has the parameter password_file twice")
		}
		if file, err = url.QueryUnescape(value); err != nil || file == "" {
			return "", "", errors.New("password_file in the MySQL URL is not the name of a file")
		}
	}
	return strings.Join(others, "&"), file, nil
}

// address returns what to dial for a server in a URL.
func address(host string) (network, addr string, err error) {
	if path, err := url.PathUnescape(host); err == nil && strings.HasPrefix(path, "/") {
		return "unix", path, nil
	}
	if host != "" && !strings.Contains(strings.TrimLeft(host, "["), ":") || strings.HasSuffix(host, "]") {
		host += ":3306"
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil || name == "" || strings.ContainsAny(name, "%()") {
		return "", "", errors.New("a server in the MySQL URL is not host, host:port or [address]:port")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "", errors.New(
			"a port in the MySQL URL is none; : and @ in a password are written %3A and %40")
	}
	return "tcp", host, nil
}

// parameters returns the config that the parameters of a URL make.
func parameters(network, addr, query string) (*mysql.Config, error) {
	given := make(map[string]bool)
	for parameter := range strings.SplitSeq(query, "&") {
		key, value, ok := strings.Cut(parameter, "=")
		switch {
		case key == "" && !ok:
		case key == "" || value == "": // the driver would ignore some, such as tls
			return nil, fmt.Errorf("a parameter in the MySQL URL is not name=value: %s", key)
		case key == "strict": // the driver panics
			return nil, errors.New("the MySQL driver has no parameter strict any more")
		case given[key]:
			return nil, fmt.Errorf("the MySQL URL has the parameter %s twice", key)
		}
		given[key] = true
	}
	// The driver takes what follows the last slash for the database. The address
	// is there as the name that TLS verifies.
	config, err := mysql.ParseDSN(network + "(" + addr + ")/?" + strings.ReplaceAll(query, "/", "%2F"))
	if err != nil {
		return nil, fmt.Errorf("a parameter in the MySQL URL: %w", err)
	}
	config.Logger = &mysql.NopLogger{} // it logs what it also returns
	if !given["interpolateParams"] {
		config.InterpolateParams = true // else each statement is sent twice, to be prepared first
	}
	if config.Timeout <= 0 {
		config.Timeout = servers.ConnectLimit
	}
	if config.ReadTimeout <= 0 {
		// For what it does without a ctx; longer than the store's Timeout.
		config.ReadTimeout = 15 * time.Second
	}
	const lockWait = "innodb_lock_wait_timeout"
	if !given[lockWait] {
		if config.Params == nil {
			config.Params = make(map[string]string)
		}
		config.Params[lockWait] = "1" // else a caller that has gone waits on, and keeps the locks that it has
	}
	return config, nil
}

// lasting are the errors of a wrong name or password, and of a parameter of the URL that is no variable or has
// a value that it cannot have.
var lasting = []uint16{1044, 1045, 1049, 1698, 1193, 1231, 1232}

// connect connects to a server that is not read-only and, if it is one of several, no replica.
func connect(ctx context.Context, config *mysql.Config, several bool) (_ servers.Conn, _ net.Conn, err error) {
	name := config.Addr
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}()
	config = config.Clone()
	var netConn net.Conn
	config.DialFunc = func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
		netConn, err = new(net.Dialer).DialContext(ctx, network, addr)
		return netConn, err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, nil, err
	}
	connecting, cancel := context.WithTimeout(ctx, config.Timeout)
	defer cancel()
	dc, err := connector.Connect(connecting)
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok && slices.Contains(lasting, e.Number) {
		if err = servers.Lasting(err); e.Number == 1045 && config.Passwd == "" {
			err = fmt.Errorf("%w: no password is given: name its file by password_file in the URL", err)
		}
	}
	if errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn) {
		err = fmt.Errorf("it ends the connection at the login: is it a server of MySQL or MariaDB? %w", err)
	}
	if err != nil {
		return nil, nil, err
	}
	c := dc.(servers.Conn)
	checking, cancel := context.WithTimeout(ctx, servers.ConnectLimit)
	defer cancel()
	if err := check(checking, c, several); err != nil {
		c.Close()
		return nil, nil, err
	}
	return c, netConn, nil
}

// check returns an error if the server is read-only or, if it is one of several, if it may replicate from
// another one: a replica can be written to unless somebody has set read_only there.
func check(ctx context.Context, c servers.Conn, several bool) error {
	readOnly, err := lastValue(ctx, c, `SELECT @@global.read_only`)
	switch {
	case err != nil:
		return err
	case readOnly != "0" && readOnly != "OFF":
		return errors.New("it is read-only (read_only)")
	case !several:
		return nil // sqlstore asks, too
	}
	version, err := lastValue(ctx, c, `SELECT version()`)
	if err != nil {
		return err
	}
	queries := []string{`SHOW REPLICA STATUS`, `SHOW SLAVE STATUS`} // since MySQL 8.0.22, and before
	mariaDB := strings.Contains(version, "MariaDB")
	if mariaDB {
		queries = []string{`SHOW ALL SLAVES STATUS`}
	}
	for _, query := range queries {
		var source string
		err = eachRow(ctx, c, query, func(row map[string]string) {
			// The channels of a group are no replication of another server.
			if !strings.HasPrefix(row["Channel_Name"], "group_replication_") {
				source = cmp.Or(source, row["Source_Host"], row["Master_Host"])
			}
		})
		if source != "" {
			return fmt.Errorf("it replicates from %s, so it is no primary (if it is: STOP REPLICA and RESET "+
				"REPLICA ALL)", source)
		}
		if e, ok := errors.AsType[*mysql.MySQLError](err); !ok || e.Number != 1064 {
			break // the server has answered, or knows no such statement
		}
	}
	switch e, ok := errors.AsType[*mysql.MySQLError](err); {
	case err == nil, ok && e.Number != 1227: // also one that knows no replication
		return nil
	case !ok:
		return err
	case mariaDB:
		return checkUnasked(ctx, c)
	}
	group, err := lastValue(ctx, c, `SHOW VARIABLES LIKE 'group_replication_group_name'`)
	if err == nil && group == "" {
		err = servers.Lasting(errors.New("it does not tell this account whether it is a replica, as must be known " +
			"of one of several servers: GRANT REPLICATION CLIENT ON *.* to it"))
	}
	return err
}

// checkUnasked is the rest of check on a MariaDB that does not tell this account from where it
// replicates. The state of replication that runs is known to everybody, and so is a sign that it was set up
// since the server has started, which stays when it is reset.
func checkUnasked(ctx context.Context, c servers.Conn) error {
	running, err := lastValue(ctx, c, `SHOW GLOBAL STATUS LIKE 'Slaves_running'`)
	if err != nil {
		return err
	}
	if running != "" && running != "0" {
		return errors.New("it replicates from another server, so it is no primary")
	}
	period, err := lastValue(ctx, c, `SHOW GLOBAL STATUS LIKE 'Slave_heartbeat_period'`)
	if err == nil && strings.Trim(period, "0.") != "" {
		err = errors.New("it has been a replica, and does not tell this account whether it still is: " +
			"GRANT REPLICA MONITOR ON *.* to it")
	}
	return err
}

// lastValue returns the last value of the first row of a query, or "" if there is no row.
func lastValue(ctx context.Context, c servers.Conn, query string) (value string, err error) {
	err = eachRow(ctx, c, query, func(row map[string]string) { value = cmp.Or(value, row[""]) })
	return value, err
}

// eachRow calls f with the values of each row of a query by the names of their columns, and the last one also
// by "".
func eachRow(ctx context.Context, c servers.Conn, query string, f func(row map[string]string)) error {
	rows, err := c.QueryContext(ctx, query, nil)
	if err != nil {
		return err
	}
	defer rows.Close()
	values := make([]driver.Value, len(rows.Columns()))
	for {
		switch err := rows.Next(values); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		row := make(map[string]string)
		for i, name := range rows.Columns() {
			text, ok := values[i].([]byte)
			if !ok {
				text = fmt.Append(nil, values[i])
			}
			row[name], row[""] = string(text), string(text)
		}
		f(row)
	}
}
