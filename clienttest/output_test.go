package clienttest_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"example.com/storefront/clienttest"
	"example.com/storefront/internal/must"
)

// inOutput is the environment variable of the process whose output is judged: the name of
// the client that it tests.
const inOutput = "CLIENTTEST_OUTPUT"

// A bareClient places orders, and does nothing else.
type bareClient func(ctx context.Context, item string, qty int64) (string, error)

func (create bareClient) CreateOrder(ctx context.Context, item string, qty int64) (string, error) {
	return create(ctx, item, qty)
}

func TestSuiteWhoseOutputIsJudged(t *testing.T) {
	newClient := map[string]func(*testing.T, clienttest.Service) clienttest.Client{
		"bare": func(_ *testing.T, s clienttest.Service) clienttest.Client {
			return bareClient(newSubject(s).CreateOrder)
		},
		"broken": func(*testing.T, clienttest.Service) clienttest.Client {
			return bareClient(func(context.Context, string, int64) (string, error) { return "ord_1", nil })
		},
		"keys": func(_ *testing.T, s clienttest.Service) clienttest.Client {
			return bareClient(changed(wrongClients[0].change)(s).CreateOrder)
		},
	}[os.Getenv(inOutput)]
	if newClient == nil {
		t.Skip("Other tests run it.")
	}
	clienttest.RunSynctest(t, newClient)
}

// output returns what a run on a client prints.
func output(t *testing.T, client string, args ...string) string {
	t.Helper()
	self := must.Get(os.Executable())(t)
	const run = "-test.run=^TestSuiteWhoseOutputIsJudged$/^/^(nothing|408|503|the_answer_is_lost|ResumeOrder)"
	cmd := exec.CommandContext(t.Context(), self, append(args, run)...)
	cmd.Env = append(os.Environ(), inOutput+"="+client)
	out, _ := cmd.CombinedOutput() // which says whether it failed
	return string(out)
}

func TestWhatIsNotCheckedIsSaid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"has left unchecked", "FieldsCreator, Lister, ProductGetter, HistoryLister", "Resumer", "PASS"}},
		{[]string{"-test.v"}, []string{
			"SKIP: TestSuiteWhoseOutputIsJudged/users", "Not checked: walks through users",
			"the methods of clienttest.Lister.",
			"SKIP: TestSuiteWhoseOutputIsJudged/orders/ResumeOrder",
			"PASS: TestSuiteWhoseOutputIsJudged/orders/408",
		}},
	} {
		out := output(t, "bare", c.args...)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("with %q, it does not say %q:\n%s", c.args, want, out)
			}
		}
	}
}

func TestFailureTellsWhatHappened(t *testing.T) {
	t.Parallel()
	out := output(t, "keys", "-clienttest.seed=3")
	if !regexp.MustCompile(`(?s)` + strings.Join([]string{
		`FAIL: TestSuiteWhoseOutputIsJudged/orders/the_answer_is_lost_after_the_order_was_created/one-key`,
		`Request 2 has another key than request 1`,
		`The broken promise \(second order\): All tries of an order have one key`,
		`What that can cost: .*delivers twice`,
		`-clienttest.seed=3:`,
		`0\.000 s  CreateOrder\(ctx, "teapot", 2\) is called`,
		`0\.000 s  1\. POST /v1/orders  Idempotency-Key: \w+  \{"item":"teapot","qty":2\}`,
		`the connection is closed without an answer; the shop has created the order ord_\w+`,
		`2\. POST /v1/orders  Idempotency-Key: `, `201 .*it returns the order "ord_`,
	}, ".*")).MatchString(out) {
		t.Errorf("it says\n%.3000s", out)
	}
}

func TestClientThatFailsWhereNothingIsWrongMeetsNoFault(t *testing.T) {
	t.Parallel()
	out := output(t, "broken", "-test.v")
	if !strings.Contains(out, "The other faults were not tried") || strings.Contains(out, "503") ||
		!strings.Contains(out, "No request has come.") {
		t.Errorf("it says\n%s", out)
	}
}
