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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
)

// A postgresServer is a PostgreSQL server of a test's own. It keeps nothing from
// the disk (fsync is on), listens on a port of 127.0.0.1 that it has to itself,
// and trusts everyone who connects.
type postgresServer struct {
	pg       *postgres
	data     string // its folder
	log      string
	port     int // of 127.0.0.1
	settings []string
	process  *process // nil while it is down
}

// startPostgres starts a server with these settings, such as
// "max_connections=20", for the time of the test. Without the binaries it skips
// the test.
func startPostgres(t testing.TB, settings ...string) *postgresServer {
	t.Helper()
	pg := thePostgres.require(t)
	s := newPostgresServer(t, pg, settings)
	if err := pg.command("cp", "-R", pg.template, s.data).run(); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	return s
}

// newPostgresServer returns a server that is down and has no data yet.
func newPostgresServer(t testing.TB, pg *postgres, settings []string) *postgresServer {
	t.Helper()
	dir := workFolder(t)
	if err := pg.give(dir); err != nil {
		t.Fatal(err)
	}
	s := &postgresServer{
		pg:       pg,
		data:     filepath.Join(dir, "data"),
		log:      filepath.Join(dir, "server.log"),
		settings: settings,
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("PostgreSQL on port %d: %s", s.port, logTail(s.log))
		}
		if s.process != nil {
			s.kill(t)
		}
	})
	return s
}

// start starts a server that is down and waits until it answers. It keeps its
// data and, from the first start on, its port.
func (s *postgresServer) start(t testing.TB) {
	t.Helper()
	if err := s.tryStart(); err != nil {
		t.Fatalf("PostgreSQL does not start: %v\n%s", err, logTail(s.log))
	}
}

func (s *postgresServer) tryStart() error {
	const limit = 30 * time.Second
	first := s.port == 0
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if s.port == 0 {
			s.port = freePort()
		}
		if s.process == nil {
			args := []string{
				"-D", s.data,
				"-c", "listen_addresses=127.0.0.1",
				"-c", "port=" + strconv.Itoa(s.port),
				"-c", "unix_socket_directories=",
				"-c", "cluster_name=" + standbyName,
				"-c", "wal_keep_size=256MB", // for a standby that begins with a base backup
				"-c", "wal_retrieve_retry_interval=100ms", // a standby may finish this pause before it is promoted
				"-c", "log_line_prefix=%m [%p] ",
			}
			for _, setting := range s.settings {
				args = append(args, "-c", setting)
			}
			var err error
			if s.process, err = startProcess(s.pg.command("postgres", args...).Cmd, s.log); err != nil {
				return err
			}
		}
		_, err := s.query("SELECT 1")
		if err == nil || time.Now().After(end) {
			return err
		}
		if state, ended := s.process.hasEnded(); ended {
			s.process = nil
			switch tail := logTail(s.log); {
			case first && strings.Contains(tail, "Address already in use"):
				s.port = 0
			case strings.Contains(tail, "is still in use"): // the killed backends have not let go of the shared memory
			default:
				return state
			}
		}
	}
}

