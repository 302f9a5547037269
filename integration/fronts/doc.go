// Package fronts tests the service behind nginx, Varnish and HAProxy, with the
// configurations in docs/operations.md.
package fronts
