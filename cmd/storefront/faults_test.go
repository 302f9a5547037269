package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
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
	switch how {
	case "starts another", "starts another and stays":
		conn, err := net.Dial("tcp", os.Args[2])
		if err != nil {
			log.Fatal(err)
		}
		other := exec.Command(os.Args[0], "has a connection")
		if other.Stdin, err = conn.(*net.TCPConn).File(); err == nil {
			err = other.Start()
		}
		if err != nil {
			log.Fatal(err)
		}
	case "has a connection":
		io.Copy(io.Discard, os.Stdin)
		return
	}
	for in := json.NewDecoder(os.Stdin); ; {
		var ask map[string]any
		if in.Decode(&ask) != nil {
			if strings.HasSuffix(how, "stays") {
				time.Sleep(time.Hour)
			}
			return
		}
		switch {
		case how == "dies":
			os.Exit(3)
		case how == "says hello":
			fmt.Println("hello")
		case ask["item"] == nil:
			ask["error"] = "it only orders"
		default:
			status, id := place(os.Getenv("STOREFRONT_URL"), how, ask)
			if ask["id"] = id; status != 201 && how != "believes" || how == "errs" {
				delete(ask, "id")
				ask["error"] = fmt.Sprint(status)
			}
		}
		json.NewEncoder(os.Stdout).Encode(ask)
	}
}

// place places an order with a key, and returns the first final answer.
func place(shop, key string, order map[string]any) (status int, id string) {
	body, _ := json.Marshal(order)
	key = fmt.Sprintf("%s %x", key, body)
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		r, _ := http.NewRequest("POST", shop+"/v1/orders", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
		r.Header.Set("User-Agent", "shop client")
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
		status int
		says   string // on the standard output or the standard error
	}{
		{"right", 0, `\A[0-9]+ passed(, [0-9]+ not met)?\n(.*\n)*.*not tried: users: it only orders\n`},
		{"believes", 1, `\nlost order: failed success in order [0-9]+ \(teapot [0-9]+\) and 1 more, with ` +
			`the fault “200 with .*\n(.*\n)*  Also in order [0-9]+ \(teapot [0-9]+\), with the fault “200 `},
		{"errs", 1, `; the faults were not tried, as it fails where nothing is wrong\n`},
		{"stays", 0, `\A[0-9]+ passed`},
		{"dies", 1, `storefront: the program ended \(exit status 3\) when it was asked for {"`},
		{"says hello", 1, `storefront: the program printed "hello", which is no outcome`},
	} {
		t.Run(row.how, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			junit, report := filepath.Join(dir, "junit.xml"), filepath.Join(dir, "report.json")
			cmd := commandtest.Command(t, "-addr", "localhost:0", "-trouble", "7", "-junit", junit,
				"-json", report, "-only", "^orders/(the answer is lost|200 with|409 of)|users/nothing", "--",
				must.Get(os.Executable())(t), row.how)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			stdout, err := cmd.Output()
			commandtest.WantStatus(t, err, row.status)
			_, said, _ := strings.Cut(string(stdout), "Finishing the requests in flight.\n")
			if said += stderr.String(); !regexp.MustCompile(row.says).MatchString(said) {
				t.Errorf("%s is not in\n%s", row.says, said)
			}
			if text := must.Get(os.ReadFile(report))(t); !json.Valid(text) {
				t.Errorf("the report is no JSON: %s", text)
			}
			failed := strings.Contains(string(must.Get(os.ReadFile(junit))(t)), "<failure")
			if want := row.how == "believes" || row.how == "errs"; failed != want {
				t.Errorf("the file for CI has a failure: %t, want %t", failed, want)
			}
		})
	}
}

func TestWhatAProgramHasStartedEndsWithIt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no process groups")
	}
	for _, how := range []string{"starts another", "starts another and stays"} {
		listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer listener.Close()
		out, err := commandtest.Command(t, "-addr", "localhost:0", "-trouble", "7", "-only", "^orders/nothing", "--",
			must.Get(os.Executable())(t), how, listener.Addr().String()).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		conn := must.Get(listener.Accept())(t)
		defer conn.Close() // which ends the other, too
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("of a program that %s, the other lives", how)
		}
	}
}

// A client that is a program of its own is judged when the shop ends, and in full if it has reported what
// it believes.
func TestClientIsJudgedAtTheEnd(t *testing.T) {
	for _, row := range []struct {
		key, outcome string
		status       int
		says         string
	}{
		{"a", "", 3, ", 4 not judged: report your outcomes"},
		{"b", "item=teapot&id=", 0, "shop client: orders (1 created): "},
		{"c", "item=teapot&id=7", 1, "wrong data: failed right-id in order 1 (teapot)"},
	} {
		p := commandtest.Start(t, "-trouble", "7", "-only", "^orders/nothing")
		_, id := place(p.Base, row.key, map[string]any{"item": "teapot", "qty": 1})
		if row.outcome != "" {
			form := must.Get(url.ParseQuery(row.outcome))(t)
			if form.Get("id") == "" {
				form.Set("id", id)
			}
			response := must.Get(http.PostForm(p.Base+"/-/trouble/outcomes", form))(t)
			if response.Body.Close(); response.StatusCode != 204 {
				t.Errorf("the outcome is answered %s", response.Status)
			}
		}
		wantAt(t, p, "/-/trouble", 200, "<h2>shop client</h2>")
		// It is nothing to try by hand: that would be a client with faults.
		if first := p.Printed[0]; !strings.HasPrefix(first, "Serving on "+p.Base+"/, with faults (seed 7)") {
			t.Errorf("it begins with %q", first)
		}
		p.Signal(t, os.Interrupt)
		said := ""
		for p.Out.Scan() {
			said += p.Out.Text() + "\n"
		}
		commandtest.WantStatus(t, p.Wait(), row.status)
		if !strings.Contains(said, row.says) {
			t.Errorf("%q is not in\n%s", row.says, said)
		}
	}
}

func TestItStaysIfItIsTold(t *testing.T) {
	p := commandtest.Start(t, "-trouble", "7", "-stay", "-only", "^orders/nothing", "--",
		must.Get(os.Executable())(t), "right")
	for p.Out.Scan() && !strings.HasPrefix(p.Out.Text(), "The run is over.") {
	}
	wantAt(t, p, "/-/trouble", 200, "nothing is wrong")
	p.End(t)
}

func TestFaultFlagsThatAreWrong(t *testing.T) {
	for _, args := range []string{"-trouble 7 -only (", "-trouble 7 -only nosuchfault", "-stay", "program",
		"-trouble 7 -patience -1s", "-trouble 7 -- /no/such/program"} {
		cmd := commandtest.Command(t, append([]string{"-addr", "localhost:0"}, strings.Fields(args)...)...)
		commandtest.WantRefusal(t, cmd, 2)
	}
}
