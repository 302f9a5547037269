package storefront

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
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

// object is at for an object; one that is not there is empty.
func (d apiDocument) object(v any, keys ...string) map[string]any {
	m, _ := d.at(v, keys...).(map[string]any)
	return m
}

func (d apiDocument) schema(name string) map[string]any {
	return d.object(d.root, "components", "schemas", name)
}

// methods are the operations of a path, in lower case.
func (d apiDocument) methods(path string) []string {
	keys := slices.Sorted(maps.Keys(d.object(d.root, "paths", path)))
	return slices.DeleteFunc(keys, func(key string) bool { return key == "parameters" })
}

// parameters returns those of an operation that are in query, header or path.
func (d apiDocument) parameters(path, method, in string) map[string]map[string]any {
	all := map[string]map[string]any{}
	item := d.object(d.root, "paths", path)
	for _, list := range []any{item["parameters"], d.at(item, method, "parameters")} {
		params, _ := list.([]any)
		for _, p := range params {
			if param := d.object(p); param["in"] == in {
				all[param["name"].(string)] = param
			}
		}
	}
	return all
}

// reading returns a shop with all options, in which everybody is ann.
func reading(store *MemStore) http.Handler {
	scope := func(*http.Request) string { return "ann" }
	return NewWithOptions(store, &Options{Orders: store, OrderFields: true, Scope: scope})
}

// fullAPI returns a shop with all options, and its document.
func fullAPI(t *testing.T) (http.Handler, apiDocument) {
	h := reading(new(MemStore))
	return h, decodeAPI(t, get(h, "/openapi.json").body)
}

// An undocumented route has no recorded exchange either, as integration/wire holds these against the document.
func TestOpenAPIDocumentsTheMethods(t *testing.T) {
	h, d := fullAPI(t)
	for path := range d.object(d.root, "paths") {
		allow := send(h, "OPTIONS", path, "").header.Get("Allow")
		want := slices.Sorted(strings.SplitSeq(strings.ToLower(allow), ", "))
		if diff := cmp.Diff(want, d.methods(path)); diff != "" {
			t.Errorf("%s: methods of the code (-) and of the document (+):\n%s", path, diff)
		}
	}
}

func TestOpenAPIStatesTheLimitsOfTheCode(t *testing.T) {
	_, d := fullAPI(t)
	opts := Options{}
	opts.setDefaults()
	limit := func(path string) map[string]any {
		return d.object(d.parameters(path, "get", "query")["limit"], "schema")
	}
	for _, c := range []struct {
		limit string
		got   any
		want  float64
	}{
		{"users per page without limit", limit("/v1/users")["default"], float64(opts.PageSize)},
		{"users per page", limit("/v1/users")["maximum"], float64(opts.MaxPageSize)},
		{"orders per page without limit", limit("/v1/orders")["default"], float64(opts.PageSize)},
		{"orders per page", limit("/v1/orders")["maximum"], float64(opts.MaxPageSize)},
		{"widgets per page", limit("/v2/widgets")["maximum"], float64(opts.MaxPageSize)},
		{"characters of item", d.schema("Item")["maxLength"], maxItem},
		{"qty", d.schema("Qty")["maximum"], maxQty},
	} {
		if c.got != c.want {
			t.Errorf("%s: documented %v, want %v", c.limit, c.got, c.want)
		}
	}
	bodyLimit := fmt.Sprintf("At most %d bytes", maxOrderBody)
	if got := d.at(d.root, "paths", "/v1/orders", "post", "requestBody",
		"description"); !strings.Contains(got.(string), bodyLimit) {
		t.Errorf("the request body is described as %q, want %q in it", got, bodyLimit)
	}
	keyLifetime := fmt.Sprintf("at least %v hours", KeyLifetime.Hours())
	if got := d.parameters("/v1/orders", "post",
		"header")["Idempotency-Key"]["description"]; !strings.Contains(got.(string), keyLifetime) {
		t.Errorf("Idempotency-Key is described as %q, want %q in it", got, keyLifetime)
	}
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
	_, d := fullAPI(t)
	for path := range d.object(d.root, "paths") {
		for _, method := range d.methods(path) {
			d.walk(d.at(d.root, "paths", path, method, "responses"), func(v map[string]any) {
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
	if diff := cmp.Diff([]any{"type", "title", "status"}, d.schema("Problem")["required"]); diff != "" {
		t.Errorf("what a Problem of a program has (-), and what one must have (+):\n%s", diff)
	}
}

// Tools that try a document by hand fill in the example of a parameter, or a text of their own.
func TestOpenAPIHasNoExampleThatFails(t *testing.T) {
	_, d := fullAPI(t)
	store := new(MemStore)
	store.Products.Put(MustResource("teapot", nil))
	order := Order{ID: "ord_0006g3t8qk3v5c1d2e3f4g5h6i", Item: "teapot", Qty: 1}
	store.CreateOrder(t.Context(), IdempotencyKey{Scope: "ann", Value: "k"}, order)
	for path := range d.object(d.root, "paths") {
		for _, method := range d.methods(path) {
			query, lines := url.Values{}, []string{"Content-Type: application/json"}
			for name, p := range d.parameters(path, method, "query") {
				if example := p["example"]; example != nil || p["required"] == true {
					query.Set(name, fmt.Sprint(example))
				}
			}
			for name, p := range d.parameters(path, method, "header") {
				example := p["example"]
				if example == nil {
					example = "string"
				}
				lines = append(lines, fmt.Sprint(name, ": ", example))
			}
			target := strings.NewReplacer("{product_id}", "teapot", "{order_id}", order.ID).Replace(path)
			if len(query) > 0 {
				target += "?" + query.Encode()
			}
			got := send(reading(store), strings.ToUpper(method), target, `{"item":"teapot","qty":2}`, lines...)
			if got.status > 299 {
				t.Errorf("%s %s with %q: %d %s", method, target, lines, got.status, got.body)
			}
		}
	}
}

// The pattern is lenient with spaces beyond U+00FF: literal ones, \u and \p{Z} each
// break a tool in use. From U+3001 on there are neither spaces nor control
// characters, and this test is content with every 97th character.
func TestOpenAPIRefusesNoItemThatTheServiceAccepts(t *testing.T) {
	pattern := regexp.MustCompile(decodeAPI(t, openAPI).schema("Item")["pattern"].(string))
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
	schema := decodeAPI(t, openAPI).parameters("/v1/orders", "post", "header")["Idempotency-Key"]["schema"]
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
}
