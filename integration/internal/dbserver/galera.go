package dbserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/smalldisk"
)

// A GaleraCluster is a cluster of MariaDB servers of a test's own, which have all
// the same data: each commits what most of them have received.
type GaleraCluster struct{ Nodes []*GaleraNode }

// A GaleraNode is a server of a GaleraCluster. Those that are cut off or killed are
// missed by the others after three seconds. Until then, nobody commits.
type GaleraNode struct {
	*Server
	name string
}

// StartGalera starts a cluster of n nodes for the time of the test. Without the
// binaries it skips the test.
func StartGalera(t testing.TB, n int) *GaleraCluster {
	t.Helper()
	return startGalera(t, n, func(*Server) {})
}

// StartGaleraOnSmallDisks is StartGalera with each node's data on a disk that the node has to
// itself, and that FillDisk fills. Where none can be mounted it skips the test.
func StartGaleraOnSmallDisks(t testing.TB, n int) *GaleraCluster {
	t.Helper()
	return startGalera(t, n, func(s *Server) { s.useSmallDisk(t) })
}

func startGalera(t testing.TB, n int, prepare func(*Server)) *GaleraCluster {
	t.Helper()
	MariaDB.installation(t)
	library := installedGalera(t)
	address := func() string { return "127.0.0.1:" + strconv.Itoa(process.FreePort()) }
	var addresses []string // for the other nodes
	for range n {
		addresses = append(addresses, address())
	}
	c := new(GaleraCluster)
	for i := range n {
		node := &GaleraNode{name: fmt.Sprint("node", i)}
		node.Server = MariaDB.newServer(t, []string{
			"wsrep-on=ON",
			"wsrep-provider=" + library,
			"wsrep-provider-options=gmcast.listen_addr=tcp://" + addresses[i] + ";ist.recv_addr=" + address() +
				";gcache.size=32M;evs.keepalive_period=PT0.5S;evs.suspect_timeout=PT3S;evs.inactive_timeout=PT6S" +
				";pc.wait_prim_timeout=PT1M", // as long as a test waits
			"wsrep-cluster-name=storefront",
			"wsrep-cluster-address=gcomm://" + strings.Join(addresses, ","),
			"wsrep-node-name=" + node.name,
			"wsrep-node-address=127.0.0.1",
			"wsrep-sst-method=rsync",
			"wsrep-sst-receive-address=" + address(),
			"binlog-format=ROW",
			"innodb-autoinc-lock-mode=2",
		})
		prepare(node.Server)
		node.copyTemplate(t)
		node.port = process.FreePort()
		t.Cleanup(func() {
			if node.Process != nil {
				node.Kill(t)
			}
		})
		c.Nodes = append(c.Nodes, node)
	}
	for i, node := range c.Nodes {
		if i == 0 {
			node.join(t, "wsrep-new-cluster")
		} else {
			node.Start(t)
		}
	}
	c.WaitUntilSynced(t, c.Nodes...)
	return c
}

// Servers returns the nodes as servers.
func (c *GaleraCluster) Servers() (servers []*Server) {
	for _, node := range c.Nodes {
		servers = append(servers, node.Server)
	}
	return servers
}

// SharedGalera returns a cluster of three nodes that the tests of this binary share, who
// leave it whole. Without the binaries it skips the test.
func SharedGalera(t testing.TB) *GaleraCluster {
	t.Helper()
	sharedGalera.Lock()
	defer sharedGalera.Unlock()
	if sharedGalera.cluster == nil {
		sharedGalera.cluster = StartGalera(lasting{t}, 3)
	}
	return sharedGalera.cluster
}

var sharedGalera struct {
	sync.Mutex
	cluster *GaleraCluster
}

// A lasting test cleans nothing up: what it starts ends with this binary.
type lasting struct{ testing.TB }

func (lasting) Cleanup(func()) {}

// Start starts a node that is down, and returns when it has what the other nodes
// have that are up.
func (n *GaleraNode) Start(t testing.TB) {
	t.Helper()
	n.join(t, n.position(t)...)
}

// Relaunch starts the process of a node that is down, from what it has, and does not
// wait.
func (n *GaleraNode) Relaunch(t testing.TB) {
	t.Helper()
	if err := n.launch(n.position(t)...); err != nil {
		t.Fatal(err)
	}
}

// position returns the settings with which a node that is down starts from what it
// has, as those do who start servers where they are installed. A node that was killed
// does not look by itself, and would ask for everything.
func (n *GaleraNode) position(t testing.TB) (settings []string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(n.data, "grastate.dat")); err != nil {
		return nil // it has nothing
	}
	log, err := n.command("wsrep-recover").CombinedOutput()
	position := regexp.MustCompile(`WSREP: Recovered position: *(\S+)`).FindSubmatch(log)
	if err != nil || position == nil {
		t.Fatalf("%s does not recover: %v\n%s", n.name, err, log)
	}
	return []string{"wsrep-start-position=" + string(position[1])}
}

