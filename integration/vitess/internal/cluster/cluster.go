package cluster

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/netfault"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// Keyspace is the name of the keyspace that a cluster has, and of the database in URLs.
const Keyspace = "shop"

const cell = "zone1"

// Options are what a cluster is made of.
type Options struct {
	// Shards are the names of the shards, such as "-80" and "80-", or "0" alone.
	Shards []string

	// Tablets is how many tablets each shard has: one, or three, of which the primary waits
	// until another has what it commits.
	Tablets int

	Gates    int  // how many vtgates; 0 is one
	VTOrc    bool // whether VTOrc makes another tablet the primary when that has gone
	Networks bool // whether each tablet has a Network; not for StartShared
}

// A Cluster is a cluster of Vitess.
type Cluster struct {
	in      *programs
	opts    Options
	dir     string
	topo    []string
	vtctl   string   // the address of vtctld
	Etcd    *Program // the topology
	Vtctld  *Program
	VTOrc   *Program // nil without it
	Gates   []*Gate
	Tablets []*Tablet
	lastUID int
	serving []string // the shards that have the orders

	unmanaged []*Program // the vttablets of AddUnsharded
}

// A Gate is a vtgate.
type Gate struct {
	*Program
	port, web int
}

// A Tablet is a vttablet and its mysqld.
type Tablet struct {
	cluster       *Cluster
	Alias, Shard  string
	uid           int
	MySQL, Server *Program // mysqld and vttablet

	// Network is what vtgates, vtctld and VTOrc reach the vttablet through, or nil. The mysqlds of a shard
	// reach each other without it.
	Network *netfault.Proxy
}

// Start starts a cluster for the time of a test.
func Start(t testing.TB, opts Options) *Cluster {
	t.Helper()
	c := StartShared(t, opts)
	t.Cleanup(func() {
		for _, p := range c.programs() {
			if p.Process != nil {
				p.Process.KillAll()
			}
		}
		os.RemoveAll(c.dir)
	})
	c.ShowLogs(t)
	return c
}

// StartShared starts a cluster for the time of this test binary. Each test that uses it calls ShowLogs.
func StartShared(t testing.TB, opts Options) *Cluster {
	t.Helper()
	in := must.Get(install())(t)
	clusters++
	c := &Cluster{in: in, opts: opts, dir: must.Get(in.Folder(fmt.Sprint("cluster", clusters)))(t)}
	up := false
	defer func() {
		if !up {
			c.logTails(t)
		}
	}()
	c.startTopology(t)
	policy := "semi_sync"
	if opts.Tablets < 3 {
		policy = "none"
	}
	c.Vtctl(t, "CreateKeyspace", "--durability-policy="+policy, Keyspace)
	c.AddShards(t, opts.Shards...)
	c.serving = opts.Shards
	for range max(1, opts.Gates) {
		c.addGate(t)
	}
	for _, g := range c.Gates {
		c.WaitUntilServing(t, g)
	}
	if opts.VTOrc {
		port := process.FreePort()
		c.VTOrc = c.program("vtorc", port, append(c.web(port), "--cell", cell, "--instance-poll-time", "1s",
			"--recovery-poll-duration", "1s", "--topo-information-refresh-duration", "2s")...)
		c.VTOrc.Start(t)
	}
	up = true
	return c
}

var clusters int // that this binary has started

func (c *Cluster) startTopology(t testing.TB) {
	t.Helper()
	port, peer := process.FreePort(), process.FreePort()
	address := fmt.Sprint("http://127.0.0.1:", port)
	c.Etcd = c.program("etcd", 0,
		"--data-dir", filepath.Join(c.dir, "etcd"),
		"--listen-client-urls", address, "--advertise-client-urls", address,
		"--listen-peer-urls", fmt.Sprint("http://127.0.0.1:", peer))
	c.Etcd.health = address + "/health"
	c.Etcd.Start(t)
	c.topo = []string{"--topo-implementation", "etcd2", "--topo-global-root", "/vitess/global",
		"--topo-global-server-address", fmt.Sprint("127.0.0.1:", port)}

	port, web := process.FreePort(), process.FreePort()
	c.vtctl = fmt.Sprint("127.0.0.1:", port)
	c.Vtctld = c.program("vtctld", web, append(c.web(web), "--service-map", "grpc-vtctl,grpc-vtctld",
		"--grpc-bind-address", "127.0.0.1", "--grpc-port", strconv.Itoa(port))...)
	c.Vtctld.Start(t)
	c.Vtctl(t, "AddCellInfo", "--root", "/vitess/"+cell, "--server-address",
		strings.TrimPrefix(address, "http://"), cell)
}

