package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

func init() { mysql.SetLogger(new(mysql.NopLogger)) } // else it prints each connection that a test breaks

// A mySQLKind is MariaDB or MySQL, as it is installed on this machine.
type mySQLKind struct {
	name      string
	variable  string // of the environment: if it is set, a test fails that would be skipped for lack of it
	installed func() (*mySQLInstallation, error)
	shared    func() (*mySQLServer, error) // a server that ends with this binary
}

var (
	mariaDB = newMySQLKind("MariaDB", "STOREFRONT_REQUIRE_MARIADB", installMariaDB)
	mySQL   = newMySQLKind("MySQL", "STOREFRONT_REQUIRE_MYSQL", installMySQL)
)

func newMySQLKind(name, variable string, install func() (*mySQLInstallation, error)) *mySQLKind {
	k := &mySQLKind{name: name, variable: variable, installed: sync.OnceValues(install)}
	k.shared = sync.OnceValues(k.startShared)
	return k
}

// A mySQLInstallation is how servers of a kind are started.
type mySQLInstallation struct {
	*runner
	name     string   // of the kind
	server   []string // the command, without what is each server's own
	template string   // the data folder that servers begin with
}

// A notInstalled says what a test would need.
type notInstalled string

func (n notInstalled) Error() string { return string(n) }

// installation returns the kind's installation. Without one it skips the test, or
// fails it if the kind's variable is set.
func (k *mySQLKind) installation(t testing.TB) *mySQLInstallation {
	t.Helper()
	in, err := k.installed()
	if _, ok := errors.AsType[notInstalled](err); ok && os.Getenv(k.variable) == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// A mySQLServer is a server of a test's own. A commit is on the disk when it returns,
// it listens on a port of 127.0.0.1 that it has to itself, and everyone may connect
// as root.
type mySQLServer struct {
	in       *mySQLInstallation
	data     string // its folder
	log      string
	port     int // of 127.0.0.1
	settings []string
	process  *process // nil while it is down
}

// start starts a server with these settings, such as "max_connections=20", for the
// time of the test. Without the binaries it skips the test.
func (k *mySQLKind) start(t testing.TB, settings ...string) *mySQLServer {
	t.Helper()
	s := k.newServer(t, settings)
	s.start(t)
	return s
}

// newServer returns a server that is down and has no tables yet.
func (k *mySQLKind) newServer(t testing.TB, settings []string) *mySQLServer {
	t.Helper()
	in := k.installation(t)
	dir := workFolder(t)
	if err := in.give(dir); err != nil {
		t.Fatal(err)
	}
	s := &mySQLServer{
		in:       in,
		data:     filepath.Join(dir, "data"),
		log:      filepath.Join(dir, "server.log"),
		settings: settings,
	}
	if err := in.command("cp", "-R", in.template, s.data).run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s on port %d: %s", k.name, s.port, logTail(s.log))
		}
		if s.process != nil {
			s.kill()
		}
	})
	return s
}

// start starts a server that is down and waits until it answers. It keeps its
// data and, from the first start on, its port.
func (s *mySQLServer) start(t testing.TB) {
	t.Helper()
	if err := s.tryStart(); err != nil {
		t.Fatalf("%s does not start: %v\n%s", s.in.name, err, logTail(s.log))
	}
}

func (s *mySQLServer) tryStart() error {
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
func (s *mySQLServer) launch(more ...string) (err error) {
	s.process, err = startProcess(s.command(more...).Cmd, s.log)
	return err
}

// command returns the command that is the server.
func (s *mySQLServer) command(more ...string) command {
	args := append(slices.Clone(s.in.server[1:]),
		"--datadir="+s.data,
		"--bind-address=127.0.0.1",
		"--port="+strconv.Itoa(s.port),
		// In the data folder, whose path may be too long for a socket's.
		"--socket=socket",
		"--pid-file=pid",
		"--tmpdir="+filepath.Dir(s.data),
		"--skip-name-resolve",
		"--max-connections=200",
		"--innodb-flush-log-at-trx-commit=1",
		"--innodb-doublewrite=ON",
		"--innodb-buffer-pool-size=64M",
		// What compares text without regard to case is the harder case: it is not
		// the byte order of IDs.
		"--character-set-server=utf8mb4",
		"--collation-server=utf8mb4_general_ci",
	)
	for _, setting := range slices.Concat(s.settings, more) {
		args = append(args, "--"+setting)
	}
	return s.in.command(s.in.server[0], args...)
}

// kill kills the server with SIGKILL, as if the machine had taken it away, and
// returns when it is gone.
func (s *mySQLServer) kill() {
	s.process.kill()
	s.process = nil
}

// restart kills the server and starts it again.
func (s *mySQLServer) restart(t testing.TB) {
	t.Helper()
	s.kill()
	s.start(t)
}

// query returns the one value that the query returns.
func (s *mySQLServer) query(query string) (value string, err error) {
	return queryMySQL(s.DSN(), query)
}

func queryMySQL(dsn, query string) (value string, err error) {
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
func (s *mySQLServer) DSN() string { return mySQLDSN("shop", s) }

// mySQLDSN returns the data source name of a database of a server, for
// github.com/go-sql-driver/mysql, as sqlstore's documentation has it. Without
// readTimeout, what does not heed ctx is seen.
func mySQLDSN(database string, s *mySQLServer) string {
	return "root@tcp(" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) + ")/" + database +
		"?timeout=2s&innodb_lock_wait_timeout=1&interpolateParams=true"
}

// mySQLURL returns the URL, for the commands of this module, of what a data source
// name leads to.
func mySQLURL(t testing.TB, dsn string) string {
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

// database returns the data source name of a new, empty database on a server that
// the tests of this binary share. Without the binaries it skips the test.
func (k *mySQLKind) database(t testing.TB) string {
	t.Helper()
	k.installation(t)
	s, err := k.shared()
	if err != nil {
		t.Fatal(err)
	}
	name := newDatabaseName()
	if _, err := s.query("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.drop(name); err != nil {
			t.Error(err)
		}
	})
	return mySQLDSN(name, s)
}

