package storefront

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

var recordContract = flag.Bool("record", false, "fill in the responses of the files in testdata/contract that have none")

// The files are described in testdata/contract/README.md.
func TestContract(t *testing.T) {
	files, err := filepath.Glob("testdata/contract/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no recorded exchanges: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			if err := checkContract(t, file, *recordContract); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestContractHasEveryProblem(t *testing.T) {
	files, err := filepath.Glob("testdata/contract/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for problem := range problemTypes {
		if _, code, _ := problem.describe(); !strings.Contains(all.String(), `"urn:problem-type:storefront:`+code+`"`) {
			t.Errorf("no recorded exchange has the problem %s", code)
		}
	}
}

// checkContract replays a file and returns how the responses break what is
// recorded in it. If nothing is, and record is set, it records them.
func checkContract(t *testing.T, file string, record bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	steps, err := parseContract(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var exchanges []contractExchange
	synctest.Test(t, func(*testing.T) { exchanges, err = replayContract(steps) })
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}

	recorded := slices.ContainsFunc(exchanges, func(e contractExchange) bool { return e.want != nil })
	if !recorded && record {
		return os.WriteFile(file, renderContract(string(text), exchanges), 0o644)
	}
	var faults []error
	for _, e := range exchanges {
		if e.want == nil {
			faults = append(faults, fmt.Errorf("%s:%d: no response is recorded for this request: see README.md there", file, e.line))
			continue
		}
		for _, fault := range e.want.faults(e.got) {
			faults = append(faults, fmt.Errorf("%s:%d: %s", file, e.line, fault))
		}
	}
	return errors.Join(faults...)
}

// A contractStep is a line such as "-- request --" and the text that follows it.
type contractStep struct {
	line int
	verb string
	arg  string
	text string
}

var contractMarker = regexp.MustCompile(`^-- (\S+)(?: (.*))? --$`)

func parseContract(text string) ([]contractStep, error) {
	var steps []contractStep
	var about strings.Builder
	for i, line := range strings.SplitAfter(text, "\n") {
		if m := contractMarker.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			steps = append(steps, contractStep{line: i + 1, verb: m[1], arg: m[2]})
		} else if len(steps) == 0 {
			about.WriteString(line)
		} else {
			steps[len(steps)-1].text += line
		}
	}
	if strings.TrimSpace(about.String()) == "" {
		return nil, errors.New("the first line must say what the exchange shows")
	}
	if len(steps) == 0 {
		return nil, errors.New("there is no request")
	}
	return steps, nil
}

// A contractExchange is a request's response, now and as it is recorded.
type contractExchange struct {
	line int // of the request
	end  int // the line after the request
	got  response
	want *contractResponse
}

func replayContract(steps []contractStep) ([]contractExchange, error) {
	data, err := os.Open("testdata/contract/store.json")
	if err != nil {
		return nil, err
	}
	defer data.Close()
	store := new(contractStore)
	if err := store.Load(data); err != nil {
		return nil, err
	}
	h, err := newContractService(store, "")
	if err != nil {
		return nil, err
	}
	names := make(map[string]string)
	var exchanges []contractExchange
	for i, step := range steps {
		var err error
		switch step.verb {
		case "request":
			var r *http.Request
			if r, err = contractRequest(step); err == nil {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				exchanges = append(exchanges, contractExchange{
					line: step.line,
					end:  step.line + 1 + strings.Count(step.text, "\n"),
					got:  response{w.Code, w.Result().Header, nameRandomParts(w.Body.String(), names)},
				})
			}
		case "response":
			if i == 0 || steps[i-1].verb != "request" {
				err = errors.New("a response must follow its request")
			} else {
				exchanges[len(exchanges)-1].want, err = parseContractResponse(step.text)
			}
		case "after":
			var d time.Duration
			d, err = time.ParseDuration(step.arg)
			time.Sleep(d)
		case "service":
			h, err = newContractService(store, step.arg)
		case "store":
			err = store.become(step.arg)
		case "put":
			err = store.Load(strings.NewReader(step.arg))
		case "delete":
			err = store.delete(step.arg)
		default:
			err = errors.New("there is no such step")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", step.line, step.verb, err)
		}
	}
	return exchanges, nil
}

