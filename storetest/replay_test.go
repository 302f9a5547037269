package storetest_test

import (
	"strings"
	counters "sync/atomic"
	"time"
)

var wrongReplays = []wrongStore{
	{"an order is returned without milliseconds", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			known := s.isKnown(k)
			stored, err := right(ctx, k, o)
			if !known {
				stored.CreatedAt = stored.CreatedAt.Truncate(time.Second)
			}
			return stored, err
		})
	}, []string{asGiven}, "CreatedAt"},

	{"times without milliseconds", func(s *store) {
		s.replays(func(o *order) { o.CreatedAt = o.CreatedAt.Truncate(time.Second) })
	}, []string{replay}, "CreatedAt"},
	{"times without zone", func(s *store) {
		zone := time.FixedZone("", 2*60*60)
		s.replays(func(o *order) {
			local := o.CreatedAt.In(zone)
			o.CreatedAt = time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), local.Nanosecond(), time.UTC)
		})
	}, []string{replay}, "a time without zone"},
	{"times in 32 bits", func(s *store) {
		s.replays(func(o *order) {
			if o.CreatedAt.Unix() > 1<<31-1 {
				o.CreatedAt = o.CreatedAt.Add(-1 << 32 * time.Second)
			}
		})
	}, []string{replay}, "CreatedAt"},
	{"quantities in 32 bits", func(s *store) { s.replays(func(o *order) { o.Qty = int64(int32(o.Qty)) }) }, []string{replay}, "an integer of 32 bits"},
	{"quantities as float32", func(s *store) { s.replays(func(o *order) { o.Qty = int64(float32(o.Qty)) }) }, []string{replay}, "Qty 16777216, want 16777217"},
	{"items trimmed", func(s *store) { s.replays(func(o *order) { o.Item = strings.TrimSpace(o.Item) }) }, []string{replay}, `Item "teapot", want " teapot "`},
	{"items cut at 255 bytes", func(s *store) { s.replays(func(o *order) { o.Item = o.Item[:min(255, len(o.Item))] }) }, []string{replay}, "trimmed, cut or normalized"},
	{"items composed", func(s *store) {
		s.replays(func(o *order) { o.Item = strings.ReplaceAll(o.Item, "e\u0301", "\u00e9") })
	}, []string{replay}, "normalized"},
	{"the retry's own time", func(s *store) {
		s.returns(func(_ key, o, stored order, err error) (order, error) {
			if stored.ID != o.ID {
				stored.CreatedAt = o.CreatedAt
			}
			return stored, err
		})
	}, []string{replay}, "CreatedAt"},
	{"another time for each replay", func(s *store) { // as the retry's own is, unless the clock stands still
		var replays counters.Int64
		s.replays(func(o *order) { o.CreatedAt = o.CreatedAt.Add(time.Duration(replays.Add(1)) * time.Millisecond) })
	}, []string{replay, reused, ordered}, "a column that does not keep it"},
	{"the time of a call that lost a race", func(s *store) {
		s.races(func(_ key, o, stored order, err error) (order, error) {
			if err == nil {
				stored.CreatedAt = o.CreatedAt
			}
			return stored, err
		})
	}, []string{replay}, "loses a race"},
	{"a replay with the order's own ID taken for new", func(s *store) {
		s.returns(func(_ key, o, stored order, err error) (order, error) {
			if err == nil && stored.ID == o.ID {
				return o, nil
			}
			return stored, err
		})
	}, []string{replay}, "CreatedAt"},
	{"a replay with the order's own ID taken for new where calls meet", func(s *store) {
		s.races(func(_ key, o, stored order, err error) (order, error) {
			if err == nil && stored.ID == o.ID {
				return o, nil
			}
			return stored, err
		})
	}, []string{replay}, "taken for that of this very call"},
}
