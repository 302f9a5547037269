// Package fronts tests the service behind nginx, Varnish, HAProxy, Apache, lighttpd and Caddy,
// with the configurations in docs/operations.md, and behind FastCGI and CGI, with those in
// docs/embedding.md.
package fronts
