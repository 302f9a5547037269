package storetest_test

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

var wrongLifetimes = []wrongStore{
	{"the last 100 keys", func(s *store) {
		var mu sync.Mutex
		var last []string
		forgotten := make(map[string]int)
		s.keys(func(k *key) {
			mu.Lock()
			defer mu.Unlock()
			name := nameOf(*k)
			k.Scope += fmt.Sprint(forgotten[name])
			if slices.Contains(last, name) {
				return
			}
			if last = append(last, name); len(last) > 100 {
				forgotten[last[0]]++
				last = last[1:]
			}
		})
	}, []string{lifetime}, "keeps the last keys only"},
	{"keys for a day of the store's own", func(s *store) {
		opened := time.Now()
		s.keys(func(k *key) { k.Scope += fmt.Sprint(time.Since(opened) / (24 * time.Hour)) })
	}, []string{lifetime}, "whole days"},
	{"keys for an hour", func(s *store) { s.expireKeys(time.Hour) }, []string{lifetime}, "keys expire too early"},
	{"keys for a day but two minutes", func(s *store) { s.expireKeys(24*time.Hour - 2*time.Minute) }, []string{lifetime}, "23h59m0s after"},
	{"keys for 12 hours, of which each call forgets 16", func(s *store) {
		s.sweepKeys(12*time.Hour, func(int) int { return 16 })
	}, []string{lifetime}, "23h59m0s after an order was created"},
	{"keys for 5 minutes, of which each call forgets 2", func(s *store) {
		s.sweepKeys(5*time.Minute, func(int) int { return 2 })
	}, []string{lifetime}, "1h0m0s after an order was created"},
	{"keys for 12 hours, forgotten by every hundredth call", func(s *store) {
		calls := 0
		s.sweepKeys(12*time.Hour, func(keys int) int {
			calls++
			return keys * (calls % 100 / 99)
		})
	}, []string{lifetime}, "23h59m0s after an order was created"},
	{"keys for 12 hours, of which each call looks at 8", func(s *store) {
		var mu sync.Mutex
		created := make(map[string]time.Time)
		forgotten := make(map[string]int)
		s.keys(func(k *key) {
			mu.Lock()
			defer mu.Unlock()
			looked := 0
			for name, at := range created { // in random order
				if time.Since(at) > 12*time.Hour {
					delete(created, name)
					forgotten[name]++
				}
				if looked++; looked == 8 {
					break
				}
			}
			name := nameOf(*k)
			k.Scope += fmt.Sprint(forgotten[name])
			if _, ok := created[name]; !ok {
				created[name] = time.Now()
			}
		})
	}, []string{lifetime}, "23h59m0s after"},
	{"keys for 12 hours, forgotten where there are 256", func(s *store) {
		s.sweepKeys(12*time.Hour, func(keys int) int { return keys * (keys / 256) })
	}, []string{lifetime}, "23h59m0s after an order was created"},
	{"keys for 13 hours from their last use", func(s *store) {
		var mu sync.Mutex
		used := make(map[string]time.Time)
		forgotten := make(map[string]int)
		s.keys(func(k *key) {
			mu.Lock()
			defer mu.Unlock()
			name := nameOf(*k)
			if at, ok := used[name]; ok && time.Since(at) > 13*time.Hour {
				forgotten[name]++
			}
			used[name] = time.Now()
			k.Scope += fmt.Sprint(forgotten[name])
		})
	}, []string{lifetime}, "23h59m0s after an order was created"},
	{"keys for a calendar day", func(s *store) {
		s.keys(func(k *key) { k.Scope += time.Now().UTC().Format(time.DateOnly) })
	}, []string{lifetime}, "whole days"},
}

// expireKeys forgets keys after a time.
func (s *store) expireKeys(lifetime time.Duration) {
	var mu sync.Mutex
	created := make(map[string]time.Time)
	s.keys(func(k *key) {
		mu.Lock()
		defer mu.Unlock()
		name := nameOf(*k)
		if at, ok := created[name]; !ok || time.Since(at) > lifetime {
			created[name] = time.Now()
		}
		k.Scope += created[name].String()
	})
}

// sweepKeys forgets keys after a time, the oldest first, and in each call no more
// than most returns when it is given how many there are.
func (s *store) sweepKeys(lifetime time.Duration, most func(keys int) int) {
	type entry struct {
		name string
		at   time.Time
	}
	var mu sync.Mutex
	var entries []entry
	forgotten := make(map[string]int)
	s.keys(func(k *key) {
		mu.Lock()
		defer mu.Unlock()
		for left := most(len(entries)); left > 0 && len(entries) > 0 && time.Since(entries[0].at) > lifetime; left-- {
			forgotten[entries[0].name]++
			entries = entries[1:]
		}
		name := nameOf(*k)
		k.Scope += fmt.Sprint(forgotten[name])
		if !slices.ContainsFunc(entries, func(e entry) bool { return e.name == name }) {
			entries = append(entries, entry{name, time.Now()})
		}
	})
}
