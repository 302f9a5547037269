// Package dbserver starts the databases that tests need: PostgreSQL and pairs of it,
// MariaDB, MySQL and groups of it. Each test binary has servers of its own, which end with
// it.
package dbserver

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/smalldisk"
	"example.com/storefront/internal/must"
)

// A Kind is a database that this machine may have.
type Kind struct {
	Name   string
	needed string // its name in package need
	driver string
	dsn    func(database, addr string) string
	main   string // the database that a server has from the beginning

	installed func() (*installation, error) // NotInstalled if it is not

	// A server that ends with this binary, and waits for no disk.
	shared func() (*Server, error)

	hurries []string // its settings
	drop    func(s *Server, database string) error
}

// The kinds.
var (
	Postgres   = postgresKind("PostgreSQL", need.Postgres, findPostgres)
	Postgres18 = postgresKind("PostgreSQL 18", need.Postgres18, findPostgres18)
	MariaDB    = mySQLKind("MariaDB", need.MariaDB, installMariaDB)
	MySQL      = mySQLKind("MySQL", need.MySQL, installMySQL)
)

// installs completes a kind, whose installation install finds or makes.
func (k *Kind) installs(install func(k *Kind) (*installation, error)) *Kind {
	k.installed = sync.OnceValues(func() (*installation, error) { return install(k) })
	k.shared = sync.OnceValues(k.startShared)
	return k
}

// An installation is how servers of a kind are started.
type installation struct {
	*process.Runner
	kind     *Kind
	template string // the data folder that servers begin with

	bin string // the folder of PostgreSQL's binaries

	// server returns the command that is a server.
	server func(s *Server, more []string) process.Cmd

	// dump returns the command that prints a database of a server as SQL.
	dump func(s *Server, database string) process.Cmd

	// busy is in the log of a server that could not start because what a killed one had
	// is not free yet; a later try may succeed.
	busy string
}

// A NotInstalled says what a test would need.
type NotInstalled string

func (n NotInstalled) Error() string { return string(n) }

// installation returns the kind's installation. It skips the test where there is none, or fails
// it if that is required.
func (k *Kind) installation(t testing.TB) *installation {
	t.Helper()
	in, err := k.installed()
	if _, ok := errors.AsType[NotInstalled](err); ok {
		need.Missing(t, k.needed, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// makeTemplate has fill make the folder that servers begin with, or finds the one that an
// earlier binary made of the same version of the server and with the same settings. It takes
// seconds, in each package anew, so the first binary keeps a copy in the user's cache.
func (in *installation) makeTemplate(version process.Cmd, settings []string, fill func() error) error {
	cache, err := os.UserCacheDir()
	if err != nil { // there is no HOME
		return fill()
	}
	release, err := version.Output()
	if err != nil {
		return err
	}
	of := sha256.Sum256(fmt.Append(release, settings))
	kept := filepath.Join(cache, "storefront", "data", in.kind.needed+"-"+hex.EncodeToString(of[:8]))
	if _, err := os.Stat(kept); err == nil {
		in.template = kept
		return nil
	}
	if err := fill(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(kept), "new")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	whole := filepath.Join(dir, "data")
	if err := copyFolder(in.template, whole); err != nil {
		return err
	}
	// Else the name might be on the disk before what is in the folder.
	syscall.Sync()
	// Another binary may have made it at the same time.
	if err := os.Rename(whole, kept); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func copyFolder(from, to string) error {
	if out, err := exec.Command("cp", "-R", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp -R %s %s: %w\n%s", from, to, err, out)
	}
	return nil
}

// A Server is a server of a test's own. A commit is on the disk when it returns, the
// server listens on a port of 127.0.0.1 that it has to itself, and everyone may connect
// as its administrator.
type Server struct {
	in       *installation
	data     string // its folder
	log      string
	port     int // of 127.0.0.1
	settings []string
	disk     string // a folder on the disk that it has to itself, or empty
	ready    func() error

	*process.Process // nil while it is down
}

// Start starts a server with these settings, such as "max_connections=20", for the time
// of the test. Without the binaries it skips the test.
func (k *Kind) Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := k.newServer(t, settings)
	s.copyTemplate(t)
	s.Start(t)
	return s
}

// StartOnSmallDisk is Start with the data on a disk that the server has to itself, and that
// FillDisk fills. Where none can be mounted it skips the test.
func (k *Kind) StartOnSmallDisk(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := k.newServer(t, settings)
	s.useSmallDisk(t)
	s.copyTemplate(t)
	s.Start(t)
	return s
}

func (s *Server) useSmallDisk(t testing.TB) {
	t.Helper()
	s.disk = smalldisk.Folder(t, 512<<20)
	must.OK(t, s.in.Give(s.disk))
	s.data = filepath.Join(s.disk, "data")
}

// FillDisk fills the small disk of the server, and returns a function that frees it and ends the
// server, if that has not ended by itself: an operator starts it again.
func (s *Server) FillDisk(t testing.TB) (free func()) {
	t.Helper()
	empty := smalldisk.Fill(t, s.disk)
	return func() {
		t.Helper()
		empty()
		s.Process.KillAll()
		s.Process = nil
	}
}

// newServer returns a server that is down and has no data yet.
func (k *Kind) newServer(t testing.TB, settings []string) *Server {
	t.Helper()
	in := k.installation(t)
	dir := process.Folder(t)
	must.OK(t, in.Give(dir))
	s := in.newServer(dir, settings)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s on port %d: %s", k.Name, s.port, process.LogTail(s.log))
		}
		if s.Process != nil {
			s.Kill(t)
		}
	})
	return s
}

