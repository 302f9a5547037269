package dbserver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/smalldisk"
	"example.com/storefront/internal/must"
)

// A MySQLGroup is a group of MySQL servers of a test's own that replicate to each
// other by Group Replication: each commits what most of them have received.
type MySQLGroup struct{ Members []*GroupMember }

// A GroupMember is a server of a MySQLGroup. The others expel one that they have not
// heard for about five seconds.
type GroupMember struct {
	*Server
	Name string
}

// StartMySQLGroup starts a group of n members for the time of the test, all of which take writes. Without the
// binaries it skips the test.
func StartMySQLGroup(t testing.TB, n int) *MySQLGroup {
	t.Helper()
	return startMySQLGroup(t, n, func(*Server) {}, "group-replication-single-primary-mode=OFF",
		"group-replication-enforce-update-everywhere-checks=ON")
}

// StartMySQLGroupOnSmallDisks is StartMySQLGroup of members of which one takes writes, and after it another. The data
// of each is on a disk that the member has to itself, and that FillDisk fills. Where none can be mounted it
// skips the test.
func StartMySQLGroupOnSmallDisks(t testing.TB, n int) *MySQLGroup {
	t.Helper()
	return startMySQLGroup(t, n, func(s *Server) { s.useSmallDisk(t) })
}

func startMySQLGroup(t testing.TB, n int, prepare func(*Server), mode ...string) *MySQLGroup {
	t.Helper()
	MySQL.installation(t)
	var addresses []string // for the other members
	for range n {
		addresses = append(addresses, "127.0.0.1:"+strconv.Itoa(process.FreePort()))
	}
	g := new(MySQLGroup)
	for i := range n {
		m := &GroupMember{Name: fmt.Sprint("member", i)}
		m.Server = MySQL.newServer(t, append([]string{
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
		prepare(m.Server)
		m.copyTemplate(t)
		m.port = process.FreePort()
		g.Members = append(g.Members, m)
	}
	for i, m := range g.Members {
		first := []string{"group-replication-start-on-boot=OFF"}
		if i == 0 {
			first = append(first, "group-replication-bootstrap-group=ON")
		}
		must.OK(t, m.launch(first...))
	}
	for _, m := range g.Members {
		process.WaitFor(t, m.Name+" answers", 5*time.Minute, m.Process, func() error {
			// The user by which members get what they have missed.
			return m.Exec("CHANGE REPLICATION SOURCE TO SOURCE_USER = 'root' " +
				"FOR CHANNEL 'group_replication_recovery'")
		})
		if err := m.Exec("START GROUP_REPLICATION"); err != nil {
			t.Fatalf("%s: %v\n%s", m.Name, err, process.LogTail(m.log))
		}
	}
	must.OK(t, g.Members[0].Exec("SET GLOBAL group_replication_bootstrap_group = OFF"))
	g.WaitUntilOnline(t, g.Members...)
	return g
}

// Exec runs a statement.
func (m *GroupMember) Exec(statement string) error {
	_, err := m.Query(statement)
	return err
}

// NewDatabase makes an empty database, and returns its name when every member has it.
func (g *MySQLGroup) NewDatabase(t testing.TB) (name string) {
	t.Helper()
	name = g.Members[0].NewDatabase(t)
	for _, m := range g.Members {
		process.WaitFor(t, m.Name+" has "+name, 5*time.Minute, m.Process, func() error {
			has, err := m.Query("SHOW DATABASES LIKE '" + name + "'")
			if err == nil && has != name {
				err = errors.New("not yet")
			}
			return err
		})
	}
	return name
}

// Start starts a member that is down, and returns when it has what the others have
// that are up.
func (m *GroupMember) Start(t testing.TB) {
	t.Helper()
	must.OK(t, m.launch())
	process.WaitFor(t, m.Name+" is online", 5*time.Minute, m.Process, func() error {
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

// FillDisk fills the small disk of the member, and returns a function that frees it and starts
// the member again, as its operator would: a member that could not write may have left the others.
func (m *GroupMember) FillDisk(t testing.TB) (free func()) {
	t.Helper()
	empty := smalldisk.Fill(t, m.disk, diskSize)
	return func() {
		t.Helper()
		empty()
		m.Kill(t)
		m.Start(t)
	}
}

// state returns how the member sees itself in its group.
func (m *GroupMember) state() (string, error) {
	return m.Query("SELECT member_state FROM performance_schema.replication_group_members " +
		"WHERE member_id = @@server_uuid")
}

// rejoin has a member in this state join its group again, as its operator would: the
// others may not have noticed yet that it was gone when it started, or may have
// expelled it on a busy machine, and it gives up after a few tries of its own.
func (m *GroupMember) rejoin(state string) error {
	switch state {
	case "ERROR":
		return errors.Join(m.Exec("STOP GROUP_REPLICATION"), m.Exec("START GROUP_REPLICATION"))
	case "OFFLINE":
		return m.Exec("START GROUP_REPLICATION")
	}
	return nil
}

// WaitUntilOnline returns when each of these members knows of all of them, and of no
// others, that they are online.
func (g *MySQLGroup) WaitUntilOnline(t testing.TB, members ...*GroupMember) {
	t.Helper()
	want := fmt.Sprint(len(members), " of ", len(members))
	process.WaitFor(t, "the group is online", 5*time.Minute, members[0].Process, func() error {
		var failed error
		for _, m := range members {
			state, err := m.Query("SELECT concat(sum(member_state = 'ONLINE'), ' of ', count(*)) FROM " +
				"performance_schema.replication_group_members")
			if err == nil && state != want {
				err = fmt.Errorf("%s knows of %s that are online", m.Name, state)
				if own, ownErr := m.state(); ownErr == nil {
					err = errors.Join(err, m.rejoin(own))
				}
			}
			failed = errors.Join(failed, err)
		}
		return failed
	})
}

// Hosts returns the addresses of the members for clients.
func (g *MySQLGroup) Hosts() (hosts []string) {
	for _, m := range g.Members {
		hosts = append(hosts, m.Addr())
	}
	return hosts
}

// Primary returns the member that takes writes in a group with a single primary.
func (g *MySQLGroup) Primary(t testing.TB) (primary *GroupMember) {
	t.Helper()
	var up *GroupMember
	for _, m := range g.Members {
		if m.Process != nil {
			up = m
		}
	}
	process.WaitFor(t, "there is a primary", 5*time.Minute, up.Process, func() error {
		for _, m := range g.Members {
			if m.Process == nil {
				continue
			}
			role, err := m.Query(`SELECT member_role FROM performance_schema.replication_group_members
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

// Before returns a data source name with which a transaction waits until the member
// has what was committed before on any member.
func Before(dsn string) string { return dsn + "&group_replication_consistency='BEFORE'" }
