package faults

import (
	"context"
	"database/sql"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/volatilefs"
	"example.com/storefront/internal/audit"
)

// More of them: go test ./integration/faults -run TestSQLitePower -v -failures 1000
var failures = flag.Int("failures", 0, "how often the power fails in each test of it, if not as usual")

// TestSQLitePower takes the power from a SQLite file, and from the replicas that share it.
func TestSQLitePower(t *testing.T) {
	f := faulttest.New(t)
	s := powerOfSQLite(t, f, process.Durable)
	s.failsAgainAndAgain(long.Of(15, 100), 30)
}

// TestPostgresPower takes the power from a PostgreSQL that replicas share.
func TestPostgresPower(t *testing.T) { testServerPower(t, dbserver.Postgres) }

// TestMariaDBPower takes the power from a MariaDB that replicas share.
func TestMariaDBPower(t *testing.T) { testServerPower(t, dbserver.MariaDB) }

// TestMySQLPower takes the power from a MySQL that replicas share.
func TestMySQLPower(t *testing.T) { testServerPower(t, dbserver.MySQL) }

func testServerPower(t *testing.T, kind *dbserver.Kind) {
	f := faulttest.New(t)
	var settings []string
	if kind == dbserver.MySQL {
		// Its default, O_DIRECT, leaves pages torn that a disk has in a volatile cache.
		settings = append(settings, "innodb-flush-method=fsync")
	}
	s := powerOfServer(t, f, kind, settings...)
	s.failsAgainAndAgain(long.Of(2, 20), 100)
}

// TestPowerTakesWhatIsNotFlushed has settings, and a disk, that do not flush what is
// acknowledged: the tests above would see it.
func TestPowerTakesWhatIsNotFlushed(t *testing.T) {
	lying := func(s *supply) *supply {
		s.disk.Lie()
		return s
	}
	for _, row := range []struct {
		name string
		of   func(t *testing.T, f *faulttest.Test) *supply
	}{
		{"SQLite with synchronous=NORMAL", func(t *testing.T, f *faulttest.Test) *supply {
			return powerOfSQLite(t, f, func() (string, error) {
				binary := filepath.Join(process.Folder(t), "durable")
				return binary, process.GoBuildChanged(binary, "durable",
					process.Change{File: "durable/sqlite.go", Old: "synchronous(FULL)", New: "synchronous(NORMAL)"})
			})
		}},
		{"SQLite on a disk that lies", func(t *testing.T, f *faulttest.Test) *supply {
			return lying(powerOfSQLite(t, f, process.Durable))
		}},
		{"PostgreSQL with fsync=off", func(t *testing.T, f *faulttest.Test) *supply {
			long.Test(t)
			return powerOfServer(t, f, dbserver.Postgres, "fsync=off")
		}},
		{"MariaDB on a disk that lies", func(t *testing.T, f *faulttest.Test) *supply {
			long.Test(t)
			return lying(powerOfServer(t, f, dbserver.MariaDB))
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := faulttest.New(t)
			s := row.of(t, f)
			f.Orders = 50
			f.Begin()
			f.End()
			s.fail(0, f.Orders, 0)
			s.wait()
			for _, r := range f.Replicas { // the tables may be lost, too
				r.Process.Kill()
				r.Start()
				r.WaitUntilServing()
			}
			for _, r := range f.Replicas {
				r.End()
			}
			lost, _, _ := f.Account(s.open)
			if len(lost) == 0 {
				t.Error("no order is lost")
			}
			t.Logf("%d of %d orders are lost", len(lost), f.Orders)
		})
	}
}

// A supply is the power of a disk that orders are kept on, and of the processes there.
type supply struct {
	t         *testing.T
	f         *faulttest.Test
	disk      *volatilefs.Disk
	processes func() []*process.Process
	launch    func()         // starts them
	wait      func()         // returns when servers answer; replicas may not
	open      func() *sql.DB // the database, once the replicas have ended
	calls     int            // of a start that change something on the disk, at most
}

