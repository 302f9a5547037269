package sqlstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/storefront"
	"example.com/storefront/internal/sqlerror"
	"example.com/storefront/internal/watchdog"
)

// mySQL is the engine of MySQL and MariaDB. Both know all of its statements but replace.
type mySQL struct {
	statements
	several bool // the server is one of several primaries of a group
}

// newMySQL returns the engine of a server of a version. get begins the queries of rows, and of the time.
func newMySQL(version, get string) *mySQL {
	e := &mySQL{statements: statements{
		schema: mySQLTables(),
		catalog: `SELECT c.table_name, c.column_name, CONCAT(IF(t.table_type = 'VIEW', 'not a table of ', ''),
				c.data_type, IF(c.character_set_name <> 'utf8mb4', CONCAT(' in ', c.character_set_name), ''))
			FROM information_schema.columns AS c JOIN information_schema.tables AS t
			ON t.table_schema = c.table_schema AND t.table_name = c.table_name
			WHERE c.table_schema = database() AND c.table_name LIKE 'storefront%'
			UNION ALL SELECT table_name, MIN(column_name), 'unique' FROM information_schema.statistics
			WHERE table_schema = database() AND table_name LIKE 'storefront%' GROUP BY table_name, index_name
			HAVING MAX(non_unique) = 0 AND COUNT(*) = 1 AND MAX(sub_part) IS NULL
			AND MIN(column_name) IS NOT NULL
			UNION ALL SELECT t.table_name, '', IF(t.create_options LIKE '%partitioned%', 'partitioned',
				CONCAT('is of ', t.engine, ', which has no transactions: ALTER TABLE ', t.table_name,
				' ENGINE = InnoDB'))
			FROM information_schema.tables AS t
			LEFT JOIN information_schema.engines AS e ON e.engine = t.engine
			WHERE t.table_schema = database() AND t.table_name LIKE 'storefront%' AND t.engine IS NOT NULL
			AND (t.create_options LIKE '%partitioned%' OR COALESCE(e.transactions, 'NO') <> 'YES')`,
		place:       `SELECT CONCAT('database ', DATABASE(), ' at ', @@hostname, ':', @@port)`,
		tables:      ownTables("varbinary", "longtext", "varchar", "binary"),
		retype:      `ALTER TABLE %[1]s MODIFY %[2]s %[3]s%[4]s`,
		reindex:     createIndex,
		unpartition: `ALTER TABLE %[1]s REMOVE PARTITIONING; ` + createIndex,
		param:       marked,
		users:       get + `id, body FROM storefront_users WHERE id > ? ORDER BY id LIMIT ?`,
		product:     get + `id, body FROM storefront_products WHERE id = ?`,
		widgets:     get + `id, body FROM storefront_widgets WHERE id >= ? ORDER BY id LIMIT ?`,
		replace:     ` ON DUPLICATE KEY UPDATE body = VALUES(body)`,
		orderOf: `SELECT id, item, qty, fields, created_ms, key_fingerprint, key_hash FROM storefront_orders
			WHERE key_hash = ?`,
		orderIndex: `SELECT 'ready' FROM information_schema.statistics WHERE table_schema = database()
			AND table_name = 'storefront_orders' AND index_name = 'storefront_orders_scope'
			GROUP BY index_name HAVING MAX(sub_part) IS NULL
			AND GROUP_CONCAT(column_name ORDER BY seq_in_index) = 'scope,id' LIMIT 1`,
		newest:      `FORCE INDEX (storefront_orders_scope) WHERE scope = ? ORDER BY id DESC LIMIT ?`,
		older:       `FORCE INDEX (storefront_orders_scope) WHERE scope = ? AND id < ? ORDER BY id DESC LIMIT ?`,
		indexOrders: `CREATE INDEX storefront_orders_scope ON storefront_orders (scope, id)`,
		get:         get,
		due:         `id`,
		now:         get + mySQLNow,
		write: `INSERT INTO storefront_replays (slot, number) VALUES (-1, 1)
			ON DUPLICATE KEY UPDATE number = number + 1`,
		servers: `SELECT CONCAT_WS(' ', @@hostname, @@port)`,
	}}
	e.insertOne = e.insertion(1)
	e.tables["storefront_replays"] = map[string]string{"slot": "int", "number": "bigint"}
	// MySQL has deprecated VALUES() since 8.0.20, and MariaDB has nothing else. Both know a
	// SELECT in place of the values, but it is slower, and MySQL then takes no more than
	// 65,535 bytes of an argument in a prepared statement.
	major, _, _ := strings.Cut(version, ".")
	switch {
	case strings.Contains(version, "MariaDB"):
		// While an ALTER TABLE ends, as of a Migrate elsewhere, a part of the catalog leaves the table out.
		e.inspectsAgain = 4
	case major != "5" && major != "8":
		e.replace = ` AS given ON DUPLICATE KEY UPDATE body = given.body`
	}
	return e
}

