package sqlstore

import "time"

// SetPause has f choose the pauses between two tries and the like, in place of chance.
func (s *Store) SetPause(f func(least, most time.Duration) time.Duration) { s.pause = f }
