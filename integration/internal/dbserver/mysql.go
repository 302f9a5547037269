package dbserver

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

	"example.com/storefront/integration/internal/process"
)

func init() { mysql.SetLogger(new(mysql.NopLogger)) } // else it prints each connection that a test breaks

// A MySQLKind is MariaDB or MySQL, as it is installed on this machine.
type MySQLKind struct {
	Name      string
	variable  string // of the environment: if it is set, a test fails that would be skipped for lack of it
	installed func() (*mySQLInstallation, error)
	shared    func() (*MySQLServer, error) // a server that ends with this binary
}

var (
	MariaDB = newMySQLKind("MariaDB", "STOREFRONT_REQUIRE_MARIADB", installMariaDB)
	MySQL   = newMySQLKind("MySQL", "STOREFRONT_REQUIRE_MYSQL", installMySQL)
)

func newMySQLKind(name, variable string, install func() (*mySQLInstallation, error)) *MySQLKind {
	k := &MySQLKind{Name: name, variable: variable, installed: sync.OnceValues(install)}
	k.shared = sync.OnceValues(k.startShared)
	return k
}

// A mySQLInstallation is how servers of a kind are started.
type mySQLInstallation struct {
	*process.Runner
	name     string   // of the kind
	server   []string // the command, without what is each server's own
	template string   // the data folder that servers begin with
}

// installation returns the kind's installation. Without one it skips the test, or
// fails it if the kind's variable is set.
func (k *MySQLKind) installation(t testing.TB) *mySQLInstallation {
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

// A MySQLServer is a server of a test's own. A commit is on the disk when it returns,
// it listens on a port of 127.0.0.1 that it has to itself, and everyone may connect
// as root.
type MySQLServer struct {
	in       *mySQLInstallation
	data     string // its folder
	log      string
	Port     int // of 127.0.0.1
	settings []string
	Process  *process.Process // nil while it is down
}

// Start starts a server with these settings, such as "max_connections=20", for the
// time of the test. Without the binaries it skips the test.
func (k *MySQLKind) Start(t testing.TB, settings ...string) *MySQLServer {
	t.Helper()
	s := k.newServer(t, settings)
	s.start(t)
	return s
}

// newServer returns a server that is down and has no tables yet.
func (k *MySQLKind) newServer(t testing.TB, settings []string) *MySQLServer {
	t.Helper()
	in := k.installation(t)
	dir := process.Folder(t)
	if err := in.Give(dir); err != nil {
		t.Fatal(err)
	}
	s := &MySQLServer{
		in:       in,
		data:     filepath.Join(dir, "data"),
		log:      filepath.Join(dir, "server.log"),
		settings: settings,
	}
	if err := in.Command("cp", "-R", in.template, s.data).Run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s on port %d: %s", k.Name, s.Port, process.LogTail(s.log))
		}
		if s.Process != nil {
			s.Kill()
		}
	})
	return s
}

// start starts a server that is down and waits until it answers. It keeps its
// data and, from the first start on, its port.
func (s *MySQLServer) start(t testing.TB) {
	t.Helper()
	if err := s.tryStart(); err != nil {
		t.Fatalf("%s does not start: %v\n%s", s.in.name, err, process.LogTail(s.log))
	}
}

func (s *MySQLServer) tryStart() error {
	const limit = 30 * time.Second
	first := s.Port == 0
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if s.Port == 0 {
			s.Port = process.FreePort()
		}
		if s.Process == nil {
			if err := s.launch(); err != nil {
				return err
			}
		}
		_, err := s.Query("SELECT 1")
		if err == nil || time.Now().After(end) {
			return err
		}
		if state, ended := s.Process.HasEnded(); ended {
			s.Process = nil
			if !first || !strings.Contains(process.LogTail(s.log), "Address already in use") {
				return state
			}
			s.Port = 0
		}
	}
}

// launch starts the process of a server that is down, with more settings for this
// time, and does not wait.
func (s *MySQLServer) launch(more ...string) (err error) {
	s.Process, err = process.Start(s.command(more...).Cmd, s.log)
	return err
}

