package hours

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"example.com/storefront/integration/internal/process"
)

// A sample is how large everything is at a moment. Sizes in bytes are float64.
type sample struct {
	quarter     int
	resident    float64 // memory of the process
	heap        float64 // what is left of the heap after a collection
	goroutines  int
	files       int // that the process has open, connections included
	connections float64
	orders      float64 // the table of orders and its indexes
	created     int     // how many orders that are
	rest        float64 // all else on the disk
	p99         time.Duration
}

// sample looks into the process.
func (s *shop) sample(t *testing.T) (now sample) {
	t.Helper()
	heap := s.profile(t, "heap?debug=1&gc=1")
	now.heap = number(t, heap, `# HeapAlloc = (\d+)`)
	now.goroutines = int(number(t, s.profile(t, "goroutine?debug=1"), `goroutine profile: total (\d+)`))
	pid := s.Process.Process.Pid
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Error(err)
	}
	now.resident = 1024 * number(t, string(status), `VmRSS:\s+(\d+) kB`)
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Error(err)
	}
	now.files = len(files)
	return now
}

// settle waits until the process is as small as it was when it had nothing to do before.
func (s *shop) settle(t *testing.T, before sample) (now sample) {
	t.Helper()
	process.WaitFor(t, "durable has ended what orders have begun", 5*time.Minute, s.Process, func() error {
		now = s.sample(t)
		if now.goroutines > before.goroutines+16 || now.files > before.files+16 {
			return fmt.Errorf("it has %d goroutines and %d open files; before, it had %d and %d", now.goroutines, now.files, before.goroutines, before.files)
		}
		return nil
	})
	return now
}

// expectNoLeak expects that no goroutine waits for what never comes, if durable was built
// with that profile.
func (s *shop) expectNoLeak(t *testing.T) {
	t.Helper()
	text := s.profile(t, "goroutineleak?debug=1")
	if text == "" {
		return
	}
	n := number(t, text, `goroutineleak profile: total (\d+)`)
	t.Attr("leaked", strconv.FormatFloat(n, 'g', -1, 64))
	if n != 0 {
		t.Errorf("goroutines of durable wait for what never comes: %s", text)
	}
}

// profile returns a profile, or "" if there is none of that name.
func (s *shop) profile(t *testing.T, name string) string {
	t.Helper()
	w, err := http.Get(s.debug + name)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Error(err)
	}
	if w.StatusCode == http.StatusNotFound {
		return ""
	}
	return string(text)
}

func number(t *testing.T, text, pattern string) float64 {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Errorf("there is no %s in %q", pattern, text)
		return 0
	}
	n, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Error(err)
	}
	return n
}