// newContractService returns the handler with options such as "Shared MaxAge=10s".
func newContractService(store Store, options string) (http.Handler, error) {
	opts := &Options{Logger: slog.New(slog.DiscardHandler)}
	for _, option := range strings.Fields(options) {
		var err error
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "PageSize":
			opts.PageSize, err = strconv.Atoi(value)
		case "MaxPageSize":
			opts.MaxPageSize, err = strconv.Atoi(value)
		case "MaxAge":
			opts.MaxAge, err = time.ParseDuration(value)
		case "Shared":
			opts.Shared = true
		case "CacheSize":
			opts.CacheSize, err = strconv.Atoi(value)
		case "Scope":
			opts.Scope = func(r *http.Request) string { return r.Header.Get(value) }
		default:
			err = errors.New("there is no such option")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", option, err)
		}
	}
	return NewWithOptions(store, opts), nil
}

// contractRequest parses a request as it is on the wire, but with lines that end
// in LF and a Content-Length that may be left out.
func contractRequest(step contractStep) (*http.Request, error) {
	head, body, _ := strings.Cut(strings.TrimRight(step.text, "\n"), "\n\n")
	lowerHead := strings.ToLower(head)
	switch {
	case strings.Contains(lowerHead, "\ntransfer-encoding:"):
		body = strings.ReplaceAll(body, "\n", "\r\n") + "\r\n\r\n"
	case body != "" && !strings.Contains(lowerHead, "\ncontent-length:"):
		head += "\nContent-Length: " + strconv.Itoa(len(body))
	}
	wire := strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire)))
	if err != nil {
		return nil, err
	}
	switch step.arg {
	case "":
	case "that stalls":
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(body), iotest.ErrReader(os.ErrDeadlineExceeded)))
	default:
		return nil, fmt.Errorf("there is no request %q", step.arg)
	}
	return r, nil
}

var contractRandom = regexp.MustCompile(`("ord_|"urn:storefront:incident:)([A-Z2-7]{26})"`)

// nameRandomParts replaces the random part of IDs by a number that counts the
// different ones, in as many characters. What is not of their pattern stays.
func nameRandomParts(body string, names map[string]string) string {
	return contractRandom.ReplaceAllStringFunc(body, func(found string) string {
		m := contractRandom.FindStringSubmatch(found)
		if names[m[2]] == "" {
			names[m[2]] = fmt.Sprintf("RANDOM%020d", len(names)+1)
		}
		return m[1] + names[m[2]] + `"`
	})
}

// A contractStore is a MemStore that can fail.
type contractStore struct {
	MemStore
	failure error
}

func (s *contractStore) become(state string) error {
	switch state {
	case "working":
		s.failure = nil
	case "unavailable":
		s.failure = fmt.Errorf("db-3: %w", ErrUnavailable)
	case "in-progress":
		s.failure = fmt.Errorf("db-3: %w", ErrInProgress)
	case "failing":
		s.failure = errors.New("db-3: disk full")
	default:
		return fmt.Errorf("it cannot be %q", state)
	}
	return nil
}

// delete deletes what for instance "users ada" names.
func (s *contractStore) delete(arg string) error {
	collection, id, _ := strings.Cut(arg, " ")
	switch collection {
	case "users":
		s.Users.Delete(id)
	case "products":
		s.Products.Delete(id)
	case "widgets":
		s.Widgets.Delete(id)
	default:
		return fmt.Errorf("there are no %s", collection)
	}
	return nil
}

func (s *contractStore) ListUsers(ctx context.Context, after string, limit int) ([]Resource, error) {
	if s.failure != nil {
		return nil, s.failure
	}
	return s.MemStore.ListUsers(ctx, after, limit)
}

