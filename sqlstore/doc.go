// Package sqlstore is a durable [storefront.Store] over [database/sql], on
// PostgreSQL, SQLite, MySQL, MariaDB and the databases that speak the SQL of one of
// them. The program brings the driver:
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
// once, by version(), which of them it is. It needs no server-side code, but PostgreSQL 11,
// SQLite 3.24, or InnoDB and defaults that are expressions, which MySQL has since 8.0.13 and
// MariaDB since 10.2.1.
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
// 64 at a time: on SQLite one commit is under way at a time, elsewhere four. An
// order that arrives alone goes at once. One that cannot be committed fails alone,
// and a caller who leaves cancels nobody else's order. A commit that takes more than
// a quarter of Options.Timeout no longer keeps another from beginning, and orders that
// share it are then tried one by one; on SQLite, it ends with what it has, and the others
// wait for the next one. What a driver is given as the ctx of their statements
// has the values of no caller's. Calls of one process that have the same key share one
// try: when it has created the order, the others return it, or
// [storefront.ErrKeyReused] if their fingerprint is another.
//
// Reads go on while orders wait for a lock: orders use half of the pool's connections at
// most.
//
// Serialization failures, deadlocks, lost connections, restarts and fail-overs are
// retried, after short random pauses, until the call's deadline (see
// Options.Timeout). A server that answers nobody for a fifth of that is asked whether it is
// there, over another connection: for a read by SELECT 1, for an order by a write that is
// nobody's. Who waits for a lock, or for Options.Accept, waits on while it answers;
// otherwise it is left: the idle connections of the pool are closed, and calls go on over new
// ones. Where nobody else is answered, a call leaves a connection once although the server
// answers, if that has not begun a transaction: it may be the connection that is dead. With a
// pool of one connection, nobody can ask, and a call then waits for all of its time. If the database stays away, calls return [storefront.ErrUnavailable]; once
// none was answered for all of Timeout, most return it after a tenth of Timeout,
// until one is. Any other error of the database is returned as it is.
//
// What a crash leaves is up to the database. None of them loses anything that was
// committed unless it is told that it may: fsync=off or synchronous_commit=off in
// PostgreSQL; innodb_flush_log_at_trx_commit other than 1 in MySQL, or sync_binlog
// other than 1 where there is a binary log; in SQLite PRAGMA synchronous=OFF, NORMAL in
// WAL mode when the power fails, and journal_mode=MEMORY (with journal_mode=OFF it
// cannot even undo an order that is refused). After a fail-over, only a standby that
// was synchronous has every order, and not those whose wait for it was ended by
// hand (pg_cancel_backend makes PostgreSQL report success) or by a timeout
// (rpl_semi_sync_master_timeout in MySQL, whose semi-synchronous replication goes on
// without its standby after 10 seconds unless told otherwise).
//
// # Schema
//
// [Store.Migrate] makes these tables, in PostgreSQL in the first schema of the
// search_path that is there (current_schema), and uses those of no other. They will only
// be added to, and columns that are added have defaults. Programs may read all of them,
// write the first three, and delete orders.
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
//		fingerprint BYTEA,           -- NULL once the key is forgotten
//		keyed_ms    BIGINT DEFAULT … -- when the row was inserted, by the clock of the database
//	)
//	CREATE INDEX storefront_orders_keyed ON storefront_orders (keyed_ms) WHERE key_hash IS NOT NULL
//
//	CREATE TABLE storefront_schema (
//		version BIGINT NOT NULL PRIMARY KEY, -- of the tables: 2
//		oldest  BIGINT                       -- of the releases that may use them: 2
//	)
//
// So releases of one major version run side by side on one database, and one can be rolled
// back to: Migrate refuses the tables of a later release only if they say so.
// Tables of version 1, of 1.0.0-rc.1, become those of version 2 by Migrate, which in
// PostgreSQL needs them for itself for a moment, and in MySQL and SQLite for as long as each
// row is written; their keys count from then on. 1.0.0-rc.1 itself goes on meanwhile, but does
// not start on them anew, and in MySQL does not forget keys any more.
//
// In MySQL, BYTEA is VARBINARY(255) in the first three, LONGBLOB for scope and
// BINARY(32) for the others; id and item of orders are VARCHAR(255) and TEXT, body is
// LONGTEXT, in utf8mb4. keyed_ms is NULL once the key is forgotten, and the index is of all
// rows. In SQLite, keyed_ms has no default, and each INSERT names it. In MySQL, there is a
// table that only the store has a use for:
//
//	CREATE TABLE storefront_replays (slot INT NOT NULL PRIMARY KEY, number BIGINT NOT NULL)
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
// In MySQL and MariaDB:
//
//	SELECT CONVERT(id USING utf8mb4), JSON_UNQUOTE(JSON_EXTRACT(body, '$.name')) FROM storefront_users;
//	INSERT INTO storefront_users VALUES ('ada', '{"id":"ada","name":"Ada"}');
//
// key_hash is the SHA-256 sum of the length of the scope in bytes (64 bits, big
// endian), the scope and the key, so that a scope may be of any length. To find
// the order of the key 'a1' in the scope 'ada' in PostgreSQL:
//
//	SELECT * FROM storefront_orders
//	WHERE key_hash = sha256(int8send(octet_length('ada')) || convert_to('ada', 'UTF8') || convert_to('a1', 'UTF8'));
//
// In MySQL and MariaDB:
//
//	SELECT * FROM storefront_orders
//	WHERE key_hash = UNHEX(SHA2(CONCAT(UNHEX(LPAD(HEX(OCTET_LENGTH('ada')), 16, '0')), 'ada', 'a1'), 256));
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
// orders (and storefront_replays), and what it writes itself.
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
// Timeout in proportion: a call that is let in should be answered in time. When the
// database goes away, the first requests take all of Timeout; the WriteTimeout of the
// http.Server must be longer, or clients get no answer instead of a 503.
//
// A setting that would keep the store from what it promises is an error of the first call,
// which names it: autocommit and character sets in MySQL, bytea_output in PostgreSQL
// where the driver reads text, and those of clusters below.
//
// PostgreSQL: give the driver every server and let it look for the primary
// (target_session_attrs=read-write in libpq and pgx), and a connect_timeout of a
// few seconds, or a server that is off the network takes all of Timeout. Prefer
// pgx: lib/pq waits for a server that hangs even when ctx is done. Open it by sql.Open,
// or by OpenDB of its package stdlib, and not by OpenDBFromPool: a pgxpool keeps the
// connections that the store gives up, and hands them out again, so that orders go on
// failing on a server that has become read-only. Any isolation level will do.
// default_transaction_read_only=on is an error with every order, after all of Timeout.
// Behind PgBouncer in transaction mode, let the driver do without prepared statements
// (default_query_exec_mode=exec in pgx), unless PgBouncer keeps them
// (max_prepared_statements, since 1.21, and on by default since 1.24). And set its
// server_login_retry to 1: by default, it refuses everybody for 15 seconds after it has
// failed to connect to a server.
//
// MySQL and MariaDB: the driver go-sql-driver/mysql takes one server; to give it
// several, connect by a [database/sql/driver.Connector] that tries them in turn, as
// durable does. Give it interpolateParams=true, which saves a round trip
// for each statement, a timeout for connecting, a readTimeout that is longer than
// Options.Timeout, for the few things that it does without a ctx, and an
// innodb_lock_wait_timeout, in seconds, of less than a quarter of Options.Timeout. For the server does
// not notice that a caller has gone: it waits on for a lock, 50 seconds by default, and
// keeps others waiting for those that it has.
//
//	db, err := sql.Open("mysql", "shop:secret@tcp(db1:3306)/shop?interpolateParams=true&timeout=2s&readTimeout=15s&innodb_lock_wait_timeout=1")
//
// Any isolation level will do. An INSERT that waits for an order with its key, such as
// for a slow Accept, also keeps those waiting whose hashes come just before it in the
// index: one in as many as there are orders. What publishes events, or else locks rows
// that orders insert beside, should do so at READ COMMITTED. With autocommit = OFF,
// the store returns an error.
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
// Its shorter forms, such as _journal_mode=WAL, need version 1.55.0 or later: earlier
// ones ignore them without a word, and what looks like WAL with FULL is neither. Other
// drivers have other names for them. While a reader, such as a backup, holds a snapshot,
// the WAL grows; if it fills the disk, SQLite cannot empty it any more, not even after
// the reader has gone, so leave as much room as it may take (durable sees
// to that).
//
// # Distributed engines
//
// CockroachDB and YugabyteDB take PostgreSQL's SQL, and what they ask of a client is
// done: serialization failures (SQLSTATE 40001) and unknown outcomes (40003) are
// retried. The store has not been tested on them. Orders are spread by their random
// IDs and hashes. Two things to know:
//
//   - YugabyteDB divides tables by the hash of the primary key by default, and lists
//     would be sorted in memory. Let Migrate make them by range:
//     ALTER DATABASE shop SET yb_use_hash_splitting_by_default = off.
//   - storefront_orders_keyed is an index by time, so all new orders go to the range
//     at its end. Where that becomes the bottleneck, drop the index and make it a
//     hash-sharded one; only ForgetKeys uses it.
//
// TiDB and Vitess take MySQL's; the store has not been tested on them.
//
// On a Galera cluster, replicas of the program may use any node, and different ones.
// The cluster decides between two orders with one key, wherever they are sent, and the
// one that loses is retried and finds the other. With Accept, that goes for a refusal,
// too: it is committed, with a row of storefront_replays and nothing else. Two things are needed:
//
//   - wsrep_sync_wait = 1, or more, on every connection (wsrep_sync_wait=1 in the URL of
//     go-sql-driver/mysql), so that a node waits until it has what was committed on
//     others before it reads or begins a transaction. Otherwise reads are stale in a
//     healthy cluster: it would not show a product that was just put, and Accept could
//     refuse an order that exists. The store returns an error if it is not set.
//   - Three nodes, so that two go on when one is lost. What was acknowledged has been
//     received by all nodes of the majority, but is on the disk of one. If all of them
//     lose their power at once, the cluster must be begun anew from the node
//     that is most advanced (wsrep_recover), and all need innodb_flush_log_at_trx_commit=1.
//     MariaDB's manual has recommended 0 for Galera, which loses orders then.
//
// A node that is cut off from the majority refuses (error 1047) as soon as it has
// noticed, after evs.suspect_timeout, 5 seconds by default; until then it neither
// acknowledges an order nor replays one.
//
// That an order which was acknowledged is kept is not promised on Galera. Jepsen
// (March 2026, MariaDB 12.1.2 to 12.2.2) has seen committed transactions lost where
// nodes crashed while others were cut off, rarely, but also with
// innodb_flush_log_at_trx_commit=1 (MDEV-38976). Such an order, sent again with its key,
// is created again. On MariaDB 10.11, nodes cut off and killed many times at once have
// lost none in tests here, which were far shorter than Jepsen's. Where no order may be
// lost, prefer PostgreSQL with a synchronous standby.
//
// Transactions are less apart there than on one server, at any isolation level. Jepsen
// has seen lost updates in a healthy cluster, and MariaDB lists them, with stale reads,
// among the known limitations (MDEV-38977, MDEV-38999). A node does not see the locks of
// another, and of two transactions on different nodes, one fails only where both change
// the same row. So Accept must change the row that it decides by:
//
//   - Best in the statement that decides: UPDATE stock SET pieces = pieces - 1 WHERE
//     item = ? AND pieces >= 1, and refuse if it has affected no row.
//   - Or SELECT … FOR UPDATE, and then UPDATE that same row, so that it changes.
//   - Where other rows decide, such as reservations that are counted: first UPDATE a
//     row that all who decide have in common, so that it changes, such as a counter,
//     and then read the others by SELECT … FOR UPDATE.
//
// SELECT … FOR UPDATE is not enough by itself: what locks one row and writes another
// sells the last piece twice, although it does not on one server. Neither is a SELECT
// without it, also if the row is then set to what was computed from it.
//
// In a group of MySQL servers (Group Replication), all that goes for several primaries,
// too, and a conflict is found at the commit (error 3101). Every connection needs
// group_replication_consistency = 'BEFORE' (group_replication_consistency=%27BEFORE%27 in
// the URL of go-sql-driver/mysql) or 'BEFORE_AND_AFTER'; any user may set it. With a
// single primary, the default since MySQL 8.4, BEFORE_ON_PRIMARY_FAILOVER, is enough: the
// next primary answers only once it has what the old one acknowledged. The store returns
// an error with 'EVENTUAL', and with several primaries also with the others. Changing
// the mode of the group takes a restart of the program. With several primaries,
// SERIALIZABLE is refused by the group, as are tables without a primary key, such as those
// that Accept might write. Accept must not make savepoints there: MySQL 9.7 may commit the
// second half of a transaction whose first half has given way to another member's.
//
// A member that is expelled, or is coming back, refuses (errors 3100, 3796 to 3799, 1290
// and 3032), and calls go on where the driver connects next. One that is cut off with the
// minority answers nobody: set group_replication_unreachable_majority_timeout to a few
// seconds, or it waits on, and lets those wait who are connected to it. One that
// was told to leave by STOP GROUP_REPLICATION refuses to write, but shows what it has, which
// grows old: set its offline_mode first.
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
// Elsewhere, each has a transaction of its own then, so that none waits for the
// locks that another holds until their common commit.
package sqlstore
