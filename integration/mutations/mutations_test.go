package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/must"
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
			files := must.Get(filepath.Glob(filepath.Join(root, pkg, "*_test.go")))(t)
			for _, file := range files {
				text := must.Get(os.ReadFile(file))(t)
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
		must.OK(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	t.Setenv("GOWORK", "off")
	price := func(old, new string) mutation {
		return mutation{"it costs " + new, ".", "shop.price", old, new, "TestPrice"}
	}
	var out strings.Builder
	missed, err := run(&out, root, []mutation{price("3", "2"), price("3", "4"), price("3", "x")}, "")
	if missed != 1 || err == nil || !strings.Contains(err.Error(), "does not compile") ||
		!regexp.MustCompile(`^caught  it costs 2 .*\nMISSED  it costs 4 .*\n$`).MatchString(out.String()) {
		t.Errorf("%d missed, %v\n%s", missed, err, &out)
	}
	for want, m := range map[string]mutation{
		"2 times":               price("t", ""),
		"no function shop.cost": {"it is free", ".", "shop.cost", "3", "0", "TestPrice"},
	} {
		if _, err := run(&out, root, []mutation{m}, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", m.what, err, want)
		}
	}
}
