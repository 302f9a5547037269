// Package machine says on what something was measured, so that its figures are kept
// together with it.
package machine

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite"

	"example.com/storefront/integration/internal/dbserver"
)

// Describe returns one line: the date, processor, memory, system, disk and the time that a
// flush of it takes, versions, and the load average of the last minute. It needs Linux, and
// takes a second.
func Describe() (string, error) {
	disk, err := diskOf(os.TempDir()) // where the tests have their databases
	if err != nil {
		return "", err
	}
	flush, err := flushTimes(os.TempDir())
	if err != nil {
		return "", err
	}
	versions, err := versions()
	if err != nil {
		return "", err
	}
	cpu, err := field("/proc/cpuinfo", "model name")
	if err != nil {
		return "", err
	}
	memory, err := field("/proc/meminfo", "MemTotal")
	if err != nil {
		return "", err
	}
	kB, err := strconv.ParseFloat(strings.TrimSuffix(memory, " kB"), 64)
	if err != nil {
		return "", err
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "", err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	one, _, _ := bytes.Cut(load, []byte(" "))
	kernel, _, _ := bytes.Cut(bytes.TrimSpace(release), []byte("-"))
	cores := "1 core"
	if n := runtime.NumCPU(); n != 1 {
		cores = fmt.Sprint(n, " cores")
	}
	return fmt.Sprintf("%s, %s of %s, %.0f GB, Linux %s, %s, of which a flush took %s (99 of 100: %s), %s, %s; load average: %s",
		time.Now().UTC().Format(time.DateOnly), cores, cpu, kB*1024/1e9, kernel, disk,
		milliseconds(flush[len(flush)/2]), milliseconds(flush[len(flush)*99/100]),
		runtime.Version(), versions, one), nil
}

func milliseconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds()*1000, 'g', 2, 64) + " ms"
}

// field returns the first value of a name in a file of lines such as "MemTotal: 1 kB".
func field(file, name string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("%s has no %s", file, name)
}

// diskOf returns the file system of a folder, and its device.
func diskOf(dir string) (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	var device, kind, longest string
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if at := fields[1]; len(at) >= len(longest) && (at == "/" || dir == at || strings.HasPrefix(dir, at+"/")) {
			device, longest, kind = filepath.Base(fields[0]), at, fields[2]
		}
	}
	return kind + " on " + device, nil
}

// flushTimes returns how long it takes to write 4 KiB to the end of a file and have the
// disk keep them, in ascending sequence.
func flushTimes(dir string) (took []time.Duration, err error) {
	f, err := os.CreateTemp(dir, "flush-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 4096)
	for range 300 {
		start := time.Now()
		if _, err := f.Write(page); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took, nil
}

// versions returns those of the databases that are here.
func versions() (string, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return "", err
	}
	defer db.Close()
	var sqlite string
	if err := db.QueryRow("SELECT sqlite_version()").Scan(&sqlite); err != nil {
		return "", err
	}
	return strings.Join(append([]string{"SQLite " + sqlite}, dbserver.Versions()...), ", "), nil
}
