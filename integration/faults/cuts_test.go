package faults

import (
	"database/sql"
	"math/rand/v2"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/netfault"
	"example.com/storefront/internal/audit"
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
			f := faulttest.New(t)
			f.Orders = long.Of(600, 3000)
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

// TestClientCuts has the network between clients and replicas fail, but no process.
func TestClientCuts(t *testing.T) {
	f := faulttest.New(t)
	f.Orders = long.Of(600, 3000)
	server := dbserver.StartPostgres(t)
	f.Start(3, server.DSN())
	var proxies []*netfault.Proxy
	for i, r := range f.Replicas {
		p := netfault.Start(t, netfault.HTTP, strings.TrimPrefix(r.URL, "http://"))
		proxies = append(proxies, p)
		f.URLs[i] = "http://" + p.Addr()
	}
	runCuts(t, f, proxies...)
	f.Check(func() *sql.DB { return dbserver.Open(t, "pgx", server.DSN()) })
}

// runCuts creates orders while links through proxies, which are well afterwards, have faults: each
// of cuts once or, if integration/soak runs the test, many at random.
func runCuts(t *testing.T, f *faulttest.Test, proxies ...*netfault.Proxy) {
	t.Helper()
	if long.Run() {
		runRandomCuts(t, f, proxies)
		return
	}
	const batch = 50
	f.Orders = len(cuts) * batch
	f.BeginAdmitting()
	for i, cut := range cuts {
		p := proxies[i%len(proxies)]
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

func runRandomCuts(t *testing.T, f *faulttest.Test, proxies []*netfault.Proxy) {
	t.Helper()
	type called struct {
		netfault.Fault
		done <-chan struct{}
	}
	var calls []called
	f.Run(200, func() {
		p := proxies[f.Rand.IntN(len(proxies))]
		if f.Rand.IntN(20) == 0 {
			f.Kills["all held"]++
			failed := f.Audit.Progress().Failed
			p.Hold()
			f.WaitUntil("clients fail", func(p audit.Progress) bool { return p.Failed > failed || p.Acknowledged == f.Orders })
			p.Release()
			return
		}
		fault := randomLinkFault(f.Rand)
		for range 1 + f.Rand.IntN(4) {
			calls = append(calls, called{fault, p.Strike(fault)})
		}
	})
	for _, p := range proxies {
		p.Heal()
	}
	met := make(map[netfault.MessageKind]bool)
	for _, call := range calls {
		select {
		case <-call.done:
			met[call.To] = true
			f.Kills[call.String()]++
		default: // no such message came any more
		}
	}
	if len(met) < int(netfault.MessageKinds) {
		t.Errorf("of the kinds of messages, only %v have met a fault", met)
	}
}

// randomLinkFault returns one that a network may have.
func randomLinkFault(rng *rand.Rand) netfault.Fault {
	f := netfault.Fault{
		To:   netfault.MessageKind(rng.IntN(int(netfault.MessageKinds))),
		Pass: []float64{0, rng.Float64(), 1}[rng.IntN(3)],
		Then: netfault.Ending(rng.IntN(int(netfault.Endings))),
	}
	if f.To == netfault.Request && f.Then == netfault.HalfClose {
		f.Pass = 1 // else the server would answer what the client has not sent
	}
	return f
}