// program returns a program that is down, of which one page at this port answers when it is up.
func (c *Cluster) program(name string, web int, args ...string) *Program {
	binary, _, _ := strings.Cut(name, " ")
	p := &Program{in: c.in, name: name, env: append(c.in.env, "VTDATAROOT="+c.dir),
		command: append([]string{filepath.Join(c.in.bin, binary)}, args...),
		log:     filepath.Join(c.in.logs, filepath.Base(c.dir)+" "+name+".log"),
	}
	if web != 0 {
		p.health = fmt.Sprintf("http://127.0.0.1:%d/debug/vars", web)
	}
	return p
}

// web returns the flags that all of Vitess' servers have, with the port of their pages.
func (c *Cluster) web(port int) []string {
	return append([]string{"--bind-address", "127.0.0.1", "--port", strconv.Itoa(port),
		"--log-format", "text"}, c.topo...)
}

// Workflow runs a command of a workflow of a kind, Reshard or MoveTables, such as create or switchtraffic,
// once it may succeed: what is copied may not be there yet, or not follow closely enough.
func (c *Cluster) Workflow(t testing.TB, kind, name, command string, args ...string) (out string) {
	t.Helper()
	args = append([]string{kind, "--workflow", name, "--target-keyspace", Keyspace, command}, args...)
	process.WaitFor(t, fmt.Sprintf("%q succeeds", args), patience, c.Vtctld.Process, func() (err error) {
		out, err = c.TryVtctl(args...)
		return err
	})
	return out
}

// Vtctl runs a command of vtctldclient and returns what it prints.
func (c *Cluster) Vtctl(t testing.TB, args ...string) string {
	t.Helper()
	return must.Get(c.TryVtctl(args...))(t)
}

// TryVtctl is Vtctl for a command that may fail.
func (c *Cluster) TryVtctl(args ...string) (string, error) {
	cmd := c.in.Command(filepath.Join(c.in.bin, "vtctldclient"),
		append([]string{"--server", c.vtctl, "--action-timeout", "5m"}, args...)...)
	var out, log strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Cmd.Run(); err != nil {
		return "", fmt.Errorf("vtctldclient %q: %w\n%s%s", args, err, &out, &log)
	}
	return out.String(), nil
}

// AddShards starts the tablets of shards that the keyspace does not have yet.
func (c *Cluster) AddShards(t testing.TB, shards ...string) {
	t.Helper()
	var added []*Tablet
	for _, shard := range shards {
		for range c.opts.Tablets {
			added = append(added, c.addTablet(t, shard))
		}
	}
	for _, a := range added {
		a.MySQL.launch(t)
	}
	for _, a := range added {
		a.await(t)
	}
	for i := 0; i < len(added); i += c.opts.Tablets {
		c.Vtctl(t, "PlannedReparentShard", "--new-primary", added[i].Alias, Keyspace+"/"+added[i].Shard)
	}
}

// addTablet makes a tablet that is down.
func (c *Cluster) addTablet(t testing.TB, shard string) *Tablet {
	t.Helper()
	c.lastUID++
	uid := 100 + c.lastUID
	a := &Tablet{cluster: c, Alias: fmt.Sprintf("%s-%010d", cell, uid), Shard: shard, uid: uid}
	a.makeData(t)
	a.MySQL = c.program(fmt.Sprint("mysqld of ", uid), 0)
	a.MySQL.command = []string{filepath.Join(c.in.mysql, "sbin/mysqld"),
		"--defaults-file=" + filepath.Join(tabletDir(c.dir, uid), "my.cnf"),
		"--log-error-verbosity=2", "--log-error="} // to standard error
	a.Server = c.vttablet(t, a, Keyspace)
	c.Tablets = append(c.Tablets, a)
	return a
}

