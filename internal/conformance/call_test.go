package conformance

import (
	"fmt"
	"testing"
	"time"
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

// A client that cannot be asked may have left an order to its queue, but not before its time.
func TestQueueTakesOverAfterThePatienceOfTheClient(t *testing.T) {
	for _, row := range []struct {
		patience time.Duration
		tries    []time.Duration // when they ended, without an answer
		right    bool
	}{
		{0, []time.Duration{0, time.Second}, false},
		{30 * time.Second, []time.Duration{0, time.Second}, true},
		{30 * time.Second, []time.Duration{time.Second}, false},
		{30 * time.Second, []time.Duration{40 * time.Second}, true}, // which was a long one
	} {
		began := time.Now().Add(-time.Hour)
		c := &Call{Kind: Orders, Began: began, Patience: row.patience}
		for _, after := range row.tries {
			c.Exchanges = append(c.Exchanges, &Exchange{At: began, Ended: began.Add(after), Expected: true,
				Delivery: NoAnswer, Done: true})
		}
		if _, violation := goesOn(c, 0, c.parts()[0]); (violation == "") != row.right {
			t.Errorf("with a patience of %v, tries that ended after %v: %q", row.patience, row.tries, violation)
		}
	}
}

func TestHeaviestChecksComeFirst(t *testing.T) {
	var was Weight
	for _, c := range Checks(Orders) {
		if c.Weight < was {
			t.Errorf("%s, a %v, comes after a %v", c.Name, c.Weight, was)
		}
		was = c.Weight
	}
}