// command returns the command that is the server.
func (s *MySQLServer) command(more ...string) process.Cmd {
	args := append(slices.Clone(s.in.server[1:]),
		"--datadir="+s.data,
		"--bind-address=127.0.0.1",
		"--port="+strconv.Itoa(s.Port),
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
	return s.in.Command(s.in.server[0], args...)
}

// Kill kills the server with SIGKILL, as if the machine had taken it away, and
// returns when it is gone.
func (s *MySQLServer) Kill() {
	s.Process.Kill()
	s.Process = nil
}

// Restart kills the server and starts it again.
func (s *MySQLServer) Restart(t testing.TB) {
	t.Helper()
	s.Kill()
	s.start(t)
}

// Query returns the one value that the query returns.
func (s *MySQLServer) Query(query string) (value string, err error) {
	return QueryMySQL(s.DSN(), query)
}

func QueryMySQL(dsn, query string) (value string, err error) {
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
func (s *MySQLServer) DSN() string { return MySQLDSN("shop", s) }

// MySQLDSN returns the data source name of a database of a server, for
// github.com/go-sql-driver/mysql, as sqlstore's documentation has it. Without
// readTimeout, what does not heed ctx is seen.
func MySQLDSN(database string, s *MySQLServer) string {
	return "root@tcp(" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) + ")/" + database +
		"?timeout=2s&innodb_lock_wait_timeout=1&interpolateParams=true"
}

// MySQLURL returns the URL, for the commands of this module, of what a data source
// name leads to.
func MySQLURL(t testing.TB, dsn string) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return "mysql://" + config.User + "@" + config.Addr + "/" + config.DBName
}

func Interpolating(dsn string) string { return dsn }

// Preparing returns a data source name with which the driver has the server
// prepare each statement that has arguments, instead of putting them into its text.
func Preparing(dsn string) string {
	return strings.Replace(dsn, "&interpolateParams=true", "", 1)
}

// Database returns the data source name of a new, empty database on a server that
// the tests of this binary share. Without the binaries it skips the test.
func (k *MySQLKind) Database(t testing.TB) string {
	t.Helper()
	k.installation(t)
	s, err := k.shared()
	if err != nil {
		t.Fatal(err)
	}
	name := NewDatabaseName()
	if _, err := s.Query("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.drop(name); err != nil {
			t.Error(err)
		}
	})
	return MySQLDSN(name, s)
}

// drop drops a database and ends the connections to it, which may have
// transactions that it would wait for.
func (s *MySQLServer) drop(database string) error {
	for {
		id, err := s.Query("SELECT id FROM information_schema.processlist WHERE db = '" + database + "' LIMIT 1")
		if err != nil {
			return err
		}
		if id == "" {
			_, err := s.Query("DROP DATABASE " + database)
			return err
		}
		// It may have ended by itself.
		if _, err := s.Query("KILL " + id); err != nil && !strings.Contains(err.Error(), "Unknown thread id") {
			return err
		}
	}
}

func (k *MySQLKind) startShared() (*MySQLServer, error) {
	in, err := k.installed()
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(in.template)
	s := &MySQLServer{in: in, data: filepath.Join(dir, "shared"), log: filepath.Join(dir, "shared.log")}
	if err := in.Command("cp", "-R", in.template, s.data).Run(); err != nil {
		return nil, err
	}
	if err := s.tryStart(); err != nil {
		return nil, fmt.Errorf("%s does not start: %w\n%s", k.Name, err, process.LogTail(s.log))
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
	group, err := process.TheGroup()
	if err != nil {
		return nil, err
	}
	runner := &process.Runner{Group: group} // this user, who alone may reach the cache
	dir, err := runner.Folder("mysql")
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
	if err := in.Command(in.server[0], append(slices.Clone(in.server[1:]), "--datadir="+in.template, "--tmpdir="+dir,
		"--initialize-insecure", "--init-file="+begin)...).Run(); err != nil {
		return nil, err
	}
	return in, os.Remove(filepath.Join(in.template, "auto.cnf")) // the server's identity, which each is to have its own of
}
