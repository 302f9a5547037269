package dbserver

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
)

func TestGaleraCluster(t *testing.T) {
	long.Test(t)
	start := time.Now()
	c := StartGalera(t, 3)
	t.Logf("synced after %v", time.Since(start))
	if _, err := c.Nodes[0].Query("CREATE TABLE kept (place INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	kept := 0
	keep := func(node *GaleraNode) {
		t.Helper()
		kept++
		if _, err := node.Query(fmt.Sprintf("INSERT INTO kept VALUES (%d)", kept)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		for _, node := range c.Nodes {
			if n, err := node.QueryAfterAll("SELECT count(*) FROM kept"); err != nil || n != strconv.Itoa(kept) {
				t.Errorf("%s, %s has %s rows, %v, want %d", when, node.name, n, err, kept)
			}
		}
	}
	for _, node := range c.Nodes {
		keep(node)
	}
	check("at first")

	c.Nodes[0].Kill(t)
	keep(c.Nodes[1])
	c.Nodes[0].Start(t)
	check("after a node was killed")

	c.Nodes[0].Kill(t)
	if err := c.Nodes[0].launch(); err != nil {
		t.Fatal(err)
	}
	process.WaitFor(t, "the node gets data", 5*time.Minute, c.Nodes[0].Process, func() error {
		if len(c.Nodes[0].transfers(t)) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	c.Nodes[0].Kill(t)
	keep(c.Nodes[2])
	c.Nodes[0].Start(t)
	check("after a node was killed that was joining")

	c.Nodes[1].CutOff(t)
	keep(c.Nodes[2])
	c.Nodes[1].WaitUntilRefusing(t)
	keep(c.Nodes[0])
	c.Nodes[1].Connect(t)
	c.WaitUntilSynced(t, c.Nodes...)
	check("after a node was cut off")

	c.Nodes[2].Freeze(t)
	keep(c.Nodes[0])
	c.WaitUntilSynced(t, c.Nodes[:2]...) // the frozen one must have been missed to be late
	keep(c.Nodes[1])
	c.Nodes[2].Thaw(t)
	c.WaitUntilSynced(t, c.Nodes...)
	check("after a node was frozen")
}