func (s *contractStore) CreateOrder(ctx context.Context, key IdempotencyKey, order Order) (Order, error) {
	if s.failure != nil {
		return Order{}, s.failure
	}
	return s.MemStore.CreateOrder(ctx, key, order)
}

func (s *contractStore) GetProduct(ctx context.Context, id string) (Resource, error) {
	if s.failure != nil {
		return Resource{}, s.failure
	}
	return s.MemStore.GetProduct(ctx, id)
}

func (s *contractStore) ListWidgets(ctx context.Context, start string, limit int) ([]Resource, error) {
	if s.failure != nil {
		return nil, s.failure
	}
	return s.MemStore.ListWidgets(ctx, start, limit)
}

// renderContract returns text with the responses behind their requests.
func renderContract(text string, exchanges []contractExchange) []byte {
	lines := strings.SplitAfter(strings.TrimRight(text, "\n")+"\n", "\n")
	var b bytes.Buffer
	from := 0
	for _, e := range exchanges {
		end := min(e.end-1, len(lines))
		b.WriteString(strings.TrimRight(strings.Join(lines[from:end], ""), "\n"))
		from = end
		fmt.Fprintf(&b, "\n\n-- response --\nHTTP/1.1 %d %s\n", e.got.status, http.StatusText(e.got.status))
		for _, name := range slices.Sorted(maps.Keys(e.got.header)) {
			for _, value := range e.got.header[name] {
				fmt.Fprintf(&b, "%s: %s\n", name, value)
			}
		}
		if e.got.body != "" {
			b.WriteString("\n")
			if json.Indent(&b, []byte(e.got.body), "", "  ") != nil {
				b.WriteString(e.got.body)
			}
			b.WriteString("\n")
		}
		b.WriteString("\n")
	}
	b.WriteString(strings.Join(lines[from:], ""))
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}

// A contractResponse is what is recorded of a response.
type contractResponse struct {
	status        int
	header        http.Header
	absentHeaders []string
	body          string
	absentMembers []string // JSON Pointers as URI fragments
}

// unrecorded stands in the place of a body, or of a string in one, that is no part
// of the contract.
const unrecorded = "..."

func parseContractResponse(text string) (*contractResponse, error) {
	head, body, _ := strings.Cut(strings.TrimRight(text, "\n"), "\n\n")
	lines := strings.Split(head, "\n")
	c := &contractResponse{header: make(http.Header)}
	if _, err := fmt.Sscanf(lines[0], "HTTP/1.1 %d ", &c.status); err != nil {
		return nil, fmt.Errorf("%q is not a status line", lines[0])
	}
	for _, line := range lines[1:] {
		if name, ok := strings.CutPrefix(line, "!"); ok {
			c.absentHeaders = append(c.absentHeaders, name)
			continue
		}
		name, value, ok := strings.Cut(line, ": ")
		if !ok {
			return nil, fmt.Errorf("%q is not a header line", line)
		}
		c.header.Add(name, value)
	}
	for line := range strings.Lines(body) {
		if pointer, ok := strings.CutPrefix(line, "!#/"); ok {
			c.absentMembers = append(c.absentMembers, strings.TrimSpace(pointer))
		} else {
			c.body += line
		}
	}
	c.body = strings.TrimRight(c.body, "\n")
	return c, nil
}

