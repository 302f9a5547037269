package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/storefront/internal/commandtest"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb/sqlite"
	"example.com/storefront/sqlstore"
)

func TestMain(m *testing.M) { commandtest.Main(main, m.Run) }

func newFile(t *testing.T) (name string) { return filepath.Join(t.TempDir(), "shop.db") }

const draft = `{"item":"teapot","qty":2}`

// order creates an order, or has it replayed, and returns the response's body.
func order(t *testing.T, p *commandtest.Running, key, draft string, wantReplay bool) (body string) {
	t.Helper()
	status, body, header := p.Order(t, key, draft)
	if replayed := header.Get("Idempotent-Replayed") == "true"; status != 201 || replayed != wantReplay {
		t.Fatalf("order: %d %s, replayed is %t, want 201 and %t", status, body, replayed, wantReplay)
	}
	return body
}

// Though it was in flight when the signal came.
func TestOrderSurvives(t *testing.T) {
	const withFields = `{"item":"teapot","qty":2,"fields":{"note":"2.0","n":2.0}}`
	for _, crash := range []bool{true, false} {
		db := newFile(t)
		p := commandtest.Start(t, "-db", db, "-fields")
		other := order(t, p, "other", withFields, false)
		sending := p.BeginOrder(t)
		var body string
		if crash {
			body = sending.Finish(t)
			p.Process.Kill()
			p.Wait()
		} else {
			p.Signal(t, syscall.SIGTERM, "in flight")
			body = sending.Finish(t)
			p.WantEnd(t)
		}
		p = commandtest.Start(t, "-db", db, "-fields")
		again, otherAgain := order(t, p, "k", draft, true), order(t, p, "other", withFields, true)
		if again != body || otherAgain != other || !strings.Contains(other, `"n":2.0`) {
			t.Errorf("after a restart, the orders are\n%s%swant\n%s%s", again, otherAgain, body, other)
		}
		p.End(t)
	}
}

// The runs are on one database. A file adds and replaces, and a sample is for an empty shop.
func TestShop(t *testing.T) {
	const (
		sample = `{"data":[{"id":"ada","name":"Ada","since":2024},` +
			`{"id":"grace","name":"Grace","since":2025},` +
			`{"id":"linus","name":"Linus","since":2026}],"has_more":false}`
		both = `{"data":[{"id":"ada"},{"id":"zoë","tags":["a",{"b":null}],"<&>":1.50}],"has_more":false}`
	)
	sampled := commandtest.Start(t, "-sample")
	sampled.WantAt(t, "/v1/users", 200, sample)
	sampled.End(t)
	db := newFile(t)
	for _, run := range []struct{ data, users string }{ // -sample, if there are no data
		{`{"users": [{"id": "zoë", "n": 2}]}`, `{"data":[{"id":"zoë","n":2}],"has_more":false}`},
		{`{"users": [{"id": "ada"}, {"id": "zoë", "tags": ["a", {"b": null}], "<&>": 1.50}]}`, both},
		{"", both},
	} {
		args := []string{"-db", db, "-sample"}
		if run.data != "" {
			args = []string{"-db", db, "-data", commandtest.DataFile(t, run.data)}
		}
		p := commandtest.Start(t, args...)
		p.WantAt(t, "/v1/users", 200, run.users)
		p.End(t)
	}
}

// A shop that must exist says where its orders are.
func TestShopThatMustExist(t *testing.T) {
	db := newFile(t)
	made := must.Get(sqlite.Open(db, nil))(t)
	must.OK(t, errors.Join(sqlstore.New(made.DB, nil).Migrate(t.Context()), made.Close()))
	p := commandtest.Start(t, "-must-exist", "-db", db)
	if text := strings.Join(p.Printed, "\n"); !strings.Contains(text, "kept in "+db) {
		t.Errorf("it prints %s, without the place %s", text, db)
	}
	order(t, p, "k", draft, false)
	p.End(t)
}

func TestWhatIsServedBesideTheService(t *testing.T) {
	p := commandtest.Start(t)
	order(t, p, "k", draft, false)
	for _, row := range []struct {
		path   string
		status int
		text   string
	}{
		{"/", 200, "<!doctype html>"},
		{"//", 404, `"status":404`},
		{"/%6detrics", 404, `"status":404`},
		{"/metrics", 200, `storefront_create_order_calls_total{outcome="created"} 1` + "\n"},
		{"/metrics", 200, `storefront_requests_total{code="201",method="post",route="POST /v1/orders"} 1` + "\n"},
		{"/metrics", 200, `storefront_go_sql_max_open_connections{db_name="shop"} 4` + "\n"},
	} {
		p.WantAt(t, row.path, row.status, row.text)
	}
	if _, err := os.Stat(filepath.Join(p.Dir, "storefront.db")); err != nil {
		t.Errorf("the default database: %v", err)
	}
	p.End(t)
}

func TestMetricsHaveAnAddressOfTheirOwn(t *testing.T) {
	p := commandtest.Start(t, "-metrics-addr", "localhost:0")
	p.WantAt(t, "/metrics", 404, "")
	own := ""
	for own == "" && p.Out.Scan() {
		own = regexp.MustCompile(`http://[^/]*/metrics`).FindString(p.Out.Text())
	}
	p.Base = ""
	p.WantAt(t, own, 200, "storefront_calls{")
	p.End(t)
}