func (e *mySQL) server(ctx context.Context, conn *sql.Conn) (string, error) {
	return nameOf(ctx, conn, `SELECT CONCAT(@@hostname, ':', @@port)`)
}

// open opens a link over one connection. An order keeps it while it waits for a lock: the server goes on
// with a statement after the caller has gone, and ends the wait after innodb_lock_wait_timeout.
func (e *mySQL) open(ctx context.Context, s *Store, w *watchdog.Watch) (context.Context, link, error) {
	ctx, c, err := s.connection(ctx, w)
	return ctx, mySQLLink{c, e.several}, err
}

// numberRow makes the commit of its transaction wait for all commits before it. In a group, two
// transactions on different primaries that name the same slot conflict.
const numberRow = `INSERT INTO storefront_replays (slot, number) VALUES (?, 1)
	ON DUPLICATE KEY UPDATE number = number + 1`

// find makes the order durable that it has read: InnoDB shows an order to others before its commit is on
// the disk. The commit of a write waits for all commits before it, but that of a mere lock, or of an
// UPDATE that changes nothing, does not. So a replay writes a number, in one of many rows, so that few
// replays wait for each other or, in a group with several primaries, conflict.
func (e *mySQL) find(ctx context.Context, c *session, hash [sha256.Size]byte) (
	storefront.Order, [32]byte, error) {
	order, fingerprint, err := e.statements.find(ctx, c, hash)
	if err == nil {
		_, err = c.exec(ctx, numberRow, hash[0])
	}
	return order, fingerprint, err
}

func (e *mySQL) insertMany(ctx context.Context, c *session, proposals []*proposal) (
	map[[sha256.Size]byte]bool, error) {
	inserted := make(map[[sha256.Size]byte]bool)
	return inserted, e.insertFree(ctx, c, proposals, inserted)
}

// insertFree inserts all orders or, if any of their keys is taken, asks which are, and inserts the others. It
// adds the keys to inserted. Neither MySQL nor MariaDB can do that in one statement: INSERT IGNORE hides other
// errors, and ON DUPLICATE KEY UPDATE takes any unique column for the key.
func (e *mySQL) insertFree(ctx context.Context, c *session, proposals []*proposal,
	inserted map[[sha256.Size]byte]bool) error {
	n, err := c.exec(ctx, e.insertion(len(proposals)), e.rowsOf(proposals)...)
	if classOf(err).IsDuplicate() {
		var hashes []any
		for _, p := range proposals {
			hashes = append(hashes, p.hash[:])
		}
		in, place, args := e.rows(1, len(hashes)), ``, hashes
		if e.placed {
			place, args = `place IN `+in+` AND `, slices.Concat(places(hashes), hashes)
		}
		taken, readErr := c.hashes(ctx, proposals,
			e.get+`key_hash FROM storefront_orders WHERE `+place+`key_hash IN `+in, args...)
		if readErr != nil {
			return readErr
		}
		proposals = slices.DeleteFunc(proposals, func(p *proposal) bool { return taken[p.hash] })
		if len(proposals) == 0 {
			return nil
		}
		n, err = c.exec(ctx, e.insertion(len(proposals)), e.rowsOf(proposals)...)
	}
	if err == nil && n != int64(len(proposals)) {
		err = errOfAnother
	}
	if err != nil {
		return err
	}
	for _, p := range proposals {
		inserted[p.hash] = true
	}
	return nil
}

// A mySQLLink commits by a statement: the drivers' Commit and Rollback do not return when a ctx is done.
type mySQLLink struct {
	*connection
	several bool // see mySQL
}

func (l mySQLLink) begin(ctx context.Context) (transaction, error) {
	tx, err := l.beginTx(ctx)
	return mySQLTx{tx, l.several}, err
}

// A mySQLTx on one of several primaries, which do not see each other's locks, claims the key before it inserts
// an order, for Options.Accept. Without that, Accept could refuse an order that another primary is about to
// commit.
type mySQLTx struct {
	*connTx
	several bool
}

