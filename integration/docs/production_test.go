package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/documents"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// machine is what the commands of docs/production.md find in place of a machine: systemd, which starts the unit
// anew whenever it ends, and a main configuration of nginx, with a certificate.
const machine = `exec >&2
set -eE -o pipefail
trap 'echo "this failed: $BASH_COMMAND" >&2' ERR
trap 'kill -KILL $supervisor $proxy $(<"$dir/pid") || true' EXIT
mkdir -p "$dir"/{bin,backups} "$dir"/etc/{systemd/system,nginx/conf.d,prometheus}
mkdir -m 700 "$dir/etc/shop"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost \
	-addext subjectAltName=DNS:localhost -keyout "$dir/etc/shop/key.pem" -out "$dir/etc/shop/cert.pem"
cat >"$dir/nginx.conf" <<END
user root;
daemon off;
pid $dir/nginx.pid;
error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path $dir; proxy_temp_path $dir; fastcgi_temp_path $dir; uwsgi_temp_path $dir; scgi_temp_path $dir;
	include $dir/etc/nginx/conf.d/*.conf;
}
END
nginx() { /usr/sbin/nginx -e stderr -c "$dir/nginx.conf" "$@"; }
supervise() {
	local command
	read -ra command < <(sed -n "s|%d|$dir/etc/shop|; s/^ExecStart=//p" "$dir/etc/systemd/system/shop.service")
	for _ in {1..20}; do # it is ended seven times
		"${command[@]}" & echo $! >"$dir/pid"
		wait $! || true
	done
	echo 'the program does not go on'
	kill $$
}
systemctl() {
	local pid
	case "$*" in
	daemon-reload | 'reload prometheus') ;;
	'enable --now shop') supervise & supervisor=$! ;;
	'reload nginx')
		/usr/sbin/nginx -e stderr -c "$dir/nginx.conf" & proxy=$!
		until (: </dev/tcp/127.0.0.1/"$tls_port"); do sleep 0.1; done ;;
	'kill -s KILL shop') kill -KILL "$(<"$dir/pid")" || true ;; # the last kill may be too short ago
	'restart shop') pid=$(<"$dir/pid"); kill -TERM "$pid"; while kill -0 "$pid"; do sleep 0.1; done ;;
	*) return 1 ;;
	esac
}
`

// TestFirstDayInProduction runs the commands of docs/production.md in turn, with the program of
// docs/embedding.md, on a PostgreSQL that asks the shop for its password.
func TestFirstDayInProduction(t *testing.T) {
	need.Programs(t, need.Tools, "bash", "curl", "openssl", "patch", "promtool")
	need.Programs(t, need.Postgres, "psql", "pg_dump")
	need.Programs(t, need.Fronts, "/usr/sbin/nginx")
	server := dbserver.Postgres.Start(t)
	hba := must.Get(server.Query("SHOW hba_file"))(t)
	for _, statement := range []string{
		"COPY (SELECT unnest(ARRAY['host all shop all scram-sha-256', 'host all all all trust'])) TO '" + hba + "'",
		"SELECT pg_reload_conf()",
	} {
		must.Get(server.Query(statement))(t)
	}
	dir := process.Folder(t)
	_, port, _ := strings.Cut(server.Addr(), ":")
	free := func() string { return strconv.Itoa(process.FreePort()) }
	proxy := free()
	metrics := "localhost:" + free()
	here := strings.NewReplacer("../storefront/docs/deploy", dir+"/deploy", "/etc/", dir+"/etc/",
		"/usr/local/bin", dir+"/bin", "/var/backups", dir+"/backups", "db1", "127.0.0.1", ":8080", ":"+free(),
		"localhost:9464", metrics, "-shutdown-delay 0", "-shutdown-delay 0 -metrics-addr "+metrics,
		"listen 443", "listen "+proxy, "https://shop.example", "https://localhost:"+proxy,
		"-orders 20000", "-orders 1000 -clients 8", "CGO_ENABLED=0", "") // with which everything is compiled again
	must.OK(t, os.CopyFS(dir+"/deploy", os.DirFS(filepath.Join(repository, "docs", "deploy"))))
	for _, name := range []string{"shop.service", "nginx.conf"} {
		file := filepath.Join(dir, "deploy", name)
		text := must.Get(os.ReadFile(file))(t)
		must.OK(t, os.WriteFile(file, []byte(here.Replace(string(text))), 0o600))
	}
	script := machine
	for i, step := range documents.TestedBy(t, repository, "docs/production.md", "sh", t.Name()) {
		script += fmt.Sprintf("echo '== step %d' >&2\n%s", i+1, here.Replace(step))
	}
	program, commands := documentedProgram(t)
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = documentedModule(t, commands, program)
	cmd.Env = append(os.Environ(), "GOWORK=off", "dir="+dir, "PGPORT="+port, "tls_port="+proxy,
		"CURL_CA_BUNDLE="+dir+"/etc/shop/cert.pem", "SSL_CERT_FILE="+dir+"/etc/shop/cert.pem")
	log := filepath.Join(dir, "log")
	p := must.Get(process.Start(cmd, log))(t)
	<-p.Ended
	if p.State != nil {
		t.Errorf("%v\n%s", p.State, process.LogTail(log))
	}
}
