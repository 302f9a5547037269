package faults

import (
	"database/sql"
	"testing"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/netfault"
)

// TestDatabaseCuts has the network between replicas and their database fail, but no
// process.
func TestDatabaseCuts(t *testing.T) {
	t.Run("PostgreSQL", func(t *testing.T) {
		f := faulttest.New(t)
		server := dbserver.StartPostgres(t, moreConnections)
		p := netfault.Start(t, netfault.Postgres, server.Addr())
		f.Start(3, server.DSNVia(p.Addr()))
		runCuts(t, f, p)
		f.Check(func() *sql.DB { return dbserver.Open(t, "pgx", server.DSN()) })
	})
	for _, k := range []*dbserver.Kind{dbserver.MariaDB, dbserver.MySQL} {
		t.Run(k.Name, func(t *testing.T) {
			long.Test(t)
			f := faulttest.New(t)
			server := k.Start(t, moreConnections)
			p := netfault.Start(t, netfault.MySQL, server.Addr())
			f.Start(3, "mysql://root@"+p.Addr()+"/shop")
			runCuts(t, f, p)
			f.Check(func() *sql.DB { return dbserver.Open(t, "mysql", server.DSN()) })
		})
	}
}

// A server does not learn that a link is silent, and keeps the connection.
const moreConnections = "max_connections=1000"

// runCuts creates orders while links through a proxy, which is well afterwards, have each of the faults.
func runCuts(t *testing.T, f *faulttest.Test, p *netfault.Proxy) {
	t.Helper()
	const batch = 50
	f.Orders = len(cuts) * batch
	f.BeginAdmitting()
	for _, cut := range cuts {
		done := p.Strike(cut)
		f.Admit(batch)
		<-done
		f.Kills[cut.String()]++
		f.WaitUntilAcknowledged(f.Admitted)
		p.Heal()
	}
	f.End()
}

var cuts = []netfault.Fault{
	{To: netfault.Request, Pass: 0.5, Then: netfault.Reset},
	{To: netfault.Answer, Pass: 0.5, Then: netfault.HalfClose},
	{To: netfault.Commit, Pass: 0, Then: netfault.HangUp},
	{To: netfault.Commit, Pass: 0, Then: netfault.Silence},
}