func (tx mySQLTx) insert(ctx context.Context, p *proposal) (int64, error) {
	if tx.several {
		if err := tx.claim(ctx, p); err != nil {
			return 0, err
		}
	}
	return tx.connTx.insert(ctx, p)
}

func (tx mySQLTx) accept(_ context.Context, f func(*sql.Tx)) { f(tx.Tx) }

func (tx mySQLTx) commit(ctx context.Context) error {
	_, err := tx.exec(ctx, `COMMIT`)
	return err
}

// confirm makes sure that the key of a refused order is free on all primaries: it commits a transaction
// with the key's claim, which fails if another one has created an order with the key. If the order is
// there, it takes the refusal back.
func (e *mySQL) confirm(ctx context.Context, c *session, p *proposal, refusal outcome) (outcome, error) {
	if !e.several {
		return refusal, nil
	}
	begun, err := c.begin(ctx)
	if err != nil {
		return refusal, err
	}
	tx := begun.(mySQLTx)
	defer tx.rollBack(ctx)
	if err := tx.claim(ctx, p); err != nil {
		return refusal, err
	}
	var id string
	tx.call(func() {
		row := tx.QueryRowContext(ctx, `SELECT id FROM storefront_orders WHERE key_hash = ?`, p.hash[:])
		err = row.Scan(&id)
	})
	switch err {
	case nil:
		return outcome{state: taken}, nil
	case sql.ErrNoRows:
		return refusal, tx.commit(ctx)
	default:
		return refusal, err
	}
}

// claim writes a row that the key's number names, so that only one of two transactions of different
// primaries with the key can commit.
func (tx mySQLTx) claim(ctx context.Context, p *proposal) error {
	// There are 65536 numbers, which few orders share, and find uses none of them.
	_, err := tx.exec(ctx, numberRow, 256+int(p.hash[1])<<8+int(p.hash[2]))
	return err
}