// newServer returns a server whose files are in a folder.
func (in *installation) newServer(dir string, settings []string) *Server {
	s := &Server{
		in:       in,
		data:     filepath.Join(dir, "data"),
		log:      filepath.Join(dir, "server.log"),
		port:     process.FreePort(),
		settings: settings,
	}
	s.ready = func() error { return s.execute("SELECT 1") }
	return s
}

func (s *Server) copyTemplate(t testing.TB) {
	t.Helper()
	must.OK(t, s.in.copyTemplate(s.data))
}

func (in *installation) copyTemplate(to string) error {
	return errors.Join(copyFolder(in.template, to), in.Give(to))
}

// Start starts a server that is down and waits until it answers. It keeps its data
// and its port.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.tryStart(); err != nil {
		t.Fatalf("%s does not start: %v\n%s", s.in.kind.Name, err, process.LogTail(s.log))
	}
}

func (s *Server) tryStart() error {
	const limit = 5 * time.Minute // a busy machine takes more than one
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if s.Process == nil {
			if err := s.launch(); err != nil {
				return err
			}
		}
		err := s.ready()
		if err == nil || time.Now().After(end) {
			return err
		}
		if state, ended := s.Process.HasEnded(); ended {
			s.Process = nil
			tail := process.LogTail(s.log)
			switch {
			case strings.Contains(tail, "Address already in use"): // for a moment
			case s.in.busy != "" && strings.Contains(tail, s.in.busy):
			default:
				return state
			}
		}
	}
}

// launch starts the process of a server that is down, with more settings for this time,
// and does not wait.
func (s *Server) launch(more ...string) (err error) {
	s.Process, err = process.Start(s.in.server(s, slices.Concat(s.settings, more)).Cmd, s.log)
	return err
}

// Kill kills the server and all its processes with SIGKILL, as if the machine had taken
// them away, and returns when the server is gone.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if err := s.Process.KillAll(); err != nil {
		t.Error(err)
	}
	s.Process = nil
}

// Addr returns where the server listens.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// DSN returns the data source name of the server's database.
func (s *Server) DSN() string { return s.DSNOf(s.in.kind.main) }

// DSNOf returns the data source name of a database of the server.
func (s *Server) DSNOf(database string) string { return s.in.kind.dsn(database, s.Addr()) }

// Query returns the one value that the query returns, as text.
func (s *Server) Query(query string) (value string, err error) {
	db, err := sql.Open(s.in.kind.driver, s.DSN())
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

func (s *Server) execute(statements ...string) error {
	for _, statement := range statements {
		if _, err := s.Query(statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// Database returns the data source name of a new, empty database on a server that the
// tests of this binary share. A commit of that server does not wait for the disk: nobody
// kills it. Without the binaries it skips the test.
func (k *Kind) Database(t testing.TB) string {
	t.Helper()
	s, name := k.NewDatabase(t)
	return s.DSNOf(name)
}

// NewDatabase is Database for who needs the server and the name of the database.
func (k *Kind) NewDatabase(t testing.TB) (s *Server, name string) {
	t.Helper()
	k.installation(t)
	s = must.Get(k.shared())(t)
	name = fmt.Sprintf("test%d", databases.Add(1))
	must.Get(s.Query("CREATE DATABASE " + name))(t)
	t.Cleanup(func() {
		if err := k.drop(s, name); err != nil {
			t.Error(err)
		}
	})
	return s, name
}

var databases atomic.Int64 // that this binary has made

// forPSQL are the lines that pg_dump writes for psql alone, with a random word.
var forPSQL = regexp.MustCompile(`(?m)^\\(un)?restrict .*\n`)

// Dump returns what is in a database as SQL, with a row in each line, as the server's own
// tool writes it.
func (s *Server) Dump(t testing.TB, database string) []byte {
	t.Helper()
	return forPSQL.ReplaceAll(must.Get(s.in.dump(s, database).Output())(t), nil)
}

func (k *Kind) startShared() (*Server, error) {
	in, err := k.installed()
	if err != nil {
		return nil, err
	}
	dir, err := in.Folder(k.needed + "-shared")
	if err != nil {
		return nil, err
	}
	s := in.newServer(dir, k.hurries)
	if err := in.copyTemplate(s.data); err != nil {
		return nil, err
	}
	if err := s.tryStart(); err != nil {
		return nil, fmt.Errorf("%s does not start: %w\n%s", k.Name, err, process.LogTail(s.log))
	}
	return s, nil
}

// Open returns a pool of connections, which is closed when the test ends.
func Open(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db := must.Get(sql.Open(driver, dsn))(t)
	t.Cleanup(func() { db.Close() })
	return db
}
