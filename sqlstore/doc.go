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
// Every replica of the program may use the same database. The store asks the database once,
// by version(), which one it is. It needs no server-side code, but PostgreSQL 11, SQLite
// 3.24, or InnoDB with defaults that are expressions, which MySQL has since 8.0.13 and
// MariaDB since 10.2.1.
//
// # Promises
//
// An order and its key are one row, and a unique constraint decides which of several
// concurrent statements inserts it. So an order is created once, however often and wherever
// its request is sent, and whatever fails meanwhile: if the connection is lost on the way,
// the store sends the order again and finds out what became of the first one. A replay is
// acknowledged only when its order would survive whatever a new order survives: a replay,
// too, waits for a commit, and so for synchronous standbys.
//
// Orders that arrive while others are being committed are committed together, up to 64 at
// a time. On SQLite, one commit is under way at a time, on other databases four. An order
// that arrives alone goes at once. An order that cannot be committed fails alone, and a
// caller who leaves cancels nobody else's order. When a commit has taken a quarter of
// Options.Timeout, the store tries its orders one by one, and begins the next commit without
// waiting for this one. On SQLite, the store then commits those orders that are inserted, and
// the others wait for the next commit. For the statements of a shared commit, the driver gets a ctx that has
// no values of any caller's ctx. Calls of one process that have the same key share one try:
// when one of them has created the order, the others return it, or [storefront.ErrKeyReused]
// if their fingerprint is another.
//
// Orders use at most half of the connections of the pool, so that reads go on while orders
// wait for a lock.
//
// Serialization failures, deadlocks, lost connections, restarts and fail-overs are
// retried, after short random pauses, until the call's deadline (see Options.Timeout). When
// a server has answered nobody for a fifth of that time, the store asks over another
// connection whether it is there: for a read by SELECT 1, for an order by a write that no
// order needs. While the server answers, calls that wait for a lock, or for Options.Accept,
// wait on. Otherwise the store leaves the server: it closes the idle connections of the
// pool, and its calls go on over new ones. If the server answers the question but nobody
// else, the connection of the call may be dead, so that a call gives up one connection that
// has not begun a transaction. With a pool of one connection, the store cannot ask, and a
// call waits for all of its time. If the database stays away, the first calls return
// [storefront.ErrUnavailable] after all of Timeout, and most later calls after a tenth of
// Timeout, until the database answers one. The store returns any other error of the database
// unchanged.
//
// Which orders survive a crash is up to the database. None of these databases loses an
// order that was committed, unless a setting allows it, such as fsync=off in PostgreSQL. After a
// fail-over, only a standby that was synchronous has every order. docs/databases.md of the
// repository names these settings, and has what a synchronous standby needs; docs/promises.md
// says what holds on each engine, and names the test that shows it.
//
// # Schema
//
// [Store.Migrate] makes these tables. In PostgreSQL, they are in the first schema of the
// search_path that exists (current_schema), and the store uses the tables of no other
// schema. Later releases only add to the tables, and columns that they add have defaults.
// Programs may read all tables, write the first three, delete orders whose key_hash is NULL,
// and raise keyed_ms, so that a key is remembered for longer.
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
// So releases of one major version run side by side on one database, and a program can be
// rolled back to an earlier one: Migrate refuses the tables of a later release only if their
// oldest is above the version that this release makes.
//
// Migrate turns tables of version 1, which 1.0.0-rc.1 made, into those of version 2. The age
// of their keys counts from then on. A program with 1.0.0-rc.1 that is running goes on, and
// orders of one release are replayed by the other. Until it ends, it forgets keys of both by
// created_ms, or in MySQL none. It does not start on the new tables.
//
// In MySQL, BYTEA is VARBINARY(255) in the first three tables, LONGBLOB for scope and
// BINARY(32) for the other columns; id and item of orders are VARCHAR(255) and TEXT, body is
// LONGTEXT, in utf8mb4. There, keyed_ms is NULL once the key is forgotten, and the index has
// all rows. In SQLite, keyed_ms has no default, and each INSERT sets it. In MySQL, there is
// one more table, which only the store uses:
//
//	CREATE TABLE storefront_replays (slot INT NOT NULL PRIMARY KEY, number BIGINT NOT NULL)
//
// IDs of users, products and widgets are bytes, because lists must be in the order of
// bytes, which does not depend on the collation of the database. The column body has the
// whole resource as JSON, with the row's ID as its "id"; if a program writes a row with
// another "id", or one that breaks a rule of [storefront.NewResource], reading the row
// fails. To read and write users in PostgreSQL:
//
//	SELECT convert_from(id, 'UTF8'), body::json->>'name' FROM storefront_users;
//	INSERT INTO storefront_users VALUES (convert_to('ada', 'UTF8'), '{"id":"ada","name":"Ada"}');
//
// In SQLite, which has no type BYTEA and stores each value with its own type, an ID must be
// a BLOB; a row whose ID is TEXT is never found:
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
// endian), the scope and the key, so that a scope may have any length. To find the order
// of the key 'a1' in the scope 'ada' in PostgreSQL:
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
// Triggers on storefront_orders may run after an INSERT, once for each order and never for a
// replay. If such a trigger fails, at once or as a deferred constraint, so does the order,
// and no other. A trigger that runs before an INSERT runs for replays, too, and must neither
// skip the row nor change its id, key_hash or fingerprint. Replays update no order, so
// triggers on UPDATE may do anything.
//
// Once all tables exist, the program's role needs no right to create tables.
// docs/databases.md, under Rights, has those that it needs.
//
// The store never deletes orders, and forgets keys only in [Store.ForgetKeys], which the
// program calls every hour. A program deletes only orders whose key_hash is NULL: until then, the
// row is how a retry finds its order, and its age does not matter. docs/operations.md, under
// Retention, has the statements, and the rule for a program that never calls ForgetKeys. When a backup is restored, the orders after it are gone with
// their keys: if clients send them again, they are created again.
//
// # Connections
//
// For PostgreSQL with pgx, import github.com/jackc/pgx/v5/stdlib:
//
//	db, err := sql.Open("pgx", "postgres://shop@db1,db2/shop?target_session_attrs=read-write&connect_timeout=3")
//
// In MySQL and MariaDB, give the driver go-sql-driver/mysql these parameters:
//
//	db, err := sql.Open("mysql", "shop:secret@tcp(db1:3306)/shop?interpolateParams=true&timeout=2s&readTimeout=15s&innodb_lock_wait_timeout=1")
//
// In SQLite, with modernc.org/sqlite, use a WAL, and flush each commit:
//
//	db, err := sql.Open("sqlite", "file:shop.db?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(100)")
//
// Then set the size of the pool, by SetMaxOpenConns and SetMaxIdleConns, to 20 connections, or
// on SQLite 4: database/sql has no limit of its own. docs/databases.md says why, and has the
// settings of PgBouncer and clusters. The command durable has them all.
//
// Calls that find all connections in use wait for one. Keep [Options].MaxCalls and
// Timeout in proportion: the last of MaxCalls calls should be answered within Timeout. When
// the database goes away, the first requests take all of Timeout; the WriteTimeout of the
// http.Server must be longer, or clients get no answer instead of a 503.
//
// If a setting would break a promise of the store, the first call returns an error that names
// the setting: autocommit and character sets in MySQL, bytea_output in PostgreSQL where the
// driver reads text, and the settings of clusters below. The store does not check what the
// database keeps in a crash (fsync and the like, see Promises).
//
// In MySQL and MariaDB, an INSERT that waits for another with its key, such as during a slow
// Accept, also holds up orders whose hashes come just before its own in the index: among n
// orders that are stored, about one new order in n.
//
// # Distributed engines
//
// CockroachDB and YugabyteDB take PostgreSQL's SQL, and the store does what they ask of a
// client: it retries after serialization failures (SQLSTATE 40001) and unknown outcomes
// (40003). The store has not been tested on them. Orders are spread by their random IDs
// and hashes. Two things to know:
//
//   - YugabyteDB divides tables by the hash of the primary key by default, so that it
//     would sort lists in memory. Let Migrate make tables that are divided by range:
//     ALTER DATABASE shop SET yb_use_hash_splitting_by_default = off.
//   - storefront_orders_keyed is an index by time, so all new orders go to the range
//     at its end. If that becomes the bottleneck, replace the index by a hash-sharded
//     one; only ForgetKeys uses it.
//
// TiDB and Vitess take MySQL's SQL; the store has not been tested on them.
//
// The store refuses a Galera cluster, which does not keep what it has acknowledged: the first
// call returns an error that says so. docs/databases.md says why.
//
// In a group of MySQL servers (Group Replication) with several primaries, replicas of the
// program may use any primary, and different ones. The group decides between two orders with
// one key, wherever they are sent; the store retries the one that loses (error 3101) and finds
// the other. With Accept, the store commits a refusal, too, with a row of storefront_replays
// and nothing else, so that the group also decides between a refusal and an order.
//
// Transactions are less isolated there than on one server, at any isolation level. A member
// does not see the locks of another one, and of two transactions on different members, one
// fails only if both change the same row. So Accept must change the row that it decides by:
//
//   - Best in the statement that decides: UPDATE stock SET pieces = pieces - 1 WHERE
//     item = ? AND pieces >= 1, and refuse if it has affected no row.
//   - Or SELECT … FOR UPDATE, and then UPDATE that same row, so that it changes.
//   - If other rows decide, such as reservations that are counted: first UPDATE a row that
//     all such transactions share, such as a counter, so that it changes, and then read the
//     other rows by SELECT … FOR UPDATE.
//
// SELECT … FOR UPDATE is not enough by itself: an Accept that locks one row and writes
// another sells the last piece twice in such a group, although not on one server. A SELECT
// without FOR UPDATE is not enough either, even if Accept then sets the row to a value that
// it computed from the SELECT.
//
// With several primaries, every connection needs
// group_replication_consistency = 'BEFORE' (group_replication_consistency=%27BEFORE%27 in
// the URL of go-sql-driver/mysql) or 'BEFORE_AND_AFTER'; any user may set it. With a
// single primary, the default since MySQL 8.4, BEFORE_ON_PRIMARY_FAILOVER, is enough: the
// next primary answers only once it has all that the old one acknowledged. The store returns
// an error with 'EVENTUAL', and with several primaries also with the other values. After a
// change of the group's mode, restart the program. With several primaries, the group refuses
// SERIALIZABLE and tables without a primary key, such as those that Accept might write.
// Accept must not make savepoints there: MySQL 9.7 may commit the second half of a
// transaction whose first half has given way to one of another member.
//
// A member that is expelled, or is coming back, refuses (errors 3100, 3796 to 3799, 1290
// and 3032), and calls go on where the driver connects next. A member that is cut off with
// the minority answers nobody, unless group_replication_unreachable_majority_timeout is set. A
// member that was told to leave by STOP GROUP_REPLICATION refuses to write, but goes on showing
// its data, which grow old: set its offline_mode first.
//
// # The order's own transaction
//
// [Options].Accept runs in the order's transaction. Write there what must happen if and only
// if the order is created, such as taking it out of the stock. ExampleOptions in
// sqlstore/example_test.go does that, and writes an event; durable/examples/stock is a program
// that does so on each database.
//
// A row in an outbox is an event: another program, or a goroutine of this one, publishes
// each row, at least once, and then deletes it. Whoever receives an event twice knows it by the
// order's ID. So no event is lost, and none is published for an order that was not created. A
// replay makes no event. If the database numbers the rows, it does so before the commit, so that
// rows can become visible in another sequence than that of their numbers.
//
// In SQLite, orders share commits even with Accept, each in a savepoint of its own. On other
// databases, each order with Accept has a transaction of its own. Otherwise, the orders of a
// commit would hold their locks until it ends.
package sqlstore
