package integration

import (
	"database/sql"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"example.com/storefront/internal/audit"
)

// TestDatabaseCuts has the network between replicas and their database fail, but no
// process.
func TestDatabaseCuts(t *testing.T) {
	t.Run("PostgreSQL", func(t *testing.T) {
		f := newFaultTest(t)
		server := startPostgres(t, moreConnections)
		p := startProxy(t, postgresProtocol, server.addr())
		f.start(3, postgresURL("postgres", &postgresServer{port: p.port}))
		runCuts(t, f, p)
		f.check(func() *sql.DB { return openDatabase(t, "pgx", server.URL()) })
	})
	for _, k := range []*mySQLKind{mariaDB, mySQL} {
		t.Run(k.name, func(t *testing.T) {
			f := newFaultTest(t)
			f.orders = 3000
			server := k.start(t, moreConnections)
			p := startProxy(t, mySQLProtocol, "127.0.0.1:"+strconv.Itoa(server.port))
			f.start(3, "mysql://root@"+p.addr()+"/shop")
			runCuts(t, f, p)
			f.check(func() *sql.DB { return openDatabase(t, "mysql", server.DSN()) })
		})
	}
}

// A server does not learn that a link is silent, and keeps the connection.
const moreConnections = "max_connections=1000"

// TestClientCuts has the network between clients and replicas fail, but no process.
func TestClientCuts(t *testing.T) {
	f := newFaultTest(t)
	f.orders = 3000
	server := startPostgres(t)
	f.start(3, server.URL())
	var proxies []*proxy
	for i, r := range f.replicas {
		p := startProxy(t, httpProtocol, strings.TrimPrefix(r.url, "http://"))
		proxies = append(proxies, p)
		f.urls[i] = "http://" + p.addr()
	}
	runCuts(t, f, proxies...)
	f.check(func() *sql.DB { return openDatabase(t, "pgx", server.URL()) })
}

// runCuts is f.run with faults of links through proxies, which are well afterwards.
func runCuts(t *testing.T, f *faultTest, proxies ...*proxy) {
	t.Helper()
	type called struct {
		linkFault
		done <-chan struct{}
	}
	var calls []called
	f.run(200, func() {
		p := proxies[f.rng.IntN(len(proxies))]
		if f.rng.IntN(20) == 0 {
			f.kills["all held"]++
			failed := f.audit.Progress().Failed
			p.hold()
			f.waitUntil("clients fail", func(p audit.Progress) bool { return p.Failed > failed || p.Acknowledged == f.orders })
			p.release()
			return
		}
		fault := randomLinkFault(f.rng)
		for range 1 + f.rng.IntN(4) {
			calls = append(calls, called{fault, p.strike(fault)})
		}
	})
	for _, p := range proxies {
		p.heal()
	}
	met := make(map[messageKind]bool)
	for _, call := range calls {
		select {
		case <-call.done:
			met[call.to] = true
			f.kills[call.String()]++
		default: // no such message came any more
		}
	}
	if len(met) < int(messageKinds) {
		t.Errorf("of the kinds of messages, only %v have met a fault", met)
	}
}

// randomLinkFault returns one that a network may have.
func randomLinkFault(rng *rand.Rand) linkFault {
	f := linkFault{
		to:   messageKind(rng.IntN(int(messageKinds))),
		pass: []float64{0, rng.Float64(), 1}[rng.IntN(3)],
		then: ending(rng.IntN(int(endings))),
	}
	if f.to == aRequest && f.then == halfClose {
		f.pass = 1 // else the server would answer what the client has not sent
	}
	return f
}
