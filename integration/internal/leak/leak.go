// Package leak fails a package whose tests leave goroutines behind.
package leak

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"
)

// Main is for TestMain: it runs the tests, and expects that no goroutine is left but those of
// programs that live as long as the test binary.
func Main(m *testing.M) {
	goleak.VerifyTestMain(tests{m},
		goleak.IgnoreAnyFunction("example.com/storefront/integration/internal/process.Start.func1"),
	)
}

type tests struct{ *testing.M }

func (m tests) Run() int {
	defer http.DefaultClient.CloseIdleConnections()
	return m.M.Run()
}