// makeData makes the data folder of the tablet's mysqld as mysqlctl init does, of a copy.
func (a *Tablet) makeData(t testing.TB) {
	t.Helper()
	in, dir := a.cluster.in, tabletDir(a.cluster.dir, a.uid)
	must.OK(t, os.RemoveAll(dir))
	must.OK(t, in.mysqlctl(a.cluster.dir, a.uid, process.FreePort(), "init_config").Run())
	for _, folder := range []string{"data", "innodb"} {
		must.OK(t, in.Command("cp", "-R", filepath.Join(in.template, folder), dir).Run())
	}
}

func (a *Tablet) await(t testing.TB) {
	t.Helper()
	socket := filepath.Join(tabletDir(a.cluster.dir, a.uid), "mysql.sock")
	process.WaitFor(t, a.MySQL.name+" is up", patience, a.MySQL.Process, func() error {
		_, err := os.Stat(socket)
		return err
	})
	a.Server.Start(t) // it gives up if mysqld is not there
	process.WaitFor(t, a.Alias+" is up", patience, a.Server.Process, func() error {
		_, err := a.cluster.TryVtctl("PingTablet", a.Alias)
		return err
	})
}

// EndShards ends the tablets of shards that have given all orders to others, and waits until all vtgates
// find the others.
func (c *Cluster) EndShards(t testing.TB, serving []string) {
	t.Helper()
	c.serving = serving
	c.Tablets = slices.DeleteFunc(c.Tablets, func(a *Tablet) bool {
		ends := !slices.Contains(serving, a.Shard)
		if ends {
			a.Kill(t)
		}
		return ends
	})
	for _, g := range c.Gates {
		c.WaitUntilServing(t, g)
	}
}

// Kill kills the tablet's mysqld and vttablet, as if the machine had taken them away.
func (a *Tablet) Kill(t testing.TB) {
	t.Helper()
	a.MySQL.Kill(t)
	a.Server.Kill(t)
}

// Freeze stops both until Thaw. They keep their connections.
func (a *Tablet) Freeze(t testing.TB) {
	t.Helper()
	a.MySQL.Freeze(t)
	a.Server.Freeze(t)
}

// Thaw lets both go on.
func (a *Tablet) Thaw(t testing.TB) {
	t.Helper()
	a.MySQL.Thaw(t)
	a.Server.Thaw(t)
}

// Rebuild starts a tablet that is down from nothing, as it may have what no other has: it gets
// everything from the primary.
func (a *Tablet) Rebuild(t testing.TB) {
	t.Helper()
	a.makeData(t)
	a.MySQL.launch(t)
	a.await(t)
}

// addGate starts one more vtgate.
func (c *Cluster) addGate(t testing.TB) {
	t.Helper()
	port, web := process.FreePort(), process.FreePort()
	g := &Gate{port: port, web: web}
	g.Program = c.program(fmt.Sprint("vtgate ", len(c.Gates)), web, append(c.web(web),
		"--cell", cell, "--cells-to-watch", cell, "--tablet-types-to-wait", "PRIMARY",
		"--mysql-server-bind-address", "127.0.0.1", "--mysql-server-port", strconv.Itoa(port),
		"--mysql-auth-server-impl", "none", "--vschema-ddl-authorized-users", "%",
		"--tablet-refresh-interval", "1s", "--healthcheck-timeout", "10s",
		"--enable-buffer", "--buffer-min-time-between-failovers", "2s")...)
	c.Gates = append(c.Gates, g)
	g.launch(t)
}

// Addr returns where clients of MySQL find the vtgate.
func (g *Gate) Addr() string { return fmt.Sprint("127.0.0.1:", g.port) }