// drop drops a database and ends the connections to it, which may have
// transactions that it would wait for.
func (s *mySQLServer) drop(database string) error {
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

func (k *mySQLKind) startShared() (*mySQLServer, error) {
	in, err := k.installed()
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(in.template)
	s := &mySQLServer{in: in, data: filepath.Join(dir, "shared"), log: filepath.Join(dir, "shared.log")}
	if err := in.command("cp", "-R", in.template, s.data).run(); err != nil {
		return nil, err
	}
	if err := s.tryStart(); err != nil {
		return nil, fmt.Errorf("%s does not start: %w\n%s", k.name, err, logTail(s.log))
	}
	return s, nil
}

// installMySQL finds what mysql/fetch has unpacked, which brings its own loader and
// libraries.
func installMySQL() (*mySQLInstallation, error) {
	folder := os.Getenv("STOREFRONT_MYSQL")
	if folder == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, notInstalled(err.Error())
		}
		folder = filepath.Join(cache, "storefront", "mysql")
	}
	binary := filepath.Join(folder, "usr/sbin/mysqld")
	if _, err := os.Stat(binary); err != nil {
		return nil, notInstalled("MySQL is not there, which integration/mysql/fetch fetches: " + err.Error())
	}
	loaders, err := filepath.Glob(filepath.Join(folder, "usr/lib/*/ld-linux*.so.*"))
	if err != nil || len(loaders) != 1 {
		return nil, fmt.Errorf("of the loader of %s, there are %q, %v", binary, loaders, err)
	}
	group, err := theProcessGroup()
	if err != nil {
		return nil, err
	}
	runner := &runner{group: group} // this user, who alone may reach the cache
	dir, err := runner.folder("mysql")
	if err != nil {
		return nil, err
	}
	in := &mySQLInstallation{runner, "MySQL", []string{
		loaders[0], "--library-path", filepath.Dir(loaders[0]), binary,
		"--no-defaults",
		"--basedir=" + filepath.Join(folder, "usr"),
		"--plugin-dir=" + filepath.Join(folder, "usr/lib/mysql/plugin"),
		"--lc-messages-dir=" + filepath.Join(folder, "usr/share/mysql"),
		"--innodb-redo-log-capacity=32M", // for less to copy; the default is 100M
		"--mysqlx=OFF",
		"--secure-file-priv=NULL", // else there must be a folder
	}, filepath.Join(dir, "template")}
	if os.Getuid() == 0 {
		in.server = append(in.server, "--user=root") // it refuses to, if it is not told
	}
	begin := filepath.Join(dir, "begin.sql")
	// An administrator, such as root, passes where others are refused.
	const users = "CREATE USER root@'%';\nGRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;\n" +
		"CREATE DATABASE shop;\nCREATE USER shop@'%';\nGRANT ALL ON shop.* TO shop@'%';\n"
	if err := os.WriteFile(begin, []byte(users), 0o600); err != nil {
		return nil, err
	}
	if err := in.command(in.server[0], append(slices.Clone(in.server[1:]), "--datadir="+in.template, "--tmpdir="+dir,
		"--initialize-insecure", "--init-file="+begin)...).run(); err != nil {
		return nil, err
	}
	return in, os.Remove(filepath.Join(in.template, "auto.cnf")) // the server's identity, which each is to have its own of
}

func TestMySQLServer(t *testing.T) {
	for _, k := range []*mySQLKind{mariaDB, mySQL} {
		t.Run(k.name, func(t *testing.T) {
			s := k.start(t)
			if _, err := s.query("CREATE TABLE kept AS SELECT 1 AS n"); err != nil {
				t.Fatal(err)
			}
			s.restart(t)
			if n, err := s.query("SELECT n FROM kept"); err != nil || n != "1" {
				t.Errorf("after a restart: %s, %v, want 1", n, err)
			}
		})
	}
}

// What a test leaves open does not keep its database.
func TestMySQLDatabaseIsDropped(t *testing.T) {
	for _, k := range []*mySQLKind{mariaDB, mySQL} {
		t.Run(k.name, func(t *testing.T) {
			k.installation(t)
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
					dsn := variant(k.database(t))
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
			s, err := k.shared()
			if err != nil {
				t.Fatal(err)
			}
			for _, database := range databases {
				if left, err := s.query("SHOW DATABASES LIKE '" + database + "'"); err != nil || left != "" {
					t.Errorf("of %s is left %q, %v", database, left, err)
				}
			}
		})
	}
}
