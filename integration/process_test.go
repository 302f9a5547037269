package integration

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A processGroup is where the processes that tests start live: one process group
// and one folder. Its leader is a shell that ends them all and removes the folder
// once this test binary is gone, however it went: a deadline or a panic runs no
// cleanup.
type processGroup struct {
	dir    string
	id     int
	leader io.Writer // open as long as this process lives; takes a PID a line that must go on to end
}

// SIGQUIT has a PostgreSQL server end its backends, too, which are in groups of
// their own, and a MariaDB server shut down. It also ends a Go program. What a test
// has frozen, in the group or not, must go on to end, and what does not end is killed,
// this shell with it.
const leader = `trap '' QUIT INT TERM HUP
while read -r pid; do frozen="$frozen $pid"; done
kill -s QUIT -- -$$
kill -s CONT -- -$$ $frozen
for _ in 1 2 3 4 5 6 7 8 9 10; do
	rm -rf "$1" && break
	sleep 0.2
done
sleep 2
kill -s KILL -- -$$`

// theProcessGroup returns the process group of this test binary.
var theProcessGroup = sync.OnceValues(func() (*processGroup, error) {
	dir, err := os.MkdirTemp(tempRoot(), "storefront-test-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // for servers that run as another user
		return nil, err
	}
	cmd := exec.Command("sh", "-c", leader, "sh", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &processGroup{dir, cmd.Process.Pid, stdin}, nil
})

// freeze stops a process until it gets a SIGCONT, or this test binary is gone.
func (g *processGroup) freeze(pid int) error {
	if _, err := fmt.Fprintln(g.leader, pid); err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGSTOP)
}

// tempRoot returns the folder for temporary files, or /tmp if only this user can
// reach it and servers have to run as another.
func tempRoot() string {
	if os.Getuid() == 0 {
		for dir := os.TempDir(); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
			if info, err := os.Stat(dir); err != nil || info.Mode()&0o001 == 0 {
				return "/tmp"
			}
		}
	}
	return os.TempDir()
}

// workFolder returns a new folder that lives as long as the test.
func workFolder(t testing.TB) string {
	t.Helper()
	g, err := theProcessGroup()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(g.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A runner runs the commands of a server, which refuses to run as root.
type runner struct {
	group *processGroup
	as    *syscall.Credential // nil: this user
}

// newRunner returns a runner that is, if this user is root, the first of the users
// that there are.
func newRunner(users ...string) (*runner, error) {
	g, err := theProcessGroup()
	if err != nil || os.Getuid() != 0 {
		return &runner{group: g}, err
	}
	var u *user.User
	for _, name := range users {
		if u, err = user.Lookup(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &runner{g, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

// give makes the folder one of the runner's user.
func (r *runner) give(dir string) error {
	if r.as == nil {
		return nil
	}
	return os.Chown(dir, int(r.as.Uid), int(r.as.Gid))
}

// folder makes a folder for the runner's user that lives as long as this binary.
func (r *runner) folder(name string) (string, error) {
	dir := filepath.Join(r.group.dir, name)
	return dir, errors.Join(os.Mkdir(dir, 0o700), r.give(dir))
}

// command returns a command for the runner's user.
func (r *runner) command(name string, args ...string) command {
	cmd := exec.Command(name, args...)
	cmd.Dir = "/"                                     // the user may not reach this one
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=") // its messages are matched
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: r.as, Setpgid: true, Pgid: r.group.id}
	return command{cmd}
}

// A command is one of a server's.
type command struct{ *exec.Cmd }

// run runs the command. The error has what it printed.
func (c command) run() error {
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", c, err, out)
	}
	return nil
}

// A process is a program that a test has started and may kill.
type process struct {
	*exec.Cmd
	ended chan struct{} // closed when it has
	state error         // of Wait, once it has ended
}

// startProcess starts cmd in the process group. Its standard error is appended to
// the file log.
func startProcess(cmd *exec.Cmd, log string) (*process, error) {
	g, err := theProcessGroup()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd.Stderr = f
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pgid = true, g.id
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{Cmd: cmd, ended: make(chan struct{})}
	go func() {
		p.state = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// kill kills the process with SIGKILL and returns when it is gone.
func (p *process) kill() {
	p.Process.Kill()
	<-p.ended
}

// hasEnded reports whether the process has ended, and how.
func (p *process) hasEnded() (error, bool) {
	select {
	case <-p.ended:
		return p.state, true
	default:
		return nil, false
	}
}

// logTail returns the last lines of a log, for the message of a failed test.
func logTail(name string) string {
	const most = 8 << 10
	f, err := os.Open(name)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		f.Seek(max(0, size-most), io.SeekStart)
	}
	text, err := io.ReadAll(f)
	return fmt.Sprintf("%s ends with:\n%s", filepath.Base(name), errors.Join(errors.New(strings.TrimSpace(string(text))), err))
}

var ports struct {
	sync.Mutex
	given map[int]bool
}

// freePort returns a port of 127.0.0.1 that no one listens on and that this test
// binary is given once. It is below the ports that systems take for outgoing
// connections, so that it is still free when a server comes back to it.
func freePort() int {
	ports.Lock()
	defer ports.Unlock()
	if ports.given == nil {
		ports.given = make(map[int]bool)
	}
	for {
		port := 12000 + rand.IntN(20000)
		if ports.given[port] {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			ports.given[port] = true
			return port
		}
	}
}

// waitFor calls ready every few milliseconds until it returns nil, and fails the
// test if that takes longer than limit or if the process ends before.
func waitFor(t testing.TB, what string, limit time.Duration, p *process, ready func() error) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		err := ready()
		if err == nil {
			return
		}
		if p != nil {
			if state, ended := p.hasEnded(); ended {
				t.Fatalf("%s: the process has ended: %v", what, state)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
	}
}