// faults returns in what ways got is more than c with additions.
func (c *contractResponse) faults(got response) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if got.status != c.status {
		fault("status %d, recorded is %d", got.status, c.status)
	}
	for _, name := range slices.Sorted(maps.Keys(c.header)) {
		want, have := c.header[name], got.header[name]
		switch {
		case have == nil:
			fault("%s is missing, recorded is %q", name, want)
		case name == "Content-Length":
			// An added member makes the body longer.
		case name == "Etag" && !c.sameBytes(got.body):
			if slices.Equal(want, have) {
				fault("Etag is still %q, but the bytes have changed", have)
			}
		case !slices.Equal(want, have):
			fault("%s: %q, recorded is %q", name, have, want)
		}
	}
	for _, name := range c.absentHeaders {
		if have, ok := got.header[http.CanonicalHeaderKey(name)]; ok {
			fault("%s: %q, recorded is that there is none", name, have)
		}
	}
	if n := got.header.Get("Content-Length"); n != "" && got.body != "" && n != strconv.Itoa(len(got.body)) {
		fault("Content-Length: %s with %d bytes", n, len(got.body))
	}

	want, wantErr := decodeContractJSON(c.body)
	have, haveErr := decodeContractJSON(got.body)
	switch {
	case c.body == unrecorded:
		if got.body == "" {
			fault("the body is missing")
		}
	case wantErr != nil && c.body != got.body:
		fault("the body is %q, recorded is %q", got.body, c.body)
	case wantErr == nil && haveErr != nil:
		fault("the body %q is not JSON", got.body)
	case wantErr == nil:
		faults = append(faults, jsonFaults("#", want, have)...)
	}
	for _, pointer := range c.absentMembers {
		if jsonHas(have, strings.Split(pointer, "/")) {
			fault("#/%s is there, recorded is that it is not", pointer)
		}
	}
	return faults
}

// sameBytes reports whether body is the recorded one, which is indented, to the
// byte.
func (c *contractResponse) sameBytes(body string) bool {
	var compact bytes.Buffer
	if json.Compact(&compact, []byte(c.body)) != nil {
		return true // not to be seen here
	}
	return compact.String() == body
}

func decodeContractJSON(text string) (v any, err error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err = dec.Decode(&v); err == nil && dec.More() {
		err = errors.New("there is more than one value")
	}
	return v, err
}

