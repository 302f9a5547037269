// Package vitess tries the store on clusters of Vitess, whose keyspace is one shard or several. It is a
// module of its own, so that no other module's versions depend on it. In this folder:
//
//	./fetch                          # once: builds Vitess and etcd, in about ten minutes
//	GOWORK=off go test -timeout 0 .  # STOREFRONT_LONG=1 for more orders and shards
package vitess
