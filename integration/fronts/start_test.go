package fronts

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// documented returns a configuration in docs/deploy.
func documented(t *testing.T, name string) string {
	t.Helper()
	config := must.Get(os.ReadFile(filepath.Join("../../docs/deploy", name)))(t)
	return string(config)
}

// replaced returns config with each old, which it has once, replaced by the new that
// follows it.
func replaced(t *testing.T, config string, oldnew ...string) string {
	t.Helper()
	for i := 0; i < len(oldnew); i += 2 {
		if strings.Count(config, oldnew[i]) != 1 {
			t.Fatalf("the configuration does not have %q once:\n%s", oldnew[i], config)
		}
		config = strings.Replace(config, oldnew[i], oldnew[i+1], 1)
	}
	return config
}

// addressed returns config with the address of the service.
func addressed(config, behind string) string {
	return strings.ReplaceAll(config, "127.0.0.1:8080", behind)
}

// installed skips the test if a program is not there, or fails it if that is required.
func installed(t *testing.T, program, debianPackage string) {
	t.Helper()
	if _, err := os.Stat(program); err != nil {
		need.Missing(t, need.Fronts, fmt.Sprintf("%v (Debian: apt-get install %s)", err, debianPackage))
	}
}

// newFront returns a front without its proxy, the address of its server, and a folder
// for the proxy, which must listen on the socket named front in it.
func newFront(t *testing.T, program, debianPackage string) (f *front, behind, dir string) {
	t.Helper()
	installed(t, program, debianPackage)
	dir = must.Get(os.MkdirTemp("", "fronts-"))(t) // the names of sockets must be short
	must.OK(t, os.Chmod(dir, 0o755))               // Apache does not run as root
	t.Cleanup(func() { os.RemoveAll(dir) })
	f = &front{dial: func() (net.Conn, error) { return net.Dial("unix", filepath.Join(dir, "front")) }}
	f.client = &http.Client{Transport: &http.Transport{
		DisableCompression: true,
		DisableKeepAlives:  true, // or it would send an order again by itself
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return f.dial() },
	}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, server.Listener.Addr().String(), dir
}

// run runs the proxy's program until the test ends, and returns when the front serves.
func (f *front) run(t *testing.T, dir string, command ...string) {
	t.Helper()
	log := filepath.Join(dir, "log")
	p := must.Get(process.Start(exec.Command(command[0], command[1:]...), log))(t)
	t.Cleanup(func() {
		p.Process.Signal(syscall.SIGTERM) // it ends its children
		<-p.Ended
		if t.Failed() {
			t.Log(process.LogTail(log))
		}
	})
	process.WaitFor(t, command[0]+" answers", 5*time.Minute, p, func() error {
		res, err := f.client.Get("http://front.example/")
		if err != nil {
			return err
		}
		res.Body.Close()
		if res.StatusCode >= http.StatusInternalServerError { // 404 beside a prefix
			return errors.New(res.Status)
		}
		return nil
	})
}

// ownHost returns an address of this machine that nobody else has.
func ownHost() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	name = filepath.Join(dir, name)
	must.OK(t, os.WriteFile(name, []byte(text), 0o644))
	return name
}

func startNginx(t *testing.T, config string) *front {
	t.Helper()
	const program = "/usr/sbin/nginx"
	f, behind, dir := newFront(t, program, "nginx")
	f.resends = strings.Contains(config, "non_idempotent")
	config = strings.Replace(config, "/var/cache/nginx/shop", dir+"/cache", 1) // if it has a cache
	config = replaced(t, config, "listen 80;", "listen unix:"+dir+"/front;", "shop.example", "*.example")
	write(t, dir, "shop.conf", addressed(config, behind))
	user := ""
	if os.Getuid() == 0 { // whom the folder belongs to
		user = "user root;"
	}
	main := write(t, dir, "nginx.conf", user+`
		daemon off;
		worker_processes 2;
		pid `+dir+`/pid;
		events {}
		http {
			access_log off;
			client_body_temp_path `+dir+`/body;
			proxy_temp_path `+dir+`/proxy;
			fastcgi_temp_path `+dir+`/fastcgi;
			scgi_temp_path `+dir+`/scgi;
			uwsgi_temp_path `+dir+`/uwsgi;
			include shop.conf;
			server { # as Debian has one
				listen unix:`+dir+`/front default_server;
				server_name _;
				return 421;
			}
		}`)
	f.run(t, dir, program, "-p", dir, "-e", "stderr", "-c", main)
	return f
}

