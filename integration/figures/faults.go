package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Attributes are what a test has done and found.
type attributes map[string]string

var attribute = regexp.MustCompile(`(?m)^=== ATTR  (\S+) (\S+) (.*)$`)

// readAttributes reads the attributes of tests, by the tests' names.
func readAttributes(name string) (map[string]attributes, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	tests := make(map[string]attributes)
	for _, found := range attribute.FindAllStringSubmatch(string(text), -1) {
		test, key := found[1], found[2]
		if tests[test] == nil {
			tests[test] = make(attributes)
		}
		if _, there := tests[test][key]; there {
			return nil, fmt.Errorf("%s has %s of %s twice", name, key, test)
		}
		tests[test][key] = found[3]
	}
	return tests, nil
}

// A scenario is a row of a table: a test, what there was and what happened to it.
type scenario struct{ test, on, fault string }

var faults = []scenario{
	{"TestReplicaKills", "Three replicas on one PostgreSQL", "a replica killed"},
	{"TestPostgresKills", "The same", "PostgreSQL killed, or now and then a replica"},
	{"TestPostgresPower", "The same", "the power of PostgreSQL's disk gone, and what was not flushed, or a part of it"},
	{"TestDatabaseCuts/PostgreSQL", "The same", "a connection to PostgreSQL cut, silent or half-closed, also between a commit and its answer"},
	{"TestClientCuts", "The same", "a connection of a client cut, silent or half-closed"},
	{"TestFailover", "The same, on a pair with synchronous replication", "the primary killed and the standby promoted"},
	{"TestSplitBrain", "The same", "the standby promoted while the primary lives on, and then a replica killed"},
	{"TestFrozenPrimary", "The same", "the standby promoted while the primary is frozen, which goes on later, and then a replica killed"},
	{"TestMySQLKills", "Three replicas on one MySQL", "MySQL killed"},
	{"TestMySQLPower", "The same", "the power of MySQL's disk gone, likewise"},
	{"TestDatabaseCuts/MySQL", "The same", "a connection to MySQL cut, silent or half-closed"},
	{"TestDatabaseCuts/MariaDB", "Three replicas on one MariaDB", "a connection to MariaDB cut, silent or half-closed"},
	{"TestMariaDBPower", "The same", "the power of MariaDB's disk gone, likewise"},
	{"TestGaleraNodeKills", "Three replicas on a Galera cluster of three nodes", "a node killed"},
	{"TestGaleraCutsAndKills", "The same", "a node cut off and another one killed, so that none has a majority"},
	{"TestMySQLPrimaryKills", "Three replicas on a group of three MySQL servers with one primary", "the primary killed"},
	{"TestMySQLMemberKills", "The same, of which all take writes", "a member killed"},
	{"TestSQLiteKills", "One replica on a SQLite file", "the replica killed"},
	{"TestSQLiteReplicaKills", "Three replicas on one SQLite file", "a replica killed"},
	{"TestSQLitePower", "Two replicas on one SQLite file", "the power of the disk and of the replicas gone, likewise"},
	{"TestDiskFull", "The same", "the disk filled by the log, then by another file, and then a replica killed"},
	{"TestAtOnce/SQLite", "Three replicas on one SQLite file, one of which has a wrong clock", "three at once of: a replica killed or frozen, the disk full; in the end, a replica lost for good"},
	{"TestAtOnce/PostgreSQL", "The same, on a pair with synchronous replication", "of these, and of: links held or losing messages, a server killed, frozen or its disk full, the primary killed and the standby promoted; in the end, a replica or the standby lost"},
	{"TestAtOnce/MariaDB", "The same, on one MariaDB", "of these, but no fail-over"},
	{"TestAtOnce/MySQL", "The same, on one MySQL", "of these, but no fail-over"},
	{"TestAtOnce/Group_Replication", "The same, on a group of three MySQL servers with one primary", "of these, with the primary killed or frozen; in the end, a replica or the primary lost"},
	{"TestAtOnce/Galera", "The same, on a Galera cluster of three nodes", "of these, with a node killed, frozen or cut off; in the end, a replica or a node lost"},
}

const (
	candidate = "three of 1.0.0-rc.1 are replaced by two of this release and one of a later one, which come and go"
	later     = "one of a later release comes beside two of this one, and is taken back"
)

var exchanges = []scenario{
	{"TestReleaseCandidateSideBySide/SQLite", "SQLite", candidate},
	{"TestReleaseCandidateSideBySide/PostgreSQL", "PostgreSQL 15", "the same"},
	{"TestReleaseCandidateSideBySide/PostgreSQL_18", "PostgreSQL 18", "the same"},
	{"TestReleaseCandidateSideBySide/MariaDB", "MariaDB", "the same"},
	{"TestReleaseCandidateSideBySide/MySQL", "MySQL", "the same"},
	{"TestReleaseCandidateSideBySide/Galera", "a Galera cluster of three nodes", "the same"},
	{"TestReleaseCandidateSideBySide/Group_Replication", "a group of three MySQL servers with one primary", "the same"},
	{"TestReleasesSideBySide/SQLite", "SQLite", later},
	{"TestReleasesSideBySide/PostgreSQL", "PostgreSQL 15", "the same"},
	{"TestReleasesSideBySide/PostgreSQL_18", "PostgreSQL 18", "the same"},
	{"TestReleasesSideBySide/MariaDB", "MariaDB", "the same"},
	{"TestReleasesSideBySide/MySQL", "MySQL", "the same"},
	{"TestReleasesSideBySideOnClusters/Galera", "a Galera cluster of three nodes", "the same"},
	{"TestReleasesSideBySideOnClusters/Group_Replication", "a group of three MySQL servers, of which all take writes", "the same"},
}

// scenarioTable has what the tests of all scenarios have found.
func scenarioTable(on, fault string, scenarios []scenario, found map[string]attributes) (string, error) {
	t := newTable(nil, on, fault, "Times", "Orders acknowledged", "Retries", "Lost", "Duplicated", "Longest gap")
	var missing []string
	var machines []string
	tests := make(map[string][]string) // by machine
	for _, s := range scenarios {
		f := found[s.test]
		get := func(key string) float64 {
			v, err := strconv.ParseFloat(f[key], 64)
			if err != nil {
				missing = append(missing, s.test+" "+key)
			}
			return v
		}
		gap := time.Duration(get("gap-ms")) * time.Millisecond
		t.row(s.on, s.fault, number(get("faults")), number(get("acknowledged")), number(get("retries")),
			number(get("lost")), number(get("duplicated")), number(gap.Seconds())+" s")
		if m := f["machine"]; m == "" {
			missing = append(missing, s.test+" machine")
		} else {
			if tests[m] == nil {
				machines = append(machines, m)
			}
			tests[m] = append(tests[m], "`"+s.test+"`")
		}
		delete(found, s.test)
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("the output of the tests has no %s", strings.Join(missing, ", "))
	}
	for test := range found {
		return "", fmt.Errorf("%s is in no row", test)
	}
	text := t.String() + "\nMeasured, with the names of the tests in the sequence of the rows:\n\n"
	for _, m := range machines {
		text += "- " + strings.Join(tests[m], ", ") + ": " + m + ".\n"
	}
	return text, nil
}