// powerOfSQLite starts replicas of a command on a SQLite file.
func powerOfSQLite(t *testing.T, f *faulttest.Test, command func() (string, error)) *supply {
	t.Helper()
	disk := volatilefs.Mount(t, *faulttest.Seed)
	f.Use(faulttest.StartReplicas(t, command, 2, filepath.Join(disk.Dir, "shop.db"))...)
	return &supply{t, f, disk, func() (all []*process.Process) {
		for _, r := range f.Replicas {
			all = append(all, r.Process)
		}
		return all
	}, func() {
		for _, r := range f.Replicas {
			r.Start()
		}
	}, func() {}, func() *sql.DB {
		// SQLite maps a file into memory, and this process, which is the disk, might
		// wait for itself.
		dir := process.Folder(t)
		if err := os.CopyFS(dir, os.DirFS(disk.Dir)); err != nil {
			t.Fatal(err)
		}
		return dbserver.Open(t, "sqlite", filepath.Join(dir, "shop.db"))
	}, 100}
}

// powerOfServer starts a server of a kind, and replicas that share it and have power from
// elsewhere.
func powerOfServer(t *testing.T, f *faulttest.Test, kind *dbserver.Kind, settings ...string) *supply {
	t.Helper()
	disk := volatilefs.Mount(t, *faulttest.Seed)
	server := kind.StartOn(t, disk.Dir, settings...)
	disk.Sync() // an administrator has made it long before
	if kind == dbserver.MySQL {
		disk.KeepNames() // else its index of binary logs may name one that is gone, and it does not start
	}
	driver, url := "pgx", server.DSN()
	if kind != dbserver.Postgres {
		driver, url = "mysql", dbserver.MySQLURL(t, url)
	}
	f.Start(3, url)
	return &supply{t, f, disk,
		func() []*process.Process { return []*process.Process{server.Process} },
		func() {
			server.Process = nil
			if kind == dbserver.MySQL {
				// A failure during its recovery has left a page of its system tablespace torn.
				server.Start(t)
			} else {
				server.Launch(t)
			}
		},
		func() { server.Start(t) },
		func() *sql.DB { return dbserver.Open(t, driver, server.DSN()) },
		2000,
	}
}

// failsAgainAndAgain takes the power so many times, or as often as the flag says, whenever
// about every more orders are acknowledged, or while the processes start after the failure
// before. Most of the time, orders must be on their way then.
func (s *supply) failsAgainAndAgain(times, every int) {
	s.t.Helper()
	if *failures > 0 {
		times = *failures
	}
	s.f.Orders = (times + 1) * every
	s.f.Begin()
	for i := range times {
		calls := s.f.Rand.IntN(1 + s.f.Rand.IntN(s.calls)) // some starts change little
		if s.f.Rand.IntN(4) > 0 {
			s.wait()
			s.f.WaitUntilAcknowledged(i*every + s.f.Rand.IntN(every))
			calls = s.f.Rand.IntN(100)
		}
		s.fail(calls, (i+1)*every, []float64{0, 0.5, 0.95}[s.f.Rand.IntN(3)])
		select {
		case <-s.f.Created: // the disk had nothing to do
		default:
			s.f.Kills["power failure"]++
		}
	}
	s.wait()
	s.f.End()
	if n := s.f.Kills["power failure"]; n < times*2/3 {
		s.t.Errorf("the power failed %d times while orders were created, want most of %d", n, times)
	}
	s.f.Check(s.open)
}

// fail takes the power after so many more calls that change something on the disk, or earlier:
// once so many orders are acknowledged, or a process has ended by itself. Then it gives the
// power back. A part of what was not flushed is kept.
func (s *supply) fail(calls, orders int, keep float64) {
	s.t.Helper()
	early := make(chan struct{})
	closeEarly := sync.OnceFunc(func() { close(early) })
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	go func() {
		s.f.Audit.Wait(ctx, func(p audit.Progress) bool { return p.Acknowledged >= orders })
		closeEarly()
	}()
	for _, p := range s.processes() {
		go func() {
			<-p.Ended
			closeEarly()
		}()
	}
	s.disk.Fail(calls, early, keep, func() {
		for _, p := range s.processes() {
			if err := p.SignalKillAll(); err != nil {
				s.t.Error(err)
			}
		}
	})
	for _, p := range s.processes() {
		<-p.Ended
	}
	s.disk.Restore(s.t)
	s.launch()
}
