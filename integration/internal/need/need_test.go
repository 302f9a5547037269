package need

import (
	"os"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/must"
)

func TestRequired(t *testing.T) {
	for _, row := range []struct {
		variable string
		want     any
	}{
		{"", false}, {"all", true}, {MySQL, true}, {Postgres, false}, {Postgres18, false},
		{Postgres + "," + MySQL, true}, {MySQL + ",", true}, {MySQL + ",mongodb", "panic"}, {"1", "panic"},
	} {
		t.Setenv(Variable, row.variable)
		got := func() (got any) {
			defer func() {
				if recover() != nil {
					got = "panic"
				}
			}()
			return Required(MySQL)
		}()
		if got != row.want {
			t.Errorf("with %q, whether MySQL is required is %v, want %v", row.variable, got, row.want)
		}
	}
}

// The page that says what can be installed says how it is required.
func TestNamesAreDocumented(t *testing.T) {
	page := must.Get(os.ReadFile("../../../docs/development.md"))(t)
	for _, name := range append([]string{Variable}, Names...) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/development.md does not name `%s`", name)
		}
	}
}
