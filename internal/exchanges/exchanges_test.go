package exchanges

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"example.com/storefront"
	"example.com/storefront/internal/must"
)

// faultsOf compares two responses that are written as in the files. If a header or member
// is recorded as absent, the second response just does not have it.
func faultsOf(t *testing.T, recorded, now string) string {
	t.Helper()
	want, got := must.Get(parseRecorded(recorded))(t), must.Get(parseRecorded(now))(t)
	return strings.Join(want.faults(response{got.status, got.header, got.body}), "; ")
}

func TestCheckAllowsOnlyAddedHeaders(t *testing.T) {
	const recorded = `HTTP/1.1 200 OK
Allow: GET, HEAD
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

		{"a method is added", "GET, HEAD", "GET, POST, HEAD", ""},

		{"the status changes", "200 OK", "203 OK", "status 203, recorded is 200"},
		{"a header changes", "application/json", "text/json", `Content-Type: ["text/json"], recorded is ["application/json"]`},
		{"a header goes", "Content-Type: application/json\n", "", `Content-Type is missing, recorded is ["application/json"]`},
		{"a header gets one more value", "Vary: Cookie", "Vary: Cookie\nVary: Range", `Vary: ["Accept" "Cookie" "Range"], recorded is ["Accept" "Cookie"]`},
		{"a header loses a value", "Vary: Cookie\n", "", `Vary: ["Accept"], recorded is ["Accept" "Cookie"]`},
		{"the order of a header's values changes", "Vary: Accept\nVary: Cookie", "Vary: Cookie\nVary: Accept", `Vary: ["Cookie" "Accept"], recorded is ["Accept" "Cookie"]`},
		{"a header comes that was absent", "!Age", "Age: 0", `Age: ["0"], recorded is that there is none`},
		{"a method goes", "GET, HEAD", "GET, POST", `Allow: "GET, POST", recorded is that HEAD is among them`},
		{"the length goes", "Content-Length: 7\n", "", `Content-Length is missing, recorded is ["7"]`},
		{"the length is not the body's", "Content-Length: 7", "Content-Length: 8", "Content-Length: 8 with 7 bytes"},
		{"the tag changes and the bytes do not", `"t1"`, `"t2"`, `Etag: ["\"t2\""], recorded is ["\"t1\""]`},
		{"the bytes change and the tag does not", `{"n":1}`, `{"n": 1}`, `Etag is still ["\"t1\""], but the bytes have changed; Content-Length: 7 with 8 bytes`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := faultsOf(t, recorded, strings.Replace(recorded, c.old, c.new, 1)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestCheckAllowsOnlyAddedMembers(t *testing.T) {
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
			if got := faultsOf(t, status+c.recorded, status+c.got); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestRandomPartsMustHaveTheirPattern(t *testing.T) {
	const (
		a      = "0aaaaaaaaaaaaaaaaaaaaaaaav"
		b      = "BBBBBBBBBBBBBBBBBBBBBBBBB7"
		first  = "RANDOM00000000000000000001"
		second = "RANDOM00000000000000000002"
	)
	names := make(map[string]string)
	for _, c := range []struct{ name, body, want string }{
		{"the first gets a number", `{"id":"ord_` + a + `"}`, `{"id":"ord_` + first + `"}`},
		{"an incident is random, too, in another alphabet", `"urn:storefront:incident:` + b + `"`,
			`"urn:storefront:incident:` + second + `"`},
		{"one that was there has its own", `{"id":"ord_` + a + `"}`, `{"id":"ord_` + first + `"}`},
		{"another one gets another", `{"id":"ord_c` + a[1:] + `"}`, `{"id":"ord_RANDOM00000000000000000003"}`},
		{"too short", `"ord_` + a[1:] + `"`, `"ord_` + a[1:] + `"`},
		{"too long", `"ord_a` + a + `"`, `"ord_a` + a + `"`},
		{"another alphabet", `"ord_w` + a[1:] + `"`, `"ord_w` + a[1:] + `"`},
		{"another prefix", `"order_` + a + `"`, `"order_` + a + `"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := nameRandomParts(c.body, names); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestRecordWritesOnlyWhereNothingIsRecorded(t *testing.T) {
	const (
		blank    = "Two requests.\n\n-- request --\nHEAD /v1/users HTTP/1.1\n\n-- after 1s --\n\n-- request --\nGET /nowhere HTTP/1.1\n"
		response = "\n-- response --\nHTTP/1.1 200 OK\n"
	)
	file := filepath.Join(t.TempDir(), "new.txt")
	must.OK(t, os.WriteFile(filepath.Join(filepath.Dir(file), "store.json"), []byte("{}"), 0o644))
	// check checks the text, after recording its responses if that is wanted.
	check := func(text string, record bool) (after string, err error) {
		t.Helper()
		must.OK(t, os.WriteFile(file, []byte(text), 0o644))
		synctest.Test(t, func(t *testing.T) {
			if record {
				must.OK(t, Record(file))
			}
			err = Check(file, nil)
		})
		return string(must.Get(os.ReadFile(file))(t)), err
	}

	if after, err := check(blank, false); err == nil || after != blank {
		t.Errorf("without recording: %v; want an error and the same file, which is now\n%s", err, after)
	}
	recorded, err := check(blank, true)
	if err != nil || strings.Count(recorded, "-- response --\nHTTP/1.1 ") != 2 {
		t.Errorf("with recording: %v; want two responses in\n%s", err, recorded)
	}
	if after, err := check(recorded, true); err != nil || after != recorded {
		t.Errorf("what was recorded: %v; want it to pass and to stay as it is, now\n%s", err, after)
	}
	for _, text := range []string{
		strings.Replace(recorded, "HTTP/1.1 404", "HTTP/1.1 410", 1),
		strings.Replace(blank, "\n-- after", response+"\n-- after", 1), // the second request has none
	} {
		if after, err := check(text, true); err == nil || after != text {
			t.Errorf("with recording: %v; want an error and the same file, which is now\n%s\nand was\n%s", err, after, text)
		}
	}
}

func TestFilesWithMistakesAreRefused(t *testing.T) {
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
			steps, err := parse(c.text)
			if err == nil {
				_, err = replay(steps, new(storefront.MemStore), nil)
			}
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}
