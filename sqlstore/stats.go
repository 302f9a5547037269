package sqlstore

import "context"

// TODO: this file stands in for the counters of the store and is to be replaced whole.

// Stats counts what a [Store] has done since it was made.
type Stats struct {
	// Calls of CreateOrder, by their outcome.
	Created, Replayed, KeyReused, Refused, Unavailable, Canceled, Failed int64

	Commits, Committed int64 // transactions that created orders, and orders in them
	Retries            int64 // tries after the first, of any method
	Dropped            int64 // connections that were given up
	Waiting, Running   int64 // calls now
}

// Stats returns the counts so far.
func (s *Store) Stats() Stats { return Stats{} }

// Check returns nil if an order could be created now. It creates none.
func (s *Store) Check(ctx context.Context) error {
	_, err := s.number(ctx, func(*engine) string { return `SELECT COALESCE(max(version), 0) FROM storefront_schema` })
	return err
}
