// Package integration tests storefront with real databases, real processes and
// third-party checkers. It is a module of its own, so that the module storefront
// requires none of them.
//
// The drivers are chosen for programs like durable. pgx is the one
// for PostgreSQL that is developed further, and it notices at once when a context
// is done. go-sql-driver/mysql, for MySQL and MariaDB, does so, too, except in Commit
// and Rollback. For SQLite, modernc.org/sqlite needs no C compiler and builds from an
// empty cache in 12 s, where mattn/go-sqlite3 needs cgo and 24 s; it takes 4.7
// instead of 3.6 µs for a row by its ID, 18 instead of 16 µs for a page of 50, and
// 249 instead of 222 µs for a durable insert, which matters little behind HTTP.
package integration
