package graceful_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"example.com/storefront"
	"example.com/storefront/graceful"
)

// A certificate in the server's TLSConfig is all that HTTPS and HTTP/2 need.
func ExampleServe_tls() {
	certFile, keyFile, client := newCertificate() // in a program, those of a name, which are renewed
	defer os.RemoveAll(filepath.Dir(certFile))
	server := &http.Server{
		Handler: storefront.New(new(storefront.MemStore)),
		TLSConfig: &tls.Config{
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(certFile, keyFile) // anew for each connection
				return &pair, err
			},
		},
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	served := make(chan error)
	go func() {
		served <- graceful.Serve(ctx, server, listener, &graceful.Options{Logger: slog.New(slog.DiscardHandler)})
	}()

	response, err := client.Get("https://" + listener.Addr().String() + "/v1/users")
	if err != nil {
		log.Fatal(err)
	}
	response.Body.Close()
	fmt.Println(response.Proto, response.Status)
	client.CloseIdleConnections()
	end()
	fmt.Println(<-served)
	// Output:
	// HTTP/2.0 200 OK
	// <nil>
}

// newCertificate returns files with a certificate and its key, and a client that trusts it.
func newCertificate() (certFile, keyFile string, client *http.Client) {
	borrowed := httptest.NewUnstartedServer(nil)
	borrowed.EnableHTTP2 = true
	borrowed.StartTLS()
	defer borrowed.Close()
	pair := borrowed.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			log.Fatal(err)
		}
		return file
	}
	certFile = write("cert.pem", "CERTIFICATE", pair.Certificate[0])
	return certFile, write("key.pem", "PRIVATE KEY", key), borrowed.Client()
}
