package storefront_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"example.com/storefront/internal/exchanges"
)

var record = flag.Bool("record", false,
	"fill in the responses of the files in testdata/contract that have none")

// The files are described in testdata/contract/README.md.
func TestContract(t *testing.T) {
	for _, file := range contractFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			if *record {
				synctest.Test(t, func(t *testing.T) {
					if err := exchanges.Record(file, new(exchanges.MemStore)); err != nil {
						t.Fatal(err)
					}
				})
			}
			synctest.Test(t, func(t *testing.T) {
				if err := exchanges.Check(file, new(exchanges.MemStore), nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestContractHasEveryProblem(t *testing.T) {
	var all strings.Builder
	for _, file := range contractFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	document, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	types := regexp.MustCompile(`(?m)^ *("urn:problem-type:[^"]+"),?$`).FindAllSubmatch(document, -1)
	if len(types) == 0 {
		t.Fatal("openapi.json has no problem types")
	}
	for _, m := range types {
		if !strings.Contains(all.String(), string(m[1])) {
			t.Errorf("no recorded exchange has the problem %s", m[1])
		}
	}
}

func contractFiles(t *testing.T) []string {
	t.Helper()
	files, err := exchanges.Files("testdata/contract")
	if err != nil {
		t.Fatal(err)
	}
	return files
}
