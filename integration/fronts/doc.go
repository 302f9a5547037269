// Package fronts tests the service behind nginx, Varnish, HAProxy, Apache, lighttpd and Caddy, with the
// configurations in docs/deploy.
package fronts
