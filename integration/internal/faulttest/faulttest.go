// Package faulttest creates orders through replicas of storefrontd while a test has things
// fail, and then accounts for every order.
package faulttest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/audit"
)

const clients = 16

// A Test creates orders through replicas of the command storefrontd while a
// test makes them, or what they depend on, fail, and then accounts for every order.
//
// A test that fails things when enough orders are acknowledged calls Start, Run and
// Check. Others call Start, Begin, what they do and wait for meanwhile, End and Check.
type Test struct {
	t        *testing.T
	Orders   int // to be acknowledged, until Begin
	Replicas []*Replica
	URLs     []string       // where clients find them
	Kills    map[string]int // by what was killed, or whatever else was done
	Admitted int            // orders, by Admit
	Audit    *audit.Audit   // since Begin
	Created  chan struct{}  // closed when no more orders are created; since Begin

	admissions chan struct{} // unless it is nil, each order takes one of it first
}

// New returns a test that runs beside others, of 600 orders, or of 10,000 if integration/soak
// runs it.
func New(t *testing.T) *Test {
	t.Helper()
	t.Parallel() // much of it is waiting
	return &Test{
		t:      t,
		Orders: long.Of(600, 10_000),
		Kills:  make(map[string]int),
	}
}

// Start starts replicas on a database and waits until they serve.
func (f *Test) Start(replicas int, db string) {
	f.t.Helper()
	f.Use(StartReplicas(f.t, process.Storefrontd, replicas, db)...)
}

// Use has the clients ask these replicas. It is not for while they create orders.
func (f *Test) Use(replicas ...*Replica) {
	f.Replicas, f.URLs = replicas, nil
	for _, r := range replicas {
		f.URLs = append(f.URLs, r.URL)
	}
	if f.Audit != nil {
		f.Audit.Config.URLs = f.URLs
	}
}

// Run has clients create orders until enough are acknowledged, and calls fault when half of them are.
func (f *Test) Run(fault func()) {
	f.t.Helper()
	f.Begin()
	f.WaitUntilAcknowledged(f.Orders / 2)
	fault()
	f.End()
}

// Begin has clients begin to create orders. A fault ends that, and the test where
// it waits next.
func (f *Test) Begin() {
	ctx, cancel := context.WithCancel(f.t.Context())
	f.Audit = audit.New(audit.Config{
		URLs:     f.URLs,
		Orders:   f.Orders,
		Clients:  clients,
		Seed:     *long.Seed,
		Prefix:   "key-",
		Timeout:  5 * time.Second,
		Patience: 10 * time.Minute, // a cluster on a busy machine may be long without a majority
		Before:   f.waitUntilAdmitted,
		OnFault: func(fault audit.Fault) {
			cancel()
			f.t.Errorf("%v\n%s", fault, fault.Body)
		},
	})
	f.Created = make(chan struct{})
	go func() {
		defer close(f.Created)
		defer cancel()
		f.Audit.Create(ctx)
	}()
	f.t.Cleanup(func() { <-f.Created }) // f.t.Context is done by then
}

// BeginAdmitting is Begin for clients that send only as many orders as Admit lets them.
func (f *Test) BeginAdmitting() {
	f.admissions = make(chan struct{}, f.Orders)
	f.Begin()
}

// Admit lets clients send so many more orders. It does not wait.
func (f *Test) Admit(orders int) {
	for range orders {
		f.admissions <- struct{}{}
	}
	f.Admitted += orders
}

// waitUntilAdmitted waits until a client may send one more order.
func (f *Test) waitUntilAdmitted(ctx context.Context) {
	if f.admissions == nil {
		return
	}
	select {
	case <-f.admissions:
	case <-ctx.Done():
	}
}

// End waits until all orders are acknowledged.
func (f *Test) End() {
	f.t.Helper()
	f.WaitUntilAcknowledged(f.Orders)
	<-f.Created
}

