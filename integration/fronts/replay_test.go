package fronts

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"example.com/storefront/internal/exchanges"
	"example.com/storefront/internal/must"
)

// A replay brings the requests that arrive behind a front into the bubble of a test. Its
// channels are made outside, so that who waits for them does not let the bubble's time pass.
type replay struct{ arrivals chan arrival }

type arrival struct {
	w    http.ResponseWriter
	r    *http.Request
	done chan<- struct{}
}

func (p *replay) pass(w http.ResponseWriter, r *http.Request) {
	done := make(chan struct{})
	p.arrivals <- arrival{w, r, done}
	<-done
}

// through returns a handler that answers as h does behind the front. In place of headers that
// are the front's own, the answer has those of h.
func (p *replay) through(f *front, h http.Handler, own []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answered, served := make(chan struct{}), make(chan struct{})
		var sent http.Header // by h
		go func() {
			defer close(served)
			for {
				select {
				case a := <-p.arrivals:
					h.ServeHTTP(a.w, a.r.WithContext(context.Background())) // the request's own is of the outside
					sent = a.w.Header().Clone()
					close(a.done)
				case <-answered:
					return
				}
			}
		}()
		wait := sync.OnceFunc(func() {
			close(answered)
			<-served
		})
		defer wait()
		conn, err := f.dial()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer conn.Close()
		conn.Write(written(r))
		res, err := http.ReadResponse(bufio.NewReader(conn), r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		body, _ := io.ReadAll(res.Body)
		wait()
		for _, name := range own {
			if values, ok := sent[name]; ok {
				res.Header[name] = values
			} else if sent != nil {
				delete(res.Header, name)
			}
		}
		maps.Copy(w.Header(), res.Header)
		w.WriteHeader(res.StatusCode)
		w.Write(body)
	})
}

// written returns r as it is on the wire.
func written(r *http.Request) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.RequestURI, r.Host)
	r.Header.WriteSubset(&b, map[string]bool{"Content-Length": true})
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.TransferEncoding != nil:
		fmt.Fprintf(&b, "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	case r.ContentLength > 0:
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", r.ContentLength, body)
	default:
		b.WriteString("\r\n")
	}
	return b.Bytes()
}

// A carriage is what a front does to the recorded exchanges.
type carriage struct {
	own    []string // the headers of answers that it changes
	broken []string // the exchanges that do not arrive as they are recorded
}

// testContract replays the recorded exchanges through the front.
func testContract(t *testing.T, f *front, c carriage) {
	files := must.Get(exchanges.Files("../../testdata/contract"))(t)
	p := &replay{make(chan arrival)}
	f.replay.Store(p)
	defer f.replay.Store(nil)
	endless := []string{"order-cut-off", "order-timeout", "order-too-large"} // their bodies do not come to an end
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if slices.Contains(endless, name) {
			continue
		}
		var fault error
		synctest.Test(t, func(t *testing.T) {
			fault = exchanges.Check(file, new(exchanges.MemStore), func(h http.Handler) http.Handler { return p.through(f, h, c.own) })
		})
		switch broken := slices.Contains(c.broken, name); {
		case broken && fault == nil:
			t.Errorf("%s is as recorded, and was not expected to be", name)
		case !broken && fault != nil:
			t.Errorf("%s: %v", name, fault)
		}
	}
}
