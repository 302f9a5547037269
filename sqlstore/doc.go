// Package sqlstore is a durable [storefront.Store] over [database/sql], on
// PostgreSQL, SQLite, MySQL and MariaDB, and on Vitess, sharded. The program brings the driver:
//
//	db, err := sql.Open("pgx",
//		"postgres://shop@db1,db2/shop?target_session_attrs=read-write&connect_timeout=3")
//	…
//	db.SetMaxOpenConns(20) // SQLite: 4
//	db.SetMaxIdleConns(20)
//	store := sqlstore.New(db, nil)
//	if err := store.Migrate(ctx); err != nil {
//		…
//	}
//	handler := storefront.New(store)
//
// Every replica of the program may use the same database. The store asks the database once,
// by version(), which one it is. docs/databases.md in the repository has the URLs, pools and
// settings of each database, clusters and fail-over, and the statements that read and write
// these tables; docs/failures.md says which promises hold on which database, and names the tests.
//
// # Promises
//
// An order and its key are one row, and a unique constraint decides which of several concurrent statements
// inserts it. So an order is created once, however often and wherever its request is sent, and whatever fails
// meanwhile: if the connection is lost, the store sends the order again and learns what became of the first
// try. A replay is as durable as a new order: it, too, waits for a commit, and so for synchronous standbys;
// on Vitess, no order is seen before.
//
// Which orders survive a crash is up to the database. None of these databases loses a
// committed order unless a setting allows it, such as fsync=off in PostgreSQL. After a
// fail-over, only a standby that was synchronous has every order. The store checks no such
// setting. If any other setting would break a promise, or the tables lack a constraint on which one rests,
// the first call returns an error that names it. Orders look again every 15 seconds.
//
// Orders that arrive while others are being committed are committed together: at present up to 64 at a time,
// in four commits at once; in SQLite, in one. An order that arrives alone goes at once. An order that cannot
// be committed fails alone, and a caller who leaves cancels nobody else's order. When a commit takes long, at
// present a quarter of Options.Timeout, the store tries its orders one by one, and begins the next commit
// without waiting for this one; in SQLite, it commits the orders inserted so far, and the others wait for the
// next commit. The driver gets a ctx without the values of any caller for the statements of a shared commit.
// Calls of one process with the same key share one try: when one of them has created the order, the others
// return it, or [storefront.ErrKeyReused] if their fingerprint differs.
//
// The store retries after serialization failures, deadlocks, lost connections, restarts and fail-overs, with
// short random pauses, until the call's deadline (see Options.Timeout). When a server has answered nobody for
// a fifth of that time, the store asks over another connection whether it is there: for a read by SELECT 1,
// for an order by a write that no order needs. While the server answers, calls that wait for a lock, or for
// Options.Accept, wait on. Otherwise the store closes the idle connections of the pool, and its calls go on
// over new ones. If the server answers the question but nobody else, a call gives up its connection, which
// may be dead, unless it has begun a transaction. If the database stays away, the first calls return
// [storefront.ErrUnavailable] after all of Timeout, and most later calls after a tenth of it, until the
// database answers one. So the WriteTimeout of the http.Server must be longer than Timeout, or clients get no
// answer instead of a 503. The store returns any other error of the database unchanged.
//
// # Schema
//
// [Store.Migrate] makes these tables, but begins no shop beside or in place of another. In
// PostgreSQL, they are in the first schema of the search_path that exists (current_schema), and the
// store uses the tables of no other schema.
//
//	CREATE TABLE storefront_users    (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)
//	CREATE TABLE storefront_products (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)
//	CREATE TABLE storefront_widgets  (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)
//
//	CREATE TABLE storefront_orders (
//		id              TEXT NOT NULL PRIMARY KEY, -- sorts by bytes, and so by time
//		qty             BIGINT NOT NULL,
//		created_ms      BIGINT NOT NULL,  -- milliseconds since 1970-01-01 00:00:00 UTC
//		keyed_ms        BIGINT DEFAULT …, -- when the row was inserted, by the clock of the database
//		item            TEXT NOT NULL,
//		scope           BYTEA NOT NULL,   -- IdempotencyKey.Scope, whose order it is, or sha256: and its sum
//		key_hash        BYTEA,
//		key_fingerprint BYTEA,
//		fields          TEXT NOT NULL DEFAULT '' -- Order.Fields, or '' for none
//	)
//	CREATE UNIQUE INDEX storefront_orders_key_hash ON storefront_orders (key_hash) WHERE key_hash IS NOT NULL
//	CREATE INDEX storefront_orders_scope ON storefront_orders (scope, id) -- with Options.OrderLists
//
//	CREATE TABLE storefront_schema (
//		version      BIGINT NOT NULL PRIMARY KEY, -- of the tables: 1
//		oldest       BIGINT NOT NULL,             -- of the releases that may use them: 1
//		keep_ms      BIGINT,                      -- how much longer keys are remembered; NULL: not at all
//		forgotten_ms BIGINT                       -- before which time ForgetKeys has forgotten the keys
//	)
//
// Once the key of an order is forgotten, keyed_ms, key_hash and key_fingerprint are NULL. In place of a
// scope that is longer than 255 bytes or begins with "sha256:", the column has "sha256:" and the SHA-256 sum
// of the scope, in lower-case hexadecimal digits.
//
// In MySQL, BYTEA is VARBINARY(255) for scope and in the first three tables, and BINARY(32) for the other
// columns; id and item of orders are VARCHAR(255) and TEXT, body and fields are LONGTEXT, in utf8mb4. There,
// the unique index has all rows, orders have a column more, place BINARY(8) DEFAULT (LEFT(key_hash, 8)),
// which stays when the key is forgotten and by which Vitess chooses the shard, and only the store uses one
// more table, storefront_replays (slot INT NOT NULL PRIMARY KEY, number BIGINT NOT NULL). In SQLite, keyed_ms
// has no default, and each INSERT sets it. In PostgreSQL, the collation of IDs of orders is "C".
//
// IDs of users, products and widgets are bytes, as lists are in the order of bytes, whatever the collation of
// the database. body is the whole resource as JSON, with the row's ID as its "id"; reading a row with another
// "id", or one that breaks a rule of [storefront.NewResource], fails. key_hash is the SHA-256 sum of the
// length of the scope in bytes (64 bits, big endian), the scope and the key.
//
// Programs may read all tables, write the first three, delete orders whose key_hash is NULL or, where
// ForgetKeys is never called, whose keyed_ms is more than 25 hours ago by the clock of the database, put back
// rows, whole, that a restored backup lacks, raise keyed_ms to keep a key for longer, which may then be for a
// day more, and set keep_ms to keep all keys for longer. The names of what they add to these tables, such as
// columns, begin with shop_: no later release adds one like that.
// The store never deletes orders, and forgets keys only in [Store.ForgetKeys], which the program calls every
// hour. Until then, the row is how a retry finds its order, whatever its age.
//
// Later releases only add to the tables, and columns that they add have defaults. So releases of
// one major version run side by side on one database, and a program can be rolled back: Migrate
// refuses the tables of a later release only if their oldest is above the version that this
// release makes. Nothing upgrades the tables of candidates before 1.0.0-rc.4: the store refuses them.
//
// # Accept
//
// [Options].Accept runs in the order's transaction. A row that it writes into an outbox is an event:
// another goroutine or program publishes each row, at least once, and then deletes it. A receiver
// recognizes a repeated event by the order's ID. If the database numbers the rows, they can become
// visible in another order than that of their numbers. In SQLite, orders share commits even with
// Accept, each in a savepoint of its own. Elsewhere each order with Accept has its own transaction,
// as orders that share a commit would hold their locks until it ends.
package sqlstore
