// Package must ends a test whose preparation fails.
package must

// A T is a testing.TB, or a rapid.T.
type T interface {
	Helper()
	Fatal(args ...any)
}

// OK ends the test when there is an error.
func OK(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get is for calls with a result: v := must.Get(f())(t) is f's result, and ends the test at f's error.
func Get[V any](v V, err error) func(T) V {
	return func(t T) V {
		t.Helper()
		OK(t, err)
		return v
	}
}
