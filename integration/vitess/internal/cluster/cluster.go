package cluster

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// Keyspace is the name of the keyspace that a cluster has, and of the database in URLs.
const Keyspace = "shop"

const cell = "zone1"

// A Cluster is a cluster of Vitess.
type Cluster struct {
	in      *programs
	shards  []string // those that it had first
	each    int      // how many tablets a shard has
	dir     string
	topo    []string
	vtctl   string // the address of vtctld
	all     []*Program
	Etcd    *Program // the topology
	vtctld  *Program
	Gates   []*Gate // two
	tablets []*Tablet
}

// A Gate is a vtgate.
type Gate struct {
	*Program
	port int
}

// A Tablet is a vttablet and its mysqld.
type Tablet struct {
	cluster       *Cluster
	alias, shard  string
	uid           int
	MySQL, Server *Program // mysqld and vttablet
}

// Start starts a cluster for the time of a test, of shards such as "-80" and "80-", or "0" alone. Each has
// one tablet, or three: then the primary waits until another one has what it commits, and VTOrc makes another
// one the primary when that has gone.
func Start(t testing.TB, each int, shards ...string) *Cluster {
	t.Helper()
	in := must.Get(install())(t)
	c := &Cluster{in: in, each: each, shards: shards, dir: must.Get(in.Folder(t.Name()))(t)}
	t.Cleanup(func() {
		for _, p := range c.all {
			if t.Failed() {
				t.Logf("%s: %s", p.name, process.LogTail(p.log))
			}
			if p.Process != nil {
				p.Process.KillAll()
			}
		}
		os.RemoveAll(c.dir)
	})
	c.startTopology(t)
	policy := "semi_sync"
	if each < 3 {
		policy = "none"
	}
	c.Vtctl(t, "CreateKeyspace", "--durability-policy="+policy, Keyspace)
	c.AddShards(t, shards...)
	for range 2 {
		c.addGate(t)
	}
	for _, g := range c.Gates {
		g.await(t)
		process.WaitFor(t, g.name+" serves", patience, g.Process, func() error {
			primaries, err := g.primaries()
			if err == nil && len(primaries) < len(shards) {
				err = fmt.Errorf("it knows of the primaries %v", primaries)
			}
			return err
		})
	}
	if each == 3 {
		port := process.FreePort()
		c.program("vtorc", port, append(c.web(port), "--cell", cell, "--instance-poll-time", "1s",
			"--recovery-poll-duration", "1s", "--topo-information-refresh-duration", "2s")...).Start(t)
	}
	return c
}

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
	c.vtctld = c.program("vtctld", web, append(c.web(web), "--service-map", "grpc-vtctl,grpc-vtctld",
		"--grpc-bind-address", "127.0.0.1", "--grpc-port", strconv.Itoa(port))...)
	c.vtctld.Start(t)
	c.Vtctl(t, "AddCellInfo", "--root", "/vitess/"+cell, "--server-address",
		strings.TrimPrefix(address, "http://"), cell)
}

// program returns a program that is down, of which one page at this port answers when it is up.
func (c *Cluster) program(name string, web int, args ...string) *Program {
	binary, _, _ := strings.Cut(name, " ")
	p := &Program{in: c.in, name: name, env: append(c.in.env, "VTDATAROOT="+c.dir),
		command: append([]string{filepath.Join(c.in.bin, binary)}, args...),
		log:     filepath.Join(c.in.logs, filepath.Base(c.dir)+" "+name+".log"),
		health:  fmt.Sprintf("http://127.0.0.1:%d/debug/vars", web),
	}
	c.all = append(c.all, p)
	return p
}

// web returns the flags that all of Vitess' servers have, with the port of their pages.
func (c *Cluster) web(port int) []string {
	return append([]string{"--bind-address", "127.0.0.1", "--port", strconv.Itoa(port),
		"--log-format", "text"}, c.topo...)
}

