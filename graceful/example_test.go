package graceful_test

import (
	"context"
	"crypto/tls"
	"log"
	"net"
	"net/http"

	"example.com/storefront"
	"example.com/storefront/graceful"
)

// A certificate in the server's TLSConfig is all that HTTPS and HTTP/2 need.
func ExampleServe_tls() {
	ctx, stop := graceful.NotifyContext(context.Background())
	defer stop()
	server := &http.Server{
		Handler: storefront.New(new(storefront.MemStore)),
		TLSConfig: &tls.Config{
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair("cert.pem", "key.pem") // anew for each connection
				return &pair, err
			},
		},
	}
	listener, err := net.Listen("tcp", ":https")
	if err != nil {
		log.Fatal(err)
	}
	if err := graceful.Serve(ctx, server, listener, nil); err != nil {
		log.Fatal(err)
	}
}
