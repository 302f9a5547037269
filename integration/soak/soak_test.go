package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/storefront/internal/must"
)

// Each target names tests that there are.
func TestTargetsExist(t *testing.T) {
	for _, g := range targets {
		files := must.Get(filepath.Glob("../../" + g.pkg + "/*_test.go"))(t)
		var names []string
		for _, file := range files {
			text := must.Get(os.ReadFile(file))(t)
			for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
				names = append(names, found[1])
			}
		}
		for alternative := range strings.SplitSeq(g.tests, "|") {
			if !slices.ContainsFunc(names, regexp.MustCompile(alternative).MatchString) {
				t.Errorf("%s has no test like %s", g.pkg, alternative)
			}
		}
	}
}
