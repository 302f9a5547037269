// Package sqlstore keeps a storefront in PostgreSQL or SQLite.
package sqlstore