// Workflow runs a command of a workflow of a kind, Reshard or MoveTables, such as create or switchtraffic,
// once it may succeed: what is copied may not be there yet, or not follow closely enough. It returns what the
// command prints.
func (c *Cluster) Workflow(t testing.TB, kind, name, command string, args ...string) (out string) {
	t.Helper()
	args = append([]string{kind, "--workflow", name, "--target-keyspace", Keyspace, command}, args...)
	c.until(t, strings.Join(args, " ")+" succeeds", func() (err error) {
		out, err = c.tryVtctl(args...)
		return err
	})
	return out
}

// until waits until f returns nil, as a command of vtctld.
func (c *Cluster) until(t testing.TB, what string, f func() error) {
	t.Helper()
	process.WaitFor(t, what, patience, c.vtctld.Process, f)
}

// Vtctl runs a command of vtctldclient and returns what it prints.
func (c *Cluster) Vtctl(t testing.TB, args ...string) string {
	t.Helper()
	return must.Get(c.tryVtctl(args...))(t)
}

func (c *Cluster) tryVtctl(args ...string) (string, error) {
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
		for range c.each {
			a := c.newTablet(shard)
			a.Server = c.vttablet(a, Keyspace)
			a.MySQL = c.program(fmt.Sprint("mysqld of ", a.uid), 0)
			a.MySQL.command = []string{filepath.Join(c.in.mysql, "sbin/mysqld"),
				"--defaults-file=" + filepath.Join(tabletDir(c.dir, a.uid), "my.cnf"),
				"--log-error-verbosity=2", "--log-error="} // to standard error
			a.launch(t)
			added = append(added, a)
		}
	}
	for _, a := range added {
		a.await(t)
	}
	for i := 0; i < len(added); i += c.each {
		c.Vtctl(t, "PlannedReparentShard", "--new-primary", added[i].alias, Keyspace+"/"+added[i].shard)
	}
}

func (c *Cluster) newTablet(shard string) *Tablet {
	uid := 101 + len(c.tablets)
	a := &Tablet{cluster: c, alias: fmt.Sprintf("%s-%010d", cell, uid), shard: shard, uid: uid}
	c.tablets = append(c.tablets, a)
	return a
}

// vttablet returns a vttablet that is down.
func (c *Cluster) vttablet(a *Tablet, keyspace string, more ...string) *Program {
	grpc, web := process.FreePort(), process.FreePort()
	return c.program(fmt.Sprint("vttablet ", a.uid), web, append(append(c.web(web),
		"--tablet-path", a.alias, "--tablet-hostname", "127.0.0.1",
		"--init-keyspace", keyspace, "--init-shard", a.shard, "--init-tablet-type", "replica",
		"--grpc-bind-address", "127.0.0.1", "--grpc-port", strconv.Itoa(grpc),
		"--service-map", "grpc-queryservice,grpc-tabletmanager,grpc-updatestream",
		"--health-check-interval", "1s", "--replication-connect-retry", "1s",
		"--shard-sync-retry-delay", "1s",
		// When a shard gives its rows to others, vtgate leaves transactions behind, with their locks.
		"--queryserver-config-transaction-timeout", "12s"), more...)...)
}

// launch starts a mysqld with data as mysqlctl init makes them, of a copy.
func (a *Tablet) launch(t testing.TB) {
	t.Helper()
	in, dir := a.cluster.in, tabletDir(a.cluster.dir, a.uid)
	must.OK(t, os.RemoveAll(dir))
	must.OK(t, in.mysqlctl(a.cluster.dir, a.uid, process.FreePort(), "init_config").Run())
	for _, folder := range []string{"data", "innodb"} {
		must.OK(t, in.Command("cp", "-R", filepath.Join(in.template, folder), dir).Run())
	}
	a.MySQL.launch(t)
}

