package main

import (
	"bytes"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// The goroutine starts when the last test of a package ends, so that hardly any time is left
// until the goroutines are looked at.
func TestAPackageThatLeaksFails(t *testing.T) {
	const (
		head  = "package leaks\n\nimport (\"os\"; \"testing\"; \"testing/synctest\")\n\nvar (_ = os.Exit; _ = synctest.Test)\n\n"
		block = "go func() { <-make(chan int) }()"
	)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("go.mod", []byte("module leaks\n\ngo 1.26\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, code := range map[string]string{
		"plain":    "func Test(t *testing.T) { " + block + " }",
		"testmain": "func TestMain(m *testing.M) { os.Exit(m.Run()) }\nfunc Test(t *testing.T) { " + block + " }",
		"bubble":   "func Test(t *testing.T) { synctest.Test(t, func(*testing.T) {}); " + block + " }",
		"none": "var c = make(chan int)\nfunc Test(t *testing.T) { go func() { <-c }() }\n" +
			"func TestEnds(t *testing.T) { c := make(chan int); go func() { <-c }(); close(c) }",
	} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name+"/leaks_test.go", []byte(head+code), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var flags []string
	if build, ok := debug.ReadBuildInfo(); ok && slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		flags = []string{"-race"} // for which all is compiled that other packages are tested with
	}
	var out bytes.Buffer
	if err := run(&out, append(flags, "./none")); err != nil {
		t.Errorf("without a leak: %v\n%s", err, &out)
	}
	out.Reset()
	if err := run(&out, append(flags, "./...")); err == nil {
		t.Error("with leaks, go test succeeds")
	}
	for _, name := range []string{"plain", "testmain", "bubble"} {
		if got := out.String(); !strings.Contains(got, "FAIL\tleaks/"+name+"\t") || !strings.Contains(got, "leaks/"+name+".Test.func") {
			t.Errorf("the leak of %s is not reported:\n%s", name, got)
		}
	}
}
