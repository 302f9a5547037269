package orderid

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestIDsSortByTime(t *testing.T) {
	at := time.Date(2026, 11, 20, 20, 52, 11, 250_001_000, time.UTC)
	var times []time.Time
	for _, d := range []time.Duration{0, time.Microsecond, time.Millisecond, time.Hour, 290 * 365 * 24 * time.Hour} {
		times = append(times, at.Add(d))
	}
	// A clock may be anywhere.
	times = append(times, time.Unix(1<<40, 0), time.Unix(0, 0), time.Time{})
	slices.SortFunc(times, time.Time.Compare)
	var ids []string
	for _, at := range times {
		ids = append(ids, First(at), New(at))
	}
	if !slices.IsSorted(ids[2:]) || ids[0] != ids[2] || !strings.HasPrefix(ids[1], ids[2][:15]) {
		t.Errorf("not in the sequence of their times: %q", ids)
	}
}

// TestIDs has it that stored IDs, and those that come after them, are in one form.
func TestIDs(t *testing.T) {
	at := time.Date(2026, 11, 20, 20, 52, 11, 250_000_000, time.UTC)
	if got := First(at); got != "ord_0pgbmqoa8l8000000000000000" {
		t.Error(got)
	}
	all := make(map[string]bool)
	for range 1000 {
		id := New(at)
		all[id] = true
		if len(id) != 30 || strings.Trim(id[4:], "0123456789abcdefghijklmnopqrstuv") != "" {
			t.Fatalf("%q", id)
		}
	}
	if len(all) != 1000 {
		t.Errorf("of 1000 IDs, %d differ", len(all))
	}
}
