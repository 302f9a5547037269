// Package long tells tests whether integration/soak/run runs them, which takes as long as it is told.
// It sets the environment variable STOREFRONT_LONG. Without it, no test chooses at random, and
// all tests together take minutes.
package long

import (
	"flag"
	"os"
	"testing"
)

// Variable is the environment variable.
const Variable = "STOREFRONT_LONG"

// Seed is of the random choices of a test, or of the first round of integration/soak/run.
var Seed = flag.Uint64("seed", 1, "of random choices; each round of soak has the next one")

// Run reports whether integration/soak runs the test.
func Run() bool { return os.Getenv(Variable) != "" }

// Test skips a test that chooses at random, unless integration/soak runs it.
func Test(t testing.TB) {
	t.Helper()
	if !Run() {
		t.Skip("only in the long run: integration/soak/run")
	}
	t.Logf("seed %d", *Seed)
}

// Of returns how much of something there is: few, or many if integration/soak runs the test.
func Of(few, many int) int {
	if Run() {
		return many
	}
	return few
}
