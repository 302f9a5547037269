package conformance

import (
	"fmt"
	mathrand "math/rand/v2"
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
		if o := (&Exchange{Body: body}).Order(); o.Item != "teapot" || o.Qty != row.want {
			t.Errorf("%s orders %d of %q, want %d", body, o.Qty, o.Item, row.want)
		}
	}
}

// Stalls make no right client wrong. Of what says too little, nothing is said.
func TestWaitsAreJudgedWhateverIsStalled(t *testing.T) {
	const passed, failed, notMet = "passed", "failed", "not met"
	noise := mathrand.New(mathrand.NewPCG(7, 7))
	for _, row := range []struct {
		name           string
		clients, tries int
		wait           func(client, try int) time.Duration
		grow, differ   string
	}{
		{"grow by steps, and a quarter of the first are stalled", 16, 18,
			func(client, try int) time.Duration {
				if client < 12 && try == 1 {
					return 10 * time.Second
				}
				return time.Duration(try+1)*time.Second/4 + time.Duration(client)*time.Second/30
			}, passed, passed},
		{"do not grow", 16, 18, func(client, try int) time.Duration {
			return time.Duration(client*(try%3+1)) * time.Second / 10
		}, failed, passed},
		{"have no chance", 3, 6,
			func(_, try int) time.Duration { return time.Second / 4 << try }, passed, failed},
		{"are short and the same", 3, 6,
			func(int, int) time.Duration { return 10 * time.Millisecond }, failed, failed},
		{"are few, of any length", 3, 6, func(client, try int) time.Duration {
			return time.Duration(7*(client+1)*(try+2)%5+1) * time.Second
		}, notMet, passed},
		{"are none", 3, 6, func(int, int) time.Duration {
			return time.Duration(noise.Int64N(5e7))
		}, failed, passed},
	} {
		var calls []*Call
		for i := range row.clients {
			at := time.Unix(0, 0).Add(time.Duration(i) * time.Minute)
			c := &Call{Kind: Orders, Began: at, Outage: true}
			for try := range row.tries + 1 {
				c.Exchanges = append(c.Exchanges, &Exchange{At: at, Ended: at, Expected: true})
				at = at.Add(row.wait(i, try))
			}
			c.Results = []*Result{{To: len(c.Exchanges)}}
			calls = append(calls, c)
		}
		for _, check := range Checks(Orders) {
			want, known := map[string]string{"waits-grow": row.grow, "waits-differ": row.differ}[check.Name]
			met, violations := check.Judge(calls)
			got := map[bool]string{true: passed, false: notMet}[met]
			if violations != nil {
				got = failed
			}
			if known && got != want {
				t.Errorf("that waits %s: %s is %s, want %s: %v", row.name, check.Name, got, want, violations)
			}
		}
	}
}

func TestWhereOrdersDiffer(t *testing.T) {
	for _, row := range []struct{ want, got, says string }{
		{`{"item":"a","qty":2}`, ` {"qty":2.0, "item":"\u0061"}`, ""},
		{`{"item":"a","qty":2}`, `{"qty":2}`, `#/item is nothing in place of "a"`},
		{`{"item":"a"}`, `{"item":"a","gift":true}`, "#/gift is true in place of nothing"},
		{`{"fields":{"a/b":[1,{"":9007199254740993}]}}`, `{"fields":{"a/b":[1,{"":9007199254740992}]}}`,
			"#/fields/a~1b/1/ is 9007199254740992 in place of 9007199254740993"},
		{`{"a":{}}`, `{"a":"{}"}`, `#/a is "{}" in place of {}`},
		{`{"item":"café"}`, "{\"item\":\"cafe\u0301\"}", `#/item is "cafe\u0301" in place of "caf\u00e9"`},
		{`{"item":"a"}`, "item=a", "item=a is no JSON object"},
	} {
		if says := difference([]byte(row.want), []byte(row.got)); says != row.says {
			t.Errorf("%s, %s: %q, want %q", row.want, row.got, says, row.says)
		}
	}
}
