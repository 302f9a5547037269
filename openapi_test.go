package storefront

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront/internal/ijson"
	"example.com/storefront/internal/must"
)

// An apiDocument is a decoded OpenAPI document.
type apiDocument struct {
	root map[string]any
}

func decodeAPI(t *testing.T, text string) apiDocument {
	t.Helper()
	var d apiDocument
	must.OK(t, json.Unmarshal([]byte(text), &d.root))
	return d
}

// at returns the value that the keys lead to from v, through references, or nil.
func (d apiDocument) at(v any, keys ...string) any {
	for {
		m, _ := v.(map[string]any)
		if target, ok := m["$ref"].(string); ok {
			v = d.at(d.root, strings.Split(strings.TrimPrefix(target, "#/"), "/")...)
			continue
		}
		if len(keys) == 0 {
			return v
		}
		v, keys = m[keys[0]], keys[1:]
	}
}

func (d apiDocument) component(kind, name string) map[string]any {
	return d.at(d.root, "components", kind, name).(map[string]any)
}

// reading returns a shop with all options, in which everybody is ann.
func reading(store *MemStore) http.Handler {
	scope := func(*http.Request) string { return "ann" }
	return NewWithOptions(store, &Options{Orders: store, OrderFields: true, Scope: scope})
}

// walk calls visit with every object below v, also behind references.
func (d apiDocument) walk(v any, visit func(map[string]any)) {
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			d.walk(element, visit)
		}
	case map[string]any:
		visit(v)
		if v["$ref"] != nil {
			d.walk(d.at(v), visit)
		}
		for key, value := range v {
			if key != "example" && key != "examples" {
				d.walk(value, visit)
			}
		}
	}
}

// What a later release adds must not fail a client that was generated from this document, such as a method
// in Allow or a longer item, and neither must what something on the way takes off.
func TestOpenAPIDemandsOfAnswersOnlyWhatIsPromised(t *testing.T) {
	d := decodeAPI(t, get(reading(new(MemStore)), "/openapi.json").body)
	for path, item := range d.at(d.root, "paths").(map[string]any) {
		for method, operation := range item.(map[string]any) {
			d.walk(d.at(operation, "responses"), func(v map[string]any) {
				for _, key := range []string{"pattern", "enum", "const", "minimum", "maximum", "minLength",
					"maxLength", "minItems", "maxItems"} {
					if _, isMember := v[key].(map[string]any); v[key] != nil && !isMember {
						t.Errorf("%s %s: an answer has the bound %s: %v", method, path, key, v)
					}
				}
				if v["required"] == true || v["additionalProperties"] == false {
					t.Errorf("%s %s demands of an answer: %v", method, path, v)
				}
			})
		}
	}
	required := d.component("schemas", "Problem")["required"]
	if diff := cmp.Diff([]any{"type", "title", "status"}, required); diff != "" {
		t.Errorf("what a Problem of a program has (-), and what one must have (+):\n%s", diff)
	}
}

// The pattern is lenient with spaces beyond U+00FF: literal ones, \u and \p{Z} each
// break a tool in use. From U+3001 on there are neither spaces nor control
// characters, and this test is content with every 97th character.
func TestOpenAPIRefusesNoItemThatTheServiceAccepts(t *testing.T) {
	pattern := regexp.MustCompile(decodeAPI(t, openAPI).component("schemas", "Item")["pattern"].(string))
	var body []byte
	for r := range rune(utf8.MaxRune + 1) {
		switch {
		case !utf8.ValidRune(r) || ijson.IsNoncharacter(r):
			continue // these cannot be sent
		case r > '\u3000' && (unicode.IsSpace(r) || unicode.IsControl(r)):
			t.Fatalf("%q is a space or a control character", r)
		case r > '\u3000' && r%97 != 0:
			continue
		}
		for _, item := range []string{string(r), "a" + string(r)} {
			body = append(ijson.AppendString(append(body[:0], `{"qty":1,"item":`...), item), '}')
			_, _, faults := new(service).decodeOrder(body)
			lenient := r > 0xFF && unicode.IsSpace(r)
			if accepted := faults == nil; accepted != pattern.MatchString(item) && !lenient {
				t.Errorf("%q: accepted: %t, matched: %t", item, accepted, !accepted)
			}
		}
	}
}

