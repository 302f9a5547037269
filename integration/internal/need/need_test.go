package need

import (
	"os"
	"strings"
	"testing"
)

// The outcomes of a test that lacks something.
const skipped, failed, panicked = "skipped", "failed", "panicked"

func TestRequired(t *testing.T) {
	for _, row := range []struct{ variable, want string }{
		{"", skipped},
		{"all", failed},
		{MySQL, failed},
		{Postgres, skipped},
		{Postgres18, skipped},
		{Postgres + "," + MySQL, failed},
		{MySQL + ",", failed},
		{MySQL + ",mongodb", panicked},
		{"1", panicked},
	} {
		t.Run(row.variable, func(t *testing.T) {
			t.Setenv(Variable, row.variable)
			if got := without(MySQL); got != row.want {
				t.Errorf("without MySQL, a test is %s, want %s", got, row.want)
			}
		})
	}
	for variable, want := range map[string]string{"all": skipped, Java: failed} {
		t.Setenv(Variable, variable)
		if got := without(Java); got != want {
			t.Errorf("%s: without Java, a test is %s, want %s", variable, got, want)
		}
	}
}

// without returns what Missing does with a test.
func without(name string) (outcome string) {
	defer func() {
		if recover() != nil && outcome == "" {
			outcome = panicked
		}
	}()
	Missing(&observed{outcome: &outcome}, name, "it is not there")
	return outcome
}

// An observed is a test that goes on, and tells what it has been told.
type observed struct {
	testing.TB
	outcome *string
}

func (o *observed) Helper()      {}
func (o *observed) Fatal(...any) { *o.outcome = failed }
func (o *observed) Skip(...any) {
	if *o.outcome == "" {
		*o.outcome = skipped
	}
}

// The page that says what can be installed says how it is required.
func TestNamesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/development.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{Variable}, Names...) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/development.md does not name `%s`", name)
		}
	}
}
