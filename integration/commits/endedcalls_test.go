package commits

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/storefront/integration/internal/dbserver"
)

// When the time of a try is up in Accept, two goroutines end the use of its sql.Conn:
// that of the call, and one of database/sql's, which rolls back the transaction and
// closes the sql.Conn if the driver calls the connection bad. A method of it that is
// called meanwhile, such as Raw, may panic: grabConn, with which it begins, looks whether
// the sql.Conn is closed, and takes a lock after that; if it is closed in between, the
// driver's connection is nil. A goroutine may be interrupted there, but hardly ever is,
// so here database/sql pauses there.
func TestCallsThatEndInAcceptDoNotPanic(t *testing.T) {
	url := dbserver.Postgres.Database(t)
	env, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(strings.TrimSpace(string(env)), "src/database/sql/sql.go")
	source, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	const (
		lock  = "\tc.closemu.RLock()\n\treturn c.dc, c.releaseConnCache, nil\n" // of grabConn, behind c.done.Load()
		pause = 5 * time.Millisecond
	)
	if n := strings.Count(string(source), lock); n != 1 {
		t.Fatalf("%s has %d times\n%s\nwant once: this release of Go has another grabConn. "+
			"If it still looks for c.done outside of the lock, the text has to follow it; if not, the test has done its work.", original, n, lock)
	}
	dir := t.TempDir()
	replacement := filepath.Join(dir, "sql.go")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		replacement:                        strings.Replace(string(source), lock, fmt.Sprintf("\ttime.Sleep(%d)\n", pause)+lock, 1),
		filepath.Join(dir, "overlay.json"): string(overlay),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "endedcalls")
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "../internal/endedcalls")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, program, url, pause.String()).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out[:min(len(out), 2<<10)])
	}
}
