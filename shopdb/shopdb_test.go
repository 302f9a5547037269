package shopdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"example.com/storefront"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBadName(t *testing.T) {
	t.Chdir(t.TempDir()) // where a file of a name that is taken is made
	for _, row := range []struct{ name, says string }{
		{"", "no database"},
		{"oracle://shop:secret@localhost/shop", "oracle is neither postgres nor mysql"},
		{"postgres:shop:secret@localhost/shop", "postgres://"},
		{"user=shop password=secret host=localhost", "postgres://"},
		{"mysql:shop:secret@localhost/shop", "mysql://"},
		{"shop:secret@tcp(localhost)/shop", "mysql://"},
		{"user=shop password=secret dbname=shop", "postgres://"},
		// There could be a file of each of these names, and nobody would look for orders in it.
		{"shop:secret@unix(/run/mysqld.sock)/shop", "plain name"},
		{":memory:", "./:memory:"},
		{":MEMORY:?cache=shared", "memory"},
		{"file:shop.db", "./file:"},
		{"file::memory:?cache=shared", "./file:"},
		{"SQLite3:shop.db", "./SQLite3:"},
		{"jdbc:sqlite:shop.db", "plain name"},
		{"shop.db?mode=ro", "parameters"},
		{"./shop.db?_pragma=journal_mode(WAL)", "parameters"},
		{"~/shop.db", "~"},
		{"~", "~"},
		{"shop.db/", "folder"},
		{"shop.db\n", "white space"},
		{" ", "white space"},
	} {
		wantRefused(t, row.name, row.says)
	}
}

// wantRefused checks that Open says why it refuses a name, without the parts of a password.
func wantRefused(t *testing.T, name, says string) {
	t.Helper()
	db, err := Open(name, nil)
	if err == nil {
		db.Close()
	}
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want an error that says %s", name, err, says)
	} else if strings.Contains(err.Error(), "sec") || strings.Contains(err.Error(), "ret") {
		t.Errorf("%s: the message has a part of the password: %v", name, err)
	}
}

// A program that needs one database does not compile the drivers of the others.
func TestDatabasesCanBeLeftOut(t *testing.T) {
	drivers := map[string]string{
		"nosqlite":   "modernc.org/sqlite",
		"nopostgres": "github.com/jackc/pgx/v5",
		"nomysql":    "github.com/go-sql-driver/mysql",
	}
	for _, tags := range []string{
		"nosqlite", "nopostgres", "nomysql", "nosqlite,nopostgres", "nosqlite,nomysql",
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", tags, ".").CombinedOutput()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, out)
		}
		for tag, driver := range drivers {
			left := !strings.Contains(string(out), driver+"\n")
			if want := strings.Contains(tags, tag); left != want {
				t.Errorf("with the tags %s, %s is left out: %t, want %t", tags, driver, left, want)
			}
		}
		if !strings.Contains(tags, "nosqlite") {
			continue // it would be compiled without the race detector, too
		}
		out, err = exec.CommandContext(t.Context(), "go", "build", "-tags", tags, ".").CombinedOutput()
		if err != nil {
			t.Errorf("go build: %v\n%s", err, out)
		}
	}
}

// fakeDB returns a database of one server.
func fakeDB(f *fakeServer) (*DB, *strings.Builder) {
	log := new(strings.Builder)
	db := &DB{DB: sql.OpenDB(newServers(nil, f.connect)), logger: slog.New(slog.NewTextHandler(log, nil))}
	db.ctx, db.cancel = context.WithCancel(context.Background())
	return db, log
}

func TestPrepare(t *testing.T) {
	away := fmt.Errorf("migrate: %w", storefront.ErrUnavailable)
	mistake := errors.New("permission denied")
	wrong := fmt.Errorf("%w: %w", storefront.ErrUnavailable, lastingError{errors.New("access denied")})
	for _, row := range []struct {
		name     string
		server   state
		results  []error // of prepare; the last one is repeated
		want     error
		says     string // the error
		attempts int
		waits    bool // so the log says
	}{
		{"at once", up, []error{nil}, nil, "", 1, false},
		{"the third time", down, []error{away, away, nil}, nil, "", 3, true},
		{"a server that takes no orders yet", up, []error{away, away, nil}, nil, "", 3, true},
		{"a mistake", up, []error{mistake}, mistake, "denied", 1, false},
		{"a mistake, after a while", down, []error{away, mistake}, mistake, "denied", 2, true},
		{"a wrong password", up, []error{wrong}, storefront.ErrUnavailable, "access denied", 1, false},
		{"never", down, []error{away}, storefront.ErrUnavailable, "is not ready", 0, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, log := fakeDB(&fakeServer{name: "a", state: row.server})
				defer db.Close()
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				attempts := 0
				err := db.WaitFor(ctx, func(context.Context) error {
					attempts++
					return row.results[min(attempts, len(row.results))-1]
				})
				if !errors.Is(err, row.want) || err != nil && !strings.Contains(err.Error(), row.says) {
					t.Errorf("%v, want %v", err, row.want)
				}
				if attempts != row.attempts && row.attempts > 0 {
					t.Errorf("it was tried %d times, want %d", attempts, row.attempts)
				}
				lines := strings.Count(log.String(), "waiting for the database")
				if lines > 0 != row.waits || lines > 1 {
					t.Errorf("the log is %q", log)
				}
			})
		})
	}
}

// What waits for a server that hangs ends with the pool.
func TestCloseEndsTheSearchForAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, _ := fakeDB(&fakeServer{name: "a", state: hangs})
		failed := make(chan error)
		go func() { failed <- db.PingContext(context.Background()) }()
		synctest.Wait()
		began := time.Now()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if err := <-failed; err == nil {
			t.Error("the call has a connection")
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		if _, err := db.Conn(t.Context()); err == nil {
			t.Error("a closed pool has a connection")
		}
		db.Close() // again
	})
}

// A program that uses a DB as the *sql.DB that it embeds gets what that has.
func TestMethodsOfSQLAreThoseOfSQL(t *testing.T) {
	own, embedded := reflect.TypeFor[*DB](), reflect.TypeFor[*sql.DB]()
	for method := range embedded.Methods() {
		m, ok := own.MethodByName(method.Name)
		got, want := fmt.Sprint(m.Type), fmt.Sprint(method.Type)
		if !ok || strings.Replace(got, own.String(), embedded.String(), 1) != want {
			t.Errorf("DB.%s is %s, and that of sql.DB is %s", method.Name, got, want)
		}
	}
}