// DSN returns the data source name of the keyspace.
func (g *Gate) DSN() string {
	return "root@tcp(" + g.Addr() + ")/" + Keyspace + "?timeout=2s&interpolateParams=true"
}

// URL returns the URL of the keyspace, for the commands of this repository, by way of all vtgates.
func (c *Cluster) URL() string {
	var hosts []string
	for _, g := range c.Gates {
		hosts = append(hosts, g.Addr())
	}
	return "mysql://root@" + strings.Join(hosts, ",") + "/" + Keyspace
}

// WaitUntilServing waits until the vtgate finds the primary of each shard.
func (c *Cluster) WaitUntilServing(t testing.TB, g *Gate) {
	t.Helper()
	g.await(t)
	db := must.Get(sql.Open("mysql", g.DSN()))(t)
	defer db.Close()
	process.WaitFor(t, g.name+" serves", patience, g.Process, func() error {
		known, err := g.primaries(db)
		for _, shard := range c.serving {
			if err == nil && known[shard] == "" {
				err = fmt.Errorf("it knows of the primaries %v", known)
			}
		}
		return err
	})
}

// primaries returns the aliases of the primaries that the vtgate knows of, by their shards.
func (g *Gate) primaries(db *sql.DB) (map[string]string, error) {
	rows, err := db.Query("SHOW vitess_tablets")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	known := make(map[string]string)
	for rows.Next() {
		var in, keyspace, shard, kind, state, alias, host, since string
		if err := rows.Scan(&in, &keyspace, &shard, &kind, &state, &alias, &host, &since); err != nil {
			return nil, err
		}
		if keyspace == Keyspace && kind == "PRIMARY" && state == "SERVING" {
			known[shard] = alias
		}
	}
	return known, rows.Err()
}

// Primary returns the tablet that is the primary of a shard, as the topology has it.
func (c *Cluster) Primary(t testing.TB, shard string) *Tablet {
	t.Helper()
	var record struct {
		Shard struct {
			PrimaryAlias struct{ UID int } `json:"primary_alias"`
		}
	}
	must.OK(t, json.Unmarshal([]byte(c.Vtctl(t, "GetShard", Keyspace+"/"+shard)), &record))
	for _, a := range c.Tablets {
		if a.uid == record.Shard.PrimaryAlias.UID {
			return a
		}
	}
	t.Fatalf("shard %s has the primary %d", shard, record.Shard.PrimaryAlias.UID)
	return nil
}

// WaitUntilReplicating waits until each primary has all the other tablets of its shard behind it, with
// what it has committed.
func (c *Cluster) WaitUntilReplicating(t testing.TB) {
	t.Helper()
	primaries := make(map[*Tablet]bool)
	for _, shard := range c.serving {
		primaries[c.Primary(t, shard)] = true
	}
	for _, a := range c.Tablets {
		if primaries[a] {
			continue
		}
		process.WaitFor(t, a.Alias+" replicates", patience, a.Server.Process, func() error {
			out, err := c.TryVtctl("GetFullStatus", a.Alias)
			if err != nil {
				return err
			}
			const running = 3
			var status struct {
				Replication struct {
					IO  int `json:"io_state"`
					SQL int `json:"sql_state"`
					Lag int `json:"replication_lag_seconds"`
				} `json:"replication_status"`
				SemiSync bool `json:"semi_sync_replica_status"`
			}
			if err := json.Unmarshal([]byte(out), &status); err != nil {
				return err
			}
			r := status.Replication
			if r.IO != running || r.SQL != running || r.Lag > 1 || !status.SemiSync {
				return fmt.Errorf("it does not yet: %s", out)
			}
			return nil
		})
	}
}

// PlannedReparent makes another tablet the primary of a shard.
func (c *Cluster) PlannedReparent(t testing.TB, shard string) {
	t.Helper()
	c.Vtctl(t, "PlannedReparentShard", "--avoid-primary", c.Primary(t, shard).Alias, Keyspace+"/"+shard)
}