func startVarnish(t *testing.T, config string) *front {
	t.Helper()
	const program = "/usr/sbin/varnishd"
	f, behind, dir := newFront(t, program, "varnish")
	f.streams = true
	host, port, _ := strings.Cut(behind, ":")
	vcl := write(t, dir, "shop.vcl", strings.Replace(config, "\"127.0.0.1\";\n    .port = \"8080\"",
		fmt.Sprintf("%q;\n    .port = %q", host, port), 1))
	f.run(t, dir, program, "-F", "-j", "none", "-n", filepath.Join(dir, "varnish"), "-a", filepath.Join(dir, "front"), "-f", vcl, "-s", "malloc,16m")
	return f
}

func startHAProxy(t *testing.T, config string) *front {
	t.Helper()
	const program = "/usr/sbin/haproxy"
	f, behind, dir := newFront(t, program, "haproxy")
	f.resends = strings.Contains(config, "empty-response")
	config = replaced(t, config, "bind :80", "bind unix@"+dir+"/front")
	name := write(t, dir, "haproxy.cfg", addressed(config, behind))
	f.run(t, dir, program, "-db", "-f", name)
	return f
}

func startApache(t *testing.T, config string) *front {
	t.Helper()
	const program, modules = "/usr/sbin/apache2", "/usr/lib/apache2/modules/mod_"
	f, behind, dir := newFront(t, program, "apache2-bin")
	// Apache listens on no Unix socket.
	address := ownHost() + ":8080"
	f.dial = func() (net.Conn, error) { return net.Dial("tcp", address) }
	var load strings.Builder
	for _, name := range []string{"mpm_event", "authz_core", "env", "headers", "filter", "deflate", "proxy", "proxy_http", "slotmem_shm", "proxy_balancer", "lbmethod_byrequests", "proxy_hcheck"} {
		fmt.Fprintf(&load, "LoadModule %s_module %s%s.so\n", name, modules, name)
	}
	if os.Getuid() == 0 {
		load.WriteString("User nobody\nGroup nogroup\n")
	}
	config = replaced(t, config, "*:80", address)
	main := write(t, dir, "apache2.conf", load.String()+`
		ServerName localhost
		Listen `+address+`
		PidFile `+dir+`/pid
		DefaultRuntimeDir `+dir+`
		ErrorLog /dev/stderr
		StartServers 2
		`+addressed(config, behind))
	f.run(t, dir, program, "-d", dir, "-f", main, "-D", "FOREGROUND")
	return f
}

func startLighttpd(t *testing.T, config string) *front {
	t.Helper()
	const program = "/usr/sbin/lighttpd"
	f, behind, dir := newFront(t, program, "lighttpd")
	f.cuts = true
	config = addressed(config, behind)
	_, port, _ := strings.Cut(behind, ":")
	config = replaced(t, config, "8080", port)
	name := write(t, dir, "lighttpd.conf", fmt.Sprintf("server.document-root = %q\nserver.bind = %q\n%s", dir, dir+"/front", config))
	f.run(t, dir, program, "-D", "-f", name)
	return f
}

func startCaddy(t *testing.T, config string) *front {
	t.Helper()
	const program = "/usr/bin/caddy"
	f, behind, dir := newFront(t, program, "caddy")
	f.streams = true
	config = replaced(t, config, ":80 {", ":80 {\n\tbind unix/"+dir+"/front")
	name := write(t, dir, "Caddyfile", "{\n\tadmin off\n\tauto_https off\n}\n"+addressed(config, behind))
	f.run(t, dir, "env", "HOME="+dir, program, "run", "--adapter", "caddyfile", "--config", name)
	return f
}

func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	const program = "/usr/bin/systemd-analyze"
	installed(t, program, "systemd")
	unit := strings.ReplaceAll(documented(t, "shop.service"), "/usr/local/bin/shop", "/bin/true")
	for _, unit := range []string{unit, replaced(t, unit, "\nExecStart=", "\n#", "#ExecStart=", "ExecStart=", "#Load", "Load")} {
		name := write(t, t.TempDir(), "shop.service", unit)
		// It also reads the machine's other units, and of what it does not know, it only tells.
		out, err := exec.Command(program, "verify", "--recursive-errors=no", name).CombinedOutput()
		if err != nil || strings.Contains(string(out), "shop.service:") {
			t.Errorf("%v\n%s", err, out)
		}
	}
	// With the defaults, systemd gives up after five starts within ten seconds, or after a status.
	if !strings.Contains(unit, "StartLimitIntervalSec=0\n") || strings.Contains(unit, "RestartPrevent") {
		t.Error("systemd may give up")
	}
}
