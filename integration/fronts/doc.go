// Package fronts tests the service behind nginx, Varnish, HAProxy, Apache, lighttpd and Caddy,
// and behind FastCGI and CGI, with the configurations in docs/deploy.
package fronts
