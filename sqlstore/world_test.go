package sqlstore_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A world makes the chance events of one seed. They follow from the seed, the time and the
// names of those whom they befall, never from which goroutine asks first, and no two events
// are planned for the same instant. So a seed has one story, unless the Store itself lets
// goroutines go on in the same instant (see simulate).
//
// But if time has a grain, all events are planned for few instants, and many happen at once.
// The runtime chooses their sequence, so that such a seed has many stories.
type world struct {
	seed  uint64
	began time.Time

	mu      sync.Mutex
	grain   time.Duration          // events are at multiples of it; 0: at any instant
	taken   map[time.Duration]bool // the instants for which an event is planned
	instant bool                   // nothing takes time by itself, or fails
	calm    bool                   // nothing fails any more
	story   []event
	times   map[string]int // how often each kind of event happened
}

func newWorld(seed uint64) *world {
	return &world{seed: seed, began: time.Now(), taken: make(map[time.Duration]bool), times: make(map[string]int)}
}

// An event is a line of the story, which told formats.
type event struct {
	at     time.Duration
	who    string
	format string
	args   []any
}

func (w *world) now() time.Duration { return time.Since(w.began) }

func (w *world) tell(who, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, event{w.now(), who, format, args})
}

func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times[what]++
}

// told returns the story. The events of one instant are sorted by who.
func (w *world) told() []string {
	slices.SortStableFunc(w.story, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.who, b.who))
	})
	lines := make([]string, len(w.story))
	for i, e := range w.story {
		lines[i] = fmt.Sprintf("%14s  %-8s %s", e.at, e.who, e.text())
	}
	return lines
}

func (e event) text() string { return fmt.Sprintf(e.format, e.args...) }

// dice returns the dice for events that befall now the one whom the parts name.
func (w *world) dice(parts ...string) *rand.Rand {
	h := uint64(0xcbf29ce484222325) // FNV-1a
	for _, part := range parts {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 0x100000001b3
		}
		h = (h ^ 0xff) * 0x100000001b3
	}
	return rand.New(rand.NewPCG(w.seed, h+uint64(w.now())*0x9e3779b97f4a7c15))
}

func oneOf[T any](d *rand.Rand, of ...T) T { return of[d.IntN(len(of))] }

// upTo returns a duration from 0 to most.
func upTo(d *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(d.Int64N(int64(most) + 1))
}

// between returns a duration from least to most, of any magnitude.
func between(d *rand.Rand, least, most time.Duration) time.Duration {
	magnitudes := 1
	for least<<magnitudes < most {
		magnitudes++
	}
	return least + upTo(d, min(least<<(1+d.IntN(magnitudes)), most)-least)
}

// plan returns d, or if an event is planned for then, the next longer duration that is free.
// If time has a grain, plan returns the duration until the next multiple of it after d.
func (w *world) plan(d time.Duration) time.Duration {
	if w.instant {
		return d
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	at := now + max(d, 1)
	if w.grain > 0 {
		if at = (at + w.grain - 1) / w.grain * w.grain; w.taken[at] {
			w.times["instant at which more than one thing happens"]++
		}
	}
	for w.taken[at] && w.grain == 0 {
		at++
	}
	w.taken[at] = true
	return at - now
}

// delay is between, but returns 0 in an instant world.
func (w *world) delay(d *rand.Rand, least, most time.Duration) time.Duration {
	if w.instant {
		return 0
	}
	return between(d, least, most)
}

func (w *world) sleep(d time.Duration) { time.Sleep(w.plan(d)) }

func (w *world) isCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

func (w *world) calmDown() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calm = true
}
