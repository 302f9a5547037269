package sqlstore

import "time"

// SetPause has f choose the pauses between two tries, in place of chance.
func (s *Store) SetPause(f func(most time.Duration) time.Duration) { s.pause = f }