// WaitUntilAcknowledged waits until n orders are acknowledged.
func (f *Test) WaitUntilAcknowledged(n int) {
	f.t.Helper()
	f.WaitUntil(fmt.Sprintf("%d orders are acknowledged", n),
		func(p audit.Progress) bool { return p.Acknowledged >= n })
}

// WaitUntil waits until the clients have come as far as a test wants. It ends the
// test if they will not, or if anything else is wrong.
func (f *Test) WaitUntil(what string, enough func(audit.Progress) bool) {
	f.t.Helper()
	came := f.Audit.Wait(f.t.Context(), enough)
	if f.t.Failed() {
		f.t.FailNow()
	}
	if !came {
		f.t.Fatalf("not so far that %s: %+v", what, f.Audit.Progress())
	}
}

// KillReplica kills the first replica, and starts it again.
func (f *Test) KillReplica() {
	f.t.Helper()
	f.Kills["replica"]++
	r := f.Replicas[0]
	if state, ended := r.Process.HasEnded(); ended {
		f.t.Fatalf("a replica has ended by itself: %v", state)
	}
	r.Process.Kill()
	r.Start()
}

// Check sends every order to every replica once more, ends the replicas, and
// compares what was acknowledged with what the database has.
func (f *Test) Check(open func() *sql.DB) {
	f.t.Helper()
	for _, r := range f.Replicas {
		r.WaitUntilServing()
	}
	f.Audit.Config.Timeout = time.Minute // nothing fails any more, but a busy machine may be slow
	f.Audit.Replay(f.t.Context())
	r := f.Audit.Result()
	if want := f.Orders * len(f.URLs); r.Replayed != want {
		f.t.Errorf("%d orders were replayed %d times, want %d", f.Orders, r.Replayed, want)
	}
	for _, r := range f.Replicas {
		r.End()
	}

	lost, duplicated, unknown := account(f.Audit.Orders(), testdb.StoredOrders(f.t, open()))
	for what, orders := range map[string][]string{"lost": lost, "duplicated": duplicated, "unknown": unknown} {
		if len(orders) > 0 {
			f.t.Errorf("%d orders are %s: %q…", len(orders), what, orders[:min(5, len(orders))])
		}
	}
	times := 0
	for _, n := range f.Kills {
		times += n
	}
	f.t.Logf("%d faults (%v): of %d orders, %d lost and %d duplicated after %d retries; "+
		"%d replayed, with %d retries; the longest gap was %v",
		times, f.Kills, r.Acknowledged,
		len(lost), len(duplicated), r.Retries, r.Replayed, r.Again, r.LongestGap)
}

// account compares orders that clients have sent with those in the database, and
// returns the items of those acknowledged that are not there as they were
// acknowledged, of those there more than once, and of those that no client has
// sent.
func account(sent []audit.Order, stored []storefront.Order) (lost, duplicated, unknown []string) {
	have := make(map[string][]storefront.Order) // by item
	for _, o := range stored {
		have[o.Item] = append(have[o.Item], o)
	}
	for _, o := range sent {
		there := have[o.Item]
		delete(have, o.Item)
		if len(there) > 1 {
			duplicated = append(duplicated, o.Item)
		}
		if o.Body == nil {
			continue
		}
		var acknowledged storefront.Order // releases write the same time with different digits
		if err := json.Unmarshal(o.Body, &acknowledged); err != nil || !slices.ContainsFunc(there, acknowledged.Equal) {
			lost = append(lost, o.Item)
		}
	}
	for item := range have {
		unknown = append(unknown, item)
	}
	return lost, duplicated, unknown
}

// WaitUntilStuck waits until every client could have failed once, or until so many
// orders are acknowledged, or all, that they are not stuck at all.
func (f *Test) WaitUntilStuck() {
	f.t.Helper()
	before := f.Audit.Progress()
	f.WaitUntil("clients fail", func(p audit.Progress) bool {
		return p.Failed >= before.Failed+clients ||
			p.Acknowledged >= min(before.Acknowledged+10*clients, f.Orders)
	})
}
