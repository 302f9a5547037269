package faulttest

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"example.com/storefront/integration/internal/process"
)

// StartReplicas starts processes of a command on a database, and waits until they
// serve.
func StartReplicas(t *testing.T, command func() (string, error), n int, db string) (replicas []*Replica) {
	t.Helper()
	binary, err := command()
	if err != nil {
		t.Fatal(err)
	}
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
}

// Start starts the process and does not wait until it serves.
func (r *Replica) Start() {
	r.t.Helper()
	var err error
	if r.Process, err = process.Start(exec.Command(r.args[0], r.args[1:]...), r.Log); err != nil {
		r.t.Fatal(err)
	}
}

// WaitUntilServing waits until the replica answers a request that needs the database.
func (r *Replica) WaitUntilServing() {
	r.t.Helper()
	process.WaitFor(r.t, r.URL+" serves", 5*time.Minute, r.Process, func() error {
		w, err := http.Get(r.URL + "/v2/widgets?limit=1")
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
	if err := r.Process.Process.Signal(os.Interrupt); err != nil {
		r.t.Fatal(err)
	}
	<-r.Process.Ended
	if r.Process.State != nil {
		r.t.Errorf("%s ended with %v, want status 0", r.URL, r.Process.State)
	}
}
