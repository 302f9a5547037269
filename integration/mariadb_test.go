package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

func init() { mysql.SetLogger(new(mysql.NopLogger)) } // else it prints each connection that a test breaks

// A mariaDBServer is a MariaDB server of a test's own. A commit is on the disk
// when it returns, it listens on a port of 127.0.0.1 that it has to itself, and
// everyone may connect as root.
type mariaDBServer struct {
	m        *mariaDB
	data     string // its folder
	log      string
	port     int // of 127.0.0.1
	settings []string
	process  *process // nil while it is down
}

// startMariaDB starts a server with these settings, such as
// "max_connections=20", for the time of the test. Without the binaries it skips
// the test.
func startMariaDB(t testing.TB, settings ...string) *mariaDBServer {
	t.Helper()
	s := newMariaDBServer(t, installedMariaDB(t), settings)
	s.start(t)
	return s
}

// newMariaDBServer returns a server that is down and has no tables yet.
func newMariaDBServer(t testing.TB, m *mariaDB, settings []string) *mariaDBServer {
	t.Helper()
	dir := workFolder(t)
	if err := m.give(dir); err != nil {
		t.Fatal(err)
	}
	s := &mariaDBServer{
		m:        m,
		data:     filepath.Join(dir, "data"),
		log:      filepath.Join(dir, "server.log"),
		settings: settings,
	}
	if err := m.command("cp", "-R", m.template, s.data).run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("MariaDB on port %d: %s", s.port, logTail(s.log))
		}
		if s.process != nil {
			s.kill()
		}
	})
	return s
}

// start starts a server that is down and waits until it answers. It keeps its
// data and, from the first start on, its port.
func (s *mariaDBServer) start(t testing.TB) {
	t.Helper()
	if err := s.tryStart(); err != nil {
		t.Fatalf("MariaDB does not start: %v\n%s", err, logTail(s.log))
	}
}

func (s *mariaDBServer) tryStart() error {
	const limit = 30 * time.Second
	first := s.port == 0
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if s.port == 0 {
			s.port = freePort()
		}
		if s.process == nil {
			if err := s.launch(); err != nil {
				return err
			}
		}
		_, err := s.query("SELECT 1")
		if err == nil || time.Now().After(end) {
			return err
		}
		if state, ended := s.process.hasEnded(); ended {
			s.process = nil
			if !first || !strings.Contains(logTail(s.log), "Address already in use") {
				return state
			}
			s.port = 0
		}
	}
}

// launch starts the process of a server that is down, with more settings for this
// time, and does not wait.
func (s *mariaDBServer) launch(more ...string) (err error) {
	s.process, err = startProcess(s.command(more...).Cmd, s.log)
	return err
}

// command returns the command that is the server.
func (s *mariaDBServer) command(more ...string) command {
	args := []string{
		"--no-defaults",
		"--datadir=" + s.data,
		"--bind-address=127.0.0.1",
		"--port=" + strconv.Itoa(s.port),
		// In the data folder, whose path may be too long for a socket's.
		"--socket=socket",
		"--pid-file=pid",
		"--tmpdir=" + filepath.Dir(s.data),
		"--skip-name-resolve",
		"--max-connections=200",
		"--innodb-flush-log-at-trx-commit=1",
		"--innodb-doublewrite=ON",
		"--innodb-buffer-pool-size=64M",
		"--innodb-log-file-size=" + mariaDBLogSize,
		// What compares text without regard to case is the harder case: it is not
		// the byte order of IDs.
		"--character-set-server=utf8mb4",
		"--collation-server=utf8mb4_general_ci",
	}
	for _, setting := range append(s.settings[:len(s.settings):len(s.settings)], more...) {
		args = append(args, "--"+setting)
	}
	return s.m.command(s.m.server, args...)
}

const mariaDBLogSize = "16M" // for less to copy; the default is 96M

// kill kills the server with SIGKILL, as if the machine had taken it away, and
// returns when it is gone.
func (s *mariaDBServer) kill() {
	s.process.kill()
	s.process = nil
}

// restart kills the server and starts it again.
func (s *mariaDBServer) restart(t testing.TB) {
	t.Helper()
	s.kill()
	s.start(t)
}

// query returns the one value that the query returns.
func (s *mariaDBServer) query(query string) (value string, err error) {
	return queryMariaDB(s.DSN(), query)
}

func queryMariaDB(dsn, query string) (value string, err error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return "", err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err = db.QueryRowContext(ctx, query).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) { // of a command
		err = nil
	}
	return value, err
}

// DSN returns the data source name of the server's database.
func (s *mariaDBServer) DSN() string { return mariaDBDSN("shop", s) }

// mariaDBDSN returns the data source name of a database of a server, for
// github.com/go-sql-driver/mysql, as sqlstore's documentation has it. Without
// readTimeout, what does not heed ctx is seen.
func mariaDBDSN(database string, s *mariaDBServer) string {
	return "root@tcp(" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) + ")/" + database +
		"?timeout=2s&innodb_lock_wait_timeout=1&interpolateParams=true"
}

// mariaDBURL returns the URL, for the commands of this module, of what a data source
// name leads to.
func mariaDBURL(t testing.TB, dsn string) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return "mysql://" + config.User + "@" + config.Addr + "/" + config.DBName
}

func interpolating(dsn string) string { return dsn }

