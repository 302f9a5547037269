package faults

import (
	"database/sql"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/netfault"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/smalldisk"
	"example.com/storefront/internal/audit"
	"example.com/storefront/internal/must"
)

// TestAtOnce has several parts of a shop fail at the same time, in a sequence that the seed
// decides: its replicas, the links between them and the database, and the database with its
// disk. One replica has a wrong clock. After each round, all goes on by itself. In the end, a
// part never comes back, the others serve, and every key settles.
func TestAtOnce(t *testing.T) {
	long.Test(t)
	t.Run("SQLite", func(t *testing.T) {
		s := newShop(t)
		dir := smalldisk.Folder(t, 24<<20)
		file := filepath.Join(dir, "shop.db")
		s.start(file)
		s.part(fault{"disk full", func() func() { return smalldisk.Fill(t, dir) }})
		s.run(func() *sql.DB { return dbserver.Open(t, "sqlite", file) })
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		s := newShop(t)
		primary := dbserver.Postgres.StartOnSmallDisk(t, moreConnections)
		standby := primary.Another(t)
		standby.Follow(t, primary, primary.Addr())
		s.start(dbserver.PostgresURL("postgres", s.link(primary.Addr()), s.link(standby.Addr())))
		failOver := func() {
			standby.WaitUntilSynchronous(t, primary)
			primary.Kill(t)
			standby.Promote(t)
			primary, standby = standby, primary
		}
		s.part(slices.Concat(
			serverFaults(t, "primary", func() *dbserver.Server { return primary }),
			serverFaults(t, "standby", func() *dbserver.Server { return standby }),
			[]fault{{"fail-over", func() func() {
				failOver()
				return func() { standby.Follow(t, primary, primary.Addr()) }
			}}},
		)...)
		alone := false
		s.losable = append(s.losable, fault{"standby", func() func() {
			standby.WaitUntilSynchronous(t, primary)
			alone = true
			standby.Kill(t)
			s.Admit(batch)
			s.waitUntilStuck()
			for _, r := range s.Replicas {
				r.WaitUntilServing() // lists, while nobody can commit
			}
			primary.CommitWith(t, "")
			return nil
		}})
		s.run(func() *sql.DB {
			if !alone {
				failOver() // what counts is what the standby has
			}
			return dbserver.Open(t, "pgx", primary.DSN())
		})
	})
	for _, k := range []*dbserver.Kind{dbserver.MariaDB, dbserver.MySQL} {
		t.Run(k.Name, func(t *testing.T) {
			s := newShop(t)
			server := k.StartOnSmallDisk(t, moreConnections)
			s.start("mysql://root@" + s.link(server.Addr()) + "/shop")
			s.part(serverFaults(t, "database", func() *dbserver.Server { return server })...)
			s.run(func() *sql.DB { return dbserver.Open(t, "mysql", server.DSN()) })
		})
	}
	t.Run("Group Replication", func(t *testing.T) {
		s := newShop(t)
		g := dbserver.StartMySQLGroupOnSmallDisks(t)
		var hosts []string
		for _, m := range g.Members {
			hosts = append(hosts, s.link(m.Addr()))
		}
		s.start("mysql://shop@" + strings.Join(hosts, ",") + "/shop")
		primary := func() *dbserver.Server { return g.Primary(t) }
		s.part(serverFaults(t, "primary", primary)...)
		s.losable = append(s.losable, fault{"primary", func() func() {
			m := primary()
			m.Kill(t)
			g.Members = slices.DeleteFunc(g.Members, func(other *dbserver.Server) bool { return other == m })
			return nil
		}})
		s.run(func() *sql.DB { return dbserver.Open(t, "mysql", primary().DSN()) })
	})
}

// serverFaults are those of a server that comes back as it is.
func serverFaults(t *testing.T, name string, server func() *dbserver.Server) []fault {
	return []fault{
		{name + " killed", func() func() {
			s := server()
			s.Kill(t)
			return func() { s.Start(t) }
		}},
		{name + " frozen", func() func() {
			s := server()
			s.Freeze(t)
			return func() { s.Thaw(t) }
		}},
		{"disk of the " + name + " full", func() func() {
			s := server()
			free := s.FillDisk(t)
			return func() {
				free()
				s.Start(t)
			}
		}},
	}
}

// A fault begins, and returns what ends it, or nil if it has no end.
type fault struct {
	name  string
	begin func() (end func())
}

// A shop has parts, each of which has one fault at a time, and may lose one part for good.
type shop struct {
	*faulttest.Test
	t       *testing.T
	Rand    *rand.Rand
	parts   [][]fault // the database's come last
	losable []fault
	gone    *faulttest.Replica // once it is lost
}

func newShop(t *testing.T) *shop {
	s := &shop{Test: faulttest.New(t), t: t}
	engine := fnv.New64a() // so that each has other faults
	engine.Write([]byte(t.Name()))
	s.Rand = rand.New(rand.NewPCG(*long.Seed, engine.Sum64()))
	return s
}

// A server does not learn that a link is silent, and keeps the connection.
const moreConnections = "max_connections=1000"

