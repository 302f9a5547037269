//go:build darwin || freebsd || linux

package sqlite

import (
	"context"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// A process that writes all the time lets another one write in between: of its transactions, hardly more
// than one begins while the other waits. Each Open has a descriptor of its own, as another process has.
func TestWritersOfOtherProcessesAreNext(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shop.db")
	db, _ := openFile(t, name)
	busy, _ := openFile(t, name)
	must.OK(t, sqlstore.New(db, nil).Migrate(t.Context()))
	must.Get(db.ExecContext(t.Context(), `CREATE TABLE t (b)`))(t)
	var begun atomic.Int64
	var others sync.WaitGroup
	first, stop := make(chan struct{}), make(chan struct{})
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				tx := must.Get(busy.BeginTx(t.Context(), nil))(t)
				if begun.Add(1) == 1 {
					close(first)
				}
				must.Get(tx.ExecContext(t.Context(), `INSERT INTO t VALUES (1)`))(t)
				time.Sleep(50 * time.Millisecond) // as an Accept that takes long
				must.OK(t, tx.Commit())
			}
		})
	}
	<-first
	const orders = 20
	before := begun.Load()
	for range orders {
		must.Get(db.ExecContext(t.Context(), `INSERT INTO t VALUES (2)`))(t)
		must.Get(db.ExecContext(t.Context(), `UPDATE t SET b = 3 WHERE b = 2`))(t)
	}
	if n := begun.Load() - before; n > 4*2*orders {
		t.Errorf("while 40 statements waited, another process began %d transactions", n)
	}
	close(stop)
	others.Wait()
}

// A writer that gives up while another process is next takes its place when that has left, and leaves it.
func TestAWriterThatGivesUpHoldsUpNobody(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shop.db")
	one, other := newWriters(name), newWriters(name)
	defer one.Close()
	defer other.Close()
	leave := must.Get(one.enter(t.Context()))(t)
	ctx, giveUp := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() {
		_, err := other.enter(ctx)
		gaveUp <- err
	}()
	for other.asked.Load() == nil {
		runtime.Gosched()
	}
	giveUp()
	if err := <-gaveUp; err != context.Canceled {
		t.Errorf("enter returned %v", err)
	}
	leave()
	for range 2 {
		leave := must.Get(other.enter(t.Context()))(t)
		if lock(one.file, false) {
			t.Error("two writers are next")
		}
		leave()
		if !lock(one.file, false) {
			t.Fatal("a writer that has left is next")
		}
		unlock(one.file)
	}
}
