package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"example.com/storefront"
)

// A connection or a lock may be gone for good.
const (
	aConnection = "a connection" // one of each replica, over which the server answers nothing any more
	aLock       = "a lock"       // that of a key, or in SQLite that of the database: a stranger has it
)

// goForGood makes a connection or a lock be gone for good, while nothing else fails: all
// calls that can be served must be served.
func (m *simulation) goForGood(d *rand.Rand) {
	m.gone = oneOf(d, aConnection, aLock)
	if m.server.engine == sqlite {
		m.gone = aLock
	}
	m.server.faults = [fates]int{}
	m.server.patience = m.timeout / 5 // as the package's documentation has it
	for _, member := range m.server.members {
		member.lag = min(member.lag, m.timeout/50)
	}
	m.pool = oneOf(d, 0, 4)
	if m.gone == aLock {
		lock := "key " + keyHash(m.keyOf(0, 0))
		if m.server.engine == sqlite {
			lock = "database"
		}
		for _, member := range m.server.members {
			stranger := newTx(member)
			member.locks[lock] = stranger
			m.strangers = append(m.strangers, stranger)
		}
	}
}

// comeBack ends the transactions of strangers, so that the simulation can go on.
func (m *simulation) comeBack() {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	for _, stranger := range m.strangers {
		stranger.end()
	}
}

// waitsForAStranger reports whether a needs a lock that a stranger has, or that a connection
// without answers has: a driver of MySQL keeps such a connection for a while, as it waits
// for the answer to a ROLLBACK.
func (m *simulation) waitsForAStranger(a *attempt) bool {
	if m.gone == aLock {
		return m.server.engine == sqlite || a.key == 0
	}
	return slices.ContainsFunc(m.server.kept, func(row string) bool {
		return row == "key "+keyHash(m.keyOf(a.key, 0)) || a.proposed.Item == stocked && strings.HasPrefix(row, "shelf ") ||
			m.accepts && strings.HasPrefix(row, "slot ") // only the store knows which key has which slot
	})
}

const products = 4 // how many each replica puts

// putter puts products.
func (m *simulation) putter(replica int) {
	d := m.dice("putter", fmt.Sprint(replica))
	for i := range products {
		m.sleep(between(d, 10*time.Microsecond, m.span/products))
		who, id := fmt.Sprintf("r%d.p", replica), fmt.Sprintf("p%d.%d", replica, i)
		began := m.now()
		err := m.stores[replica].Products.Put(context.WithValue(context.Background(), callerKey{}, who), storefront.MustResource(id, nil))
		m.tell(who, "Put of %s: %v", id, err)
		m.calling.Lock()
		switch {
		case err == nil:
			m.put[id] = m.now()
		case errors.Is(err, storefront.ErrUnavailable) && m.now()-began >= m.timeout && (m.gone != aLock || m.server.engine == sqlite):
			// Put waits for a connection without answers; requests do not.
		default:
			m.fault("Put of %s returned %v after %v", id, err, m.now()-began)
		}
		m.calling.Unlock()
	}
}

// reader gets products. One that was put at any replica must be there.
func (m *simulation) reader(replica int) {
	d := m.dice("reader", fmt.Sprint(replica))
	for range 4 * products {
		m.sleep(between(d, 10*time.Microsecond, m.span/products))
		who, id := fmt.Sprintf("r%d.g", replica), fmt.Sprintf("p%d.%d", d.IntN(replicas), d.IntN(products))
		m.calling.Lock()
		_, there := m.put[id]
		m.calling.Unlock()
		began := m.now()
		got, err := m.stores[replica].GetProduct(context.WithValue(context.Background(), callerKey{}, who), id)
		m.tell(who, "GetProduct of %s: %v", id, err)
		m.calling.Lock()
		switch {
		case m.now() > began+m.timeout:
			m.fault("GetProduct of %s ended after %v", id, m.now()-began)
		case err == nil && got.ID() == id:
			m.count("product that was found")
		case errors.Is(err, storefront.ErrNotFound) && !there:
			m.count("product that was not there yet")
		case errors.Is(err, storefront.ErrUnavailable) && m.gone == "":
		default:
			m.fault("GetProduct of %s, which is there: %t, returned %v, %v", id, there, got, err)
		}
		m.calling.Unlock()
	}
}