func TestReplicasStartAtOnceOnANewFile(t *testing.T) {
	db := newFile(t)
	var replicas [3]*commandtest.Running
	for i := range replicas {
		replicas[i] = commandtest.Begin(t, "-db", db)
	}
	body := ""
	for i, p := range replicas {
		p.WaitUntilItServes(t)
		if got := order(t, p, "k", draft, i > 0); i == 0 {
			body = got
		} else if got != body {
			t.Errorf("another replica has the order %s, want %s", got, body)
		}
	}
	for _, p := range replicas {
		p.End(t)
	}
}

func TestOldKeysAreForgotten(t *testing.T) {
	name := newFile(t)
	db := must.Get(sqlite.Open(name, nil))(t)
	defer db.Close()
	must.OK(t, sqlstore.New(db.DB, nil).Migrate(t.Context()))
	for id, age := range map[string]time.Duration{
		"old": 26 * time.Hour, "young": 24*time.Hour + 30*time.Minute,
	} {
		_, err := db.ExecContext(t.Context(), `INSERT INTO storefront_orders
			(id, item, qty, created_ms, scope, key_hash, key_fingerprint, keyed_ms)
			VALUES ($1, 'teapot', 1, 0, '', CAST($1 AS BLOB), '', $2)`, id, time.Now().Add(-age).UnixMilli())
		must.OK(t, err)
	}
	p := commandtest.Start(t, "-db", name)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for remembered := ""; remembered != "young"; time.Sleep(10 * time.Millisecond) {
		const query = `SELECT group_concat(id) FROM storefront_orders WHERE key_hash IS NOT NULL`
		err := db.QueryRowContext(ctx, query).Scan(&remembered)
		if err != nil {
			t.Fatalf("the keys of %s are remembered, want young: %v", remembered, err)
		}
	}
	p.End(t)
}

func TestRefusalToStart(t *testing.T) {
	t.Parallel()
	taken := must.Get(net.Listen("tcp", "localhost:0"))(t)
	t.Cleanup(func() { taken.Close() }) // after the parallel subtests
	missing := filepath.Join(t.TempDir(), "missing", "shop.db")
	noTables := newFile(t)
	must.OK(t, must.Get(sqlite.Open(noTables, nil))(t).Close())
	for _, row := range []struct {
		name   string
		args   []string
		status int
		says   []string
	}{
		{"bad data", []string{"-data", commandtest.DataFile(t, `{"users": [{"id": 7}]}`)}, 2,
			[]string{"shop.json", "users[0]", `"id" is not a string`}},
		{"unexpected argument", []string{"postgres://shop:secret@localhost/shop"}, 2,
			[]string{"unexpected argument", "-db"}},
		{"another database", []string{"-db", "oracle://shop:secret@localhost/shop"}, 2,
			[]string{"-db", "oracle", "postgres", "mysql"}},
		{"no such folder", []string{"-db", missing}, 2, []string{"-db", missing, "unable to open"}},
		{"address in use", []string{"-addr", taken.Addr().String()}, 1,
			[]string{"a new database is made", "storefront.db", "made the tables", "in use"}},
		{"no file", []string{"-must-exist"}, 2, []string{"-db", "/storefront.db is not there", "must exist"}},
		{"no tables", []string{"-must-exist", "-db", noTables}, 1, []string{"-must-exist", "tables are not there"}},
		{"no server", []string{"-db", "postgres://shop:secret@127.0.0.1:1/shop?sslmode=disable"}, 1,
			[]string{"waiting for the database", "is not ready", "127.0.0.1:1", "refused"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			// What would be served is served on a port of its own: the last of a flag counts.
			cmd := commandtest.Command(t, append([]string{"-addr", "localhost:0"}, row.args...)...)
			message := commandtest.WantRefusal(t, cmd, row.status, row.says...)
			if strings.Contains(message, "secret") {
				t.Errorf("the message has the password: %s", message)
			}
		})
	}
}

// waitForReadyz returns once /readyz is answered with a status. An answer may be a
// second old, and on a busy machine, a check may take too long.
func waitForReadyz(t *testing.T, p *commandtest.Running, status int) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got, body := commandtest.Get(t, p.Base+"/readyz")
		if got == status {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("/readyz: %d %s, want %d", got, body, status)
		}
	}
}

// Without its tables, the database takes no orders. In the end, a balancer that asks while the delay lasts
// learns that the process ends before it is refused a request.
func TestReadyzAsksTheDatabase(t *testing.T) {
	name := newFile(t)
	p := commandtest.Start(t, "-db", name, "-shutdown-delay", "1h")
	waitForReadyz(t, p, 200)
	db := must.Get(sqlite.Open(name, nil))(t)
	defer db.Close()
	for _, step := range []struct {
		statement string
		want      int
	}{
		{`ALTER TABLE storefront_schema RENAME TO hidden`, 503},
		{`ALTER TABLE hidden RENAME TO storefront_schema`, 200},
	} {
		_, err := db.ExecContext(t.Context(), step.statement)
		// The process forgets old keys at its start.
		for err != nil && strings.Contains(err.Error(), "SQLITE_BUSY") {
			_, err = db.ExecContext(t.Context(), step.statement)
		}
		must.OK(t, err)
		waitForReadyz(t, p, step.want)
		p.WantAt(t, "/livez", 200, "ok\n")
	}
	p.Signal(t, syscall.SIGTERM, "for=1h0m0s")
	http.DefaultClient.CloseIdleConnections() // it takes new connections, too
	p.WantAt(t, "/readyz", 503, "not ready: it is about to end\n")
	p.WantAt(t, "/livez", 200, "ok\n")
	order(t, p, "k", draft, false)
	p.Process.Kill()
}
