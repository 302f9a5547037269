package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestListIsUpToDate(t *testing.T) {
	const root, most = "../..", 60
	if len(mutations) > most {
		t.Errorf("there are %d mutations, more than %d", len(mutations), most)
	}
	tests := make(map[string]string) // what the files of tests of a package have
	for _, m := range mutations {
		if _, _, err := m.apply(root); err != nil {
			t.Errorf("%s: %v", m.what, err)
		}
		pkg, test := m.testIn()
		if tests[pkg] == "" {
			files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				tests[pkg] += string(text)
			}
		}
		if !strings.Contains(tests[pkg], "\nfunc "+test+"(t *testing.T)") {
			t.Errorf("%s: %s has no %s", m.what, pkg, test)
		}
	}
}

func TestOnlyATestThatFailsCatches(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module shop\n\ngo 1.26\n",
		"shop.go":      "package shop\n\ntype shop struct{}\n\nfunc (*shop) price() int { return 3 }\n\nfunc other() int { return 3 }\n",
		"shop_test.go": "package shop\n\nimport \"testing\"\n\nfunc TestPrice(t *testing.T) {\n\tif new(shop).price() < 3 {\n\t\tt.Error(\"too low\")\n\t}\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	for _, row := range []struct {
		m      mutation
		missed int
		says   string // what is printed, or the error
	}{
		{mutation{"low", ".", "shop.price", "3", "2", "TestPrice"}, 0, `^caught  low \(TestPrice\)\n$`},
		{mutation{"high", ".", "shop.price", "3", "4", "TestPrice"}, 1, `^MISSED  high \(TestPrice\)\n`},
		{mutation{"typo", ".", "shop.price", "3", "x", "TestPrice"}, 0, `it does not compile`},
		{mutation{"gone", ".", "shop.cost", "3", "2", "TestPrice"}, 0, `no function shop.cost`},
		{mutation{"twice", ".", "shop.price", "t", "", "TestPrice"}, 0, `2 times`},
		{mutation{"no test", ".", "shop.price", "3", "2", "TestCost"}, 0, `TestCost does not pass`},
	} {
		var out strings.Builder
		missed, err := run(&out, root, []mutation{row.m}, "")
		said := out.String()
		if err != nil {
			said = err.Error()
		}
		if missed != row.missed || !regexp.MustCompile(row.says).MatchString(said) {
			t.Errorf("%s: %d missed, %s", row.m.what, missed, said)
		}
	}
}
