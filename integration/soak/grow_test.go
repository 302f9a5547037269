package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"database/sql"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/must"
	"example.com/storefront/integration/internal/process"
)

var during = flag.Duration("for", time.Minute, "`time` for which orders are sent to durable")

// TestDurableDoesNotGrow sends durable orders and reads at a constant rate, on the database that
// the seed chooses. In the last quarter of the time, its memory, goroutines and open files are as
// many as in the second, and every acknowledged order is there once.
func TestDurableDoesNotGrow(t *testing.T) {
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
	binary, addr := durableWithProfiles(t)
	f := faulttest.New(t)
	f.Orders = perSecond * max(int(during.Seconds()), 8)
	f.Use(faulttest.NewReplica(t, binary, url))
	replica := f.Replicas[0]
	replica.Start()
	replica.WaitUntilServing()
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
		sizes[quarter] = append(sizes[quarter], sizeOf(t, addr, replica.Process.Process.Pid))
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
}{{"resident memory", 4 << 20}, {"heap", 2 << 20}, {"goroutines", 16}, {"open files", 16}}

// A size has a value for each of measures.
type size [len(measures)]float64

func sizeOf(t *testing.T, profiles string, pid int) (s size) {
	t.Helper()
	for i, source := range [...]struct{ from, pattern string }{
		{fmt.Sprintf("/proc/%d/status", pid), `VmRSS:\s+(\d+) kB`},
		{profiles + "heap?debug=1&gc=1", `# HeapAlloc = (\d+)`},
		{profiles + "goroutine?debug=1", `goroutine profile: total (\d+)`},
	} {
		text, err := os.ReadFile(source.from)
		if strings.HasPrefix(source.from, "http") {
			var w *http.Response
			if w, err = http.Get(source.from); err == nil {
				text, err = io.ReadAll(w.Body)
				w.Body.Close()
			}
		}
		found := regexp.MustCompile(source.pattern).FindSubmatch(text)
		if err != nil || found == nil {
			t.Fatalf("%s has no %s: %v", source.from, source.pattern, err)
		}
		s[i] = must.Get(strconv.ParseFloat(string(found[1]), 64))(t)
	}
	s[0] *= 1024
	files := must.Get(os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)))(t)
	s[3] = float64(len(files))
	return s
}

// durableWithProfiles builds durable so that it also serves its profiles.
func durableWithProfiles(t *testing.T) (binary, url string) {
	t.Helper()
	dir := process.Folder(t)
	place := must.Get(filepath.Abs("../../durable/profiles.go"))(t)
	addr := "127.0.0.1:" + strconv.Itoa(process.FreePort())
	source, overlay, binary := filepath.Join(dir, "profiles.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "durable")
	list := must.Get(json.Marshal(map[string]any{"Replace": map[string]string{place: source}}))(t)
	text := "package main\n\nimport (\n\t\"net/http\"\n\t_ \"net/http/pprof\"\n)\n\nfunc init() { go http.ListenAndServe(\"" + addr + "\", nil) }\n"
	for name, text := range map[string][]byte{source: []byte(text), overlay: list} {
		must.OK(t, os.WriteFile(name, text, 0o600))
	}
	must.OK(t, process.GoBuild(binary, "durable", "-overlay", overlay))
	return binary, "http://" + addr + "/debug/pprof/"
}
