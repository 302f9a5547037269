// Package sqlstore is a durable [storefront.Store] over [database/sql], on
// PostgreSQL, SQLite and the databases that speak PostgreSQL's SQL. The program
// brings the driver:
//
//	db, err := sql.Open("pgx", "postgres://shop@db1,db2/shop?target_session_attrs=read-write")
//	…
//	store := sqlstore.New(db, nil)
//	if err := store.Migrate(ctx); err != nil {
//		…
//	}
//	handler := storefront.New(store)
//
// Every replica of the program may be given the same database. The store asks it
// once, by version(), whether it is SQLite. It needs no server-side code, but ON
// CONFLICT, which PostgreSQL has since 9.5 and SQLite since 3.24.
//
// # Promises
//
// An order and its key are one row, and a unique constraint decides which of
// concurrent statements inserts it. So an order is created once however often,
// wherever and beside whatever failure its request is sent: if the connection is
// lost on the way, the order is sent again and finds what became of the first one. A
// replay is acknowledged only when the order would also survive what a new one
// survives: it, too, waits for the commit, and with it for synchronous standbys.
//
// Orders that arrive while others are being committed are committed together, up to
// 64 at a time: on SQLite one commit is under way at a time, on PostgreSQL four. An
// order that arrives alone goes at once. One that cannot be committed fails alone,
// and a caller who leaves cancels nobody else's order. A commit that takes more than
// a quarter of Options.Timeout no longer keeps another from beginning, and orders that
// share it are then tried one by one. What a driver is given as the
// ctx of their statements has the values of no caller's.
//
// Serialization failures, deadlocks, lost connections, restarts and fail-overs are
// retried, after short random pauses, until the call's deadline (see
// Options.Timeout). If the database stays away, calls return
// [storefront.ErrUnavailable]. Any other error of the database is returned as it
// is.
//
// What a crash leaves is up to the database. PostgreSQL and SQLite lose nothing
// that was committed unless they are told that they may (fsync=off or
// synchronous_commit=off in PostgreSQL; in SQLite PRAGMA synchronous=OFF, NORMAL in
// WAL mode when the power fails, and journal_mode=MEMORY; with journal_mode=OFF it
// cannot even undo an order that is refused). After a fail-over, only a standby that
// was synchronous has every order, and not those whose wait for it was ended by
// hand (pg_cancel_backend makes PostgreSQL report success).
//
// # Schema
//
// [Store.Migrate] makes these tables, in PostgreSQL in the first schema of the
// search_path. They will only be added to. Programs may read all of them, write the
// first three, and delete orders. Migrate refuses tables of a later release.
//
//	CREATE TABLE storefront_users    (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)
//	CREATE TABLE storefront_products (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)
//	CREATE TABLE storefront_widgets  (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)
//
//	CREATE TABLE storefront_orders (
//		id          TEXT NOT NULL PRIMARY KEY,
//		item        TEXT NOT NULL,
//		qty         BIGINT NOT NULL,
//		created_ms  BIGINT NOT NULL, -- milliseconds since 1970-01-01 00:00:00 UTC
//		scope       BYTEA NOT NULL,  -- IdempotencyKey.Scope: whose order it is
//		key_hash    BYTEA UNIQUE,    -- NULL once the key is forgotten
//		fingerprint BYTEA            -- NULL once the key is forgotten
//	)
//	CREATE INDEX storefront_orders_keys ON storefront_orders (created_ms) WHERE key_hash IS NOT NULL
//
//	CREATE TABLE storefront_schema (version BIGINT NOT NULL PRIMARY KEY) -- 1
//
// IDs of users, products and widgets are bytes, because bytes have one order
// whatever the collation of the database is, and lists must be in it. The column
// body has the whole resource as JSON, with the row's ID as its "id"; if a row that
// was not written by [Collection.Put] has another, or breaks a rule of
// [storefront.NewResource], reading it fails. To read and write them in PostgreSQL:
//
//	SELECT convert_from(id, 'UTF8'), body::json->>'name' FROM storefront_users;
//	INSERT INTO storefront_users VALUES (convert_to('ada', 'UTF8'), '{"id":"ada","name":"Ada"}');
//
// In SQLite, which knows no type BYTEA and stores what it is given, an ID must be a
// BLOB; a row whose ID is TEXT is never found:
//
//	SELECT CAST(id AS TEXT), body->>'name' FROM storefront_users;
//	INSERT INTO storefront_users VALUES (CAST('ada' AS BLOB), '{"id":"ada","name":"Ada"}');
//
// key_hash is the SHA-256 sum of the length of the scope in bytes (64 bits, big
// endian), the scope and the key, so that a scope may be of any length. To find
// the order of the key 'a1' in the scope 'ada' in PostgreSQL:
//
//	SELECT * FROM storefront_orders
//	WHERE key_hash = sha256(int8send(octet_length('ada')) || convert_to('ada', 'UTF8') || convert_to('a1', 'UTF8'));
//
// SQLite has no SHA-256; there, a program computes the hash.
//
// Triggers on storefront_orders may run after an INSERT; each order has one, and a
// replay has none. If such a trigger fails, at once or as a deferred constraint, so
// does the order, and only that one. A trigger that runs before an INSERT runs for
// replays, too, and must neither skip the row nor change its id, key_hash or
// fingerprint. Replays update nothing, so triggers on UPDATE are free.
//
// Where all tables are there, the program's role needs no right to create any: to
// SELECT from storefront_schema and the first three, to SELECT, INSERT and UPDATE
// orders, and what it writes itself.
//
// Orders are never deleted here, and keys only by [Store.ForgetKeys], which the
// program calls now and then. A program that deletes orders keeps them for at
// least [storefront.KeyLifetime], as their keys go with them. So do keys that are
// younger than a backup when it is restored: their orders, sent again, are created
// again.
//
// # Connections
//
// Set the size of the pool: database/sql opens any number of connections unless
// told otherwise, and PostgreSQL refuses those beyond its max_connections.
//
//	db.SetMaxOpenConns(20) // of all replicas together, fewer than max_connections
//	db.SetMaxIdleConns(20) // the default of 2 opens and closes them all the time
//	db.SetConnMaxLifetime(30 * time.Minute)
//
// Calls that find all connections in use wait for one. Keep [Options].MaxCalls and
// Timeout in proportion: a call that is let in should be answered in time. While the
// database is away, every request takes all of Timeout; the WriteTimeout of the
// http.Server must be longer, or clients get no answer instead of a 503.
//
// PostgreSQL: give the driver every server and let it look for the primary
// (target_session_attrs=read-write in libpq and pgx), and a connect_timeout of a
// few seconds, or a server that is off the network takes all of Timeout. Prefer
// pgx: lib/pq waits for a server that hangs even when ctx is done. Any isolation
// level will do. Behind PgBouncer in transaction mode, let the driver do
// without prepared statements (default_query_exec_mode=exec in pgx), unless
// PgBouncer is 1.21 or later, which keeps them.
//
// SQLite: use a file with journal_mode=WAL, so that readers do not wait for the
// writer, and synchronous=FULL, so that an order survives the power. There is one
// writer at a time. Set busy_timeout to a short time, such as 100 ms: while it
// lasts, the driver may not notice that ctx is done, and the Store waits by itself
// after it. A few connections are enough. With modernc.org/sqlite:
//
//	db, err := sql.Open("sqlite", "file:shop.db?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(100)")
//	…
//	db.SetMaxOpenConns(4)
//
// # Distributed engines
//
// CockroachDB and YugabyteDB take the same SQL, and what they ask of a client is
// done: serialization failures (SQLSTATE 40001) and unknown outcomes (40003) are
// retried. The store has not been tested on them. Orders are spread by their random
// IDs and hashes. Two things to know:
//
//   - YugabyteDB divides tables by the hash of the primary key by default, and lists
//     would be sorted in memory. Let Migrate make them by range:
//     ALTER DATABASE shop SET yb_use_hash_splitting_by_default = off.
//   - storefront_orders_keys is an index by time, so all new orders go to the range
//     at its end. Where that becomes the bottleneck, drop the index and make it a
//     hash-sharded one; only ForgetKeys uses it.
//
// # The order's own transaction
//
// What is to happen if and only if an order is created, such as taking it out of
// the stock, belongs into [Options].Accept, which runs in the order's transaction. The
// example of Options does it, and writes an event.
//
// A row in an outbox is an event: another program, or a goroutine of this one,
// publishes what is there, at least once, and then deletes it; the order's ID tells
// duplicates. So no event is lost, and none is published for an order that was not
// created. A replay makes none. Where positions are numbers that the database gives,
// it gives them before the commit: they can become visible in another sequence.
//
// In SQLite, orders share commits with Accept, too, each in a savepoint of its own.
// In PostgreSQL, each has a transaction of its own then, so that none waits for the
// locks that another holds until their common commit.
package sqlstore
