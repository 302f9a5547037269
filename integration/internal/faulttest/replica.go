package faulttest

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// StartReplicas starts processes of a command on a database, and waits until they
// serve.
func StartReplicas(t *testing.T, command func() (string, error), n int, db string) (replicas []*Replica) {
	t.Helper()
	binary := must.Get(command())(t)
	for range n {
		r := NewReplica(t, binary, db)
		replicas = append(replicas, r)
		r.Start()
	}
	for _, r := range replicas {
		r.WaitUntilServing()
	}
	return replicas
}

// NewReplica returns a process of a command on a database that is not started yet.
func NewReplica(t *testing.T, binary, db string) *Replica {
	t.Helper()
	addr := "127.0.0.1:" + strconv.Itoa(process.FreePort())
	r := &Replica{
		t:    t,
		args: []string{binary, "-addr", addr, "-db", db},
		URL:  "http://" + addr,
		Log:  filepath.Join(process.Folder(t), "replica.log"),
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(process.LogTail(r.Log))
		}
		if r.Process != nil {
			r.Process.Kill()
		}
	})
	return r
}

// A Replica is a process of a command, or one after the other.
type Replica struct {
	t       *testing.T
	args    []string
	URL     string
	Log     string
	Process *process.Process

	// Supervised says that a service manager starts it again when it has given up waiting for
	// its database, as storefrontd does after 30 seconds.
	Supervised bool
}

// Start starts the process and does not wait until it serves.
func (r *Replica) Start() {
	r.t.Helper()
	r.Process = must.Get(process.Start(exec.Command(r.args[0], r.args[1:]...), r.Log))(r.t)
}

// WaitUntilServing waits until the replica answers a request that needs the database.
func (r *Replica) WaitUntilServing() {
	r.t.Helper()
	r.waitFor("/v2/widgets?limit=1")
}

// WaitUntilReady waits until the replica of storefrontd could create an order.
func (r *Replica) WaitUntilReady() {
	r.t.Helper()
	r.waitFor("/readyz")
}

func (r *Replica) waitFor(path string) {
	r.t.Helper()
	watched := r.Process
	if r.Supervised {
		watched = nil
	}
	process.WaitFor(r.t, r.URL+path+" is 200", 5*time.Minute, watched, func() error {
		if _, ended := r.Process.HasEnded(); ended && r.Supervised {
			if log := process.LogTail(r.Log); !strings.Contains(log, "the database is not ready") {
				r.t.Fatalf("a replica has ended by itself: %s", log)
			}
			r.Start()
		}
		w, err := http.Get(r.URL + path)
		if err != nil {
			return err
		}
		w.Body.Close()
		if w.StatusCode != http.StatusOK {
			return errors.New(w.Status)
		}
		return nil
	})
}

// End ends the replica as an operator would, without the delay after SIGTERM.
func (r *Replica) End() {
	r.t.Helper()
	must.OK(r.t, r.Process.Process.Signal(os.Interrupt))
	<-r.Process.Ended
	if r.Process.State != nil {
		r.t.Errorf("%s ended with %v, want status 0", r.URL, r.Process.State)
	}
}
