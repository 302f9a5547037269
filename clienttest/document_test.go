package clienttest_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"example.com/storefront/internal/trouble"
)

func TestChecksAreDocumented(t *testing.T) {
	document, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	want := "| Check | What is demanded |\n|---|---|\n"
	for _, kind := range []trouble.Kind{trouble.Orders, trouble.Users, trouble.Products} {
		for _, c := range trouble.Checks(kind) {
			want += fmt.Sprintf("| `%s` | %s |\n", c.Name, c.Promise)
		}
	}
	if !strings.Contains(string(document), want) {
		t.Errorf("docs/wire.md has not this table:\n%s", want)
	}
}
