package sqlstore_test

import (
	"slices"
	"time"
)

// A member has the database as of a position in the log. In a group with
// several primaries, each member takes writes and has its own locks. A commit fails if a
// transaction of another member has written the same rows and this member has not applied
// it yet. A commit is in the log of all members at once, and each member applies the log in
// sequence, some time later.
type member struct {
	n       int
	state   tables
	locks   map[string]*tx
	applied int           // how many entries of the log it has applied
	lag     time.Duration // how far behind it may be
}

// An entry is a commit in the log.
type entry struct {
	changes []change
	tx      *tx
	at      []time.Duration // when each member can apply it
}

// group makes s a group of primaries that may be this far behind.
func (s *server) group(lags ...time.Duration) {
	s.members = nil
	for n, lag := range lags {
		s.members = append(s.members, &member{n: n, lag: lag})
	}
	s.replay(nil)
	s.variables["group_replication_group_name"] = "8a94f357-aab4-11df-86ab-c80aa9429562"
	s.variables["group_replication_single_primary_mode"] = "OFF"
	s.variables["group_replication_consistency"] = "BEFORE"
}

// catchUp applies all entries that m can apply by now. It ends the transactions that hold
// locks on their rows.
func (s *server) catchUp(m *member) {
	if len(s.members) == 1 {
		return
	}
	for m.applied < len(s.log) && s.log[m.applied].at[m.n] <= s.now() {
		e := s.log[m.applied]
		m.applied++
		m.state.apply(e.changes)
		if e.tx == nil {
			continue
		}
		for _, row := range e.tx.wrote {
			if holder := m.locks[row]; holder != nil && holder != e.tx {
				s.count("transaction that another member's has ended")
				holder.aborted = true
				holder.end()
			}
		}
	}
}

// sync makes a statement that reads, or begins a transaction, wait for the commits of the
// other members.
func (s *session) sync(c *call) error {
	s.catchUp(s.member)
	switch c.kind {
	case "BEGIN", "READ", "REPLAY", "TAKEN":
		if n := len(s.log); s.applied < n && len(s.members) > 1 {
			s.count("read that waited for another member")
			s.pass(s.log[n-1].at[s.n]-s.now(), nil)
			s.catchUp(s.member)
		}
	}
	if s.tx != nil && s.tx.aborted && c.kind != "ROLLBACK" {
		s.abort()
		return number(1213)
	}
	return nil
}

// certify adds t to the log, unless a transaction that this member has not applied yet has
// written the same rows. It returns when the member has applied t.
func (s *session) certify(t *tx, c *call) error {
	s.catchUp(s.member)
	if t.aborted {
		return number(1213)
	}
	for _, e := range s.log[s.applied:] {
		if e.tx != nil && slices.ContainsFunc(e.tx.wrote, func(row string) bool { return slices.Contains(t.wrote, row) }) {
			s.count("commit that another member's was faster than")
			t.end()
			return number(3101)
		}
	}
	e := entry{changes: t.changes, tx: t, at: make([]time.Duration, len(s.members))}
	for n, m := range s.members {
		if m != s.member {
			most := max(m.lag, 100*time.Microsecond)
			if s.isCalm() {
				most = time.Millisecond
			}
			e.at[n] = s.now() + s.delay(c.Rand, 20*time.Microsecond, most)
		} else {
			e.at[n] = s.now()
		}
		if len(s.log) > 0 {
			e.at[n] = max(e.at[n], s.log[len(s.log)-1].at[n])
		}
	}
	s.log = append(s.log, e)
	s.pass(e.at[s.n]-s.now(), nil)
	s.catchUp(s.member)
	return nil
}
