package dbserver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// A MySQLGroup is a group of three MySQL servers of a test's own that replicate to each
// other by Group Replication: each commits what most of them have received. The others expel one that they
// have not heard for about five seconds.
type MySQLGroup struct{ Members []*Server }

// StartMySQLGroup starts a group for the time of the test, all of whose members take writes. Without the
// binaries it skips the test.
func StartMySQLGroup(t testing.TB) *MySQLGroup {
	t.Helper()
	return startMySQLGroup(t, func(*Server) {}, "group-replication-single-primary-mode=OFF",
		"group-replication-enforce-update-everywhere-checks=ON")
}

// StartMySQLGroupOnSmallDisks is StartMySQLGroup of members of which one takes writes, and after it another.
// The data of each is on a disk that the member has to itself, and that FillDisk fills. Where none can be
// mounted it skips the test.
func StartMySQLGroupOnSmallDisks(t testing.TB) *MySQLGroup {
	t.Helper()
	return startMySQLGroup(t, func(s *Server) { s.useSmallDisk(t) })
}

func startMySQLGroup(t testing.TB, prepare func(*Server), mode ...string) *MySQLGroup {
	t.Helper()
	MySQL.installation(t)
	var addresses []string // for the other members
	for range 3 {
		addresses = append(addresses, "127.0.0.1:"+strconv.Itoa(process.FreePort()))
	}
	g := new(MySQLGroup)
	for i, address := range addresses {
		m := MySQL.newServer(t, append([]string{
			"server-id=" + strconv.Itoa(i+1),
			"report-host=127.0.0.1",
			"gtid-mode=ON",
			"enforce-gtid-consistency=ON",
			"plugin-load-add=group_replication.so",
			"group-replication-group-name=8a94f357-aab4-11df-86ab-c80aa9429562",
			"group-replication-local-address=" + address,
			"group-replication-group-seeds=" + strings.Join(addresses, ","),
			"group-replication-start-on-boot=ON", // else it would take writes on its own until it is started
			"group-replication-member-expel-timeout=0",
			"group-replication-recovery-reconnect-interval=1",
		}, mode...))
		prepare(m)
		m.copyTemplate(t)
		must.OK(t, m.launch("group-replication-start-on-boot=OFF"))
		g.Members = append(g.Members, m)
	}
	for i, m := range g.Members {
		process.WaitFor(t, "a member answers", 5*time.Minute, m.Process, func() error {
			// The user by which members get what they have missed.
			return m.execute("CHANGE REPLICATION SOURCE TO SOURCE_USER = 'root' " +
				"FOR CHANNEL 'group_replication_recovery'")
		})
		if i == 0 {
			must.OK(t, m.execute("SET GLOBAL group_replication_bootstrap_group = ON", "START GROUP_REPLICATION",
				"SET GLOBAL group_replication_bootstrap_group = OFF"))
		}
		m.ready = m.online
	}
	g.WaitUntilOnline(t)
	return g
}

// online returns nil if the member is one of its group. Otherwise it has it join again, as its operator
// would: the others may not have noticed yet that it was gone when it started, or may have
// expelled it on a busy machine, and it gives up after a few tries of its own.
func (s *Server) online() error {
	state, err := s.Query("SELECT member_state FROM performance_schema.replication_group_members " +
		"WHERE member_id = @@server_uuid")
	switch {
	case err != nil || state == "ONLINE":
		return err
	case state == "ERROR":
		err = s.execute("STOP GROUP_REPLICATION", "START GROUP_REPLICATION")
	case state == "OFFLINE":
		err = s.execute("START GROUP_REPLICATION")
	}
	return errors.Join(fmt.Errorf("it is %q", state), err)
}

// WaitUntilOnline returns when each of the members knows of all of them, and of no
// others, that they are online.
func (g *MySQLGroup) WaitUntilOnline(t testing.TB) {
	t.Helper()
	want := fmt.Sprint(len(g.Members), " of ", len(g.Members))
	process.WaitFor(t, "the group is online", 5*time.Minute, g.Members[0].Process, func() error {
		var failed error
		for _, m := range g.Members {
			state, err := m.Query("SELECT concat(sum(member_state = 'ONLINE'), ' of ', count(*)) FROM " +
				"performance_schema.replication_group_members")
			if err == nil && state != want {
				err = errors.Join(fmt.Errorf("%s knows of %s that are online", m.Addr(), state), m.online())
			}
			failed = errors.Join(failed, err)
		}
		return failed
	})
}

// Primary returns the member that takes writes in a group with a single primary, once all are online.
func (g *MySQLGroup) Primary(t testing.TB) (primary *Server) {
	t.Helper()
	g.WaitUntilOnline(t)
	process.WaitFor(t, "there is a primary", 5*time.Minute, g.Members[0].Process, func() error {
		for _, m := range g.Members {
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