// kill kills the server and all its backends with SIGKILL, as if the machine
// had taken them away, and returns when they are gone.
func (s *postgresServer) kill(t testing.TB) {
	t.Helper()
	s.process.Process.Signal(syscall.SIGSTOP) // it shall start no more of them
	children, err := childrenOf(s.process.Process.Pid)
	if err != nil {
		t.Error(err)
	}
	for _, pid := range children {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	s.process.kill()
	s.process = nil
}

// freeze stops the server and all its backends, which keep their connections, until
// thaw.
func (s *postgresServer) freeze(t testing.TB) {
	t.Helper()
	if err := s.pg.group.freeze(s.process.Process.Pid); err != nil { // it shall start no more of them
		t.Fatal(err)
	}
	children, err := childrenOf(s.process.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range children {
		if err := s.pg.group.freeze(pid); err != nil {
			t.Fatal(err)
		}
	}
}

// thaw lets what freeze has stopped go on.
func (s *postgresServer) thaw(t testing.TB) {
	t.Helper()
	children, err := childrenOf(s.process.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range append(children, s.process.Process.Pid) {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
}

func childrenOf(pid int) (children []int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err == nil {
		for field := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, err
			}
			children = append(children, child)
		}
		return children, nil
	}
	text, err = exec.Command("ps", "-A", "-o", "pid=,ppid=").Output() // not on Linux
	for line := range strings.Lines(string(text)) {
		var child, parent int
		if _, err := fmt.Sscan(line, &child, &parent); err == nil && parent == pid {
			children = append(children, child)
		}
	}
	return children, err
}

// restart kills the server and starts it again.
func (s *postgresServer) restart(t testing.TB) {
	t.Helper()
	s.kill(t)
	s.start(t)
}

// standbyName is the name by which every server knows its synchronous standby.
// It must not be "*", which would also match a base backup under way.
const standbyName = "standby"

// startStandby adds a synchronous standby, as follow does.
func (s *postgresServer) startStandby(t testing.TB) *postgresServer {
	t.Helper()
	standby := s.another(t)
	standby.follow(t, s)
	return standby
}

// another returns a server of the same installation and settings that is down and has no
// data yet.
func (s *postgresServer) another(t testing.TB) *postgresServer {
	t.Helper()
	return newPostgresServer(t, s.pg, s.settings)
}

// follow makes a server that is down the synchronous standby of a primary that
// has none, with the primary's data in place of its own, and returns when every
// commit waits for it. From then on, and after a promotion too, the primary
// commits nothing without a synchronous standby.
func (s *postgresServer) follow(t testing.TB, primary *postgresServer) {
	t.Helper()
	s.followOver(t, primary, primary.port)
}

// followOver is follow over another port than the primary's.
func (s *postgresServer) followOver(t testing.TB, primary *postgresServer, port int) {
	t.Helper()
	for _, command := range []string{
		// Before there is any standby: there is no moment in which a commit on its
		// way is still one that does not wait.
		"ALTER SYSTEM SET synchronous_standby_names = '" + standbyName + "'",
		"SELECT pg_reload_conf()",
	} {
		if _, err := primary.query(command); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(s.data); err != nil {
		t.Fatal(err)
	}
	backup := s.pg.command("pg_basebackup", "-d", postgresURL("postgres", &postgresServer{port: port}), "-D", s.data, "-R", "-X", "stream", "-c", "fast")
	if err := backup.run(); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	s.waitUntilSynchronous(t, primary)
}

// waitUntilSynchronous returns when commits of the primary wait for this standby
// and not in vain.
func (s *postgresServer) waitUntilSynchronous(t testing.TB, primary *postgresServer) {
	t.Helper()
	waitFor(t, "the standby is synchronous", 30*time.Second, s.process, func() error {
		state, err := primary.query("SELECT coalesce(string_agg(state || ' ' || sync_state, ', '), 'none') FROM pg_stat_replication")
		if err == nil && state != "streaming sync" {
			err = fmt.Errorf("its standbys are %s", state)
		}
		return err
	})
}

// promote makes the standby the primary, and returns when it accepts writes.
func (s *postgresServer) promote(t testing.TB) {
	t.Helper()
	// Not to wait in it: while it waits, its snapshot may keep the server from
	// replaying the rest of the log, for up to max_standby_streaming_delay.
	if promoted, err := s.query("SELECT pg_promote(false)"); err != nil || promoted != "true" {
		t.Fatalf("pg_promote returned %s, %v", promoted, err)
	}
	waitFor(t, "the standby is promoted", 30*time.Second, s.process, func() error {
		recovering, err := s.query("SELECT pg_is_in_recovery()")
		if err == nil && recovering != "false" {
			err = errors.New("it is in recovery")
		}
		return err
	})
}

// query returns the one value that the query returns.
func (s *postgresServer) query(query string) (value string, err error) {
	db, err := sql.Open("pgx", s.URL())
	if err != nil {
		return "", err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var v any
	err = db.QueryRowContext(ctx, query).Scan(&v)
	if errors.Is(err, sql.ErrNoRows) { // of a command
		err = nil
	}
	return fmt.Sprint(v), err
}

// addr returns where the server listens.
func (s *postgresServer) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL returns the URL of the server's database.
func (s *postgresServer) URL() string { return postgresURL("postgres", s) }

// postgresURL returns the URL of a database of the servers.
func postgresURL(database string, servers ...*postgresServer) string {
	var hosts []string
	for _, s := range servers {
		hosts = append(hosts, s.addr())
	}
	return "postgres://postgres@" + strings.Join(hosts, ",") + "/" + database + "?sslmode=disable"
}

// postgresDatabase returns the URL of a new, empty database on a server that the
// tests of this binary share. Without the binaries it skips the test.
func postgresDatabase(t testing.TB) string {
	t.Helper()
	return thePostgres.database(t)
}

// A postgresRelease is a PostgreSQL that this machine may have.
type postgresRelease struct {
	variable  string                          // of the environment: if set, tests fail without it
	installed func() (*postgres, error)       // errNoPostgres if it is not
	shared    func() (*postgresServer, error) // one that ends with this binary
}

var (
	thePostgres = newPostgresRelease("postgres", "STOREFRONT_REQUIRE_POSTGRES", findPostgres)
	postgres18  = newPostgresRelease("postgres18", "STOREFRONT_REQUIRE_POSTGRES_18", findPostgres18)
)

// newPostgresRelease returns a release whose binaries find finds.
func newPostgresRelease(folder, variable string, find func() (bin string, err error)) *postgresRelease {
	r := &postgresRelease{variable: variable}
	r.installed = sync.OnceValues(func() (*postgres, error) {
		bin, err := find()
		if err != nil {
			return nil, err
		}
		return newPostgres(folder, bin)
	})
	r.shared = sync.OnceValues(func() (*postgresServer, error) {
		pg, err := r.installed()
		if err != nil {
			return nil, err
		}
		return startShared(pg)
	})
	return r
}

// require returns the installation. Without one it skips the test, or fails it if the
// release's variable is set.
func (r *postgresRelease) require(t testing.TB) *postgres {
	t.Helper()
	pg, err := r.installed()
	if errors.Is(err, errNoPostgres) && os.Getenv(r.variable) == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return pg
}

// database is postgresDatabase for a release.
func (r *postgresRelease) database(t testing.TB) string {
	t.Helper()
	r.require(t)
	s, err := r.shared()
	if err != nil {
		t.Fatal(err)
	}
	name := newDatabaseName()
	if _, err := s.query("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := s.query("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return postgresURL(name, s)
}

// newDatabaseName returns a name for a database that this test binary is given once.
func newDatabaseName() string { return fmt.Sprintf("test%d", databases.Add(1)) }

var databases atomic.Int64

// startShared starts a server that ends with this binary.
func startShared(pg *postgres) (*postgresServer, error) {
	dir := filepath.Dir(pg.template)
	s := &postgresServer{
		pg:       pg,
		data:     filepath.Join(dir, "shared"),
		log:      filepath.Join(dir, "shared.log"),
		settings: []string{"max_connections=200"},
	}
	if err := pg.command("cp", "-R", pg.template, s.data).run(); err != nil {
		return nil, err
	}
	if err := s.tryStart(); err != nil {
		return nil, fmt.Errorf("PostgreSQL does not start: %w\n%s", err, logTail(s.log))
	}
	return s, nil
}

// A postgres is an installation of PostgreSQL, and a data folder that servers
// begin with.
type postgres struct {
	*runner
	bin      string
	template string
}

// newPostgres makes the data folder for the installation with its binaries in bin.
func newPostgres(folder, bin string) (*postgres, error) {
	runner, err := newRunner("postgres", "nobody")
	if err != nil {
		return nil, err
	}
	dir, err := runner.folder(folder)
	if err != nil {
		return nil, err
	}
	pg := &postgres{runner, bin, filepath.Join(dir, "template")}
	// A collation by language, where PostgreSQL has one, is the harder case: it
	// is not the byte order of IDs.
	initdb := []string{"-D", pg.template, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"}
	if err := pg.command("initdb", append(initdb, "--locale-provider=icu", "--icu-locale=en-US")...).run(); err != nil {
		if err := pg.command("initdb", initdb...).run(); err != nil {
			return nil, err
		}
	}
	return pg, nil
}

var errNoPostgres = errors.New("PostgreSQL is not installed")

// findPostgres returns the folder of PostgreSQL's binaries: of the server on
// PATH, or else of the newest one where packages put it.
func findPostgres() (bin string, err error) {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		slices.Reverse(found)
		dirs = append(dirs, found...)
	}
	for _, dir := range dirs {
		if !slices.ContainsFunc([]string{"initdb", "postgres", "pg_basebackup"}, func(name string) bool {
			_, err := exec.LookPath(filepath.Join(dir, name))
			return err != nil
		}) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%w: its server binaries (initdb, postgres, pg_basebackup) are neither on PATH, "+
		"nor where pg_config says, nor in /usr/lib/postgresql", errNoPostgres)
}

// findPostgres18 returns the folder of the binaries that postgres18/fetch fetches. They
// are without pg_basebackup.
func findPostgres18() (bin string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "storefront", "postgres-18")
	if _, err := os.Stat(filepath.Join(dir, "bin", "postgres")); err != nil {
		return "", fmt.Errorf("%w: release 18 is not where integration/postgres18/fetch puts it: %w", errNoPostgres, err)
	}
	if os.Getuid() == 0 { // as servers run as another user, who cannot reach root's
		g, err := theProcessGroup()
		if err != nil {
			return "", err
		}
		reachable := filepath.Join(g.dir, "postgres-18")
		if err := os.CopyFS(reachable, os.DirFS(dir)); err != nil {
			return "", err
		}
		dir = reachable
	}
	return filepath.Join(dir, "bin"), nil
}

// command returns a command for the server's user: one of PostgreSQL's, or cp.
func (pg *postgres) command(name string, args ...string) command {
	if name != "cp" {
		name = filepath.Join(pg.bin, name)
	}
	return pg.runner.command(name, args...)
}

// What is called PostgreSQL 18 is that.
func TestPostgres18(t *testing.T) {
	db := openDatabase(t, "pgx", postgres18.database(t))
	var version string
	if err := db.QueryRow("SHOW server_version").Scan(&version); err != nil || !strings.HasPrefix(version, "18.") {
		t.Errorf("its version is %s, %v", version, err)
	}
}

// A frozen server answers nobody, on a connection that there is or a new one, and goes
// on as if nothing had happened.
func TestPostgresFreezes(t *testing.T) {
	s := startPostgres(t)
	connect := func() *sql.DB {
		db := openDatabase(t, "pgx", s.URL())
		db.SetMaxOpenConns(1)
		return db
	}
	known, unknown := connect(), connect()
	if err := known.Ping(); err != nil {
		t.Fatal(err)
	}
	s.freeze(t)
	for name, db := range map[string]*sql.DB{"known": known, "new": unknown} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // long enough for one that is not frozen
		defer cancel()
		if _, err := db.ExecContext(ctx, "SELECT 1"); err == nil {
			t.Errorf("it answers a %s connection", name)
		}
	}
	s.thaw(t)
	if one, err := s.query("SELECT 1"); err != nil || one != "1" {
		t.Errorf("after the thaw: %s, %v, want 1", one, err)
	}
}

func TestPostgresServer(t *testing.T) {
	primary := startPostgres(t)
	standby := primary.startStandby(t)
	if _, err := primary.query("CREATE TABLE kept AS SELECT 1 AS n"); err != nil {
		t.Fatal(err)
	}
	primary.restart(t)
	if n, err := primary.query("SELECT n FROM kept"); err != nil || n != "1" {
		t.Errorf("after a restart: %s, %v, want 1", n, err)
	}
	primary.kill(t)
	standby.promote(t)
	if n, err := standby.query("SELECT n FROM kept"); err != nil || n != "1" {
		t.Errorf("on the promoted standby: %s, %v, want 1", n, err)
	}
}
