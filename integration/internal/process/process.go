// Package process starts the programs that tests need, servers and replicas, and sees to
// it that none of them, nor any file of theirs, outlives the test binary. It needs Linux.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/storefront/internal/must"
)

// A group is where the processes that tests start live: one process group
// and one folder. Its leader is a shell that ends them all and removes the folder
// once this test binary is gone, however it went: a deadline or a panic runs no
// cleanup.
type group struct {
	dir    string
	id     int
	leader io.Writer // open as long as this process lives; takes a PID a line that must go on to end
}

// SIGQUIT has a PostgreSQL server end its backends, too, which are in groups of
// their own, and a MariaDB server shut down. It also ends a Go program. Processes that
// a test has frozen, in the group or not, must go on to end, and those that do not end are
// killed, this shell with them. Small disks are unmounted.
const leader = `trap '' QUIT INT TERM HUP
while read -r pid; do frozen="$frozen $pid"; done
kill -s QUIT -- -$$
kill -s CONT -- -$$ $frozen
for _ in 1 2 3 4 5 6 7 8 9 10; do
	for mounted in $(cut -d ' ' -f 2 /proc/mounts | grep "^$1/"); do umount -l "$mounted"; done
	rm -rf "$1" && break
	sleep 0.2
done
sleep 2
kill -s KILL -- -$$`

// theGroup returns the process group of this test binary.
var theGroup = sync.OnceValues(func() (*group, error) {
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
	return &group{dir, cmd.Process.Pid, stdin}, nil
})

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

// Folder returns a new folder that lives as long as the test.
func Folder(t testing.TB) string {
	t.Helper()
	g := must.Get(theGroup())(t)
	dir := must.Get(os.MkdirTemp(g.dir, ""))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Path returns the name of a file in a folder that is there as long as this test binary.
func Path(name string) (string, error) {
	g, err := theGroup()
	if err != nil {
		return "", err
	}
	return filepath.Join(g.dir, name), nil
}

// A Runner runs the commands of a server, which refuses to run as root.
type Runner struct {
	group *group
	as    *syscall.Credential // nil: this user
}

// NewRunner returns a runner that is this user, or, if this user is root and users are
// given, the first of these that there is.
func NewRunner(users ...string) (*Runner, error) {
	g, err := theGroup()
	if err != nil || os.Getuid() != 0 || len(users) == 0 {
		return &Runner{group: g}, err
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
	return &Runner{g, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

// Give makes the folder, and all that is in it, the runner's user's.
func (r *Runner) Give(dir string) error {
	if r.as == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, int(r.as.Uid), int(r.as.Gid)))
	})
}

// Folder makes a folder for the runner's user that lives as long as this binary.
func (r *Runner) Folder(name string) (string, error) {
	dir := filepath.Join(r.group.dir, name)
	return dir, errors.Join(os.Mkdir(dir, 0o700), r.Give(dir))
}

// Command returns a command for the runner's user.
func (r *Runner) Command(name string, args ...string) Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = "/"                                     // the user may not reach this one
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=") // its messages are matched
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: r.as, Setpgid: true, Pgid: r.group.id}
	return Cmd{cmd}
}

// A Cmd is one of a server's.
type Cmd struct{ *exec.Cmd }

// Run runs the command. The error has what it printed.
func (c Cmd) Run() error {
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", c, err, out)
	}
	return nil
}

// A Process is a program that a test has started and may kill.
type Process struct {
	*exec.Cmd
	Ended chan struct{} // closed when it has
	State error         // of Wait, once it has ended
}

// Start starts cmd in the process group. Its standard error is appended to
// the file log.
func Start(cmd *exec.Cmd, log string) (*Process, error) {
	g, err := theGroup()
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
	p := &Process{Cmd: cmd, Ended: make(chan struct{})}
	go func() {
		p.State = cmd.Wait()
		close(p.Ended)
	}()
	return p, nil
}

// Kill kills the process with SIGKILL and returns when it is gone.
func (p *Process) Kill() {
	p.Process.Kill()
	<-p.Ended
}

// KillAll is Kill for a process and its children.
func (p *Process) KillAll() error {
	p.Process.Signal(syscall.SIGSTOP) // it shall start no more of them
	children, err := Children(p.Process.Pid)
	for _, pid := range children {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	p.Process.Kill()
	<-p.Ended
	return err
}

// Freeze stops the process and its children, which keep their connections, until Thaw, or
// until this test binary is gone.
func (p *Process) Freeze(t testing.TB) {
	t.Helper()
	g := must.Get(theGroup())(t)
	must.OK(t, g.freeze(p.Process.Pid)) // it shall start no more of them
	for _, pid := range must.Get(Children(p.Process.Pid))(t) {
		must.OK(t, g.freeze(pid))
	}
}

func (g *group) freeze(pid int) error {
	if _, err := fmt.Fprintln(g.leader, pid); err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	// The other threads run on until one has seen the signal, which takes a while on a busy machine.
	for runs := true; runs; time.Sleep(time.Millisecond) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		runs = slices.ContainsFunc(threads, func(thread string) bool {
			stat, err := os.ReadFile(thread) // 12 (its name) R …
			state := stat[bytes.LastIndexByte(stat, ')')+1:]
			return err == nil && !bytes.HasPrefix(state, []byte(" T")) && !bytes.HasPrefix(state, []byte(" Z"))
		})
	}
	return nil
}

// Thaw lets what Freeze has stopped go on.
func (p *Process) Thaw(t testing.TB) {
	t.Helper()
	for _, pid := range append(must.Get(Children(p.Process.Pid))(t), p.Process.Pid) {
		must.OK(t, syscall.Kill(pid, syscall.SIGCONT))
	}
}

// Children returns the children of a process.
func Children(pid int) (children []int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for field := range strings.FieldsSeq(string(text)) {
		child, parseErr := strconv.Atoi(field)
		children, err = append(children, child), errors.Join(err, parseErr)
	}
	return children, err
}

// HasEnded reports whether the process has ended, and how.
func (p *Process) HasEnded() (error, bool) {
	select {
	case <-p.Ended:
		return p.State, true
	default:
		return nil, false
	}
}

// LogTail returns the last lines of a log, for the message of a failed test.
func LogTail(name string) string {
	const most = 8 << 10
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s ends with:\n%s", filepath.Base(name), text[max(0, len(text)-most):])
}

// ports are those that FreePort has returned, with what keeps other test binaries from them.
var ports struct {
	sync.Mutex
	given map[int]net.Listener
}

// FreePort returns a port of 127.0.0.1 that no one listens on and that no test binary that runs is given
// again. It is below the ports that systems take for outgoing connections, so that it is
// still free when a server comes back to it.
func FreePort() int {
	ports.Lock()
	defer ports.Unlock()
	if ports.given == nil {
		ports.given = make(map[int]net.Listener)
	}
	for {
		port := 12000 + rand.IntN(20000)
		if _, given := ports.given[port]; given {
			continue
		}
		reserved, err := net.Listen("unix", fmt.Sprintf("@storefront-test-port-%d", port)) // a name without a file
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			ports.given[port] = reserved
			return port
		}
		reserved.Close()
	}
}

// WaitFor calls ready every few milliseconds until it returns nil, and fails the
// test if that takes longer than limit or if the process ends before.
func WaitFor(t testing.TB, what string, limit time.Duration, p *Process, ready func() error) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		err := ready()
		if err == nil {
			return
		}
		if p != nil {
			if state, ended := p.HasEnded(); ended {
				t.Fatalf("%s: the process has ended: %v", what, state)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
	}
}