// The pattern leaves out some spellings of parameters that are seldom sent: byte sequences
// without padding, and characters beyond ASCII.
func TestOpenAPIDescribesTheKeysThatTheServiceAccepts(t *testing.T) {
	schema := decodeAPI(t, openAPI).component("parameters", "IdempotencyKey")["schema"]
	pattern := regexp.MustCompile(schema.(map[string]any)["pattern"].(string))
	lines := []string{`abc`, `a b`, `a;b=1`, `a,b`, `a"b`, `"abc"`, `""`, `"a\"\\,"`, `"a\b"`, `"abc`, `"a"b`,
		`"a", "b"`, `'a'`, `é`, `"é"`, `"a";`, `"a" ;b`}
	for _, n := range []int{255, 256} {
		lines = append(lines, strings.Repeat("k", n), `"`+strings.Repeat(`\"`, n)+`"`)
	}
	for c := ' '; c <= '~'; c++ {
		lines = append(lines, fmt.Sprintf(`"a";%c`, c), fmt.Sprintf(`"a";b%c`, c), fmt.Sprintf(`"a";b=%c`, c),
			fmt.Sprintf(`"a";b=c%c`, c), fmt.Sprintf(`"a";b="%c"`, c), fmt.Sprintf(`"a";b=%%"%c"`, c))
	}
	for _, value := range []string{
		`1`, `-1`, `1.5`, `1.`, `1.2345`, `999999999999999`, `1000000000000000`, `999999999999.999`,
		`1000000000000.0`, `"x, y"`, `"\x"`, `t/o:k*`, `::`, `:YQ==:`, `:YWI=:`, `:YWJj:`, `:Y:`, `:YQ==`,
		`?0`, `?2`, `@-1`, `@1.5`, `%"%20%7e"`, `%"%7E"`, `%"%ff"`, `%"`, `=`, ``,
	} {
		lines = append(lines, `"a";b=`+value, `"a"; b;c=`+value+`;d`)
	}
	for _, line := range lines {
		line = strings.TrimSpace(line) // as net/http does
		_, _, fault := parseIdempotencyKey([]string{line})
		if accepted := fault == nil; accepted != pattern.MatchString(line) {
			t.Errorf("%s: accepted: %t, matched: %t", line, accepted, !accepted)
		}
	}
}

func TestOpenAPIIsServedWithTheLimitsOfOptions(t *testing.T) {
	text, err := os.ReadFile("openapi.json")
	base, ok := strings.CutSuffix(get(New(new(MemStore)), "/openapi.json").body, "\n}\n")
	if more, begins := strings.CutPrefix(string(text), base); !ok || !begins || err != nil ||
		!strings.HasPrefix(more, ",\n  \"x-options\": {") {
		t.Errorf("by default the file is not served as it is, without its last member: %v", err)
	}
	h := NewWithOptions(new(MemStore), &Options{PageSize: 7, MaxPageSize: 20})
	file, served := strings.Split(openAPI, "\n"), strings.Split(get(h, "/openapi.json").body, "\n")
	var got []string
	for i, line := range served {
		if i < len(served)-3 && line != file[i] {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := []string{
		`"schema": { "type": "integer", "minimum": 1, "maximum": 20, "default": 7 },`, // of users
		`"schema": { "type": "integer", "minimum": 1, "maximum": 20 },`,               // of widgets
		`"detail": "limit is required: a whole number from 1 to 20.",`,                // in an example
		`"maximum": 20`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines that options change, wanted (-) and served (+):\n%s", diff)
	}
	all := get(NewWithOptions(new(MemStore), &Options{PageSize: 7, MaxPageSize: 20, Orders: new(MemStore),
		Scope: func(*http.Request) string { return "" }}), "/openapi.json").body // where it is written anew
	for text, want := range map[string]int{`"default": 7`: 2, `"default": 50`: 0, `"maximum": 20`: 4, `"maximum": 500`: 0} {
		if n := strings.Count(all, text); n != want {
			t.Errorf("with orders that are read back, %s is served %d times, want %d", text, n, want)
		}
	}
}
