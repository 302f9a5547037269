package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/storefront/integration/internal/long"
)

func TestListIsUpToDate(t *testing.T) {
	const root = "../.."
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	mutations, err := parse(list)
	if err != nil {
		t.Fatal(err)
	}
	tests := make(map[string]string) // what a package's files of tests have
	for _, m := range mutations {
		for _, e := range m.edits {
			if _, err := e.apply(read(filepath.Join(root, e.file))); err != nil {
				t.Errorf("%s: %v", m.what, err)
			}
		}
		if tests[m.pkg] == "" {
			files, err := filepath.Glob(filepath.Join(root, m.pkg, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				tests[m.pkg] += read(file)
			}
		}
		name, _, _ := strings.Cut(m.test, "/")
		if !strings.Contains(tests[m.pkg], "\nfunc "+name+"(") {
			t.Errorf("%s: %s has no test %s", m.what, m.pkg, m.test)
		}
	}
}

func TestEntriesWithMistakesAreRefused(t *testing.T) {
	const good = "what\nin a.go\n-a\n+b\nby . TestA"
	if m, err := parse("# about\n\n" + good + "\nfast\n"); err != nil || len(m) != 1 || !m[0].fast {
		t.Fatalf("a good entry: %v, %v", m, err)
	}
	for name, entry := range map[string]string{
		"no test":           strings.TrimSuffix(good, "by . TestA"),
		"two tests":         good + "\nby . TestB",
		"no file":           "what\nby . TestA",
		"code before file":  "what\n-a\n+b\nby . TestA",
		"only added lines":  "what\nin a.go\n+b\nby . TestA",
		"the same":          "what\nin a.go\n-a\n+a\nby . TestA",
		"an unknown word":   good + "\nslow",
		"a place to go on":  "what\n...\nin a.go\n-a\nby . TestA",
		"no code in a file": "what\nin a.go\nin b.go\n-a\nby . TestA",
	} {
		if _, err := parse("# about\n\n" + entry); err == nil || !strings.Contains(err.Error(), "line 3") {
			t.Errorf("%s: %v, want an error that says line 3", name, err)
		}
	}
}

func TestLinesAreReplacedThatAreThereOnce(t *testing.T) {
	const text = "a\n\tb\n\tc\nb\nd\n"
	for name, row := range map[string]struct {
		before, after []string
		want          string // "": an error
	}{
		"one line":        {[]string{"c"}, []string{"C", "D"}, "a\n\tb\nC\nD\nb\nd\n"},
		"with its others": {[]string{"b", "c"}, []string{"b"}, "a\nb\nb\nd\n"},
		"none left":       {[]string{"d"}, nil, "a\n\tb\n\tc\nb\n"},
		"not there":       {[]string{"e"}, nil, ""},
		"there twice":     {[]string{"b"}, nil, ""},
		"an empty line":   {[]string{""}, nil, "a\n\tb\n\tc\nb\nd"},
	} {
		e := edit{"a.go", row.before, row.after}
		got, err := e.apply(text)
		if got != row.want || (err != nil) != (row.want == "") {
			t.Errorf("%s: %q, %v, want %q", name, got, err, row.want)
		}
	}
}

// shop is a repository of one package.
var shop = map[string]string{
	"go.mod": "module shop\n\ngo 1.26\n",
	"shop.go": `package shop

func price() int {
	return 3
}
`,
	"shop_test.go": `package shop

import (
	"os"
	"testing"
)

func TestPrice(t *testing.T) {
	switch got := price(); got {
	case 3:
	case 5:
		panic("five")
	case 6:
		select {}
	default:
		t.Errorf("the price is %d", got)
	}
}

func TestPositive(t *testing.T) {
	if price() < 0 {
		t.Error("the price is negative")
	}
}

func TestWrong(t *testing.T) { t.Error("as ever") }

func TestOnServers(t *testing.T) {
	t.Run("one", func(t *testing.T) {
		if price() > 3 {
			t.Error("the price is too high")
		}
	})
	t.Run("two", func(t *testing.T) {
		if os.Getenv("STOREFRONT_REQUIRE") != "" {
			t.Fatal("it is not there")
		}
		t.Skip("it is not there")
	})
}
`,
}

func newShop(t *testing.T) *copied {
	c := newCopied(t.TempDir())
	for name, text := range shop {
		if err := c.write(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func priceOf(what, returns, test string) *mutation {
	return &mutation{what: what, pkg: ".", test: test, ends: fails,
		edits: []edit{{"shop.go", []string{"return 3"}, []string{returns}}}}
}

func TestOnlyATestThatFailsCatches(t *testing.T) {
	long.Test(t)
	for returns, want := range map[string]ending{
		"return 4":    fails,
		"return 2+1":  passes,
		"return five": doesNotRun,
		"return 5":    panics,
	} {
		t.Run(returns, func(t *testing.T) {
			c := newShop(t)
			got, err := c.try(t.Context(), priceOf("", returns, "TestPrice"))
			if err != nil || got != want {
				t.Errorf("the test %s, %v, want that it %s:\n%s", got, err, want, c.said())
			}
			if text, err := os.ReadFile(filepath.Join(c.dir, "shop.go")); err != nil || string(text) != shop["shop.go"] {
				t.Errorf("afterwards, the file is %s, %v", text, err)
			}
		})
	}
}

func TestATestThatHangsIsNotWaitedFor(t *testing.T) {
	c := newShop(t)
	if err := c.write("shop.go", []byte(strings.Replace(shop["shop.go"], "3", "6", 1))); err != nil {
		t.Fatal(err)
	}
	if got, err := c.test(t.Context(), ".", "^TestPrice$", time.Second, demanding); err != nil || got != hangs {
		t.Errorf("the test %s, %v, want that it hangs:\n%s", got, err, c.said())
	}
}

func TestMissedMutationsAreShown(t *testing.T) {
	long.Test(t)
	c := newShop(t)
	var out bytes.Buffer
	err := c.tryAll(t.Context(), &out, []*mutation{
		priceOf("It is too high", "return 4", "TestPrice"),
		priceOf("It is too low", "return 2", "TestPositive"),
	})
	if !errors.Is(err, errNotCaught) {
		t.Errorf("the error is %v", err)
	}
	for _, says := range []string{`caught +\S+  It is too high\n +by \. TestPrice\n`, `MISSED +\S+  It is too low\n +by \. TestPositive\n +which passes`, "1 of 2 mutations"} {
		if !regexp.MustCompile(says).Match(out.Bytes()) {
			t.Errorf("it does not say %s:\n%s", says, &out)
		}
	}
}

func TestTestsMustPassWithoutAMutation(t *testing.T) {
	c := newShop(t)
	var out bytes.Buffer
	err := c.tryAll(t.Context(), &out, []*mutation{priceOf("It is too high", "return 4", "TestWrong")})
	if err == nil || errors.Is(err, errNotCaught) || !strings.Contains(err.Error(), "as ever") {
		t.Errorf("the error is %v", err)
	}
}

// A mutation that a test catches without it is caught. Of one that it does not catch,
// nobody knows.
func TestMutationsForWhatIsNotInstalledAreNotMissed(t *testing.T) {
	long.Test(t)
	t.Setenv("STOREFRONT_REQUIRE", "all") // as .ci/run has it
	c := newShop(t)
	var out bytes.Buffer
	if err := c.tryAll(t.Context(), &out, []*mutation{
		priceOf("It is too high", "return 4", "TestOnServers"),
		priceOf("It is too low", "return 2", "TestOnServers"),
		priceOf("It is far too low", "return -1", "TestPositive"),
	}); err != nil {
		t.Error(err)
	}
	for _, says := range []string{`(?m)^caught +\S+  It is too high$`, `(?m)^not installed +\S+  It is too low$`, `(?m)^caught +\S+  It is far too low$`,
		"2 of 3 mutations", "1 would need what is not installed"} {
		if !regexp.MustCompile(says).Match(out.Bytes()) {
			t.Errorf("it does not say %s:\n%s", says, &out)
		}
	}
}
