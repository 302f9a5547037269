package sqlstore

import "time"

// SetJitter has f choose the pauses between two tries and the like, in place of chance.
func (s *Store) SetJitter(f func(least, most time.Duration) time.Duration) { s.jitter = f }
