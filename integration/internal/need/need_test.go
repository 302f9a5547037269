package need

import (
	"os"
	"strings"
	"testing"

	"example.com/storefront/internal/must"
)

// The page that says what can be installed says how it is required.
func TestNamesAreDocumented(t *testing.T) {
	page := must.Get(os.ReadFile("../../../docs/development.md"))(t)
	for _, name := range append([]string{Variable}, Names...) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/development.md does not name `%s`", name)
		}
	}
}
