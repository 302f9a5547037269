package fronts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/graceful"
	"example.com/storefront/internal/must"
)

// A replica is one of several servers of a store.
type replica struct {
	address string
	handler http.Handler
	served  atomic.Int64 // orders
	server  *http.Server
	end     context.CancelFunc
	ended   chan error
}

func (r *replica) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method == http.MethodPost {
		r.served.Add(1)
	}
	r.handler.ServeHTTP(w, req)
}

func (r *replica) start(t *testing.T, delay time.Duration) {
	var listener net.Listener
	wait(t, "the address of a replica", func() bool {
		// A program that another test has begun to start holds all sockets of this process for a moment.
		var err error
		if listener, err = net.Listen("tcp", r.address); !errors.Is(err, syscall.EADDRINUSE) {
			must.OK(t, err)
		}
		return err == nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	r.server, r.end, r.ended = &http.Server{Handler: r}, cancel, make(chan error, 1)
	opts := &graceful.Options{
		Check: func(context.Context) error { return nil }, Delay: delay, Logger: slog.New(slog.DiscardHandler)}
	go func() { r.ended <- graceful.Serve(ctx, r.server, listener, opts) }()
}

// stop ends the replica, or breaks off what it does, as kill -9.
func (r *replica) stop(t *testing.T, kill bool) {
	if kill {
		r.server.Close()
	}
	r.end()
	if err := <-r.ended; err != nil && !kill {
		t.Error(err)
	}
}

// Settings in comments are for several replicas. Other comments begin with a space.
var forReplicas = regexp.MustCompile(`(?m)^(\s*)#(\S)`)

// Two replicas are replaced or killed, one once the other is used again, while clients order: each gets its order at the
// first try.
func TestReplicasAreReplaced(t *testing.T) {
	t.Parallel()
	const byProbes = 10 * time.Second // the default of storefrontd
	for _, row := range []struct {
		config string
		start  func(t *testing.T, config string) *front
		delay  time.Duration
		rounds int
		kill   bool
	}{
		{"nginx.conf", startNginx, 0, 5, false},
		{"nginx-cache.conf", startNginx, 0, 5, true},
		{"haproxy.cfg", startHAProxy, byProbes, 1, false},
		{"haproxy.cfg", startHAProxy, 0, 3, true},
		{"apache.conf", startApache, byProbes, 1, false},
		{"varnish.vcl", startVarnish, byProbes, 1, false},
		{"Caddyfile", startCaddy, byProbes, 1, false},
	} {
		t.Run(fmt.Sprint(row.config, row.delay), func(t *testing.T) {
			t.Parallel()
			store, host := new(storefront.MemStore), ownHost()
			replicas := []*replica{{address: host + ":8080"}, {address: host + ":8081"}}
			config := forReplicas.ReplaceAllString(documented(t, row.config), "$1$2")
			for _, r := range replicas {
				r.handler = storefront.New(store)
				r.start(t, row.delay)
			}
			f := row.start(t, strings.ReplaceAll(config, "127.0.0.1", host))

			pause := 5*time.Millisecond + row.delay/400 // the longer it takes, the fewer orders show it
			stopped := make(chan struct{})
			var clients sync.WaitGroup
			for c := range 4 {
				clients.Go(func() {
					s := &shop{front: f, host: "shop.example"}
					for n := 0; ; n++ {
						select {
						case <-stopped:
							return
						case <-time.After(pause):
						}
						if a := s.order(t, fmt.Sprint(c, "-", n)); a.status != http.StatusCreated {
							t.Errorf("an order is answered with %d %.100s", a.status, a.body)
						}
					}
				})
			}
			isUsed := func(r *replica) {
				before := r.served.Load()
				wait(t, "orders of a replica", func() bool { return r.served.Load() > before+10 })
			}
			isUsed(replicas[1])
			for i := range 2 * row.rounds {
				r := replicas[i%2]
				r.stop(t, row.kill)
				r.start(t, row.delay)
				isUsed(r)
			}
			close(stopped)
			clients.Wait()
			for _, r := range replicas {
				r.stop(t, true)
			}
		})
	}
}
