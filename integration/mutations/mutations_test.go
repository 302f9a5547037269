package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/storefront/internal/must"
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
