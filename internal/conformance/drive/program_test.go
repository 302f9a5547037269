package drive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"example.com/storefront/internal/conformance"
)

func TestMain(m *testing.M) {
	if os.Getenv("STOREFRONT_URL") == "" {
		os.Exit(m.Run())
	}
	in := bufio.NewScanner(os.Stdin) // this is a program that prints its arguments, one for each line
	for _, line := range os.Args[1:] {
		if !in.Scan() {
			break
		}
		fmt.Println(line)
	}
	in.Scan()
}

func TestWhatAProgramPrints(t *testing.T) {
	const can = `{"can":["resume","lists","products"],"patience":30}`
	for _, row := range []struct{ can, line, id, err string }{
		{can, `{"item":"teapot","qty":2,"id":"ord_1"}`, "ord_1", ""},
		{can, `{"item":"teapot"}`, "", ""}, // as JavaScript writes an ID that is undefined
		{can, `{"error":"503"}`, "", "503"},
		{can, `{"error":"none left","created":false}`, "", "no order was created: none left"},
		{can, `{"error":"503","created":true}`, "", "503"},
		{can, `{"id":"ord_1","error":"503"}`, "", "for " + asked + `, it printed {"id":"ord_1","error":"503"}, which`},
		{can, "{\"id\":\"\u202e\",\"error\":\"\"}", "", "it printed {\"id\":\"\ufffd\",\"error\":\"\"}"},
		{can, `{"id":"ord_1","created":false}`, "", "which is an outcome and an error"},
		{can, "{\"id\":\"ord_1\"}\n{}", "ord_1", `the program printed "{}", for which it was not asked`},
		{can, "", "", `it printed ""`},
		{can, `null`, "", `it printed "null"`},
		{can, `{"id":1}`, "", `it printed "{\"id\":1}"`},
		{can, strings.Repeat(" ", mostOutput/10), "", "it printed"},
		{"", "", "", "it printed"},
		{`{"can":["fly"]}`, "", "", `it printed {"can":["fly"]}, but`},
		{`{"error":"what?"}`, "", "", `it printed {"error":"what?"}, but`},
	} {
		id, err := try(t, os.Args[0], row.can, row.line)
		if id != row.id || (err == nil) != (row.err == "") ||
			err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%.99s, %.99s: %q, %v; want %q, %s", row.can, row.line, id, err, row.id, row.err)
		}
		if errors.Is(err, conformance.ErrNotCreated) != strings.Contains(row.err, "no order was created") {
			t.Errorf("%s: %v", row.line, err)
		}
	}
	if _, err := try(t, "/no/such/program"); err == nil || !strings.Contains(err.Error(), "does not start") {
		t.Errorf("without a program: %v", err)
	}
}

const asked = `{"item":"teapot","qty":2}`

// try asks a program for an order.
func try(t *testing.T, command ...string) (id string, err error) {
	newClient, err := Program(t.Context(), command)
	if err != nil {
		return "", err
	}
	c := newClient("http://127.0.0.1:9", nil)
	if c.ResumeOrder == nil || c.Patience.Seconds() != 30 || c.ListUsers == nil || c.GetProduct == nil {
		t.Errorf("what %q says that it can is not heard", command)
	}
	if err = c.Start(); err == nil {
		id, err = c.CreateOrder(context.Background(), "teapot", 2)
	}
	return id, errors.Join(err, c.End())
}
