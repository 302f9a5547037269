// Package long tells tests whether they may take long. The environment variable
// STOREFRONT_LONG=1 says so: cluster kills, fail-overs and thousands of orders run then.
// Without it, all tests together take minutes.
package long

import (
	"os"
	"testing"
)

// Command is how to run all, in the root of the repository.
const Command = "STOREFRONT_LONG=1 go test -timeout 60m ./sqlstore ./integration/..."

// Run reports whether this is the long run.
func Run() bool { return os.Getenv("STOREFRONT_LONG") != "" }

// Test skips a test that has no short form, unless this is the long run.
func Test(t testing.TB) {
	t.Helper()
	if !Run() {
		t.Skip("only in the long run: " + Command)
	}
}

// Of returns how much of something there is to be: less in the short run than in the long
// one.
func Of(short, long int) int {
	if Run() {
		return long
	}
	return short
}
