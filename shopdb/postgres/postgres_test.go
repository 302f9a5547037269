package postgres

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/goleak"

	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb/internal/opentest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakePostgres is a PostgreSQL server that knows a few queries: what it answers, or
// the SQLSTATE that it fails with. It never answers those that are "hang". It asks for a password, which is the
// answer to whatPassword.
type fakePostgres map[string]string

const (
	showReadOnly = "SHOW transaction_read_only"
	recovery     = "SELECT pg_is_in_recovery()"
	message      = "SELECT pg_logical_emit_message(true, 'storefront', '')"
	whoAreYou    = "SELECT server"
	whatPassword = "SELECT password"
)

// start returns the server's address. It serves until the test ends.
func (f fakePostgres) start(t *testing.T) (addr string) {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(c)
		}
	}()
	return l.Addr().String()
}

func (f fakePostgres) serve(c net.Conn) {
	defer c.Close()
	b := pgproto3.NewBackend(c, c)
	start, _ := b.ReceiveStartupMessage()
	if _, ok := start.(*pgproto3.StartupMessage); !ok { // such as a request to cancel
		return
	}
	b.Send(&pgproto3.AuthenticationCleartextPassword{})
	b.SetAuthType(pgproto3.AuthTypeCleartextPassword)
	b.Flush()
	given, _ := b.Receive()
	password, ok := given.(*pgproto3.PasswordMessage)
	if !ok {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	b.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	b.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte("1234")})
	for {
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		b.Flush()
		m, _ := b.Receive()
		q, ok := m.(*pgproto3.Query)
		if !ok {
			return
		}
		query := q.String
		if query == strings.ToLower(recovery) { // as pgx has it
			query = recovery
		}
		answer, ok := f[query]
		if query == whatPassword {
			answer, ok = password.Password, true
		}
		switch {
		case answer == "hang":
			b.Receive()
			return
		case !ok:
			b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "42601", Message: "unknown: " + query})
		case len(answer) == 5 && strings.Trim(answer, "0123456789") == "":
			b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: answer, Message: "failed"})
		default:
			text := pgproto3.FieldDescription{Name: []byte("v"), DataTypeOID: 25, DataTypeSize: -1}
			b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{text}})
			b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(answer)}})
			b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		}
	}
}

func TestPostgresServerIsChosenByWhatItCanDo(t *testing.T) {
	primary := fakePostgres{showReadOnly: "off", message: "0/1", whoAreYou: "primary"}
	standby := fakePostgres{showReadOnly: "on", recovery: "t", whoAreYou: "standby"}
	// writable is a server that says that it can be written to, but answers the message so.
	writable := func(name, answer string) fakePostgres {
		return fakePostgres{showReadOnly: "off", message: answer, whoAreYou: name}
	}
	for _, row := range []struct {
		name   string
		first  fakePostgres
		second fakePostgres // if it is nil, there is none
		params string
		want   string // the server, or what the error says
	}{
		{"the primary", primary, standby, "", "primary"},
		{"not a standby", standby, primary, "", "primary"},
		{"not the one that cannot commit", writable("old", "hang"), primary, "", "primary"},
		{"nor the one that fails to", writable("full", "53100"), primary, "", "primary"},
		{"the one that cannot commit, if there is no other", writable("old", "hang"), standby, "", "old"},
		{"one that does not know the message", writable("cockroach", "42883"), primary, "", "cockroach"},
		{"one server need not commit", writable("alone", "hang"), nil, "", "alone"},
		{"one server must not be a standby", standby, nil, "", "it is a standby"},
		{"the primary is asked for", standby, primary, "&target_session_attrs=primary", "primary"},
		{"any is asked for", standby, primary, "&target_session_attrs=any", "standby"},
		{"any is asked for last, as pgx reads it", standby, primary,
			"&application_name=a;b&target_session_attrs=primary&target_session_attrs=any", "standby"},
		{"a standby is asked for", primary, standby, "&target_session_attrs=standby", "standby"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			hosts := row.first.start(t)
			if row.second != nil {
				hosts += "," + row.second.start(t)
			}
			const query = "/shop?sslmode=disable&default_query_exec_mode=simple_protocol"
			db := must.Get(Open("postgres://shop@"+hosts+query+row.params, nil))(t)
			defer db.Close()
			var got string
			if err := db.QueryRowContext(t.Context(), whoAreYou).Scan(&got); err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, row.want) {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

func TestPostgresPasswordIsReadAnew(t *testing.T) {
	server := fakePostgres{showReadOnly: "off", message: "0/1"}.start(t)
	file := filepath.Join(t.TempDir(), "pgpass")
	t.Setenv("PGPASSFILE", file)
	for _, attrs := range []string{"primary", "any"} {
		must.OK(t, os.WriteFile(file, []byte("*:*:*:*:first\n"), 0o600))
		db := must.Get(Open("postgres://shop@"+server+"/shop?sslmode=disable"+
			"&default_query_exec_mode=simple_protocol&target_session_attrs="+attrs, nil))(t)
		defer db.Close()
		db.SetMaxIdleConns(-1) // each query has a connection of its own
		for _, want := range []string{"first", "second"} {
			must.OK(t, os.WriteFile(file, []byte("*:*:*:*:"+want+"\n"), 0o600))
			var got string
			if err := db.QueryRowContext(t.Context(), whatPassword).Scan(&got); err != nil || got != want {
				t.Errorf("with target_session_attrs=%s, the password is %q, %v; want %q", attrs, got, err, want)
			}
		}
	}
}

func TestBadPostgresURL(t *testing.T) {
	for url, says := range map[string]string{
		"mysql://shop:secret@localhost/shop":                         "postgres://user@host/database",
		"postgres:shop:secret@localhost/shop":                        "postgres://user@host/database",
		"postgres://shop:secret@localhost/shop?connect_timeout=soon": "connect_timeout",
		"postgres://shop:secret@localhost:port/shop":                 "port",
		"postgres://shop:sec%zzret@localhost/shop":                   "password",
		"postgres://shop:sec@ret@localhost/shop":                     "%40",
		"postgres://shop:sec/ret@localhost/shop":                     "%2F",
		"postgres://localhost/shop?password=sec@ret":                 "%40",
	} {
		opentest.Refused(t, Open, url, says)
	}
}

func TestHosts(t *testing.T) {
	for _, row := range []struct{ url, want string }{
		{"postgres://u@a/d?sslmode=disable", "a:5432"},
		{"postgres://u@a,b:5433,[::1]/d?sslmode=disable", "a:5432 b:5433 ::1:5432"},
		{"postgres://u@a,b/d?sslmode=prefer", "a:5432+a b:5432+b"},
		{"postgres://u@/d?host=/run/postgresql,b&sslmode=prefer", "/run/postgresql:5432 b:5432+b"},
	} {
		config := must.Get(pgx.ParseConfig(row.url))(t)
		var got []string
		for _, host := range hosts(config) {
			text := fmt.Sprintf("%s:%d", host.Host, host.Port)
			for _, f := range host.Fallbacks {
				text += "+" + f.Host
			}
			got = append(got, text)
		}
		if text := strings.Join(got, " "); text != row.want {
			t.Errorf("%s: %s, want %s", row.url, text, row.want)
		}
	}
}
