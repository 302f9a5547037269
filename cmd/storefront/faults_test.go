package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"example.com/storefront/internal/commandtest"
	"example.com/storefront/internal/must"
)

// client is a program that is asked for orders in lines of JSON.
func client(how string) {
	http.DefaultClient.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	for in := json.NewDecoder(os.Stdin); ; {
		var ask map[string]any
		if in.Decode(&ask) != nil {
			if how == "stays" {
				time.Sleep(time.Hour)
			}
			return
		}
		switch {
		case ask["can"] != nil:
			ask["can"] = []string{}
			if strings.HasSuffix(how, " fields") {
				ask["can"] = []string{"fields"}
			}
		case how == "interrupts":
			parent, _ := os.FindProcess(os.Getppid())
			parent.Signal(os.Interrupt)
			continue // without an answer
		default:
			status, id := place(how, ask)
			switch {
			case how == "dies of an answer" && status != 201:
				fmt.Fprintln(os.Stderr, "last\twords")
				os.Exit(3)
			case how == "errs" || status != 201 && how != "believes":
				ask["error"] = fmt.Sprint(status)
			default:
				ask["id"] = id
			}
		}
		json.NewEncoder(os.Stdout).Encode(ask)
	}
}

// place places an order, and returns the first final answer.
func place(how string, order map[string]any) (status int, id string) {
	if text, ok := order["fields"].(string); ok {
		order["fields"] = json.RawMessage(text)
		if how == "rounds fields" {
			order["fields"] = json.RawMessage(strings.Replace(text, "9007199254740993", "9007199254740992", 1))
		}
	}
	body, _ := json.Marshal(order)
	key := rand.Text()
	if how == "has a hash as its key" {
		key = fmt.Sprintf("%x", body)
	}
	for pause := 1100 * time.Millisecond; ; pause *= 2 { // which is more than any Retry-After here
		r, _ := http.NewRequest("POST", os.Getenv("STOREFRONT_URL")+"/v1/orders", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
		if response, err := http.DefaultClient.Do(r); err == nil {
			answer, err := io.ReadAll(response.Body)
			response.Body.Close()
			var created struct{ ID string }
			json.Unmarshal(answer, &created)
			if err == nil && response.StatusCode < 500 && response.StatusCode != 409 {
				return response.StatusCode, created.ID
			}
		}
		time.Sleep(pause)
	}
}

func TestProgramIsJudged(t *testing.T) {
	for _, row := range []struct {
		how    string
		only   string
		status int
		says   string
	}{
		{"right", "^orders/(the answer is lost|200 with|409 of|order-refused)|users/nothing", 0,
			`users: not tried: .*\n(.*\n)*orders: ([0-9]+) of ([0-9]+) checks passed\n\z`},
		{"has fields", "/nothing|^fields/503", 0,
			`orders: ([0-9]+) of ([0-9]+) checks passed\nfields: ([0-9]+) of ([0-9]+) checks passed\n\z`},
		{"rounds fields", "^fields/nothing", 1,
			`--- FAIL: fields/nothing is wrong/request\n.* is another order than was asked for: #/fields/big is 9007199254740992 in place of 9007199254740993`},
		{"stays", "^orders/nothing", 0, `checks passed\n\z`}, // where its standard input ends
		{"believes", "^orders/200 with", 1,
			`--- FAIL: orders/200 with an order/success\n(.*\n)*It fails also with the faults "200 `},
		{"has a hash as its key", "^orders/409 of", 1, `--- FAIL: orders/.*/own-key\n`},
		{"errs", "^orders/409 of", 1,
			`orders: the faults were not tried, as the client fails where nothing is wrong\n`},
		{"dies of an answer", "^orders/(200 with|order-refused$)", 1,
			`FAIL: orders/200 with an order\n.* asked for {"item":"teapot","qty":2}, it ended \(exit status 3\)\n` +
				`The last that it wrote to its standard error:\n    last\twords\n` +
				`It fails also with the faults ("orders/.*\s+)+$`},
	} {
		t.Run(row.how, func(t *testing.T) {
			t.Parallel()
			cmd := commandtest.Command(t, "-faults", "7", "-only", row.only, "--",
				must.Get(os.Executable())(t), row.how)
			out, err := cmd.CombinedOutput()
			commandtest.WantStatus(t, err, row.status)
			if !regexp.MustCompile(row.says).Match(out) {
				t.Errorf("%s is not in\n%s", row.says, out)
			}
		})
	}
}

func TestSignalEndsTheTrial(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	cmd := commandtest.Command(t, "-faults", "7", "-only", "nothing|never comes", "--",
		must.Get(os.Executable())(t), "right")
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	must.Get(out.Read(make([]byte, 1)))(t)
	cmd.Process.Signal(os.Interrupt)
	io.Copy(io.Discard, out)
	commandtest.WantStatus(t, cmd.Wait(), 3)

	text, err := commandtest.Command(t, "-faults", "7", "-only", "orders/nothing", "--",
		must.Get(os.Executable())(t), "interrupts").Output()
	commandtest.WantStatus(t, err, 3)
	if bytes.Contains(text, []byte("where nothing is wrong")) {
		t.Errorf("of a client whose first order was interrupted, it says:\n%s", text)
	}
}

func TestFaultFlagsThatAreWrong(t *testing.T) {
	for _, args := range []string{"-faults 7", "-faults 7 -only ( true", "-faults 7 -only nosuchfault true",
		"-only orders", "program", "-faults 7 -addr localhost:0 true", "-faults 7 -- /no/such/program",
		"-faults x true", "-faults list true", "-faults list -only nosuchfault"} {
		commandtest.WantRefusal(t, commandtest.Command(t, strings.Fields(args)...), 2)
	}
}

func TestFaultsAreListed(t *testing.T) {
	out, err := commandtest.Command(t, "-faults", "list", "-only", "^orders/the .* is lost").CombinedOutput()
	const want = "orders/the answer is lost after the order was created\n" +
		"orders/the request is lost before the service\n"
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s", err, out)
	}
}
