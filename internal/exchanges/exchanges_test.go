package exchanges

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		{"a member is added, and the tag and the length follow", "7\nContent-Type: application/json\nEtag: \"t1\"\nVary: Accept\nVary: Cookie\n!Age\n\n{\"n\":1}",
			"13\nContent-Type: application/json\nEtag: \"t2\"\nVary: Accept\nVary: Cookie\n\n{\"n\":1,\"m\":2}", ""},

		{"a method is added", "GET, HEAD", "GET, POST, HEAD", ""},

		{"the status changes", "200 OK", "203 OK", "status 203, recorded is 200"},
		{"a header changes", "application/json", "text/json", `Content-Type: ["text/json"], recorded is ["application/json"]`},
		{"a header goes", "Content-Type: application/json\n", "", `Content-Type is missing, recorded is ["application/json"]`},
		{"a header gets one more value", "Vary: Cookie", "Vary: Cookie\nVary: Range", `Vary: ["Accept" "Cookie" "Range"], recorded is ["Accept" "Cookie"]`},
		{"a header comes that was absent", "!Age", "Age: 0", `Age: ["0"], recorded is that there is none`},
		{"a method goes", "GET, HEAD", "GET, POST", `Allow: "GET, POST", recorded is that HEAD is among them`},
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
		{"the order of the members changes", `{"n": 1, "m": 2}`, `{"m":2,"n":1}`, ""},
		{"a member is added", `{"n": 1}`, `{"n":1,"m":{}}`, ""},
		{"a body that is not recorded changes", "...", "anything", ""},
		{"a string that is not recorded changes", `{"s": "..."}`, `{"s":"anything"}`, ""},
		{"a detail is worded better", `{"detail": "s"}`, `{"detail":"t"}`, ""},

		{"a member goes", `{"n": 1, "m": 2}`, `{"n":1}`, "#/m is missing"},
		{"a member changes", `{"n": 1}`, `{"n":2}`, "#/n is 2 (json.Number), recorded is 1 (json.Number)"},
		{"a detail goes", `{"detail": "s"}`, `{}`, "#/detail is missing"},
		{"a number is written in another way", `{"n": 1}`, `{"n":1.0}`, "#/n is 1.0 (json.Number), recorded is 1 (json.Number)"},
		{"a member becomes null", `{"n": [1]}`, `{"n":null}`, "#/n is <nil> (<nil>), recorded is [1] ([]interface {})"},
		{"an array grows", `[1]`, `[1,2]`, "# is [1 2] ([]interface {}), recorded is [1] ([]interface {})"},
		{"the order of an array changes", `["a", "b"]`, `["b","a"]`, "#/0 is b (string), recorded is a (string); #/1 is a (string), recorded is b (string)"},
		{"a member comes that was absent", "{\"n\": 1}\n!#/next", `{"n":1,"next":null}`, "#/next is there, recorded is that it is not"},
		{"JSON becomes text", `{"n": 1}`, "n=1", `the body "n=1" is not JSON`},
		{"a body comes where there was none", "", `{"n":1}`, `the body is "{\"n\":1}", recorded is ""`},
		{"a string that is not recorded becomes empty", `{"s": "..."}`, `{"s":""}`, "#/s is  (string), recorded is ... (string)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := faultsOf(t, status+c.recorded, status+c.got); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestCheckGivesWhatIsNotRecorded(t *testing.T) {
	text := "Two requests.\n"
	file := filepath.Join(t.TempDir(), "new.txt")
	must.OK(t, os.WriteFile(filepath.Join(filepath.Dir(file), "store.json"), []byte("{}"), 0o644))
	for _, request := range []string{"HEAD /v1/users", "GET /nowhere"} {
		text += "\n-- request --\n" + request + " HTTP/1.1\n"
		must.OK(t, os.WriteFile(file, []byte(text), 0o644))
		_, given, found := strings.Cut(fmt.Sprint(Check(file, nil)), "\n\n")
		text += "\n" + given
		must.OK(t, os.WriteFile(file, []byte(text), 0o644))
		if err := Check(file, nil); err != nil || !found {
			t.Errorf("with the response that it gives: %v\n%s", err, text)
		}
	}
	must.OK(t, os.WriteFile(file, []byte(strings.Replace(text, "HTTP/1.1 404", "HTTP/1.1 410", 1)), 0o644))
	if Check(file, nil) == nil {
		t.Error("no error for another response")
	}
}
