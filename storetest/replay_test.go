package storetest_test

import (
	"strings"
	atomics "sync/atomic"
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

	{"quantities in 32 bits", func(s *store) { s.replays(func(o *order) { o.Qty = int64(int32(o.Qty)) }) }, []string{replay}, "an integer of 32 bits"},
	{"items trimmed", func(s *store) { s.replays(func(o *order) { o.Item = strings.TrimSpace(o.Item) }) }, []string{replay}, `Item "teapot", want " teapot "`},
	{"another time for each replay", func(s *store) { // as the retry's own is, unless the clock stands still
		var replays atomics.Int64
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
}
