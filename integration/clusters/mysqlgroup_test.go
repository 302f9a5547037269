package clusters

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/storefront/integration/internal/long"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/process"
)

func TestMySQLGroup(t *testing.T) {
	long.Test(t)
	start := time.Now()
	g := dbserver.StartMySQLGroup(t, 3, dbserver.MultiPrimary)
	t.Logf("online after %v", time.Since(start))
	if err := g.Members[0].Exec("CREATE TABLE kept (place INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	kept := 0
	keep := func(m *dbserver.GroupMember) {
		t.Helper()
		kept++
		if _, err := m.QueryAfterAll(fmt.Sprintf("INSERT INTO kept VALUES (%d)", kept)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		for _, m := range g.Members {
			if n, err := m.QueryAfterAll("SELECT count(*) FROM kept"); err != nil || n != strconv.Itoa(kept) {
				t.Errorf("%s, %s has %s rows, %v, want %d", when, m.Name, n, err, kept)
			}
		}
	}
	for _, m := range g.Members {
		keep(m)
	}
	check("at first")

	g.Members[0].Kill(t)
	keep(g.Members[1])
	g.Members[0].Start(t)
	g.WaitUntilOnline(t, g.Members...)
	check("after a member was killed")

	nodes := clusterDatabases(t, g.Servers(), dbserver.Before)
	t.Run("store", func(t *testing.T) { testStoreOnCluster(t, nodes) })
	t.Run("same keys", func(t *testing.T) {
		testSameKeysOnDifferentNodes(t, clusterDatabases(t, g.Servers(), dbserver.Before), 600, 300)
	})
}

// TestMySQLMemberKills kills the members of a group in which all take writes, in turn,
// and replicas that have each another member as their first.
func TestMySQLMemberKills(t *testing.T) {
	long.Test(t)
	f := faulttest.New(t)
	g := dbserver.StartMySQLGroup(t, 3, dbserver.MultiPrimary)
	hosts := g.Hosts()
	for range hosts {
		r := faulttest.StartReplicas(t, process.Durable, 1, "mysql://shop@"+strings.Join(hosts, ",")+"/shop?group_replication_consistency='BEFORE'")[0]
		f.Use(append(f.Replicas, r)...)
		hosts = append(hosts[1:], hosts[0])
	}
	f.Orders = 1200
	f.Begin()
	for i, m := range g.Members {
		f.WaitUntilAcknowledged((i + 1) * f.Orders / 4)
		g.WaitUntilOnline(t, g.Members...) // the others must be most of them
		f.Kills["member"]++
		m.Kill(t)
		m.Start(t)
	}
	f.End()
	g.WaitUntilOnline(t, g.Members...)
	f.Check(func() *sql.DB { return dbserver.Open(t, "mysql", dbserver.Before(g.Members[0].DSN())) })
}

// TestMySQLPrimaryKills kills the primary of a group, and then the one after it.
func TestMySQLPrimaryKills(t *testing.T) {
	long.Test(t)
	f := faulttest.New(t)
	g := dbserver.StartMySQLGroup(t, 3, dbserver.SinglePrimary)
	f.Start(3, "mysql://shop@"+strings.Join(g.Hosts(), ",")+"/shop")
	f.Orders = 1200
	f.Begin()
	for n := range 2 {
		f.WaitUntilAcknowledged((n + 1) * f.Orders / 3)
		g.WaitUntilOnline(t, g.Members...) // the others must be most of them
		f.Kills["primary"]++
		killed := g.Primary(t)
		killed.Kill(t)
		f.WaitUntilAcknowledged((n+1)*f.Orders/3 + 100) // by the next one
		killed.Start(t)
	}
	f.End()
	g.WaitUntilOnline(t, g.Members...)
	f.Check(func() *sql.DB { return dbserver.Open(t, "mysql", g.Primary(t).DSN()) })
}