// A VSchema says where the rows of each table are.
type VSchema struct {
	Sharded  bool           `json:"sharded"`
	Vindexes map[string]any `json:"vindexes,omitempty"`
	Tables   map[string]any `json:"tables,omitempty"`
}

// ApplyVSchema has the keyspace's VSchema be what a file says, and waits until all vtgates go by it.
func (c *Cluster) ApplyVSchema(t testing.TB, file string) {
	t.Helper()
	var v VSchema
	must.OK(t, json.Unmarshal(must.Get(os.ReadFile(file))(t), &v))
	c.apply(t, v)
}

// AddTables adds tables to the keyspace's VSchema, each with the JSON that says where its rows are.
func (c *Cluster) AddTables(t testing.TB, tables map[string]string) {
	t.Helper()
	var v VSchema
	must.OK(t, json.Unmarshal([]byte(c.Vtctl(t, "GetVSchema", Keyspace)), &v))
	if v.Tables == nil {
		v.Tables = make(map[string]any)
	}
	for name, text := range tables {
		v.Tables[name] = json.RawMessage(text)
	}
	c.apply(t, v)
}

func (c *Cluster) apply(t testing.TB, v VSchema) {
	t.Helper()
	c.Vtctl(t, "ApplyVSchema", "--vschema", string(must.Get(json.Marshal(v))(t)), Keyspace)
	c.waitUntilKnown(t, v)
}

// waitUntilKnown waits until all vtgates know the tables of a VSchema.
func (c *Cluster) waitUntilKnown(t testing.TB, v VSchema) {
	t.Helper()
	for _, g := range c.Gates {
		process.WaitFor(t, g.name+" knows the VSchema", patience, g.Process, func() error {
			db, err := sql.Open("mysql", g.DSN())
			if err != nil {
				return err
			}
			defer db.Close()
			rows, err := db.Query("SHOW VSCHEMA TABLES")
			if err != nil {
				return err
			}
			defer rows.Close()
			known := make(map[string]bool)
			for rows.Next() {
				var name string
				if err := rows.Scan(&name); err != nil {
					return err
				}
				known[name] = true
			}
			for name := range v.Tables {
				if !known[name] {
					return fmt.Errorf("it does not know %s", name)
				}
			}
			return rows.Err()
		})
	}
}

// Calls returns how often the vtgate has called the tablets of shards, by "operation.shard".
func (g *Gate) Calls(t testing.TB) map[string]int {
	t.Helper()
	w := must.Get(http.Get(fmt.Sprintf("http://127.0.0.1:%d/debug/vars", g.web)))(t)
	defer w.Body.Close()
	var vars struct {
		VttabletCall struct {
			Histograms map[string]struct{ Count int }
		}
	}
	must.OK(t, json.NewDecoder(w.Body).Decode(&vars))
	calls := make(map[string]int)
	for name, h := range vars.VttabletCall.Histograms {
		parts := strings.Split(name, ".") // Execute.shop.-80.primary
		if len(parts) != 4 {
			t.Fatal(errors.New("a counter is named " + name))
		}
		if parts[1] == Keyspace {
			calls[parts[0]+" "+parts[2]] += h.Count
		}
	}
	return calls
}

// programs returns all programs of the cluster.
func (c *Cluster) programs() (all []*Program) {
	for _, g := range c.Gates {
		all = append(all, g.Program)
	}
	for _, p := range []*Program{c.VTOrc, c.Vtctld} {
		if p != nil {
			all = append(all, p)
		}
	}
	for _, a := range c.Tablets {
		all = append(all, a.Server, a.MySQL)
	}
	all = append(all, c.unmanaged...)
	if c.Etcd != nil {
		all = append(all, c.Etcd)
	}
	return all
}

// ShowLogs has the ends of all logs be shown if the test fails.
func (c *Cluster) ShowLogs(t testing.TB) {
	t.Cleanup(func() {
		if t.Failed() {
			c.logTails(t)
		}
	})
}

func (c *Cluster) logTails(t testing.TB) {
	for _, p := range c.programs() {
		t.Logf("%s: %s", p.name, process.LogTail(p.log))
	}
}
