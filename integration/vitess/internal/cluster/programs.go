// Package cluster starts clusters of Vitess for the time of a test, as small as they can be:
// etcd, vtctld, vtgates, vtorc, and of each shard one tablet or more, which are a vttablet and
// its mysqld. They listen on 127.0.0.1 alone, and end with the test binary.
package cluster

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// patience is how long a wait may take on a busy machine.
const patience = 10 * time.Minute

// programs are where the programs are that the script fetch has made.
type programs struct {
	*process.Runner
	bin, mysql, logs string
	template         string // the folder of a tablet that has never served
	env              []string
}

// install returns the programs, as a user who may run them: Vitess refuses root.
var install = sync.OnceValues(func() (*programs, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "storefront")
	vitess := cmp.Or(os.Getenv("STOREFRONT_VITESS"), filepath.Join(cache, "vitess-v0.24.4-etcd-v3.6.5"))
	mysql := cmp.Or(os.Getenv("STOREFRONT_MYSQL"), filepath.Join(cache, "mysql"))
	for _, program := range []string{vitess + "/bin/vtgate", mysql + "/usr/sbin/mysqld"} {
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("integration/vitess/fetch builds Vitess, and has not yet: %w", err)
		}
	}
	runner, err := process.NewRunner("mysql", "nobody")
	if err != nil {
		return nil, err
	}
	dir, err := process.Path("vitess")
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	if os.Getuid() == 0 { // as the other user cannot reach the cache of root
		for to, from := range map[string]*string{"programs": &vitess, "mysql": &mysql} {
			to = filepath.Join(dir, to)
			const script = `cp -al "$0" "$1" || { rm -rf "$1"; cp -a "$0" "$1"; }` // on another file system
			if out, err := exec.Command("sh", "-c", script, *from, to).CombinedOutput(); err != nil {
				return nil, fmt.Errorf("copying %s: %w\n%s", *from, err, out)
			}
			*from = to
		}
	}
	p := &programs{Runner: runner, logs: dir,
		bin: filepath.Join(vitess, "bin"), mysql: filepath.Join(dir, "wrapped")}
	if err := p.wrap(mysql); err != nil {
		return nil, err
	}
	settings := filepath.Join(dir, "extra.cnf")
	if err := os.WriteFile(settings, []byte(mysqlSettings), 0o644); err != nil {
		return nil, err
	}
	p.env = []string{"VT_MYSQL_ROOT=" + p.mysql, "EXTRA_MY_CNF=" + settings}
	return p, p.makeTemplate()
})

// mysqlSettings are for many small servers on one machine. A collation without regard to case is
// the harder case.
const mysqlSettings = `
bind-address = 127.0.0.1
innodb_buffer_pool_size = 64M
innodb_redo_log_capacity = 32M
innodb_lock_wait_timeout = 2
table_open_cache = 400
max_connections = 200
performance_schema_max_table_instances = 500
performance_schema_max_thread_instances = 200
character-set-server = utf8mb4
collation-server = utf8mb4_general_ci
`

// wrap makes the folder where mysqlctl finds programs of MySQL, which bring their own loader and libraries.
func (p *programs) wrap(mysql string) error {
	loaders, err := filepath.Glob(filepath.Join(mysql, "usr/lib/*/ld-linux*.so.*"))
	if err != nil || len(loaders) != 1 {
		return fmt.Errorf("of the loader of MySQL, there are %q, %v", loaders, err)
	}
	for program, more := range map[string]string{
		"bin/mysqladmin": "",
		"sbin/mysqld": fmt.Sprintf("--basedir=%s/usr --plugin-dir=%[1]s/usr/lib/mysql/plugin "+
			"--lc-messages-dir=%[1]s/usr/share/mysql", mysql),
	} {
		file := filepath.Join(p.mysql, program)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		script := fmt.Sprintf("#!/bin/sh\nexec %s --library-path %s %s/usr/%s \"$@\" %s\n",
			loaders[0], filepath.Dir(loaders[0]), mysql, program, more)
		if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// makeTemplate has mysqlctl make the data of a tablet, which takes it seconds.
func (p *programs) makeTemplate() error {
	root, err := p.Folder("template")
	if err != nil {
		return err
	}
	p.template = tabletDir(root, 1)
	port := process.FreePort()
	for _, command := range []string{"init", "shutdown"} {
		if err := p.mysqlctl(root, 1, port, command).Run(); err != nil {
			return err
		}
	}
	return os.Remove(filepath.Join(p.template, "data/auto.cnf")) // the server's identity
}

func tabletDir(root string, uid int) string { return filepath.Join(root, fmt.Sprintf("vt_%010d", uid)) }

func (p *programs) mysqlctl(root string, uid, port int, command string) process.Cmd {
	cmd := p.Command(filepath.Join(p.bin, "mysqlctl"), "--tablet-uid", strconv.Itoa(uid),
		"--mysql-port", strconv.Itoa(port), command)
	cmd.Env = append(append(cmd.Env, p.env...), "VTDATAROOT="+root)
	return cmd
}

// A Program is a program of a cluster that a test may kill, freeze and start again.
type Program struct {
	in      *programs
	name    string
	command []string
	env     []string
	log     string
	health  string // an address that answers 200 once the program is up, or ""

	*process.Process // nil while it is down
}

// Start starts a program that is down, and waits until it is up.
func (p *Program) Start(t testing.TB) {
	t.Helper()
	p.launch(t)
	p.await(t)
}

func (p *Program) launch(t testing.TB) {
	t.Helper()
	cmd := p.in.Command(p.command[0], p.command[1:]...)
	cmd.Env = append(cmd.Env, p.env...)
	p.Process = must.Get(process.Start(cmd.Cmd, p.log))(t)
}

// await waits until a program that was launched is up.
func (p *Program) await(t testing.TB) {
	t.Helper()
	process.WaitFor(t, p.name+" is up", patience, p.Process, func() error {
		w, err := http.Get(p.health)
		if err != nil {
			return err
		}
		w.Body.Close()
		if w.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", p.health, w.Status)
		}
		return nil
	})
}

// Kill kills the program with SIGKILL, as if the machine had taken it away, and returns when it is
// gone.
func (p *Program) Kill(t testing.TB) {
	t.Helper()
	if err := p.Process.KillAll(); err != nil {
		t.Error(err)
	}
	p.Process = nil
}
