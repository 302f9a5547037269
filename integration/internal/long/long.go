// Package long tells tests whether they may take long. The environment variable
// STOREFRONT_LONG says so: with 1, all tests run, also those that have no short form, such as
// cluster kills and fail-overs; with full, they are also of the sizes that
// docs/failures.md has. Without it, all tests together take minutes.
package long

import (
	"os"
	"testing"
)

// Variable is the environment variable.
const Variable = "STOREFRONT_LONG"

// Command is how to run all, in the root of the repository.
const Command = Variable + "=1 go test -timeout 60m ./integration/..."

// Run reports whether all tests are to run.
func Run() bool { return os.Getenv(Variable) != "" }

// Test skips a test that has no short form, unless all are to run.
func Test(t testing.TB) {
	t.Helper()
	if !Run() {
		t.Skip("only in the long run: " + Command)
	}
}

// Of returns how much of something there is to be.
func Of(short, full int) int {
	if os.Getenv(Variable) == "full" {
		return full
	}
	return short
}
