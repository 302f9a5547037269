// Package integration tests storefront with real databases, real processes and
// third-party checkers. It is a module of its own, so that the module storefront
// requires none of them.
package integration
