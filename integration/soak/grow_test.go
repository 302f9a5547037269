// Package soak has a test that takes as long as it is told, and run, which repeats the tests that choose at
// random.
package soak

import (
	"database/sql"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

var during = flag.Duration("for", time.Minute, "`time` for which orders are sent to storefrontd")

// TestStorefrontdDoesNotGrow sends storefrontd orders and reads at a constant rate, on the database that
// the seed chooses. In the last quarter of the time, its memory, goroutines and open files, by its own metrics, are as
// many as in the second, and every acknowledged order is there once.
func TestStorefrontdDoesNotGrow(t *testing.T) {
	long.Test(t)
	const perSecond = 200 // orders, and as many reads
	var driver, url, dsn string
	kinds := []*dbserver.Kind{nil, dbserver.Postgres, dbserver.MariaDB, dbserver.MySQL} // nil: SQLite
	switch kind := kinds[*long.Seed%uint64(len(kinds))]; kind {
	case nil:
		driver, url = "sqlite", filepath.Join(process.Folder(t), "shop.db")
		dsn = url
	case dbserver.Postgres:
		server := kind.Start(t)
		driver, url, dsn = "pgx", server.DSN(), server.DSN()
	default:
		server := kind.Start(t)
		driver, url, dsn = "mysql", dbserver.MySQLURL(t, server.DSN()), server.DSN()
	}
	f := faulttest.New(t)
	f.Orders = perSecond * max(int(during.Seconds()), 8)
	f.Start(1, url)
	replica := f.Replicas[0]
	f.BeginAdmitting()

	var sizes [4][]size // by quarter
	for second := range f.Orders / perSecond {
		next := time.After(time.Second)
		f.Admit(perSecond)
		for n := range perSecond {
			read(t, replica.URL, n)
		}
		f.WaitUntilAcknowledged(f.Admitted)
		quarter := second * 4 * perSecond / f.Orders
		sizes[quarter] = append(sizes[quarter], sizeOf(t, replica.URL))
		<-next
	}
	f.End()
	for i, what := range measures {
		median := func(of []size) float64 {
			slices.SortFunc(of, func(a, b size) int { return int(a[i] - b[i]) })
			return of[len(of)/2][i]
		}
		before, after := median(sizes[1]), median(sizes[3])
		t.Logf("%s: %.0f in the second quarter, %.0f in the last", what.name, before, after)
		if after > 1.1*before+what.slack {
			t.Errorf("%s has grown from %.0f to %.0f", what.name, before, after)
		}
	}
	f.Check(func() *sql.DB { return dbserver.Open(t, driver, dsn) })
}

// read asks for a page or, where an answer of some age is accepted, for a product.
func read(t *testing.T, url string, n int) {
	t.Helper()
	path := []string{"/v1/users", "/v2/widgets?limit=50", fmt.Sprint("/v1/products/", n)}[n%3]
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil))(t)
	r.Header.Set("Cache-Control", "max-age=1")
	w := must.Get(http.DefaultClient.Do(r))(t)
	defer w.Body.Close()
	if _, err := io.Copy(io.Discard, w.Body); err != nil || w.StatusCode != http.StatusOK && w.StatusCode != http.StatusNotFound {
		t.Errorf("GET %s: %s, %v", path, w.Status, err)
	}
}

// measures are what must not grow by more than a tenth and a slack.
var measures = [...]struct {
	name  string
	slack float64
}{
	{"process_resident_memory_bytes", 4 << 20},
	{"go_memstats_next_gc_bytes", 4 << 20}, // twice what was in use after the last collection
	{"go_goroutines", 16},
	{"process_open_fds", 16},
}

// A size has a value for each of measures.
type size [len(measures)]float64

func sizeOf(t *testing.T, url string) (s size) {
	t.Helper()
	w := must.Get(http.Get(url + "/metrics"))(t)
	defer w.Body.Close()
	text := must.Get(io.ReadAll(w.Body))(t)
	for i, what := range measures {
		found := regexp.MustCompile(`(?m)^` + what.name + ` (\S+)$`).FindSubmatch(text)
		if found == nil {
			t.Fatalf("there is no %s in\n%s", what.name, text)
		}
		s[i] = must.Get(strconv.ParseFloat(string(found[1]), 64))(t)
	}
	return s
}