func (a *Tablet) await(t testing.TB) {
	t.Helper()
	socket := filepath.Join(tabletDir(a.cluster.dir, a.uid), "mysql.sock")
	process.WaitFor(t, a.MySQL.name+" is up", patience, a.MySQL.Process, func() error {
		_, err := os.Stat(socket)
		return err
	})
	a.Server.Start(t) // it gives up if mysqld is not there
	a.cluster.until(t, a.alias+" is up", func() error {
		_, err := a.cluster.tryVtctl("PingTablet", a.alias)
		return err
	})
}

// AddUnsharded makes a keyspace of a database as it is, by a vttablet that leaves its server alone. The user
// may do everything, and has a password.
func (c *Cluster) AddUnsharded(t testing.TB, keyspace, addr, database, user, password string) {
	t.Helper()
	c.Vtctl(t, "CreateKeyspace", keyspace)
	host, port, err := net.SplitHostPort(addr)
	must.OK(t, err)
	flags := []string{"--unmanaged", "--init-db-name-override", database, "--db-host", host, "--db-port", port}
	for _, purpose := range []string{"app", "appdebug", "allprivs", "dba", "filtered", "repl"} {
		flags = append(flags, "--db-"+purpose+"-user", user, "--db-"+purpose+"-password", password)
	}
	a := c.newTablet("0")
	a.Server = c.vttablet(a, keyspace, flags...)
	a.Server.Start(t)
	c.until(t, a.alias+" is the primary of "+keyspace, func() error {
		_, err := c.tryVtctl("TabletExternallyReparented", a.alias)
		if err == nil { // and whether a workflow can be created
			_, err = c.tryVtctl("GetWorkflows", keyspace)
		}
		return err
	})
}

// Kill kills the tablet's mysqld and vttablet, as if the machine had taken them away.
func (a *Tablet) Kill(t testing.TB) {
	t.Helper()
	a.MySQL.Kill(t)
	a.Server.Kill(t)
}

// Rebuild starts a tablet that is down from nothing, as it may have what no other has: it gets
// everything from the primary.
func (a *Tablet) Rebuild(t testing.TB) {
	t.Helper()
	a.launch(t)
	a.await(t)
}

// addGate starts one more vtgate.
func (c *Cluster) addGate(t testing.TB) {
	t.Helper()
	g, web := &Gate{port: process.FreePort()}, process.FreePort()
	g.Program = c.program(fmt.Sprint("vtgate ", len(c.Gates)), web, append(c.web(web),
		"--cell", cell, "--cells-to-watch", cell, "--tablet-types-to-wait", "PRIMARY",
		"--mysql-server-bind-address", "127.0.0.1", "--mysql-server-port", strconv.Itoa(g.port),
		"--mysql-auth-server-impl", "none", "--vschema-ddl-authorized-users", "%",
		"--tablet-refresh-interval", "1s", "--healthcheck-timeout", "10s",
		"--enable-buffer", "--buffer-min-time-between-failovers", "2s")...)
	c.Gates = append(c.Gates, g)
	g.launch(t)
}

// Addr returns where clients of MySQL find the vtgate.
func (g *Gate) Addr() string { return fmt.Sprint("127.0.0.1:", g.port) }

// DSN returns the data source name of the keyspace.
func (g *Gate) DSN() string { return g.dsn(Keyspace) }

func (g *Gate) dsn(keyspace string) string {
	return "root@tcp(" + g.Addr() + ")/" + keyspace + "?timeout=2s&interpolateParams=true"
}

// URL returns the URL of the keyspace, for the commands of this repository, by way of all vtgates.
func (c *Cluster) URL() string {
	return "mysql://root@" + c.Gates[0].Addr() + "," + c.Gates[1].Addr() + "/" + Keyspace
}

// query returns the rows of a statement about a keyspace or, as shop:-80, a shard.
func (g *Gate) query(keyspace, statement string) (all [][]string, err error) {
	db, err := sql.Open("mysql", g.dsn(keyspace))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.Query(statement)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	for err == nil && rows.Next() {
		row, dest := make([]string, len(columns)), make([]any, len(columns))
		for i := range row {
			dest[i] = &row[i]
		}
		err = rows.Scan(dest...)
		all = append(all, row)
	}
	return all, errors.Join(err, rows.Err())
}

