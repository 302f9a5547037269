package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"example.com/storefront"
	"example.com/storefront/internal/sqlerror"
	"example.com/storefront/internal/watchdog"
)

// vitess is the engine of MySQL servers behind vtgate, the server of Vitess, which divides the rows of the
// tables among shards, as vschema.json says: an order by its place, anything else by its ID. Each statement
// of an order, and each transaction, is one of one shard. So none is committed by halves, and no two wait
// for each other in different shards, which nobody would notice.
type vitess struct {
	*mySQL
	single bool                     // a transaction must stay in one shard, as Options.Accept works in it
	bounds atomic.Pointer[[][]byte] // where each shard but the first begins, in order
}

// fresh makes a SELECT ask the database: a tablet would answer it together with an equal one that began
// earlier, and so with what was there before this one began.
const fresh = `SELECT /*vt+ CONSOLIDATOR=disabled */ `

// placeSize is how many bytes of a key's hash are the place of its order.
const placeSize = 8

// Place returns the place of the order of a key, by which Vitess chooses the order's shard. It is the same in
// every version. What [Options].Accept reads and writes there must be in the same shard, in rows that are
// placed by Place, or by its first byte or bits, with the same vindex.
func Place(key storefront.IdempotencyKey) [8]byte {
	hash := keyHash(key.Scope, key.Value)
	return [8]byte(hash[:])
}

func newVitess(single bool) *vitess {
	e := &vitess{newMySQL("8", fresh), single, atomic.Pointer[[][]byte]{}}
	e.bounds.Store(new([][]byte))
	st := e.sql()
	st.placed = true
	st.insertOne = st.insertion(1)
	st.orderOf = fresh + `id, item, qty, fields, created_ms, key_fingerprint, key_hash FROM storefront_orders
		WHERE place = ? AND key_hash = ?`
	st.due = `key_hash`
	// Each try writes to another shard: where one of them is away, orders of the others go on.
	st.write = `INSERT INTO storefront_replays (slot, number) VALUES (CRC32(UUID()) % 256, 1)
		ON DUPLICATE KEY UPDATE number = number + 1`
	// No statement names the servers of all shards, so they always seem to have changed.
	st.servers = `SELECT UUID()`
	return e
}

// server returns no name: what a statement without a table asks is a shard at random.
func (e *vitess) server(context.Context, *sql.Conn) (string, error) { return "", nil }

func (e *vitess) open(ctx context.Context, s *Store, w *watchdog.Watch) (context.Context, link, error) {
	ctx, c, err := s.connection(ctx, w)
	return ctx, vitessLink{mySQLLink{connection: c}, e}, err
}

// A vitessLink reads the bounds of the shards anew when a statement was one of two shards.
type vitessLink struct {
	mySQLLink
	engine *vitess
}

func (l vitessLink) exec(ctx context.Context, query string, args ...any) (int64, error) {
	n, err := l.mySQLLink.exec(ctx, query, args...)
	if err != nil && sqlerror.CrossesShards(err) {
		var unknown error
		if l.call(func() { _, unknown = l.engine.readTablets(ctx, l.conn) }); unknown != nil {
			return 0, unknown
		}
		err = sqlerror.With(sqlerror.Conflict, err)
	}
	return n, err
}

// readTablets reads where the shards begin, and returns how many replicas they have. vtgate knows its tablets
// while etcd is away, but SHOW VITESS_SHARDS asks etcd. A shard that has given its rows to others, or does
// not have them yet, may be among those shown: its bounds only divide commits further.
func (e *vitess) readTablets(ctx context.Context, conn *sql.Conn) (replicas int, err error) {
	var keyspace string
	if err := conn.QueryRowContext(ctx, `SELECT DATABASE()`).Scan(&keyspace); err != nil {
		return 0, err
	}
	keyspace, _, _ = strings.Cut(keyspace, "@") // as in shop@primary
	var bounds [][]byte
	err = eachRow(ctx, conn, `SHOW VITESS_TABLETS`, func(_, row []string) {
		if row[1] != keyspace {
			return
		}
		begin, _, _ := strings.Cut(row[2], "-") // of a shard such as 40-80
		if bound, err := hex.DecodeString(begin); err == nil && len(bound) > 0 {
			bounds = append(bounds, bound)
		}
		if row[3] == "REPLICA" {
			replicas++
		}
	})
	if err == nil {
		slices.SortFunc(bounds, bytes.Compare)
		bounds = slices.CompactFunc(bounds, bytes.Equal)
		e.bounds.Store(&bounds)
	}
	return replicas, err
}

// shard returns the number of the shard to which Vitess assigns the bytes of a vindex.
func (e *vitess) shard(keyspaceID []byte) int {
	n := 0
	for _, bound := range *e.bounds.Load() {
		if bytes.Compare(bound, keyspaceID) > 0 {
			break
		}
		n++
	}
	return n
}

