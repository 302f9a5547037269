package dbserver

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
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"example.com/storefront/integration/internal/process"
)

// A PostgresServer is a PostgreSQL server of a test's own. It keeps nothing from
// the disk (fsync is on), listens on a port of 127.0.0.1 that it has to itself,
// and trusts everyone who connects.
type PostgresServer struct {
	pg       *postgresInstallation
	data     string // its folder
	log      string
	Port     int // of 127.0.0.1
	settings []string
	Process  *process.Process // nil while it is down
}

// StartPostgres starts a server with these settings, such as
// "max_connections=20", for the time of the test. Without the binaries it skips
// the test.
func StartPostgres(t testing.TB, settings ...string) *PostgresServer {
	t.Helper()
	pg := Postgres.require(t)
	s := newPostgresServer(t, pg, settings)
	if err := pg.command("cp", "-R", pg.template, s.data).Run(); err != nil {
		t.Fatal(err)
	}
	s.Start(t)
	return s
}

// newPostgresServer returns a server that is down and has no data yet.
func newPostgresServer(t testing.TB, pg *postgresInstallation, settings []string) *PostgresServer {
	t.Helper()
	dir := process.Folder(t)
	if err := pg.Give(dir); err != nil {
		t.Fatal(err)
	}
	s := &PostgresServer{
		pg:       pg,
		data:     filepath.Join(dir, "data"),
		log:      filepath.Join(dir, "server.log"),
		settings: settings,
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("PostgreSQL on port %d: %s", s.Port, process.LogTail(s.log))
		}
		if s.Process != nil {
			s.Kill(t)
		}
	})
	return s
}

// Start starts a server that is down and waits until it answers. It keeps its
// data and, from the first start on, its port.
func (s *PostgresServer) Start(t testing.TB) {
	t.Helper()
	if err := s.tryStart(); err != nil {
		t.Fatalf("PostgreSQL does not start: %v\n%s", err, process.LogTail(s.log))
	}
}

func (s *PostgresServer) tryStart() error {
	const limit = 30 * time.Second
	first := s.Port == 0
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if s.Port == 0 {
			s.Port = process.FreePort()
		}
		if s.Process == nil {
			args := []string{
				"-D", s.data,
				"-c", "listen_addresses=127.0.0.1",
				"-c", "port=" + strconv.Itoa(s.Port),
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
			if s.Process, err = process.Start(s.pg.command("postgres", args...).Cmd, s.log); err != nil {
				return err
			}
		}
		_, err := s.Query("SELECT 1")
		if err == nil || time.Now().After(end) {
			return err
		}
		if state, ended := s.Process.HasEnded(); ended {
			s.Process = nil
			switch tail := process.LogTail(s.log); {
			case first && strings.Contains(tail, "Address already in use"):
				s.Port = 0
			case strings.Contains(tail, "is still in use"): // the killed backends have not let go of the shared memory
			default:
				return state
			}
		}
	}
}

