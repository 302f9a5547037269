package clusters

import (
	"database/sql"
	"testing"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/netfault"
)

// TestSplitBrain promotes the standby of a PostgreSQL primary that lives on, takes
// connections and calls itself the primary, but has nobody left to commit with.
func TestSplitBrain(t *testing.T) {
	long.Test(t)
	testPromotions(t, 3, func(old *dbserver.Server, promote func()) (comeBack func()) {
		promote()
		return func() {}
	})
}

// TestFrozenPrimary promotes the standby of a PostgreSQL primary that is frozen, and
// later goes on as if nothing had happened.
func TestFrozenPrimary(t *testing.T) {
	long.Test(t)
	testPromotions(t, 2, func(old *dbserver.Server, promote func()) (comeBack func()) {
		old.Freeze(t)
		promote()
		return func() { old.Thaw(t) }
	})
}

// testPromotions has each of three PostgreSQL servers in turn be the primary, its
// synchronous standby, and one that has been the primary before. change promotes the
// standby, with what else it does to the primary, and returns what undoes that.
//
// Before, the standby is cut off for long enough that whatever does not wait for it
// is acknowledged, and would be lost.
func testPromotions(t *testing.T, turns int,
	change func(old *dbserver.Server, promote func()) (comeBack func())) {
	f := faulttest.New(t)
	primary := dbserver.Postgres.Start(t)
	standby, spare := primary.Another(t), primary.Another(t)
	link := netfault.Start(t, primary.Addr())
	standby.Follow(t, primary, link.Addr())
	f.Start(3, dbserver.PostgresURL("postgres", primary.Addr(), standby.Addr(), spare.Addr()))
	f.Begin()
	f.WaitUntilAcknowledged(200)
	for range turns {
		link.Hold()
		f.WaitUntilStuck()
		f.Kills["promoted"]++
		comeBack := change(primary, func() { standby.Promote(t) })
		link = netfault.Start(t, standby.Addr())
		spare.Follow(t, standby, link.Addr())
		waitUntilReady(f)
		comeBack()
		f.KillReplica() // what connects anew finds both
		waitUntilReady(f)
		primary.Kill(t)
		primary, standby, spare = standby, spare, primary
	}
	f.End()
	f.Check(func() *sql.DB { return dbserver.Open(t, "pgx", primary.DSN()) })
}

// waitUntilReady waits until each replica uses a database that commits.
func waitUntilReady(f *faulttest.Test) {
	for _, r := range f.Replicas {
		r.WaitUntilReady()
	}
}
