// Package dbproxy starts what stands between programs and their databases, for the time of a test.
package dbproxy

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// HAProxy starts a balancer that sends each connection to the next of the servers, with options for each
// server, and returns its address.
func HAProxy(t testing.TB, options string, servers ...string) (addr string) {
	t.Helper()
	const program = "/usr/sbin/haproxy"
	if _, err := os.Stat(program); err != nil {
		need.Missing(t, need.Fronts, fmt.Sprintf("%v (Debian: apt-get install haproxy)", err))
	}
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(process.FreePort()))
	config := "defaults\n mode tcp\n timeout connect 5s\n timeout client 5m\n timeout server 5m\n" +
		"listen shop\n bind " + addr + "\n balance roundrobin\n"
	for i, server := range servers {
		config += fmt.Sprintf(" server server%d %s %s\n", i, server, options)
	}
	name := filepath.Join(process.Folder(t), "config")
	must.OK(t, os.WriteFile(name, []byte(config), 0o644))
	p := must.Get(process.Start(exec.Command(program, "-db", "-f", name), name+".log"))(t)
	t.Cleanup(p.Kill)
	process.WaitFor(t, program+" listens", 5*time.Minute, p, func() error {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return addr
}
