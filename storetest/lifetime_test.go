package storetest_test

import (
	"fmt"
	"slices"
	"time"

	"example.com/storefront"
)

var wrongLifetimes = []wrongStore{
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
	{"keys for a calendar day", func(s *store) {
		s.keys(func(k *key) { k.Scope += time.Now().UTC().Format(time.DateOnly) })
	}, []string{lifetime}, "whole days"},
	{"keys for a day but two minutes", func(s *store) { s.expireKeys(24*time.Hour - 2*time.Minute) }, []string{lifetime}, "23h59m0s after"},
	{"keys for a day but two nanoseconds", func(s *store) { s.expireKeys(storefront.KeyLifetime - 2) }, []string{lifetime}, "23h59m59.999999999s after"},
	{"keys for 13 hours from their last use", func(s *store) {
		used := make(map[string]time.Time)
		s.forgetKeys(func(name string, forget func(name string)) {
			if at, ok := used[name]; ok && time.Since(at) > 13*time.Hour {
				forget(name)
			}
			used[name] = time.Now()
		})
	}, []string{lifetime}, "23h59m0s after an order was created"},
	{"keys for 12 hours, forgotten by every hundredth call", func(s *store) {
		calls := 0
		s.sweepKeys(12*time.Hour, func(keys int) int {
			calls++
			return keys * (calls % 100 / 99)
		})
	}, []string{lifetime}, "23h59m0s after an order was created"},
	{"keys for 12 hours, forgotten where there are 256", func(s *store) {
		s.sweepKeys(12*time.Hour, func(keys int) int { return keys * (keys / 256) })
	}, []string{lifetime}, "23h59m0s after an order was created"},
}

// forgetKeys makes the store forget keys. Before each call, choose is given the name of
// the call's key and a function that forgets the key of a name.
func (s *store) forgetKeys(choose func(name string, forget func(name string))) {
	forgotten := make(map[string]int)
	s.keys(func(k *key) {
		name := nameOf(*k)
		choose(name, func(name string) { forgotten[name]++ })
		k.Scope += fmt.Sprint(forgotten[name])
	})
}

// expireKeys makes the store forget each key after a time.
func (s *store) expireKeys(lifetime time.Duration) {
	created := make(map[string]time.Time)
	s.forgetKeys(func(name string, forget func(name string)) {
		at, ok := created[name]
		if ok && time.Since(at) > lifetime {
			forget(name)
		}
		if !ok || time.Since(at) > lifetime {
			created[name] = time.Now()
		}
	})
}

// sweepKeys makes the store forget keys after a time, the oldest first. Each call forgets
// no more keys than most returns, given the number of all keys.
func (s *store) sweepKeys(lifetime time.Duration, most func(keys int) int) {
	var names []string // the oldest first
	created := make(map[string]time.Time)
	s.forgetKeys(func(name string, forget func(name string)) {
		for left := most(len(names)); left > 0 && len(names) > 0 && time.Since(created[names[0]]) > lifetime; left-- {
			forget(names[0])
			delete(created, names[0])
			names = names[1:]
		}
		if _, ok := created[name]; !ok {
			names = append(names, name)
			created[name] = time.Now()
		}
	})
}