const mySQLNow = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000`

// placing is the default of place: the first bytes of the key's hash, which stay when the key is forgotten.
// Vitess places an order by them, so that an order and its key are in one shard.
const placing = ` DEFAULT (LEFT(key_hash, 8))`

// mySQLTables returns the statements that make the tables of MySQL, which cannot leave rows out of an index.
//
// Each column names its character set and collation: otherwise, what SHOW CREATE TABLE prints depends on how
// often the statement was run, and Vitess compares that of one shard with that of another.
func mySQLTables() []string {
	const (
		charset   = ` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`
		options   = ` ENGINE = InnoDB DEFAULT` + charset
		create    = `CREATE TABLE IF NOT EXISTS `
		resources = ` (id VARBINARY(255) NOT NULL PRIMARY KEY,
			body LONGTEXT` + charset + ` NOT NULL)` + options
	)
	return []string{
		create + `storefront_users` + resources,
		create + `storefront_products` + resources,
		create + `storefront_widgets` + resources,
		create + `storefront_orders (
			id VARCHAR(255)` + charset + ` NOT NULL PRIMARY KEY,
			qty BIGINT NOT NULL,
			created_ms BIGINT NOT NULL,
			keyed_ms BIGINT DEFAULT (` + mySQLNow + `),
			item TEXT` + charset + ` NOT NULL,
			scope VARBINARY(255) NOT NULL,
			key_hash BINARY(32) UNIQUE,
			key_fingerprint BINARY(32),
			place BINARY(8)` + placing + `,
			fields LONGTEXT` + charset + ` NOT NULL DEFAULT ('')
		)` + options,
		create + `storefront_replays (slot INT NOT NULL PRIMARY KEY, number BIGINT NOT NULL)` + options,
		create + `storefront_schema (version BIGINT NOT NULL PRIMARY KEY, oldest BIGINT NOT NULL,
			keep_ms BIGINT, forgotten_ms BIGINT)` + options,
	}
}

// isNumbered reports whether a version begins with its number, as those of MySQL and MariaDB do: 8.0.36,
// 10.11.6-MariaDB.
func isNumbered(version string) bool { return version != "" && '0' <= version[0] && version[0] <= '9' }

// mySQLDemands are the values that settings of a session must have, and what would happen otherwise.
var mySQLDemands = []struct{ name, value, otherwise string }{
	{"autocommit", "ON", "no order would ever be committed"},
	{"completion_type", "NO_CHAIN", "what follows a COMMIT would not be committed"},
	{"unique_checks", "ON", "two orders with one key could be stored"},
	{"sql_log_bin", "ON", "no replica would get the orders"},
	{"character_set_client", "utf8mb4", "some texts would be stored as others"},
	{"character_set_connection", "utf8mb4", "some texts would be stored as others"},
	{"character_set_results", "utf8mb4", "some texts would be read as others"},
}

func detectMySQL(ctx context.Context, conn *sql.Conn, opts *Options, version string, err error) (
	engine, error) {
	if err != nil || !isNumbered(version) {
		return nil, nil
	}
	settings, err := mySQLSettings(ctx, conn)
	if err != nil {
		return nil, err
	}
	// vtgate may be told to give another version.
	if strings.Contains(version, "Vitess") || areOfVtgate(settings) {
		e := newVitess(opts.Accept != nil)
		if err := e.lookAtSettings(ctx, conn, settings); err != nil {
			return nil, err
		}
		return e, nil
	}
	e := newMySQL(version, `SELECT `)
	if e.several, err = lookAtMySQL(ctx, conn, settings); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *mySQL) look(ctx context.Context, conn *sql.Conn) error {
	settings, err := mySQLSettings(ctx, conn)
	if err != nil {
		return err
	}
	several, err := lookAtMySQL(ctx, conn, settings)
	if err == nil && several != e.several {
		err = errors.New("sqlstore: a group of MySQL servers has one primary now and had several, or the " +
			"reverse: start the program anew")
	}
	return err
}

// lookAtMySQL returns an error if the server may lose or double what it acknowledges. It reports whether it
// is one of several primaries of a group.
func lookAtMySQL(ctx context.Context, conn *sql.Conn, settings map[string]string) (several bool, err error) {
	// Galera has lost acknowledged orders when nodes crashed while others were cut off. The
	// variables do not tell whether a server is a node: wsrep_on may be ON without a provider,
	// or OFF for this session alone, and wsrep_provider may name one that is not loaded.
	status, err := namedValues(ctx, conn,
		`SHOW STATUS WHERE Variable_name IN ('wsrep_provider_name', 'Slaves_running')`)
	if err != nil {
		return false, err
	}
	if provider := status["wsrep_provider_name"]; provider != "" {
		return false, fmt.Errorf("sqlstore: this is a node of a %s cluster, which may lose orders that it "+
			"has acknowledged (MDEV-38976): the store does not use it (see docs/databases.md)", provider)
	}
	// A replica may be written to unless it is read_only, though the primary has other orders.
	source, err := sourceOf(ctx, conn, settings["version"])
	if running := status["Slaves_running"]; err == nil && source == "" && running != "" && running != "0" {
		source = "another server"
	}
	if err == nil && source != "" {
		err = sqlerror.With(sqlerror.NotPrimary, fmt.Errorf("sqlstore: this server replicates from %s, so it is "+
			"no primary: set read_only there or, if it has become the primary, STOP REPLICA and RESET REPLICA ALL",
			source))
	}
	if err != nil {
		return false, err
	}
	// In a group with several primaries, a member must wait until it has the commits of the others.
	// Otherwise, Accept could refuse an order that another member has acknowledged. With a single primary,
	// the next primary must have all that the last one acknowledged before it answers.
	if settings["group_replication_group_name"] == "" {
		return false, lookAtSplit(ctx, conn)
	}
	several = settings["group_replication_single_primary_mode"] == "OFF"
	consistency := settings["group_replication_consistency"]
	if several && consistency != "BEFORE" && consistency != "BEFORE_AND_AFTER" || consistency == "EVENTUAL" {
		return false, errors.New("sqlstore: this is a group of MySQL servers: every connection needs " +
			"group_replication_consistency = 'BEFORE' (see the package's documentation)")
	}
	return several, nil
}

// lookAtSplit returns an error if another server answers a read than a read that locks, as behind a proxy
// that splits reads from writes.
func lookAtSplit(ctx context.Context, conn *sql.Conn) error {
	const name = `SELECT CONCAT(@@hostname, ':', @@port, ', server_id ', @@server_id)`
	reads, err := nameOf(ctx, conn, name)
	if err != nil {
		return err
	}
	writes, err := nameOf(ctx, conn, name+` FOR UPDATE`)
	if err == nil && reads != writes && reads != "" && writes != "" {
		err = fmt.Errorf("sqlstore: %s answers what is read over this connection, and %s what is written: what is "+
			"between, such as ProxySQL or MaxScale, must send all to the primary", reads, writes)
	}
	return err
}

// sourceOf returns the host from which the server replicates, or is set up to, or "" if it does not, knows
// no replication, or does not tell this account.
func sourceOf(ctx context.Context, conn *sql.Conn, version string) (host string, err error) {
	queries := []string{`SHOW REPLICA STATUS`, `SHOW SLAVE STATUS`} // since MySQL 8.0.22, and before
	if strings.Contains(version, "MariaDB") {
		queries = []string{`SHOW ALL SLAVES STATUS`}
	}
	for _, query := range queries {
		err = eachRow(ctx, conn, query, func(columns, row []string) {
			named := make(map[string]string)
			for i, name := range columns {
				named[name] = row[i]
			}
			// The channels of a group are no replication of another server.
			if !strings.HasPrefix(named["Channel_Name"], "group_replication_") {
				host = cmp.Or(host, named["Source_Host"], named["Master_Host"])
			}
		})
		if err == nil || transient(err) || ctx.Err() != nil {
			return host, err
		}
	}
	return "", nil
}

// eachRow calls f with the names of the columns and each row of a statement, where NULL is "".
func eachRow(ctx context.Context, conn *sql.Conn, query string, f func(columns, row []string)) error {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values, row := make([]sql.NullString, len(columns)), make([]string, len(columns))
	dest := make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		for i := range row {
			row[i] = values[i].String
		}
		f(columns, row)
	}
	return rows.Err()
}

// mySQLSettings returns settings of the connection, or an error if one would break a promise.
func mySQLSettings(ctx context.Context, conn *sql.Conn) (map[string]string, error) {
	// The limit holds for the statements below, too, but not for one that has a LIMIT.
	var limit string
	var late int // hours that the time of the session is late
	err := conn.QueryRowContext(ctx, `SELECT @@sql_select_limit,
		TIMESTAMPDIFF(HOUR, NOW(), SYSDATE()) LIMIT 1`).Scan(&limit, &late)
	switch {
	case err != nil && (transient(err) || ctx.Err() != nil):
		return nil, err
	case late < -2 || late > 2: // not by the beginning or the end of summer time
		return nil, errors.New("sqlstore: with a timestamp that stands still, keys would have no age; " +
			"it must be DEFAULT")
	}
	settings, err := namedValues(ctx, conn, `SHOW VARIABLES WHERE Variable_name IN ('version', 'autocommit',
		'sql_mode', 'completion_type', 'unique_checks', 'sql_log_bin', 'transaction_isolation', 'tx_isolation',
		'character_set_client', 'character_set_connection', 'character_set_results',
		'group_replication_group_name', 'group_replication_single_primary_mode',
		'group_replication_consistency', 'sync_binlog', 'innodb_flush_log_at_trx_commit')
		OR Variable_name LIKE 'rpl_semi_sync_%'`)
	if err != nil {
		return nil, err
	}
	// vtgate has no limit where it says 0.
	if limit != "" && limit != "18446744073709551615" && (limit != "0" || !areOfVtgate(settings)) {
		return nil, fmt.Errorf("sqlstore: with sql_select_limit = %s, some orders would not be found; "+
			"it must be DEFAULT", limit)
	}
	for _, demand := range mySQLDemands {
		value, ok := settings[demand.name]
		if as, isNumber := map[string]string{"0": "OFF", "1": "ON"}[value]; isNumber {
			value = as
		}
		if ok && value != demand.value {
			return nil, fmt.Errorf("sqlstore: with %s = %s, %s; it must be %s",
				demand.name, value, demand.otherwise, demand.value)
		}
	}
	for mode := range strings.SplitSeq(settings["sql_mode"], ",") {
		if mode == "EMPTY_STRING_IS_NULL" || mode == "ORACLE" {
			return nil, fmt.Errorf("sqlstore: with %s in sql_mode, statements of the store would fail, or "+
				"find nothing; it must not be there", mode)
		}
	}
	if cmp.Or(settings["transaction_isolation"], settings["tx_isolation"]) == "READ-UNCOMMITTED" {
		return nil, errors.New("sqlstore: with the isolation level READ UNCOMMITTED, the store would " +
			"acknowledge orders that another session rolls back; it must be another level")
	}
	return settings, nil
}

// namedValues returns the rows of a statement of MySQL's that shows names and values.
func namedValues(ctx context.Context, conn *sql.Conn, query string) (map[string]string, error) {
	values := make(map[string]string)
	err := eachRow(ctx, conn, query, func(_, row []string) { values[row[0]] = row[1] })
	return values, err
}
