package conformance

import (
	"fmt"
	"testing"
)

// Clients write a number as their language does, and may write it in another way when they try again.
func TestNumbersAreValues(t *testing.T) {
	for _, row := range []struct {
		qty  string
		want int64
	}{{"2", 2}, {"2.0", 2}, {"20e-1", 2}, {"9007199254740991", 1<<53 - 1}, {"9007199254740991.0", 1<<53 - 1},
		{"2.5", 0}, {`"2"`, 0}, {"3", 3}} {
		body := fmt.Appendf(nil, `{"item":"teapot","qty":%s}`, row.qty)
		if item, qty := (&Exchange{Body: body}).Order(); item != "teapot" || qty != row.want {
			t.Errorf("%s orders %d of %q, want %d", body, qty, item, row.want)
		}
		if same := (&Exchange{Body: body}).SameOrder(&Exchange{Body: []byte(`{"qty":2,"item":"teapot"}`)}); same != (row.want == 2) {
			t.Errorf("%s is the same as of 2: %t", body, same)
		}
	}
}
