package fronts

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/documents"
	"example.com/storefront/integration/internal/need"
)

// documented returns the configuration in docs/operations.md that is marked as that
// of this test.
func documented(t *testing.T, language string) string {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "Needs")
	configs := documents.TestedBy(t, "../..", "docs/operations.md", language, test)
	if len(configs) > 1 {
		t.Fatalf("docs/operations.md has %d configurations that are tested by %s", len(configs), test)
	}
	return configs[0]
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

// installed skips the test if a program is not there, or fails it if that is required.
func installed(t *testing.T, program, debianPackage string) {
	t.Helper()
	if _, err := os.Stat(program); err != nil {
		need.Missing(t, need.Fronts, fmt.Sprintf("%v (Debian: apt-get install %s)", err, debianPackage))
	}
}

// newFront returns a front without its proxy, the address behind it, and a folder
// for the proxy, which is to listen on the socket named front in it.
func newFront(t *testing.T, program, debianPackage string) (f *front, behind, dir string) {
	t.Helper()
	installed(t, program, debianPackage)
	dir, err := os.MkdirTemp("", "fronts-") // the names of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	f = &front{client: &http.Client{Transport: &http.Transport{
		DisableCompression: true,
		DisableKeepAlives:  true, // or it would send an order again by itself
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "front"))
		},
	}}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, server.Listener.Addr().String(), dir
}

// The proxy ends when this shell's input does, also if this test binary is killed.
const untilEOF = `exec 3<&0
"$@" </dev/null & server=$!
{ cat <&3; kill $server; } >/dev/null 2>&1 &
wait $server`

// run runs the proxy's program until the test ends, and returns when the front serves.
func (f *front) run(t *testing.T, dir string, command ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("sh", append([]string{"-c", untilEOF, "sh"}, command...)...)
	cmd.Stdout, cmd.Stderr = log, log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		stdin.Close()
		<-ended
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s has logged (%v):\n%s", command[0], err, text)
		}
	})
	wait(t, "an answer of "+command[0], func() bool {
		select {
		case <-ended:
			t.Fatalf("%s has ended", command[0])
		default:
		}
		res, err := f.client.Get("http://front.example/")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func startNginx(t *testing.T, config string) *front {
	t.Helper()
	const program = "/usr/sbin/nginx"
	f, behind, dir := newFront(t, program, "nginx")
	config = strings.Replace(config, "/var/cache/nginx/shop", dir+"/cache", 1) // if it has a cache
	write(t, dir, "shop.conf", replaced(t, config, "listen 80;", "listen unix:"+dir+"/front;", "127.0.0.1:8080", behind))
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
		}`)
	f.run(t, dir, program, "-p", dir, "-e", "stderr", "-c", main)
	return f
}

func startVarnish(t *testing.T, config string) *front {
	t.Helper()
	const program = "/usr/sbin/varnishd"
	f, behind, dir := newFront(t, program, "varnish")
	host, port, err := net.SplitHostPort(behind)
	if err != nil {
		t.Fatal(err)
	}
	vcl := write(t, dir, "shop.vcl", replaced(t, config, `"127.0.0.1"`, `"`+host+`"`, `"8080"`, `"`+port+`"`))
	f.run(t, dir, program, "-F", "-j", "none", "-n", filepath.Join(dir, "varnish"), "-a", filepath.Join(dir, "front"), "-f", vcl, "-s", "malloc,16m")
	return f
}

func startHAProxy(t *testing.T, config string) *front {
	t.Helper()
	const program = "/usr/sbin/haproxy"
	f, behind, dir := newFront(t, program, "haproxy")
	config = replaced(t, config, "bind :80", "bind unix@"+dir+"/front")
	name := write(t, dir, "haproxy.cfg", strings.ReplaceAll(config, "127.0.0.1:8080", behind)) // once in each backend
	f.run(t, dir, program, "-db", "-f", name)
	return f
}

func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	const program = "/usr/bin/systemd-analyze"
	installed(t, program, "systemd")
	unit := replaced(t, documented(t, "ini"), "/usr/local/bin/shop", "/bin/true")
	name := write(t, t.TempDir(), "shop.service", unit)
	// What it does not know, it only mentions.
	if out, err := exec.Command(program, "verify", name).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
