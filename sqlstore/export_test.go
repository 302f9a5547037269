package sqlstore

import "time"

// SetJitter makes f choose the random durations of the store, such as the pauses between tries.
func (s *Store) SetJitter(f func(least, most time.Duration) time.Duration) { s.jitter = f }
