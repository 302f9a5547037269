package integration

import (
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A mySQLGroup is a group of MySQL servers of a test's own that replicate to each
// other by Group Replication: each commits what most of them have received.
type mySQLGroup struct{ members []*groupMember }

// A groupMember is a server of a mySQLGroup. The others expel one that they have not
// heard for about five seconds.
type groupMember struct {
	*mySQLServer
	name string
}

// groupModes of group_replication_single_primary_mode.
const (
	multiPrimary  = false // all members take writes
	singlePrimary = true  // one does, and after it another
)

// startMySQLGroup starts a group of n members for the time of the test. Without the
// binaries it skips the test.
func startMySQLGroup(t testing.TB, n int, single bool) *mySQLGroup {
	t.Helper()
	mySQL.installation(t)
	var addresses []string // for the other members
	for range n {
		addresses = append(addresses, "127.0.0.1:"+strconv.Itoa(freePort()))
	}
	mode := []string{"group-replication-single-primary-mode=OFF", "group-replication-enforce-update-everywhere-checks=ON"}
	if single {
		mode = nil
	}
	g := new(mySQLGroup)
	for i := range n {
		m := &groupMember{name: fmt.Sprint("member", i)}
		m.mySQLServer = mySQL.newServer(t, append([]string{
			"server-id=" + strconv.Itoa(i+1),
			"report-host=127.0.0.1",
			"gtid-mode=ON",
			"enforce-gtid-consistency=ON",
			"plugin-load-add=group_replication.so",
			"group-replication-group-name=8a94f357-aab4-11df-86ab-c80aa9429562",
			"group-replication-local-address=" + addresses[i],
			"group-replication-group-seeds=" + strings.Join(addresses, ","),
			"group-replication-start-on-boot=ON", // else it would take writes on its own until it is started
			"group-replication-member-expel-timeout=0",
			"group-replication-recovery-reconnect-interval=1",
		}, mode...))
		m.port = freePort()
		g.members = append(g.members, m)
	}
	for i, m := range g.members {
		first := []string{"group-replication-start-on-boot=OFF"}
		if i == 0 {
			first = append(first, "group-replication-bootstrap-group=ON")
		}
		if err := m.launch(first...); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range g.members {
		waitFor(t, m.name+" answers", 5*time.Minute, m.process, func() error {
			// The user by which members get what they have missed.
			return m.exec("CHANGE REPLICATION SOURCE TO SOURCE_USER = 'root' FOR CHANNEL 'group_replication_recovery'")
		})
		if err := m.exec("START GROUP_REPLICATION"); err != nil {
			t.Fatalf("%s: %v\n%s", m.name, err, logTail(m.log))
		}
	}
	if err := g.members[0].exec("SET GLOBAL group_replication_bootstrap_group = OFF"); err != nil {
		t.Fatal(err)
	}
	g.waitUntilOnline(t, g.members...)
	return g
}

func (m *groupMember) exec(statement string) error {
	_, err := m.query(statement)
	return err
}

// start starts a member that is down, and returns when it has what the others have
// that are up.
func (m *groupMember) start(t testing.TB) {
	t.Helper()
	if err := m.launch(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, m.name+" is online", 5*time.Minute, m.process, func() error {
		state, err := m.state()
		switch {
		case err != nil || state == "ONLINE":
			return err
		default:
			err = m.rejoin(state)
		}
		return errors.Join(fmt.Errorf("it is %q", state), err)
	})
}

// state returns how the member sees itself in its group.
func (m *groupMember) state() (string, error) {
	return m.query("SELECT member_state FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid")
}

// rejoin has a member in this state join its group again, as its operator would: the
// others may not have noticed yet that it was gone when it started, or may have
// expelled it on a busy machine, and it gives up after a few tries of its own.
func (m *groupMember) rejoin(state string) error {
	switch state {
	case "ERROR":
		return errors.Join(m.exec("STOP GROUP_REPLICATION"), m.exec("START GROUP_REPLICATION"))
	case "OFFLINE":
		return m.exec("START GROUP_REPLICATION")
	}
	return nil
}

// waitUntilOnline returns when each of these members knows of all of them, and of no
// others, that they are online.
func (g *mySQLGroup) waitUntilOnline(t testing.TB, members ...*groupMember) {
	t.Helper()
	want := fmt.Sprint(len(members), " of ", len(members))
	waitFor(t, "the group is online", 5*time.Minute, members[0].process, func() error {
		var failed error
		for _, m := range members {
			state, err := m.query("SELECT concat(sum(member_state = 'ONLINE'), ' of ', count(*)) FROM performance_schema.replication_group_members")
			if err == nil && state != want {
				err = fmt.Errorf("%s knows of %s that are online", m.name, state)
				if own, ownErr := m.state(); ownErr == nil {
					err = errors.Join(err, m.rejoin(own))
				}
			}
			failed = errors.Join(failed, err)
		}
		return failed
	})
}

// hosts returns the addresses of the members for clients.
func (g *mySQLGroup) hosts() (hosts []string) {
	for _, m := range g.members {
		hosts = append(hosts, "127.0.0.1:"+strconv.Itoa(m.port))
	}
	return hosts
}

// primary returns the member that takes writes in a group with a single primary.
func (g *mySQLGroup) primary(t testing.TB) (primary *groupMember) {
	t.Helper()
	var up *groupMember
	for _, m := range g.members {
		if m.process != nil {
			up = m
		}
	}
	waitFor(t, "there is a primary", 5*time.Minute, up.process, func() error {
		for _, m := range g.members {
			if m.process == nil {
				continue
			}
			role, err := m.query(`SELECT member_role FROM performance_schema.replication_group_members
				WHERE member_id = @@server_uuid AND member_state = 'ONLINE' AND NOT @@global.super_read_only`)
			if err == nil && role == "PRIMARY" {
				primary = m
				return nil
			}
		}
		return errors.New("there is none")
	})
	return primary
}

// before returns a data source name with which a transaction waits until the member
// has what was committed before on any member.
func before(dsn string) string { return dsn + "&group_replication_consistency='BEFORE'" }

// groupDatabases returns a new database of the group, with the tables of sqlstore, as each
// member has it.
func groupDatabases(t *testing.T, g *mySQLGroup, set func(dsn string) string) (nodes []*sqlDatabase) {
	t.Helper()
	var servers []*mySQLServer
	for _, m := range g.members {
		servers = append(servers, m.mySQLServer)
	}
	return clusterDatabases(t, servers, set)
}

func TestMySQLGroup(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	start := time.Now()
	g := startMySQLGroup(t, 3, multiPrimary)
	t.Logf("online after %v", time.Since(start))
	if err := g.members[0].exec("CREATE TABLE kept (place INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	kept := 0
	keep := func(m *groupMember) {
		t.Helper()
		kept++
		if _, err := queryMySQL(before(m.DSN()), fmt.Sprintf("INSERT INTO kept VALUES (%d)", kept)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		for _, m := range g.members {
			if n, err := queryMySQL(before(m.DSN()), "SELECT count(*) FROM kept"); err != nil || n != strconv.Itoa(kept) {
				t.Errorf("%s, %s has %s rows, %v, want %d", when, m.name, n, err, kept)
			}
		}
	}
	for _, m := range g.members {
		keep(m)
	}
	check("at first")

	g.members[0].kill()
	keep(g.members[1])
	g.members[0].start(t)
	g.waitUntilOnline(t, g.members...)
	check("after a member was killed")

	nodes := groupDatabases(t, g, before)
	t.Run("store", func(t *testing.T) { testStoreOnCluster(t, nodes) })
	t.Run("same keys", func(t *testing.T) { testSameKeysOnDifferentNodes(t, groupDatabases(t, g, before), 600, 300) })
}

// TestMySQLMemberKills kills the members of a group in which all take writes, in turn,
// and replicas that have each another member as their first.
func TestMySQLMemberKills(t *testing.T) {
	f := newFaultTest(t)
	g := startMySQLGroup(t, 3, multiPrimary)
	hosts := g.hosts()
	for range hosts {
		r := startReplicas(t, durableBinary, 1, "mysql://shop@"+strings.Join(hosts, ",")+"/shop?group_replication_consistency='BEFORE'")[0]
		f.replicas, f.urls = append(f.replicas, r), append(f.urls, r.url)
		hosts = append(hosts[1:], hosts[0])
	}
	f.orders = 1200
	f.begin()
	for i, m := range g.members {
		f.waitUntilAcknowledged((i + 1) * f.orders / 4)
		g.waitUntilOnline(t, g.members...) // the others must be most of them
		f.kills["member"]++
		m.kill()
		m.start(t)
	}
	f.end()
	g.waitUntilOnline(t, g.members...)
	f.check(func() *sql.DB { return openDatabase(t, "mysql", before(g.members[0].DSN())) })
}

// TestMySQLPrimaryKills kills the primary of a group, and then the one after it.
func TestMySQLPrimaryKills(t *testing.T) {
	f := newFaultTest(t)
	g := startMySQLGroup(t, 3, singlePrimary)
	f.start(3, "mysql://shop@"+strings.Join(g.hosts(), ",")+"/shop")
	f.orders = 1200
	f.begin()
	for n := range 2 {
		f.waitUntilAcknowledged((n + 1) * f.orders / 3)
		g.waitUntilOnline(t, g.members...) // the others must be most of them
		f.kills["primary"]++
		killed := g.primary(t)
		killed.kill()
		f.waitUntilAcknowledged((n+1)*f.orders/3 + 100) // by the next one
		killed.start(t)
	}
	f.end()
	g.waitUntilOnline(t, g.members...)
	f.check(func() *sql.DB { return openDatabase(t, "mysql", g.primary(t).DSN()) })
}