// preparing returns a data source name with which the driver has the server
// prepare each statement that has arguments, instead of putting them into its text.
func preparing(dsn string) string {
	return strings.Replace(dsn, "&interpolateParams=true", "", 1)
}

// mariaDBDatabase returns the data source name of a new, empty database on a server
// that the tests of this binary share. Without the binaries it skips the test.
func mariaDBDatabase(t testing.TB) string {
	t.Helper()
	installedMariaDB(t)
	s, err := sharedMariaDB()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("test%d", databases.Add(1))
	if _, err := s.query("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.drop(name); err != nil {
			t.Error(err)
		}
	})
	return mariaDBDSN(name, s)
}

// drop drops a database and ends the connections to it, which may have
// transactions that it would wait for.
func (s *mariaDBServer) drop(database string) error {
	for {
		id, err := s.query("SELECT id FROM information_schema.processlist WHERE db = '" + database + "' LIMIT 1")
		if err != nil {
			return err
		}
		if id == "" {
			_, err := s.query("DROP DATABASE " + database)
			return err
		}
		// It may have ended by itself.
		if _, err := s.query("KILL " + id); err != nil && !strings.Contains(err.Error(), "Unknown thread id") {
			return err
		}
	}
}

// sharedMariaDB starts a server that ends with this binary.
var sharedMariaDB = sync.OnceValues(func() (*mariaDBServer, error) {
	m, err := theMariaDB()
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(m.template)
	s := &mariaDBServer{
		m:    m,
		data: filepath.Join(dir, "shared"),
		log:  filepath.Join(dir, "shared.log"),
	}
	if err := m.command("cp", "-R", m.template, s.data).run(); err != nil {
		return nil, err
	}
	if err := s.tryStart(); err != nil {
		return nil, fmt.Errorf("MariaDB does not start: %w\n%s", err, logTail(s.log))
	}
	return s, nil
})

// A mariaDB is an installation of MariaDB, and a data folder that servers begin
// with.
type mariaDB struct {
	*runner
	server   string // the path of the binary
	template string
}

var errNoMariaDB = errors.New("MariaDB's server binaries (mariadbd, mariadb-install-db) are not installed: " +
	"neither on PATH, nor in /usr/sbin and /usr/bin, nor in /usr/libexec")

// installedMariaDB returns the installation of this machine. Without one it skips
// the test, or fails it if STOREFRONT_REQUIRE_MARIADB is set.
func installedMariaDB(t testing.TB) *mariaDB {
	t.Helper()
	m, err := theMariaDB()
	if errors.Is(err, errNoMariaDB) && os.Getenv("STOREFRONT_REQUIRE_MARIADB") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var theMariaDB = sync.OnceValues(func() (*mariaDB, error) {
	server, install := findBinary("mariadbd"), findBinary("mariadb-install-db")
	if server == "" || install == "" {
		return nil, errNoMariaDB
	}
	runner, err := newRunner("mysql", "nobody")
	if err != nil {
		return nil, err
	}
	dir, err := runner.folder("mariadb")
	if err != nil {
		return nil, err
	}
	m := &mariaDB{runner, server, filepath.Join(dir, "template")}
	if err := m.command(install, "--no-defaults", "--datadir="+m.template, "--tmpdir="+dir, "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size="+mariaDBLogSize).run(); err != nil {
		return nil, err
	}
	return m, m.command("mkdir", filepath.Join(m.template, "shop")).run() // a folder is a database
})

// findBinary returns the path of one of MariaDB's binaries, or "". Packages put
// the server where PATH may not lead to.
func findBinary(name string) string {
	for _, dir := range []string{"", "/usr/sbin", "/usr/bin", "/usr/libexec"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return ""
}

func TestMariaDBServer(t *testing.T) {
	s := startMariaDB(t)
	if _, err := s.query("CREATE TABLE kept AS SELECT 1 AS n"); err != nil {
		t.Fatal(err)
	}
	s.restart(t)
	if n, err := s.query("SELECT n FROM kept"); err != nil || n != "1" {
		t.Errorf("after a restart: %s, %v, want 1", n, err)
	}
}

// What a test leaves open does not keep its database.
func TestMariaDBDatabaseIsDropped(t *testing.T) {
	var databases []string
	for name, variant := range map[string]func(dsn string) string{
		"interpolating": interpolating,
		"preparing":     preparing,
	} {
		t.Run(name, func(t *testing.T) {
			var db *sql.DB
			t.Cleanup(func() { // after the database is dropped
				if db != nil {
					db.Close()
				}
			})
			dsn := variant(mariaDBDatabase(t))
			var err error
			if db, err = sql.Open("mysql", dsn); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec("CREATE TABLE numbers (n BIGINT)"); err != nil {
				t.Fatal(err)
			}
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("INSERT INTO numbers VALUES (?)", 1); err != nil {
				t.Fatal(err)
			}
			var database string
			if err := tx.QueryRow("SELECT database()").Scan(&database); err != nil {
				t.Fatal(err)
			}
			databases = append(databases, database)
		})
	}
	if len(databases) != 2 {
		t.Skip("there was none")
	}
	s, err := sharedMariaDB()
	if err != nil {
		t.Fatal(err)
	}
	for _, database := range databases {
		if left, err := s.query("SHOW DATABASES LIKE '" + database + "'"); err != nil || left != "" {
			t.Errorf("of %s is left %q, %v", database, left, err)
		}
	}
}