func (e *vitess) shardOf(id string) int {
	sum := md5.Sum([]byte(id)) // binary_md5 in vschema.json
	return e.shard(sum[:])
}

// find returns the order of a key. It is durable: these servers show an order to others only after it is in
// the binary log, on the disk, and the acknowledgement of a replica has come (see look).
func (e *vitess) find(ctx context.Context, c *session, hash [sha256.Size]byte) (
	storefront.Order, [32]byte, error) {
	return e.statements.find(ctx, c, hash)
}

// insertMany inserts the orders of one shard after those of another, each in a transaction of its own. If one
// fails, the orders of the others may be there, and their calls find them.
func (e *vitess) insertMany(ctx context.Context, c *session, proposals []*proposal) (
	map[[sha256.Size]byte]bool, error) {
	inserted := make(map[[sha256.Size]byte]bool)
	for _, some := range byShard(proposals, func(p *proposal) int { return e.shard(p.hash[:]) }) {
		if err := e.insertFree(ctx, c, some, inserted); err != nil {
			return nil, err
		}
	}
	return inserted, nil
}

// places returns the places of the orders with these hashes.
func places(hashes []any) (places []any) {
	for _, hash := range hashes {
		places = append(places, hash.([]byte)[:placeSize])
	}
	return places
}

// record adds a row: the version, by which the rows are placed, cannot be changed.
func (e *vitess) record() []string {
	return []string{fmt.Sprintf(`INSERT INTO storefront_schema (version, oldest) VALUES (%d, %d)`,
		schemaVersion, schemaOldest)}
}

// forget forgets keys of one shard after those of another. Their age is by the clock of their shard.
func (e *vitess) forget(ctx context.Context, s *Store, before int64, hashes []any) (total int64, err error) {
	for i, hash := range hashes {
		hashes[i] = []byte(hash.(string))
	}
	for _, some := range byShard(hashes, func(hash any) int { return e.shard(hash.([]byte)) }) {
		in := e.rows(1, len(some))
		statement := fmt.Sprintf(forgetWhere+`keyed_ms < LEAST(?, %s - %d) AND place IN %s AND key_hash IN %[4]s`,
			"", mySQLNow, storefront.KeyLifetime.Milliseconds(), in)
		n, err := s.exec(ctx, func(*statements) string { return statement },
			slices.Concat([]any{before}, places(some), some)...)
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}

// areOfVtgate reports whether vtgate has shown these settings: it shows its own as numbers.
func areOfVtgate(settings map[string]string) bool {
	return settings["autocommit"] == "0" || settings["autocommit"] == "1"
}

func (e *vitess) look(ctx context.Context, conn *sql.Conn) error {
	settings, err := mySQLSettings(ctx, conn)
	if err != nil {
		return err
	}
	return e.lookAtSettings(ctx, conn, settings)
}

// lookAtSettings returns an error if a setting of vtgate, or of a shard at random, would break a promise.
func (e *vitess) lookAtSettings(ctx context.Context, conn *sql.Conn, settings map[string]string) error {
	for _, name := range []string{"sync_binlog", "innodb_flush_log_at_trx_commit"} {
		if value, ok := settings[name]; ok && value != "1" {
			return fmt.Errorf("sqlstore: with %s = %s, a tablet could lose orders in a crash; it must be 1",
				name, value)
		}
	}
	if e.single {
		var mode string
		if err := conn.QueryRowContext(ctx, `SELECT @@transaction_mode`).Scan(&mode); err != nil {
			return err
		}
		if mode != "SINGLE" && mode != "TWOPC" {
			return fmt.Errorf("sqlstore: with Options.Accept and transaction_mode = %s, an order could be "+
				"created without what Accept has written in another shard; it must be SINGLE", mode)
		}
	}
	replicas, err := e.readTablets(ctx, conn)
	if err == nil && replicas > 0 {
		err = lookAtSemiSync(settings)
	}
	return err
}

// lookAtSemiSync returns an error if a tablet acknowledges orders that no replica has, as one of these may
// become the primary. While VTOrc mends it, that may pass.
func lookAtSemiSync(settings map[string]string) error {
	semiSync := func(name string) string {
		return cmp.Or(settings["rpl_semi_sync_source_"+name], settings["rpl_semi_sync_master_"+name])
	}
	var flaw string
	switch {
	case semiSync("enabled") != "ON":
		flaw = "enabled is not ON: the keyspace needs the durability policy semi_sync, and VTOrc"
	case semiSync("wait_point") != "AFTER_SYNC":
		flaw = "wait_point is not AFTER_SYNC"
	case len(semiSync("timeout")) < len("1000000000000"): // milliseconds
		flaw = "timeout ends, after " + semiSync("timeout") + " ms"
	default:
		return nil
	}
	return sqlerror.With(sqlerror.Passing, errors.New("sqlstore: a tablet could acknowledge orders that "+
		"the next primary does not have: rpl_semi_sync_source_"+flaw))
}