// join starts the process of a node and returns when it is one of the cluster.
func (n *GaleraNode) join(t testing.TB, more ...string) {
	t.Helper()
	if err := n.launch(more...); err != nil {
		t.Fatal(err)
	}
	process.WaitFor(t, n.name+" is synced", 5*time.Minute, n.Process, func() error {
		state, err := n.state()
		if err == nil && !strings.HasSuffix(state, " Primary Synced ON") {
			err = errors.New(state)
		}
		return err
	})
}

// WaitUntilSynced returns when these nodes, and no others, are connected to each
// other and all have the same. A node that has crashed is started again, as the service
// managers of MariaDB's packages do (systemd, Restart=on-abnormal): a node that comes
// back aborts if it hears those first that have no complete state either.
func (c *GaleraCluster) WaitUntilSynced(t testing.TB, nodes ...*GaleraNode) {
	t.Helper()
	process.WaitFor(t, "the cluster is synced", 5*time.Minute, nil, func() error {
		for _, node := range nodes {
			if _, ended := node.Process.HasEnded(); ended {
				node.Relaunch(t)
			}
		}
		var states []string
		var failed error
		for _, node := range nodes {
			state, err := node.state()
			states, failed = append(states, state), errors.Join(failed, err)
		}
		if failed == nil && (!strings.HasSuffix(states[0], fmt.Sprintf(" %d Primary Synced ON", len(nodes))) ||
			len(slices.Compact(slices.Clone(states))) > 1) {
			failed = fmt.Errorf("the states are %q", states)
		}
		return failed
	})
}

// state returns the number of the composition of the cluster that the node knows of,
// which grows, how many nodes are in it, whether they are the majority, and whether
// the node has what they have and is ready.
func (n *GaleraNode) state() (string, error) {
	return n.Query(`SELECT group_concat(variable_value ORDER BY variable_name SEPARATOR ' ') FROM information_schema.global_status
		WHERE variable_name IN ('wsrep_cluster_conf_id', 'wsrep_cluster_size', 'wsrep_cluster_status', 'wsrep_local_state_comment', 'wsrep_ready')`)
}

// Kill kills the node with SIGKILL, and what it has started to get or give data: a
// script that waits until the port is free, or sees the next one's files, would keep
// the node from coming back.
func (n *GaleraNode) Kill(t testing.TB) {
	t.Helper()
	n.Server.Kill(t)
	for _, pid := range n.transfers(t) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// FillDisk fills the small disk of the node, and returns a function that frees it and starts
// the node again, as its operator would: a node that could not write what the others have written
// leaves them, and may go on to run without them.
func (n *GaleraNode) FillDisk(t testing.TB) (free func()) {
	t.Helper()
	empty := smalldisk.Fill(t, n.disk, diskSize)
	return func() {
		t.Helper()
		empty()
		n.Kill(t)
		n.Start(t)
	}
}

// transfers returns the processes that the node has started to get or give data.
func (n *GaleraNode) transfers(t testing.TB) (pids []int) {
	t.Helper()
	text, err := exec.Command("ps", "-A", "-ww", "-o", "pid=,args=").Output()
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(text)) {
		id, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pid, err := strconv.Atoi(id); err == nil && strings.Contains(args, n.data+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// CutOff keeps the node and the others from hearing each other until it is connected
// again. Clients still reach it.
func (n *GaleraNode) CutOff(t testing.TB) { n.isolate(t, 1) }

// Connect undoes CutOff.
func (n *GaleraNode) Connect(t testing.TB) { n.isolate(t, 0) }

func (n *GaleraNode) isolate(t testing.TB, isolate int) {
	t.Helper()
	if _, err := n.Query(fmt.Sprintf("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=%d'", isolate)); err != nil {
		t.Fatal(err)
	}
}

// WaitUntilRefusing returns when the node refuses what it is asked, as it is not
// with most of the others.
func (n *GaleraNode) WaitUntilRefusing(t testing.TB) {
	t.Helper()
	process.WaitFor(t, n.name+" refuses", 5*time.Minute, n.Process, func() error {
		_, err := n.Query("SELECT count(*) FROM mysql.db")
		if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && refused.Number == 1047 {
			return nil
		}
		return fmt.Errorf("it answers %v", err)
	})
}

// Waiting returns a data source name with which a SELECT waits until the node has
// what was committed before on any node.
func Waiting(dsn string) string { return dsn + "&wsrep_sync_wait=1" }

// QueryAfterAll is Query, but sees what was committed before on any node.
func (n *GaleraNode) QueryAfterAll(query string) (string, error) {
	return queryOne("mysql", Waiting(n.DSN()), query)
}

// installedGalera returns the path of Galera's library. Without it, it skips the test, or
// fails it if that is required.
func installedGalera(t testing.TB) (library string) {
	t.Helper()
	need.Programs(t, need.MariaDB, "rsync")
	for _, dir := range []string{"/usr/lib*", "/usr/lib*/galera*", "/usr/lib*/galera*/*"} {
		if found, err := filepath.Glob(dir + "/libgalera_smm.so"); err == nil && len(found) > 0 {
			return found[0]
		}
	}
	need.Missing(t, need.MariaDB, "the library of Galera (libgalera_smm.so) is not installed: "+
		"neither in /usr/lib*, nor in a folder galera* there, nor below that")
	return ""
}