// jsonFaults returns in what ways got is more than want with additional members.
func jsonFaults(path string, want, got any) (faults []string) {
	switch want := want.(type) {
	case map[string]any:
		if got, ok := got.(map[string]any); ok {
			for _, name := range slices.Sorted(maps.Keys(want)) {
				member := path + "/" + name
				value, ok := got[name]
				if text, isText := value.(string); name == "detail" && isText && text != "" {
					continue // it is for people, and may be worded better
				}
				if ok {
					faults = append(faults, jsonFaults(member, want[name], value)...)
				} else {
					faults = append(faults, member+" is missing")
				}
			}
			return faults
		}
	case []any:
		if got, ok := got.([]any); ok && len(got) == len(want) {
			for i := range want {
				faults = append(faults, jsonFaults(path+"/"+strconv.Itoa(i), want[i], got[i])...)
			}
			return faults
		}
	default:
		text, _ := got.(string)
		if want == got || want == unrecorded && text != "" {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s is %v (%[2]T), recorded is %v (%[3]T)", path, got, want)}
}

// jsonHas reports whether v has what the tokens of a JSON Pointer lead to.
func jsonHas(v any, tokens []string) bool {
	if len(tokens) == 0 {
		return true
	}
	switch v := v.(type) {
	case map[string]any:
		member, ok := v[tokens[0]]
		return ok && jsonHas(member, tokens[1:])
	case []any:
		i, err := strconv.Atoi(tokens[0])
		return err == nil && i < len(v) && jsonHas(v[i], tokens[1:])
	}
	return false
}

// contractFaultsOf compares two responses that are written as in the files. What
// is recorded as absent is just not there in the second one.
func contractFaultsOf(t *testing.T, recorded, now string) string {
	t.Helper()
	want, err := parseContractResponse(recorded)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseContractResponse(now)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(want.faults(response{got.status, got.header, got.body}), "; ")
}

func TestContractAllowsOnlyAddedHeaders(t *testing.T) {
	const recorded = `HTTP/1.1 200 OK
Content-Length: 7
Content-Type: application/json
Etag: "t1"
Vary: Accept
Vary: Cookie
!Age

{"n":1}`
	for _, c := range []struct{ name, old, new, want string }{
		{"nothing changes", "", "", ""},
		{"a header is added", "!Age", "Server: x", ""},
		{"the order of the headers changes", "Vary: Accept\nVary: Cookie\n!Age", "!Age\nVary: Accept\nVary: Cookie", ""},
		{"a member is added, and the tag and the length follow", "7\nContent-Type: application/json\nEtag: \"t1\"\nVary: Accept\nVary: Cookie\n!Age\n\n{\"n\":1}",
			"13\nContent-Type: application/json\nEtag: \"t2\"\nVary: Accept\nVary: Cookie\n\n{\"n\":1,\"m\":2}", ""},

		{"the status changes", "200 OK", "203 OK", "status 203, recorded is 200"},
		{"a header changes", "application/json", "text/json", `Content-Type: ["text/json"], recorded is ["application/json"]`},
		{"a header goes", "Content-Type: application/json\n", "", `Content-Type is missing, recorded is ["application/json"]`},
		{"a header gets one more value", "Vary: Cookie", "Vary: Cookie\nVary: Range", `Vary: ["Accept" "Cookie" "Range"], recorded is ["Accept" "Cookie"]`},
		{"a header loses a value", "Vary: Cookie\n", "", `Vary: ["Accept"], recorded is ["Accept" "Cookie"]`},
		{"the order of a header's values changes", "Vary: Accept\nVary: Cookie", "Vary: Cookie\nVary: Accept", `Vary: ["Cookie" "Accept"], recorded is ["Accept" "Cookie"]`},
		{"a header comes that was absent", "!Age", "Age: 0", `Age: ["0"], recorded is that there is none`},
		{"the length goes", "Content-Length: 7\n", "", `Content-Length is missing, recorded is ["7"]`},
		{"the length is not the body's", "Content-Length: 7", "Content-Length: 8", "Content-Length: 8 with 7 bytes"},
		{"the tag changes and the bytes do not", `"t1"`, `"t2"`, `Etag: ["\"t2\""], recorded is ["\"t1\""]`},
		{"the bytes change and the tag does not", `{"n":1}`, `{"n": 1}`, `Etag is still ["\"t1\""], but the bytes have changed; Content-Length: 7 with 8 bytes`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := contractFaultsOf(t, recorded, strings.Replace(recorded, c.old, c.new, 1)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestContractAllowsOnlyAddedMembers(t *testing.T) {
	const status = "HTTP/1.1 200 OK\n\n"
	for _, c := range []struct{ name, recorded, got, want string }{
		{"nothing changes", `{"n": 1, "list": ["a", null]}`, `{"n":1,"list":["a",null]}`, ""},
		{"the order of the members changes", `{"n": 1, "m": 2}`, `{"m":2,"n":1}`, ""},
		{"a member is added", `{"n": 1}`, `{"n":1,"m":{}}`, ""},
		{"a member is added inside an array", `{"list": [{"n": 1}]}`, `{"list":[{"n":1,"m":2}]}`, ""},
		{"a text that is not JSON stays", "hello", "hello", ""},
		{"a body that is not recorded changes", "...", "anything", ""},
		{"a string that is not recorded changes", `{"s": "..."}`, `{"s":"anything"}`, ""},
		{"a detail is worded better", `{"detail": "s"}`, `{"detail":"t"}`, ""},

		{"a member goes", `{"n": 1, "m": 2}`, `{"n":1}`, "#/m is missing"},
		{"a member goes inside an array", `{"list": [{"n": 1}]}`, `{"list":[{}]}`, "#/list/0/n is missing"},
		{"a member changes", `{"n": 1}`, `{"n":2}`, "#/n is 2 (json.Number), recorded is 1 (json.Number)"},
		{"a detail goes", `{"detail": "s"}`, `{}`, "#/detail is missing"},
		{"a detail becomes empty", `{"detail": "s"}`, `{"detail":""}`, "#/detail is  (string), recorded is s (string)"},
		{"a number is written in another way", `{"n": 1}`, `{"n":1.0}`, "#/n is 1.0 (json.Number), recorded is 1 (json.Number)"},
		{"a number becomes a string", `{"n": 1}`, `{"n":"1"}`, "#/n is 1 (string), recorded is 1 (json.Number)"},
		{"a member becomes null", `{"n": [1]}`, `{"n":null}`, "#/n is <nil> (<nil>), recorded is [1] ([]interface {})"},
		{"null becomes an object", `{"n": null}`, `{"n":{}}`, "#/n is map[] (map[string]interface {}), recorded is <nil> (<nil>)"},
		{"an object becomes an array", `{"n": {}}`, `{"n":[]}`, "#/n is [] ([]interface {}), recorded is map[] (map[string]interface {})"},
		{"an array is shortened", `[1, 2]`, `[1]`, "# is [1] ([]interface {}), recorded is [1 2] ([]interface {})"},
		{"an array grows", `[1]`, `[1,2]`, "# is [1 2] ([]interface {}), recorded is [1] ([]interface {})"},
		{"the order of an array changes", `["a", "b"]`, `["b","a"]`, "#/0 is b (string), recorded is a (string); #/1 is a (string), recorded is b (string)"},
		{"a member comes that was absent", "{\"n\": 1}\n!#/next", `{"n":1,"next":null}`, "#/next is there, recorded is that it is not"},
		{"a member comes inside an array that was absent", "{\"list\": [{}]}\n!#/list/0/n", `{"list":[{"n":1}]}`, "#/list/0/n is there, recorded is that it is not"},
		{"JSON becomes text", `{"n": 1}`, "n=1", `the body "n=1" is not JSON`},
		{"JSON goes", `{"n": 1}`, "", `the body "" is not JSON`},
		{"two values come in the place of one", `{"n": 1}`, `{"n":1}{}`, `the body "{\"n\":1}{}" is not JSON`},
		{"a text changes", "hello", "Hello", `the body is "Hello", recorded is "hello"`},
		{"a body comes where there was none", "", `{"n":1}`, `the body is "{\"n\":1}", recorded is ""`},
		{"a body that is not recorded goes", "...", "", "the body is missing"},
		{"a string that is not recorded becomes empty", `{"s": "..."}`, `{"s":""}`, "#/s is  (string), recorded is ... (string)"},
		{"a string that is not recorded becomes a number", `{"s": "..."}`, `{"s":1}`, "#/s is 1 (json.Number), recorded is ... (string)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := contractFaultsOf(t, status+c.recorded, status+c.got); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestContractRandomPartsMustHaveTheirPattern(t *testing.T) {
	const (
		a      = "AAAAAAAAAAAAAAAAAAAAAAAAA2"
		b      = "BBBBBBBBBBBBBBBBBBBBBBBBB7"
		first  = "RANDOM00000000000000000001"
		second = "RANDOM00000000000000000002"
	)
	names := make(map[string]string)
	for _, c := range []struct{ name, body, want string }{
		{"the first gets a number", `{"id":"ord_` + a + `"}`, `{"id":"ord_` + first + `"}`},
		{"another one gets another", `{"id":"ord_` + b + `"}`, `{"id":"ord_` + second + `"}`},
		{"one that was there has its own", `{"id":"ord_` + a + `"}`, `{"id":"ord_` + first + `"}`},
		{"an incident is random, too", `"urn:storefront:incident:` + b + `"`, `"urn:storefront:incident:` + second + `"`},
		{"too short", `"ord_` + a[1:] + `"`, `"ord_` + a[1:] + `"`},
		{"too long", `"ord_A` + a + `"`, `"ord_A` + a + `"`},
		{"another alphabet", `"ord_1` + a[1:] + `"`, `"ord_1` + a[1:] + `"`},
		{"another prefix", `"order_` + a + `"`, `"order_` + a + `"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := nameRandomParts(c.body, names); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestContractRecordsOnlyWhereNothingIsRecorded(t *testing.T) {
	const (
		blank    = "Two requests.\n\n-- request --\nHEAD /v1/users HTTP/1.1\n\n-- after 1s --\n\n-- request --\nGET /nowhere HTTP/1.1\n"
		response = "\n-- response --\nHTTP/1.1 200 OK\n"
	)
	file := filepath.Join(t.TempDir(), "new.txt")
	check := func(text string, record bool) (string, error) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		err := checkContract(t, file, record)
		after, readErr := os.ReadFile(file)
		if readErr != nil {
			t.Fatal(readErr)
		}
		return string(after), err
	}

	if after, err := check(blank, false); err == nil || after != blank {
		t.Errorf("without -record: %v; want an error and the same file, which is now\n%s", err, after)
	}
	recorded, err := check(blank, true)
	if err != nil || strings.Count(recorded, "-- response --\nHTTP/1.1 ") != 2 {
		t.Errorf("with -record: %v; want two responses in\n%s", err, recorded)
	}
	if after, err := check(recorded, true); err != nil || after != recorded {
		t.Errorf("what was recorded: %v; want it to pass and to stay as it is, now\n%s", err, after)
	}
	for _, text := range []string{
		strings.Replace(recorded, "HTTP/1.1 404", "HTTP/1.1 410", 1),
		strings.Replace(blank, "\n-- after", response+"\n-- after", 1), // the second request has none
	} {
		if after, err := check(text, true); err == nil || after != text {
			t.Errorf("with -record: %v; want an error and the same file, which is now\n%s\nand was\n%s", err, after, text)
		}
	}
}

func TestContractFilesWithMistakesAreRefused(t *testing.T) {
	const request = "-- request --\nGET /v1/users HTTP/1.1\n"
	for _, c := range []struct{ name, text, want string }{
		{"it does not say what it shows", "\n" + request, "the first line must say what the exchange shows"},
		{"it has no request", "Nothing.\n", "there is no request"},
		{"a step has a typo", "Typo.\n-- requst --\n", "line 2: requst: there is no such step"},
		{"a response comes first", "First.\n-- response --\nHTTP/1.1 200 OK\n", "line 2: response: a response must follow its request"},
		{"a response comes twice", "Twice.\n" + request + "-- response --\nHTTP/1.1 200 OK\n-- response --\nHTTP/1.1 200 OK\n", "line 6: response: a response must follow its request"},
		{"a request has no request line", "GET.\n-- request --\nGET /v1/users\n", `line 2: request: malformed HTTP request "GET /v1/users"`},
		{"a request is of an unknown kind", "Kind.\n-- request twice --\nGET /v1/users HTTP/1.1\n", `line 2: request: there is no request "twice"`},
		{"a response has no status line", "200.\n" + request + "-- response --\n200\n", `line 4: response: "200" is not a status line`},
		{"a response has no header line", "Age.\n" + request + "-- response --\nHTTP/1.1 200 OK\nAge\n", `line 4: response: "Age" is not a header line`},
		{"a time has no unit", "Unit.\n-- after 10 --\n", `line 2: after: time: missing unit in duration "10"`},
		{"an option does not exist", "Option.\n-- service Size=1 --\n", "line 2: service: Size=1: there is no such option"},
		{"the store is in no known state", "State.\n-- store slow --\n", `line 2: store: it cannot be "slow"`},
		{"a deletion is from nowhere", "Delete.\n-- delete orders ord_1 --\n", "line 2: delete: there are no orders"},
	} {
		t.Run(c.name, func(t *testing.T) {
			steps, err := parseContract(c.text)
			if err == nil {
				_, err = replayContract(steps)
			}
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}
