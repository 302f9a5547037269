package mysql

import (
	"bytes"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb/internal/opentest"
	"example.com/storefront/shopdb/internal/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMySQLURL(t *testing.T) {
	for _, row := range []struct{ url, env, want string }{
		{"mysql://shop@db1/shop", "", "shop::shop tcp db1:3306"},
		{"mariadb://shop@db1/shop", "", "shop::shop tcp db1:3306"},
		{"mysql://shop@db1,db2:3307,db3/shop", "", "shop::shop tcp db1:3306 tcp db2:3307 tcp db3:3306"},
		{"mysql://shop@10.0.0.1,[::1]/shop", "", "shop::shop tcp 10.0.0.1:3306 tcp [::1]:3306"},
		{"mysql://shop@%2Frun%2Fmysqld.sock/shop", "", "shop::shop unix /run/mysqld.sock"},
		{"mysql://shop:secret@db1/shop", "other", "shop:secret:shop tcp db1:3306"},
		{"mysql://shop@db1/shop", "secret", "shop:secret:shop tcp db1:3306"},
		{"mysql://sh%3Aop:%2F%3F%23%40%25@db1/sh%20op", "", "sh:op:/?#@%:sh op tcp db1:3306"},
		{"mysql://shop@db1/shop?timeout=5s", "", "shop::shop tcp db1:3306"},
	} {
		t.Setenv("MYSQL_PWD", row.env)
		configs, _, err := parse(row.url)
		if err != nil {
			t.Errorf("%s: %v", row.url, err)
			continue
		}
		got := configs[0].User + ":" + configs[0].Passwd + ":" + configs[0].DBName
		for _, c := range configs {
			got += " " + c.Net + " " + c.Addr
		}
		if got != row.want {
			t.Errorf("%s with %q in the environment: %s, want %s", row.url, row.env, got, row.want)
		}
	}
}

func TestMySQLParameters(t *testing.T) {
	config := func(query string) *mysql.Config {
		configs, _, err := parse("mysql://shop@db1,db2/shop" + query)
		must.OK(t, err)
		return configs[1]
	}
	c := config("")
	if !c.InterpolateParams || c.Timeout != servers.ConnectLimit || c.ReadTimeout != 15*time.Second || c.TLS != nil ||
		!maps.Equal(c.Params, map[string]string{"innodb_lock_wait_timeout": "1"}) {
		t.Errorf("without parameters: interpolateParams %t, timeout %v, readTimeout %v, TLS %v, params %v",
			c.InterpolateParams, c.Timeout, c.ReadTimeout, c.TLS, c.Params)
	}
	c = config("?interpolateParams=false&timeout=5s&tls=true&loc=Europe/Berlin&lock_wait_timeout=7" +
		"&sql_mode=%27ANSI%27&password_file=/run/secrets/shop&innodb_lock_wait_timeout=2")
	if c.InterpolateParams || c.Timeout != 5*time.Second || c.TLS == nil || c.Loc.String() != "Europe/Berlin" {
		t.Errorf("with parameters: interpolateParams %t, timeout %v, TLS %v, loc %v",
			c.InterpolateParams, c.Timeout, c.TLS, c.Loc)
	}
	want := map[string]string{"lock_wait_timeout": "7", "sql_mode": "'ANSI'", "innodb_lock_wait_timeout": "2"}
	if !maps.Equal(c.Params, want) {
		t.Errorf("the variables are %v, want %v", c.Params, want)
	}
	if c.TLS.ServerName != "db2" {
		t.Errorf("the certificate must be of %s, want db2", c.TLS.ServerName)
	}
}

func TestBadMySQLURL(t *testing.T) {
	for _, row := range []struct{ url, says string }{
		{"postgres://shop:secret@db1/shop", "mysql://user@host/database"},
		{"mysql://db1/shop", "mysql://user@host/database"},
		{"mysql://shop@db1/shop/secret", "mysql://user@host/database"},
		{"mysql://shop:sec/ret@db1/shop", "%2F"},
		{"mysql://shop:secret@db1/shop#a", "%23"},
		{"mysql://shop:sec%ret@db1/shop", "%25"},
		{"mysql://shop:secret@db1/sh%op", "database"},
		{"mysql://shop:secret@/shop", "host:port"},
		{"mysql://shop:secret@::1/shop", "host:port"},
		{"mysql://shop:secret@db1:secret/shop", "port"},
		{"mysql://shop:secret@db1/shop?tls", "name=value: tls"},
		{"mysql://shop:secret@db1/shop?tls=true&tls=false", "tls twice"},
		{"mysql://shop:secret@db1/shop?tls=sure", "parameter"},
		{"mysql://shop:secret@db1/shop?strict=true", "strict"},
		{"mysql://shop@db1/shop?password_file=a&tls=true&password_file=b", "password_file twice"},
		{"mysql://shop:secret@db1/shop?password_file=a", "a password and a password_file"},
		{"mysql://shop@db1/shop?password_file=missing/file", "missing/file: no such file"},
	} {
		opentest.Refused(t, Open, row.url, row.says)
	}
}

func TestMySQLPasswordIsReadAnew(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	file := filepath.Join(t.TempDir(), "password")
	must.OK(t, os.WriteFile(file, []byte("first\n"), 0o600))
	t.Setenv("MYSQL_PWD", "wrong")
	const query = "/shop?allowCleartextPasswords=true&password_file="
	db := must.Get(Open("mysql://shop@"+l.Addr().String()+query+file, nil))(t)
	defer db.Close()
	for _, want := range []string{"first", "second"} {
		must.OK(t, os.WriteFile(file, []byte(want+"\r\n"), 0o600))
		login := make(chan []byte, 1)
		go func() { login <- acceptMySQL(l) }()
		if err := db.PingContext(t.Context()); err == nil {
			t.Error("the server has taken the connection")
		}
		if got := <-login; !bytes.Contains(got, []byte(want+"\x00")) {
			t.Errorf("the password is not %s: %q", want, got)
		}
	}
}

// acceptMySQL greets the next client as a server does that wants the password itself, and returns
// the client's answer.
func acceptMySQL(l net.Listener) []byte {
	c, err := l.Accept()
	if err != nil {
		return nil
	}
	defer c.Close()
	const greeting = "\x0a8.0.0\x00\x01\x00\x00\x0012345678\x00" + // protocol, version, connection, random bytes
		"\x08\xaa\x2d\x02\x00\x08\x00\x15" + // capabilities, among them PLUGIN_AUTH, character set, status
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00123456789012\x00mysql_clear_password\x00"
	if _, err := io.WriteString(c, string([]byte{byte(len(greeting)), 0, 0, 0})+greeting); err != nil {
		return nil
	}
	answer := make([]byte, 1<<10)
	n, _ := c.Read(answer)
	return answer[:n]
}