// Kill kills the server and all its backends with SIGKILL, as if the machine
// had taken them away, and returns when they are gone.
func (s *PostgresServer) Kill(t testing.TB) {
	t.Helper()
	s.Process.Process.Signal(syscall.SIGSTOP) // it shall start no more of them
	children, err := ChildrenOf(s.Process.Process.Pid)
	if err != nil {
		t.Error(err)
	}
	for _, pid := range children {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	s.Process.Kill()
	s.Process = nil
}

// Freeze stops the server and all its backends, which keep their connections, until
// thaw.
func (s *PostgresServer) Freeze(t testing.TB) {
	t.Helper()
	if err := s.pg.Group.Freeze(s.Process.Process.Pid); err != nil { // it shall start no more of them
		t.Fatal(err)
	}
	children, err := ChildrenOf(s.Process.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range children {
		if err := s.pg.Group.Freeze(pid); err != nil {
			t.Fatal(err)
		}
	}
}

// Thaw lets what freeze has stopped go on.
func (s *PostgresServer) Thaw(t testing.TB) {
	t.Helper()
	children, err := ChildrenOf(s.Process.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range append(children, s.Process.Process.Pid) {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
}

func ChildrenOf(pid int) (children []int, err error) {
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

// Restart kills the server and starts it again.
func (s *PostgresServer) Restart(t testing.TB) {
	t.Helper()
	s.Kill(t)
	s.Start(t)
}

// standbyName is the name by which every server knows its synchronous standby.
// It must not be "*", which would also match a base backup under way.
const standbyName = "standby"

// StartStandby adds a synchronous standby, as follow does.
func (s *PostgresServer) StartStandby(t testing.TB) *PostgresServer {
	t.Helper()
	standby := s.Another(t)
	standby.Follow(t, s)
	return standby
}

// Another returns a server of the same installation and settings that is down and has no
// data yet.
func (s *PostgresServer) Another(t testing.TB) *PostgresServer {
	t.Helper()
	return newPostgresServer(t, s.pg, s.settings)
}

// Follow makes a server that is down the synchronous standby of a primary that
// has none, with the primary's data in place of its own, and returns when every
// commit waits for it. From then on, and after a promotion too, the primary
// commits nothing without a synchronous standby.
func (s *PostgresServer) Follow(t testing.TB, primary *PostgresServer) {
	t.Helper()
	s.FollowOver(t, primary, primary.Port)
}

// FollowOver is follow over another port than the primary's.
func (s *PostgresServer) FollowOver(t testing.TB, primary *PostgresServer, port int) {
	t.Helper()
	for _, command := range []string{
		// Before there is any standby: there is no moment in which a commit on its
		// way is still one that does not wait.
		"ALTER SYSTEM SET synchronous_standby_names = '" + standbyName + "'",
		"SELECT pg_reload_conf()",
	} {
		if _, err := primary.Query(command); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(s.data); err != nil {
		t.Fatal(err)
	}
	backup := s.pg.command("pg_basebackup", "-d", PostgresURL("postgres", &PostgresServer{Port: port}), "-D", s.data, "-R", "-X", "stream", "-c", "fast")
	if err := backup.Run(); err != nil {
		t.Fatal(err)
	}
	s.Start(t)
	s.WaitUntilSynchronous(t, primary)
}

// WaitUntilSynchronous returns when commits of the primary wait for this standby
// and not in vain.
func (s *PostgresServer) WaitUntilSynchronous(t testing.TB, primary *PostgresServer) {
	t.Helper()
	process.WaitFor(t, "the standby is synchronous", 30*time.Second, s.Process, func() error {
		state, err := primary.Query("SELECT coalesce(string_agg(state || ' ' || sync_state, ', '), 'none') FROM pg_stat_replication")
		if err == nil && state != "streaming sync" {
			err = fmt.Errorf("its standbys are %s", state)
		}
		return err
	})
}

// Promote makes the standby the primary, and returns when it accepts writes.
func (s *PostgresServer) Promote(t testing.TB) {
	t.Helper()
	// Not to wait in it: while it waits, its snapshot may keep the server from
	// replaying the rest of the log, for up to max_standby_streaming_delay.
	if promoted, err := s.Query("SELECT pg_promote(false)"); err != nil || promoted != "true" {
		t.Fatalf("pg_promote returned %s, %v", promoted, err)
	}
	process.WaitFor(t, "the standby is promoted", 30*time.Second, s.Process, func() error {
		recovering, err := s.Query("SELECT pg_is_in_recovery()")
		if err == nil && recovering != "false" {
			err = errors.New("it is in recovery")
		}
		return err
	})
}

// Query returns the one value that the query returns.
func (s *PostgresServer) Query(query string) (value string, err error) {
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

// Addr returns where the server listens.
func (s *PostgresServer) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// URL returns the URL of the server's database.
func (s *PostgresServer) URL() string { return PostgresURL("postgres", s) }

// PostgresURL returns the URL of a database of the servers.
func PostgresURL(database string, servers ...*PostgresServer) string {
	var hosts []string
	for _, s := range servers {
		hosts = append(hosts, s.Addr())
	}
	return "postgres://postgres@" + strings.Join(hosts, ",") + "/" + database + "?sslmode=disable"
}

// PostgresDatabase returns the URL of a new, empty database on a server that the
// tests of this binary share. Without the binaries it skips the test.
func PostgresDatabase(t testing.TB) string {
	t.Helper()
	return Postgres.Database(t)
}

// A PostgresRelease is a PostgreSQL that this machine may have.
type PostgresRelease struct {
	variable  string                                // of the environment: if set, tests fail without it
	installed func() (*postgresInstallation, error) // errNoPostgres if it is not
	shared    func() (*PostgresServer, error)       // one that ends with this binary
}

var (
	Postgres   = newPostgresRelease("postgres", "STOREFRONT_REQUIRE_POSTGRES", findPostgres)
	Postgres18 = newPostgresRelease("postgres18", "STOREFRONT_REQUIRE_POSTGRES_18", findPostgres18)
)

// newPostgresRelease returns a release whose binaries find finds.
func newPostgresRelease(folder, variable string, find func() (bin string, err error)) *PostgresRelease {
	r := &PostgresRelease{variable: variable}
	r.installed = sync.OnceValues(func() (*postgresInstallation, error) {
		bin, err := find()
		if err != nil {
			return nil, err
		}
		return newPostgres(folder, bin)
	})
	r.shared = sync.OnceValues(func() (*PostgresServer, error) {
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
func (r *PostgresRelease) require(t testing.TB) *postgresInstallation {
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

// Database is PostgresDatabase for a release.
func (r *PostgresRelease) Database(t testing.TB) string {
	t.Helper()
	r.require(t)
	s, err := r.shared()
	if err != nil {
		t.Fatal(err)
	}
	name := NewDatabaseName()
	if _, err := s.Query("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := s.Query("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return PostgresURL(name, s)
}

// startShared starts a server that ends with this binary.
func startShared(pg *postgresInstallation) (*PostgresServer, error) {
	dir := filepath.Dir(pg.template)
	s := &PostgresServer{
		pg:       pg,
		data:     filepath.Join(dir, "shared"),
		log:      filepath.Join(dir, "shared.log"),
		settings: []string{"max_connections=200"},
	}
	if err := pg.command("cp", "-R", pg.template, s.data).Run(); err != nil {
		return nil, err
	}
	if err := s.tryStart(); err != nil {
		return nil, fmt.Errorf("PostgreSQL does not start: %w\n%s", err, process.LogTail(s.log))
	}
	return s, nil
}

// A postgres is an installation of PostgreSQL, and a data folder that servers
// begin with.
type postgresInstallation struct {
	*process.Runner
	bin      string
	template string
}

// newPostgres makes the data folder for the installation with its binaries in bin.
func newPostgres(folder, bin string) (*postgresInstallation, error) {
	runner, err := process.NewRunner("postgres", "nobody")
	if err != nil {
		return nil, err
	}
	dir, err := runner.Folder(folder)
	if err != nil {
		return nil, err
	}
	pg := &postgresInstallation{runner, bin, filepath.Join(dir, "template")}
	// A collation by language, where PostgreSQL has one, is the harder case: it
	// is not the byte order of IDs.
	initdb := []string{"-D", pg.template, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"}
	if err := pg.command("initdb", append(initdb, "--locale-provider=icu", "--icu-locale=en-US")...).Run(); err != nil {
		if err := pg.command("initdb", initdb...).Run(); err != nil {
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
		g, err := process.TheGroup()
		if err != nil {
			return "", err
		}
		reachable := filepath.Join(g.Dir, "postgres-18")
		if err := os.CopyFS(reachable, os.DirFS(dir)); err != nil {
			return "", err
		}
		dir = reachable
	}
	return filepath.Join(dir, "bin"), nil
}

// command returns a command for the server's user: one of PostgreSQL's, or cp.
func (pg *postgresInstallation) command(name string, args ...string) process.Cmd {
	if name != "cp" {
		name = filepath.Join(pg.bin, name)
	}
	return pg.Runner.Command(name, args...)
}
