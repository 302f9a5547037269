package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each target names tests that there are, which take its flags.
func TestTargetsExist(t *testing.T) {
	for _, g := range targets {
		list := exec.Command("go", append([]string{"test", "-list", g.test, "./" + g.pkg, "-args"}, g.args(1)...)...)
		list.Dir = "../.."
		out, err := list.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", list, err, out)
		}
		for alternative := range strings.SplitSeq(g.test, "|") {
			if !slices.ContainsFunc(strings.Fields(string(out)), regexp.MustCompile(alternative).MatchString) {
				t.Errorf("%s has no test like %s", g.pkg, alternative)
			}
		}
	}
}

// A test that fails by one seed is run by the others, too, and named with its command.
func TestSeedsAreTriedInTurn(t *testing.T) {
	t.Setenv("STOREFRONT_LONG", "1")
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/soaked\n",
		"a/a_test.go": `package a

import (
	"flag"
	"testing"
)

var seed = flag.Int("seed", 0, "")

func TestA(t *testing.T) {
	if *seed == 8 {
		t.Fatal("it is eight")
	}
}
`,
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	for _, row := range []struct {
		seed   uint64
		rounds int
		runs   []string // by their lines' beginnings
		failed int
	}{
		{7, 0, []string{"seed 7: a TestA passed"}, 0},
		{7, 3, []string{"seed 7: a TestA passed", "seed 8: a TestA failed", "To run it again: STOREFRONT_LONG=1 go test -timeout 0 ./a -run 'TestA' -args -seed=8", "seed 9: a TestA passed"}, 1},
	} {
		var out strings.Builder
		left := row.rounds
		over := func() bool { left--; return left <= 0 }
		failed, err := soak(t.Context(), &out, root, []target{{"a", "TestA", "-seed={}"}}, row.seed, over)
		if err != nil || failed != row.failed {
			t.Errorf("%d runs failed, %v, want %d", failed, err, row.failed)
		}
		var runs []string
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "seed ") || strings.HasPrefix(line, "To run") {
				runs = append(runs, line)
			}
		}
		if len(runs) != len(row.runs) {
			t.Fatalf("from seed %d, it printed %q, want lines like %q", row.seed, runs, row.runs)
		}
		for i, want := range row.runs {
			if !strings.HasPrefix(runs[i], want) {
				t.Errorf("from seed %d, line %d is %q, want it to begin with %q", row.seed, i, runs[i], want)
			}
		}
	}
}
