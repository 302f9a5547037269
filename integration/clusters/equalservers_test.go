package clusters

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/sqltap"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// TestEqualServers has HAProxy send each connection to the next of two servers. While Accept takes long,
// each of them may answer the question whether the server is there.
func TestEqualServers(t *testing.T) {
	t.Run("members of a group", func(t *testing.T) {
		long.Test(t)
		members := dbserver.StartMySQLGroup(t, 2, dbserver.MultiPrimary).Servers()
		nodes := clusterDatabases(t, members, dbserver.Before)
		testBehindHAProxy(t, nodes[0], members[0].Addr(), members[1].Addr())
	})
	t.Run("PgBouncers", func(t *testing.T) {
		t.Parallel()
		d := testdb.New(t, "pgx", dbserver.Postgres.Database(t))
		server := hostPort.FindString(d.URL)
		testBehindHAProxy(t, d, startPgBouncer(t, server), startPgBouncer(t, server))
	})
}

var hostPort = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// testBehindHAProxy creates orders in the database d by way of the servers.
func testBehindHAProxy(t *testing.T, d *testdb.DB, servers ...string) {
	const timeout = 40 * time.Second
	asked := make(chan struct{}, 100)
	behind := hostPort.ReplaceAllString(d.URL, startHAProxy(t, servers...))
	db := sqltap.Open(t, d.Driver, behind, func(_ context.Context, s sqltap.Statement, run func() error) error {
		err := run()
		if strings.Contains(s.Query, "pg_postmaster_start_time()") || strings.Contains(s.Query, "@@hostname") {
			asked <- struct{}{}
		}
		return err
	})
	runs := 0
	store := sqlstore.New(db, &sqlstore.Options{Timeout: timeout,
		Accept: func(ctx context.Context, _ *sql.Tx, _ storefront.IdempotencyKey, _ storefront.Order) error {
			runs++
			for range 3 {
				select {
				case <-asked:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}})
	must.OK(t, store.Check(t.Context()))
	for len(asked) > 0 {
		<-asked
	}
	if _, err := testdb.Create(t.Context(), store, "key", "kettle"); err != nil || runs != 1 {
		t.Errorf("CreateOrder returned %v after %d runs of Accept, want one run", err, runs)
	}
	testdb.CheckOrders(t, d, nil, func(string) bool { return false }, false)
}

// startHAProxy starts a balancer before servers, and returns its address.
func startHAProxy(t *testing.T, servers ...string) (addr string) {
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(process.FreePort()))
	config := "defaults\n mode tcp\n timeout connect 5s\n timeout client 5m\n timeout server 5m\n" +
		"listen shop\n bind " + addr + "\n balance roundrobin\n"
	for i, server := range servers {
		config += fmt.Sprintf(" server server%d %s\n", i, server)
	}
	return start(t, addr, config, "/usr/sbin/haproxy", "haproxy", "-db", "-f")
}

// startPgBouncer starts a PgBouncer before a server, and returns its address.
func startPgBouncer(t *testing.T, server string) (addr string) {
	host, port, _ := strings.Cut(server, ":")
	own := strconv.Itoa(process.FreePort())
	config := "[databases]\n* = host=" + host + " port=" + port + " user=postgres\n[pgbouncer]\n" +
		"listen_addr = 127.0.0.1\nlisten_port = " + own + "\nauth_type = any\nunix_socket_dir =\n"
	if os.Getuid() == 0 {
		config += "user = nobody\n"
	}
	return start(t, net.JoinHostPort("127.0.0.1", own), config, "/usr/sbin/pgbouncer", "pgbouncer")
}

// start starts a program with a configuration, and returns the address when the program listens there.
func start(t *testing.T, addr, config, program, debianPackage string, args ...string) string {
	t.Helper()
	if _, err := os.Stat(program); err != nil {
		need.Missing(t, need.Fronts, fmt.Sprintf("%v (Debian: apt-get install %s)", err, debianPackage))
	}
	name := filepath.Join(process.Folder(t), "config")
	must.OK(t, os.WriteFile(name, []byte(config), 0o644))
	p := must.Get(process.Start(exec.Command(program, append(args, name)...), name+".log"))(t)
	t.Cleanup(p.Kill)
	process.WaitFor(t, program+" listens", time.Minute, p, func() error {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return addr
}
