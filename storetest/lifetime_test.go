package storetest_test

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

var wrongLifetimes = []wrongStore{
	{"keys for a day but two minutes", func(s *store) {
		s.expireKeys(24*time.Hour - 2*time.Minute)
	}, []string{lifetime}, "23h59m0s after"},
	{"the last 100 keys", func(s *store) {
		var last []string
		s.forgetKeys(func(name string, forget func(name string)) {
			if slices.Contains(last, name) {
				return
			}
			if last = append(last, name); len(last) > 100 {
				forget(last[0])
				last = last[1:]
			}
		})
	}, []string{lifetime}, "keeps the last keys only"},
	{"keys for 12 hours, forgotten by every hundredth call", func(s *store) {
		s.sweepKeys()
	}, []string{lifetime}, "23h59m0s after an order was created"},
}

// forgetKeys makes the store forget keys. Before each call, choose is given the name of
// the call's key and a function that forgets the key of a name.
func (s *store) forgetKeys(choose func(name string, forget func(name string))) {
	var forgotten sync.Map // how often, by name
	times := func(k key) string {
		n, _ := forgotten.Load(nameOf(k))
		return fmt.Sprint(n)
	}
	s.keys(func(k *key) {
		choose(nameOf(*k), func(name string) {
			n, _ := forgotten.Load(name)
			i, _ := n.(int)
			forgotten.Store(name, i+1)
		})
		k.Value += times(*k)
	})
	s.byKey = func(ctx ctxt, scope, value string) (resource, error) {
		return s.MemStore.GetOrderByKey(ctx, scope, value+times(key{Scope: scope, Value: value}))
	}
}

// expireKeys makes the store forget each key after a time.
func (s *store) expireKeys(lifetime time.Duration) {
	created := make(map[string]time.Time)
	s.forgetKeys(func(name string, forget func(name string)) {
		at, ok := created[name]
		if ok = ok && s.now().Sub(at) <= lifetime; !ok {
			forget(name)
			created[name] = s.now()
		}
	})
}

// sweepKeys makes the store forget all keys that are older than 12 hours before every hundredth call.
func (s *store) sweepKeys() {
	created, calls := make(map[string]time.Time), 0
	s.forgetKeys(func(name string, forget func(name string)) {
		if calls++; calls%100 == 0 {
			for old, at := range created {
				if time.Since(at) > 12*time.Hour {
					forget(old)
					delete(created, old)
				}
			}
		}
		if _, ok := created[name]; !ok {
			created[name] = time.Now()
		}
	})
}