// batch is how many orders are admitted at a time.
const batch = 200

// waitUntilStuck waits until clients have failed so often that no order may get through, or
// most orders that are admitted have got through.
func (s *shop) waitUntilStuck() {
	s.t.Helper()
	const often, few = 16, 40
	failed := s.Audit.Progress().Failed
	s.WaitUntil("clients fail", func(p audit.Progress) bool {
		return p.Failed >= failed+often || p.Acknowledged >= s.Admitted-few
	})
}

func (s *shop) part(faults ...fault) { s.parts = append(s.parts, faults) }

// link returns the address of a link to a server.
func (s *shop) link(server string) string {
	p := netfault.Start(s.t, server)
	s.part(
		fault{"link held", func() func() {
			p.Hold()
			return p.Release
		}},
		fault{"messages lost", func() func() {
			for range 8 {
				p.Strike(randomLinkFault(s.Rand))
			}
			return p.Heal
		}},
	)
	return p.Addr()
}

// Each is storefrontd with a clock that is off by more than a day.
var (
	behind = storefrontdOff("storefrontd-behind", -30*time.Hour)
	ahead  = storefrontdOff("storefrontd-ahead", 30*time.Hour)
)

// storefrontdOff returns a function that builds storefrontd when it is called for the first time.
func storefrontdOff(name string, off time.Duration) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		binary, err := process.Path(name)
		if err != nil {
			return "", err
		}
		return binary, process.GoBuildChanged(binary, "shopdb/cmd/storefrontd",
			process.Change{File: "orders.go", Old: "= now.UTC()", New: fmt.Sprintf("= now.Add(%d).UTC()", off)},
			process.Change{File: "shopdb/shopdb.go", Old: "time.Now().Add(-storefront", New: fmt.Sprintf("time.Now().Add(%d-storefront", off)},
		)
	})
}

// start starts three replicas on a database. The clock of one is more than a day off.
func (s *shop) start(url string) {
	s.t.Helper()
	s.Start(2, url)
	clock := []struct {
		name        string
		storefrontd func() (string, error)
	}{{"clock behind", behind}, {"clock ahead", ahead}}[s.Rand.IntN(2)]
	binary := must.Get(clock.storefrontd())(s.t)
	wrong := faulttest.NewReplica(s.t, binary, url)
	wrong.Start()
	wrong.WaitUntilServing()
	s.Use(append(s.Replicas, wrong)...)
	s.Kills[clock.name]++
	for _, r := range s.Replicas {
		r.Supervised = true
		s.part(
			fault{"replica killed", func() func() {
				r.Process.Kill()
				return r.Start
			}},
			fault{"replica frozen", func() func() {
				r.Process.Freeze(s.t)
				return func() { r.Process.Thaw(s.t) }
			}},
		)
		s.losable = append(s.losable, fault{"replica", func() func() {
			r.Process.Kill()
			s.gone = r
			return nil
		}})
	}
}

// run has the parts fail while orders are created, and accounts for them. In each round, the
// database has one of its faults, each in turn, and two other parts have one.
func (s *shop) run(open func() *sql.DB) {
	s.t.Helper()
	const atOnce = 3
	const rounds = 12
	others, database := s.parts[:len(s.parts)-1], s.parts[len(s.parts)-1]
	turns := s.Rand.Perm(len(database))
	s.Orders = (rounds*(2*atOnce+1) + 3) * batch
	s.BeginAdmitting()
	for round := range rounds {
		faults := []fault{database[turns[round%len(turns)]]}
		for _, i := range s.Rand.Perm(len(others))[:atOnce-1] {
			faults = append(faults, others[i][s.Rand.IntN(len(others[i]))])
		}
		var ends []func()
		for _, i := range s.Rand.Perm(len(faults)) {
			s.t.Logf("round %d: %s", round, faults[i].name)
			s.Kills[faults[i].name]++
			s.Admit(batch) // they are created while it begins
			ends = append(ends, faults[i].begin())
			s.Admit(batch) // and these when it has
			s.waitUntilStuck()
		}
		for _, i := range s.Rand.Perm(len(ends)) {
			ends[i]()
		}
		s.Admit(batch)
		s.WaitUntilAcknowledged(s.Admitted)
		for _, r := range s.Replicas {
			r.WaitUntilServing()
		}
	}

	lost := s.losable[s.Rand.IntN(len(s.losable))]
	s.t.Logf("lost for good: %s", lost.name)
	s.Kills[lost.name+" lost"]++
	s.Admit(batch)
	lost.begin()
	for s.Admitted < s.Orders {
		s.Admit(batch)
	}
	s.End()
	s.Use(slices.DeleteFunc(slices.Clone(s.Replicas), func(r *faulttest.Replica) bool { return r == s.gone })...)
	s.Check(open)
}

// randomLinkFault returns one that a network may have.
func randomLinkFault(rng *rand.Rand) netfault.Fault {
	return netfault.Fault{
		Answer: rng.IntN(2) == 0,
		Pass:   []float64{0, rng.Float64(), 1}[rng.IntN(3)],
		Then:   netfault.Ending(rng.IntN(int(netfault.Endings))),
	}
}
