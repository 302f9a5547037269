package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/storefront"
)

// ageKeys adds orders whose keys are about to be old enough to be forgotten, and makes the
// clocks of the replicas wrong.
func (m *simulation) ageKeys(d *rand.Rand) {
	for n := range m.clocks {
		m.clocks[n] = oneOf(d, 0, between(d, time.Millisecond, time.Hour), -between(d, time.Millisecond, time.Hour), 72*time.Hour, -72*time.Hour)
	}
	m.old = make(map[int]*orderRow)
	var changes []change
	for key, items := range m.items {
		if d.IntN(3) > 0 || items[0] == rejected {
			continue
		}
		made := time.Now().Add(-storefront.KeyLifetime + oneOf(d, upTo(d, m.span), -upTo(d, m.span)))
		row := &orderRow{
			id: "old." + keyName(key), item: plain, qty: 1, ms: made.UnixMilli(), keyed: made.UnixMilli(), inserted: made.UnixMilli(),
			hash: keyHash(m.keyOf(key, 0)), fingerprint: fingerprint(0),
		}
		row.ms += oneOf(d, 0, 72*time.Hour, -72*time.Hour).Milliseconds()
		m.old[key] = row
		changes = append(changes, change{order: row}, change{work: row.id})
	}
	m.server.happen(changes...)
}

// forgetter calls ForgetKeys now and then, by the clock of a replica. A replica of an older
// release does not: it would go by the time of the orders, which may be any.
func (m *simulation) forgetter(replica int) {
	who := fmt.Sprintf("r%d.f", replica)
	d := m.dice(who)
	if m.older[replica] {
		return
	}
	for range 1 + d.IntN(6) {
		m.sleep(between(d, 10*time.Microsecond, m.span/2))
		before := time.Now().Add(m.clocks[replica] - storefront.KeyLifetime - oneOf(d, 0, 0, upTo(d, m.span), -upTo(d, m.span), time.Hour))
		m.forgetKeys(who, replica, before)
	}
}

// forgetKeys calls ForgetKeys, and checks its result.
func (m *simulation) forgetKeys(who string, replica int, before time.Time) {
	youngest := before.Add(storefront.KeyLifetime).UnixMilli()
	early := m.server.clock() < youngest // before is too late when the call begins
	m.tell(who, "ForgetKeys before %v", before)
	n, err := m.stores[replica].ForgetKeys(context.WithValue(context.Background(), callerKey{}, who), before)
	m.tell(who, "ForgetKeys: %d, %v", n, err)
	m.calling.Lock()
	defer m.calling.Unlock()
	switch {
	case err == nil && m.server.clock() < youngest:
		m.fault("%s: ForgetKeys took %v, which is less than KeyLifetime ago", who, before)
	case err == nil || errors.Is(err, storefront.ErrUnavailable) && !m.isCalm():
	case early && n == 0:
		m.count("ForgetKeys that was refused")
	default:
		m.fault("%s: ForgetKeys before %v returned %d, %v", who, before, n, err)
	}
}

// forgetAll forgets the keys of all orders of ageKeys.
func (m *simulation) forgetAll() {
	if !m.forgets {
		return
	}
	m.forgetKeys("r1.f", 1, time.Now().Add(-storefront.KeyLifetime-m.span))
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	one := m.server.members[1%len(m.server.members)]
	m.server.catchUp(one)
	for _, row := range m.old {
		if one.state.keys[row.hash] == row {
			m.fault("the key of %v was not forgotten", row)
		}
	}
}

// checkForgotten checks that all keys were remembered for as long as they must be.
func (m *simulation) checkForgotten() {
	for _, f := range m.server.forgotten {
		if age := time.Duration(f.at-f.order.inserted) * time.Millisecond; age < storefront.KeyLifetime {
			m.fault("the key of %v was forgotten after %v", f.order, age)
		}
	}
}

// forgottenBetween returns how often a's key was forgotten while it was under way.
func (m *simulation) forgottenBetween(a *attempt) (n int) {
	for _, f := range m.server.forgotten {
		at := time.UnixMilli(f.at).Sub(m.world.began)
		if f.order == m.old[a.key] && a.began-time.Millisecond <= at && at <= a.ended {
			n++
		}
	}
	return n
}
