package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/long"
)

const root = "../.."

func TestCommittedFiguresAreOfTheCommittedOutput(t *testing.T) {
	files, err := figures(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s is not what this makes of docs/figures/*.txt: go run ./integration/figures", name)
		}
	}
}

func TestChartsAreXMLWithTitleAndDescription(t *testing.T) {
	files, err := figures(root)
	if err != nil {
		t.Fatal(err)
	}
	charts := 0
	for name, content := range files {
		if !strings.HasSuffix(name, ".svg") {
			continue
		}
		charts++
		texts := make(map[string]string)
		element := ""
		for decoder := xml.NewDecoder(bytes.NewReader(content)); ; {
			token, err := decoder.Token()
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			switch token := token.(type) {
			case xml.StartElement:
				element = token.Name.Local
			case xml.CharData:
				texts[element] += strings.TrimSpace(string(token))
			}
		}
		if texts["title"] == "" || len(texts["desc"]) < 100 {
			t.Errorf("%s has the title %q and the description %q", name, texts["title"], texts["desc"])
		}
	}
	if charts == 0 {
		t.Error("there are no charts")
	}
}

func TestOutputThatIsIncompleteIsRefused(t *testing.T) {
	for _, test := range []struct{ file, old, new, want string }{
		{"databases.txt", "BenchmarkHandwritten/MariaDB/create/callers=64", "BenchmarkOther/MariaDB/create/callers=64", "has no Handwritten/MariaDB/create/callers=64"},
		{"package.txt", "front-cpu-ns", "front-ns", "has no Socket/product front-cpu-ns"},
		{"size.txt", "BenchmarkSize/SQLite", "BenchmarkSize/MariaDB", "twice"},
		{"size.txt", "machine:", "other:", "does not say on what"},
		{"faults.txt", "TestDiskFull", "TestOther", "TestDiskFull acknowledged"},
		{"releases.txt", "TestReleasesSideBySide/MySQL", "TestOther", "TestReleasesSideBySide/MySQL acknowledged"},
		{"hours.txt", "TestHours/SQLite p99-ms-4", "TestHours/SQLite p99-ms-5", "TestHours has no SQLite p99-ms-4"},
		{"faults.txt", "=== ATTR", "=== ATTR  TestOther lost 0\n=== ATTR", "TestOther is in no row"},
	} {
		folder := t.TempDir()
		if err := os.CopyFS(filepath.Join(folder, "docs"), os.DirFS(root+"/docs")); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(folder, "docs/figures", test.file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, bytes.Replace(text, []byte(test.old), []byte(test.new), 1), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := figures(folder); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("with %s for %s in %s, the error is %v", test.new, test.old, test.file, err)
		}
	}
}

// What is measured is there, and whatever is kept can be measured.
func TestMeasurementsAreOfWhatThereIs(t *testing.T) {
	long.Test(t)
	var kept []string
	for _, m := range measurements {
		kept = append(kept, filepath.Join(root, "docs/figures", m.name+".txt"))
		cmd := exec.Command("go", append([]string{"test", "-list", m.pattern}, m.packages...)...)
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for alternative := range strings.SplitSeq(m.pattern, "|") {
			if !regexp.MustCompile(`(?m)^(Test|Benchmark)\w*` + alternative).Match(out) {
				t.Errorf("%s: nothing matches %s", m.name, alternative)
			}
		}
	}
	slices.Sort(kept)
	if files, err := filepath.Glob(filepath.Join(root, "docs/figures/*.txt")); err != nil || !slices.Equal(files, kept) {
		t.Errorf("docs/figures has %v, %v, and measured are %v", files, err, kept)
	}
}

func TestKeptOfFaultsAreAttributes(t *testing.T) {
	m := measurements[slices.IndexFunc(measurements, func(m measurement) bool { return m.name == "faults" })]
	const out = "=== RUN   TestA\n=== ATTR  TestA lost 0\n    a_test.go:1: seed 1\n=== ATTR  TestA did 2 kills\n--- PASS: TestA (0.1s)\nok\n"
	if got, want := string(m.kept([]byte(out))), "=== ATTR  TestA lost 0\n=== ATTR  TestA did 2 kills"; got != want {
		t.Errorf("%q is kept, want %q", got, want)
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.02346: "0.0235", 0.5: "0.5", 1: "1", 9.876: "9.88", 45.67: "45.7", 100: "100", 999.6: "1,000", 1234.5: "1,235", 12345678: "12,345,678"} {
		if got := number(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{12: "12 B", 5123: "5.12 kB", 2.5e9: "2.5 GB", 7e15: "7,000 TB"} {
		if got := bytesOf(v); got != want {
			t.Errorf("%v bytes are written %q, want %q", v, got, want)
		}
	}
}

func TestTouchedPages(t *testing.T) {
	for _, test := range []struct{ pages, n, least, most float64 }{
		{1, 1000, 1, 1},        // all of few
		{1e9, 1000, 999, 1000}, // one each of many
		{1000, 1000, 632, 633}, // 1 - 1/e of them
		{1000, 0, 0, 0},        // none
	} {
		if got := touched(test.pages, test.n); got < test.least || got > test.most {
			t.Errorf("%v writes to %v pages touch %v, want %v to %v", test.n, test.pages, got, test.least, test.most)
		}
	}
}
