package dbserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// postgresKind returns a release of PostgreSQL, the folder of whose binaries find finds.
func postgresKind(name, needed string, find func() (bin string, err error)) *Kind {
	k := &Kind{
		Name:    name,
		needed:  needed,
		driver:  "pgx",
		dsn:     func(database, addr string) string { return PostgresURL(database, addr) },
		main:    "postgres",
		hurries: []string{"fsync=off"},
		drop: func(s *Server, database string) error {
			return s.execute("DROP DATABASE " + database + " WITH (FORCE)")
		},
	}
	return k.installs(func(k *Kind) (*installation, error) {
		bin, err := find()
		if err != nil {
			return nil, err
		}
		return initPostgres(k, bin)
	})
}

// initPostgres makes the data folder that servers begin with, for the binaries in bin.
func initPostgres(k *Kind, bin string) (*installation, error) {
	runner, err := process.NewRunner("postgres", "nobody")
	if err != nil {
		return nil, err
	}
	dir, err := runner.Folder(k.needed)
	if err != nil {
		return nil, err
	}
	in := &installation{
		Runner:   runner,
		kind:     k,
		template: filepath.Join(dir, "template"),
		bin:      bin,
		server: func(s *Server, more []string) process.Cmd {
			args := []string{
				"-D", s.data,
				"-c", "listen_addresses=127.0.0.1",
				"-c", fmt.Sprintf("port=%d", s.port),
				"-c", "unix_socket_directories=",
				"-c", "cluster_name=" + standbyName,
				"-c", "wal_keep_size=256MB", // for a standby that begins with a base backup
				// A standby may finish this pause before it is promoted.
				"-c", "wal_retrieve_retry_interval=100ms",
				"-c", "log_line_prefix=%m [%p] ",
			}
			for _, setting := range append([]string{"max_connections=200"}, more...) {
				args = append(args, "-c", setting)
			}
			return runner.Command(filepath.Join(bin, "postgres"), args...)
		},
		dump: func(s *Server, database string) process.Cmd {
			return runner.Command(filepath.Join(bin, "pg_dump"), "--inserts", "--no-owner", "--no-privileges",
				s.DSNOf(database))
		},
		busy: "is still in use", // the killed backends have not let go of the shared memory
	}
	// A collation by language, where PostgreSQL has one, is the harder case: it
	// is not the byte order of IDs.
	command := filepath.Join(bin, "initdb")
	settings := []string{"-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D",
		in.template}
	byLanguage := append(slices.Clone(settings), "--locale-provider=icu", "--icu-locale=en-US")
	return in, in.makeTemplate(in.Command(command, "--version"), settings[:len(settings)-1], func() error {
		if in.Command(command, byLanguage...).Run() == nil {
			return nil
		}
		return in.Command(command, settings...).Run()
	})
}

// PostgresURL returns the URL of a database of the servers at these addresses.
func PostgresURL(database string, addrs ...string) string {
	return "postgres://postgres@" + strings.Join(addrs, ",") + "/" + database + "?sslmode=disable"
}

// standbyName is the name by which every server knows its synchronous standby.
// It must not be "*", which would also match a base backup under way.
const standbyName = "standby"

// Another returns a server of the same installation and settings that is down and has no
// data yet, but an address, and a small disk if this one has one.
func (s *Server) Another(t testing.TB) *Server {
	t.Helper()
	another := s.in.kind.newServer(t, s.settings)
	if s.disk != "" {
		another.useSmallDisk(t)
	}
	return another
}

// Follow makes a PostgreSQL server that is down the synchronous standby of a primary that
// has none, with the primary's data in place of its own, and returns when every
// commit waits for it. From then on, and after a promotion too, the primary
// commits nothing without a synchronous standby. addr is that of the primary, or leads there.
func (s *Server) Follow(t testing.TB, primary *Server, addr string) {
	t.Helper()
	// Before there is any standby: there is no moment in which a commit on its way is still
	// one that does not wait.
	primary.CommitWith(t, standbyName)
	must.OK(t, os.RemoveAll(s.data))
	backup := s.in.Command(filepath.Join(s.in.bin, "pg_basebackup"),
		"-d", PostgresURL("postgres", addr), "-D",
		s.data, "-R", "-X", "stream", "-c", "fast")
	must.OK(t, backup.Run())
	s.Start(t)
	s.WaitUntilSynchronous(t, primary)
}

// CommitWith has commits wait for a standby of this name, or, if it is empty, for none, as an operator may
// decide whose standby does not come back.
func (s *Server) CommitWith(t testing.TB, name string) {
	t.Helper()
	must.OK(t, s.execute("ALTER SYSTEM SET synchronous_standby_names = '"+name+"'", "SELECT pg_reload_conf()"))
}

// WaitUntilSynchronous returns when commits of the primary wait for this standby
// and not in vain.
func (s *Server) WaitUntilSynchronous(t testing.TB, primary *Server) {
	t.Helper()
	process.WaitFor(t, "the standby is synchronous", 5*time.Minute, s.Process, func() error {
		state, err := primary.Query(
			"SELECT coalesce(string_agg(state || ' ' || sync_state, ', '), 'none') FROM " +
				"pg_stat_replication")
		if err == nil && state != "streaming sync" {
			err = fmt.Errorf("its standbys are %s", state)
		}
		return err
	})
}

// Promote makes the standby the primary, and returns when it accepts writes.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	// Not to wait in it: while it waits, its snapshot may keep the server from
	// replaying the rest of the log, for up to max_standby_streaming_delay.
	if promoted, err := s.Query("SELECT pg_promote(false)"); err != nil || promoted != "true" {
		t.Fatalf("pg_promote returned %s, %v", promoted, err)
	}
	process.WaitFor(t, "the standby is promoted", 5*time.Minute, s.Process, func() error {
		recovering, err := s.Query("SELECT pg_is_in_recovery()")
		if err == nil && recovering != "false" {
			err = errors.New("it is in recovery")
		}
		return err
	})
}

// findPostgres returns the folder of the newest PostgreSQL's binaries, where packages put them.
func findPostgres() (bin string, err error) {
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/initdb", "/usr/pgsql-*/bin/initdb", "/usr/bin/initdb"} {
		if found, _ := filepath.Glob(pattern); found != nil {
			return filepath.Dir(found[len(found)-1]), nil
		}
	}
	return "", NotInstalled("PostgreSQL is not installed: its server binaries (initdb, postgres, pg_basebackup) are " +
		"neither in /usr/lib/postgresql, nor in /usr/pgsql-*, nor in /usr/bin")
}

// findPostgres18 returns the folder of the binaries that postgres18/fetch fetches. They
// are without pg_basebackup.
func findPostgres18() (bin string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", NotInstalled(err.Error())
	}
	dir := filepath.Join(cache, "storefront", "postgres-18")
	if _, err := os.Stat(filepath.Join(dir, "bin", "postgres")); err != nil {
		return "", NotInstalled(
			"PostgreSQL 18 is not where integration/postgres18/fetch puts it: " + err.Error())
	}
	if os.Getuid() == 0 { // as servers run as another user, who cannot reach root's
		reachable, err := process.Path("postgres-18")
		if err != nil {
			return "", err
		}
		if err := os.CopyFS(reachable, os.DirFS(dir)); err != nil {
			return "", err
		}
		dir = reachable
	}
	return filepath.Join(dir, "bin"), nil
}
