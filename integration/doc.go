// Package integration is empty. Its folders test storefront with real databases, real
// processes and third-party checkers, in a module of their own, so that the module
// storefront requires none of these:
//
//	engines     sqlstore on each database
//	commits     orders that share a commit, and what Accept and others do in it
//	tables      the tables of sqlstore: migration, indexes, schemas, settings
//	examples    the examples of shopdb
//	faults      processes and networks that fail under orders
//	releases    what each release has promised, and replicas of several on one database
//	clusters    PostgreSQL pairs and MySQL groups, whole and in pieces
//	wire        the contract of the service, as kin-openapi reads it
//	clients     the clients in folder sdk
//	fronts      proxies before the service
//	browser     the explorer
//	docs        README.md and docs: their commands, code, links and configurations
//	bench       benchmarks, whose tables are in docs/scale.md
//	internal    what several of them share
//
// soak/run repeats what chooses at random for as long as it is told.
package integration