// primaries returns the aliases of the primaries that the vtgate knows of, by their shards.
func (g *Gate) primaries() (aliases map[string]string, err error) {
	rows, err := g.query(Keyspace, "SHOW VITESS_TABLETS")
	aliases = make(map[string]string)
	for _, row := range rows { // of cell, keyspace, shard, type, state and alias
		if row[1] == Keyspace && row[3] == "PRIMARY" && row[4] == "SERVING" {
			aliases[row[2]] = row[5]
		}
	}
	return aliases, err
}

// Primary returns the tablet that is the primary of a shard, once each primary has all the other tablets of
// its shard behind it.
func (c *Cluster) Primary(t testing.TB, shard string) (primary *Tablet) {
	t.Helper()
	c.until(t, "all tablets replicate", func() error {
		for _, shard := range c.shards {
			const name = "Rpl_semi_sync_source_clients"
			rows, err := c.Gates[0].query(Keyspace+":"+shard, "SHOW GLOBAL STATUS LIKE '"+name+"'")
			if err == nil && (len(rows) != 1 || rows[0][1] != strconv.Itoa(c.each-1)) {
				err = fmt.Errorf("shard %s has %q", shard, rows)
			}
			if err != nil {
				return err
			}
		}
		primaries, err := c.Gates[0].primaries()
		if i := slices.IndexFunc(c.tablets, func(a *Tablet) bool { return a.alias == primaries[shard] }); i >= 0 {
			primary = c.tablets[i]
			return nil
		}
		return fmt.Errorf("the primaries are %v, %v", primaries, err)
	})
	return primary
}

// PlannedReparent makes another tablet the primary of a shard.
func (c *Cluster) PlannedReparent(t testing.TB, shard string) {
	t.Helper()
	c.Vtctl(t, "PlannedReparentShard", "--avoid-primary", c.Primary(t, shard).alias, Keyspace+"/"+shard)
}

// ApplyVSchema has the keyspace's VSchema be what a file says, with more tables that have a column place, and
// waits until all vtgates go by it. It returns the names of all tables.
func (c *Cluster) ApplyVSchema(t testing.TB, file string, more ...string) (tables []string) {
	t.Helper()
	var v map[string]any
	must.OK(t, json.Unmarshal(must.Get(os.ReadFile(file))(t), &v))
	all := v["tables"].(map[string]any)
	for _, name := range more {
		all[name] = all["storefront_orders"]
	}
	c.Vtctl(t, "ApplyVSchema", "--vschema", string(must.Get(json.Marshal(v))(t)), Keyspace)
	for _, g := range c.Gates {
		process.WaitFor(t, g.name+" knows the VSchema", patience, g.Process, func() error {
			known, err := g.query(Keyspace, "SHOW VSCHEMA TABLES")
			if err == nil && len(known) < len(all) {
				err = fmt.Errorf("it knows %v", known)
			}
			return err
		})
	}
	return slices.Sorted(maps.Keys(all))
}

// Calls returns how often the vtgate has called the tablets of each shard.
func (g *Gate) Calls(t testing.TB) map[string]int {
	t.Helper()
	w := must.Get(http.Get(g.health))(t)
	defer w.Body.Close()
	var vars struct {
		VttabletCall struct {
			Histograms map[string]struct{ Count int }
		}
	}
	must.OK(t, json.NewDecoder(w.Body).Decode(&vars))
	calls := make(map[string]int)
	for name, h := range vars.VttabletCall.Histograms {
		if parts := strings.Split(name, "."); len(parts) == 4 && parts[1] == Keyspace { // Execute.shop.-80.primary
			calls[parts[2]] += h.Count
		}
	}
	return calls
}
