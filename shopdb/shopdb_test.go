package shopdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"example.com/storefront"
	"example.com/storefront/shopdb/internal/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeServer is a driver.Connector to a server that answers, or not.
type fakeServer bool

func (answers fakeServer) Connect(context.Context) (driver.Conn, error) {
	if !answers {
		return nil, errors.New("refused")
	}
	return fakeConn{}, nil
}

func (fakeServer) Driver() driver.Driver { return nil }

// A fakeConn is a connection that can be closed.
type fakeConn struct{ driver.Conn }

func (fakeConn) Close() error { return nil }

func TestWaitFor(t *testing.T) {
	away := fmt.Errorf("migrate: %w", storefront.ErrUnavailable)
	mistake := errors.New("permission denied")
	wrong := fmt.Errorf("%w: %w", storefront.ErrUnavailable, servers.Lasting(errors.New("access denied")))
	for _, row := range []struct {
		name     string
		answers  bool
		results  []error // of prepare; the last one is repeated
		want     error
		says     string // the error
		attempts int
		waits    bool // so the log says
	}{
		{"at once", true, []error{nil}, nil, "", 1, false},
		{"the third time", false, []error{away, away, nil}, nil, "", 3, true},
		{"a server that takes no orders yet", true, []error{away, away, nil}, nil, "", 3, true},
		{"a mistake", true, []error{mistake}, mistake, "denied", 1, false},
		{"a mistake, after a while", false, []error{away, mistake}, mistake, "denied", 2, true},
		{"a wrong password", true, []error{wrong}, storefront.ErrUnavailable, "access denied", 1, false},
		{"never", false, []error{away}, storefront.ErrUnavailable, "is not ready", 0, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := new(strings.Builder)
				db := New(sql.OpenDB(fakeServer(row.answers)), &Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
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
