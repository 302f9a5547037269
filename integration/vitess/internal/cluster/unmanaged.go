package cluster

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"testing"

	"example.com/storefront/integration/internal/netfault"
	"example.com/storefront/integration/internal/process"
)

// A Database is a database of a MySQL server that is not the cluster's own.
type Database struct {
	Addr, Name     string
	User, Password string // of one who may do everything; Vitess takes no empty password
}

// AddUnsharded makes a keyspace of a database as it is, by a vttablet that leaves its server alone.
func (c *Cluster) AddUnsharded(t testing.TB, keyspace string, d Database) {
	t.Helper()
	c.Vtctl(t, "CreateKeyspace", keyspace)
	host, port, err := net.SplitHostPort(d.Addr)
	if err != nil {
		t.Fatal(err)
	}
	c.lastUID++
	uid := 100 + c.lastUID
	a := &Tablet{cluster: c, Alias: fmt.Sprintf("%s-%010d", cell, uid), Shard: "0", uid: uid}
	flags := []string{"--unmanaged", "--init-db-name-override", d.Name, "--db-host", host, "--db-port", port}
	for _, purpose := range []string{"app", "appdebug", "allprivs", "dba", "filtered", "repl"} {
		flags = append(flags, "--db-"+purpose+"-user", d.User, "--db-"+purpose+"-password", d.Password)
	}
	a.Server = c.vttablet(t, a, keyspace, flags...)
	c.unmanaged = append(c.unmanaged, a.Server)
	a.Server.Start(t)
	process.WaitFor(t, a.Alias+" is the primary of "+keyspace, patience, a.Server.Process, func() error {
		_, err := c.TryVtctl("TabletExternallyReparented", a.Alias)
		if err == nil { // and whether a workflow can be created
			_, err = c.TryVtctl("GetWorkflows", keyspace)
		}
		return err
	})
}

// vttablet returns a vttablet that is down.
func (c *Cluster) vttablet(t testing.TB, a *Tablet, keyspace string, more ...string) *Program {
	grpc, web := process.FreePort(), process.FreePort()
	host := "127.0.0.1"
	if c.opts.Networks { // at an address of its own, but with the port that the topology has
		host = "127.0.0.2"
		a.Network = netfault.StartAt(t, fmt.Sprint(host, ":", grpc), netfault.AnyProtocol,
			fmt.Sprint("127.0.0.1:", grpc))
	}
	return c.program(fmt.Sprint("vttablet ", a.uid), web, append(append(c.web(web),
		"--tablet-path", a.Alias, "--tablet-hostname", host,
		"--init-keyspace", keyspace, "--init-shard", a.Shard, "--init-tablet-type", "replica",
		"--grpc-bind-address", "127.0.0.1", "--grpc-port", strconv.Itoa(grpc),
		"--service-map", "grpc-queryservice,grpc-tabletmanager,grpc-updatestream",
		"--health-check-interval", "1s", "--replication-connect-retry", "1s",
		"--shard-sync-retry-delay", "1s",
		// When a shard gives its rows to others, vtgate leaves transactions behind, with their locks.
		"--queryserver-config-transaction-timeout", "12s"), more...)...)
}

// WaitUntilCopied waits until a workflow of MoveTables has copied what there was, and made the indexes.
func (c *Cluster) WaitUntilCopied(t testing.TB, workflow string) {
	t.Helper()
	process.WaitFor(t, workflow+" has copied", patience, c.Vtctld.Process, func() error {
		out, err := c.TryVtctl("MoveTables", "--workflow", workflow, "--target-keyspace", Keyspace, "show")
		if err != nil {
			return err
		}
		var found struct {
			Workflows []struct {
				Shards map[string]struct{ Streams []struct{ State string } } `json:"shard_streams"`
			}
		}
		if err := json.Unmarshal([]byte(out), &found); err != nil {
			return err
		}
		if len(found.Workflows) != 1 || len(found.Workflows[0].Shards) != len(c.serving) {
			return fmt.Errorf("it has %+v", found)
		}
		for shard, in := range found.Workflows[0].Shards {
			for _, stream := range in.Streams {
				if stream.State != "Running" {
					return fmt.Errorf("%s is in the state %s", shard, stream.State)
				}
			}
		}
		return nil
	})
}
