package wire

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/getkin/kin-openapi/openapi3"
	"pgregory.net/rapid"

	"example.com/storefront"
	"example.com/storefront/integration/internal/apidoc"
	"example.com/storefront/internal/demo"
	"example.com/storefront/internal/ijson"
	"example.com/storefront/internal/must"
)

// Requests are drawn from the schemas of each operation, right ones and such with one wrong
// part. What the document takes is accepted, but for what no schema can say; what it refuses
// is refused; and every response is as documented. The flags of rapid choose other requests.
func TestDrawnRequestsAreAnsweredAsDocumented(t *testing.T) {
	for name, value := range map[string]string{"rapid.seed": "1", "rapid.checks": "25", "rapid.nofailfile": "true"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			must.OK(t, flag.Set(name, value))
		}
	}
	doc := served(t)
	h := storefront.NewWithOptions(threeUsers{}, &storefront.Options{
		CacheSize: -1, // no request depends on another
		Logger:    slog.New(slog.DiscardHandler),
	})
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			t.Run(operation.OperationID, func(t *testing.T) {
				accepted, refused := 0, 0
				for wrong, parts := 0, 0; wrong <= parts; wrong++ { // one at a time, as one fault hides another
					rapid.Check(t, func(t *rapid.T) {
						d := draw(t, doc, path, method, wrong)
						parts = max(parts, d.parts)
						if answeredAsDocumented(t, doc, h, d) {
							accepted++
						} else {
							refused++
						}
					})
				}
				if accepted == 0 || refused == 0 && method != http.MethodOptions { // which no parameter changes
					t.Errorf("of the requests %d were accepted and %d were refused", accepted, refused)
				}
			})
		}
	}
}

// threeUsers is a store whose users may need more than one page.
type threeUsers struct{ scriptedStore }

func (threeUsers) ListUsers(_ context.Context, _ string, limit int) ([]storefront.Resource, error) {
	users := []storefront.Resource{storefront.MustResource("a", nil), storefront.MustResource("b", nil), storefront.MustResource("c", nil)}
	return users[:min(limit, len(users))], nil
}

// answeredAsDocumented reports whether the request was accepted.
func answeredAsDocumented(t *rapid.T, doc apidoc.Document, h http.Handler, d drawnRequest) bool {
	r := httptest.NewRequest(d.method, d.target, strings.NewReader(d.body))
	for name, value := range d.header {
		r.Header.Set(name, value)
	}
	documented := checkRequest(doc, r)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	accepted := w.Code < 400
	if accepted != (documented == nil && d.refusal == "") {
		t.Errorf("%s %q %q %q: %d\n%s\nthe document: %v\nwhat no schema says: %s",
			d.method, d.target, d.header, d.body, w.Code, w.Body, documented, d.refusal)
	}
	if w.Code >= 500 && w.Code != http.StatusGatewayTimeout {
		t.Errorf("%s %q: %d", d.method, d.target, w.Code)
	}
	path, _, _ := strings.Cut(d.target, "?")
	if err := doc.Check(d.method, path, w.Code, w.Result().Header, w.Body.Bytes()); err != nil {
		t.Errorf("%s %q: the response breaks openapi.json: %v", d.method, d.target, err)
	}
	return accepted
}

// A drawnRequest is a request, and why the service refuses it for what no schema can say.
type drawnRequest struct {
	method, target, body, refusal string
	header                        map[string]string
	parts                         int // that could be wrong
}

// spoil counts the parts of the request, and reports whether this is the wrong one.
func (d *drawnRequest) spoil(wrong int) bool {
	if d.method == http.MethodOptions {
		return false
	}
	d.parts++
	return d.parts == wrong
}

// draw draws a request in which the part with this number is wrong; 0: none.
func draw(t *rapid.T, doc apidoc.Document, path, method string, wrong int) drawnRequest {
	item := doc.Paths.Find(path)
	operation := item.Operations()[method]
	d := drawnRequest{method: method, target: path, header: make(map[string]string)}
	var query []string
	for _, ref := range slices.Concat(item.Parameters, operation.Parameters) {
		p := ref.Value
		spoilt := d.spoil(wrong)
		value := parameter(t, p, spoilt)
		if p.In == openapi3.ParameterInPath {
			if !demo.CanBeRequested(value) {
				value = "teapot"
			}
			if len(value) > 255 || strings.ContainsFunc(value, ijson.IsNoncharacter) {
				d.refusal = "no product has this ID"
			}
			d.target = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(value))
			continue
		}
		if p.Required && d.spoil(wrong) || !p.Required && !spoilt && rapid.IntRange(0, 3).Draw(t, "has "+p.Name) != 1 {
			continue
		}
		if p.In == openapi3.ParameterInQuery {
			query = append(query, p.Name+"="+url.QueryEscape(value))
		} else {
			d.header[p.Name] = strings.Trim(value, " \t") // as every recipient does
		}
		switch {
		case p.Name == "after", p.Name == "start":
			d.refusal = "no page had this cursor"
		case p.Name == "If-Match" && (value != "*" || method == http.MethodPost):
			d.refusal = "no tag matches"
		case value == "only-if-cached":
			d.refusal = "nothing is cached"
		}
	}
	if d.spoil(wrong) {
		another := "verbose=1"
		if len(query) > 0 && rapid.Bool().Draw(t, "repeated") {
			another = query[0]
		}
		query = append(query, another)
		d.refusal = "a parameter is unknown or repeated"
	}
	if query != nil {
		d.target += "?" + strings.Join(query, "&")
	}
	if operation.RequestBody != nil {
		d.drawBody(t, operation.RequestBody.Value.Content["application/json"].Schema.Value, wrong)
	}
	if method == http.MethodOptions {
		d.refusal = ""
	}
	return d
}

// parameter draws a value of the parameter's schema, or for a wrong one any other.
func parameter(t *rapid.T, p *openapi3.Parameter, wrong bool) string {
	sample := map[string][]string{
		"If-Match":      {"*", `"a", W/"b"`, "junk"},
		"If-None-Match": {"*", `"a", W/"b"`, "junk"},
		"Cache-Control": {"max-age=5", "no-cache", `MAX-AGE="5", min-fresh=x`, "only-if-cached", ",;="},
	}[p.Name]
	switch schema := p.Schema.Value; {
	case sample != nil:
		return rapid.SampledFrom(sample).Draw(t, p.Name)
	case wrong && schema.Type.Is("integer"):
		return rapid.SampledFrom([]string{"0", "-1", "1.5", "ten", "", "null", "99999999999999999999",
			strconv.FormatInt(int64(*schema.Max)+1, 10)}).Draw(t, p.Name)
	case wrong:
		any := rapid.StringOfN(rapid.RuneFrom(nil, unicode.PrintRanges...), 1, 20, -1) // for a header field
		return rapid.OneOf(any, rapid.Just(strings.Repeat("x", 513))).Draw(t, p.Name)
	default:
		return text(t, p.Name, schema)
	}
}

// text draws a value of the schema, as it stands in a URL, a header field or a string.
func text(t *rapid.T, name string, schema *openapi3.Schema) string {
	switch {
	case schema.Const != nil:
		return schema.Const.(string)
	case schema.Type.Is("integer"):
		return strconv.FormatInt(rapid.Int64Range(int64(*schema.Min), int64(*schema.Max)).Draw(t, name), 10)
	}
	return rapid.StringMatching(schema.Pattern).Filter(func(s string) bool {
		n := len([]rune(s))
		return n >= int(schema.MinLength) && (schema.MaxLength == nil || n <= int(*schema.MaxLength))
	}).Draw(t, name)
}

// drawBody draws a body of the schema, an object, and its type.
func (d *drawnRequest) drawBody(t *rapid.T, schema *openapi3.Schema, wrong int) {
	d.header["Content-Type"] = "application/json"
	if d.spoil(wrong) {
		d.header["Content-Type"] = rapid.SampledFrom([]string{"text/plain", "application/problem+json", "*/*", "json"}).Draw(t, "type")
	}
	if d.spoil(wrong) {
		d.body = rapid.SampledFrom([]string{
			"", "null", "[]", `"item"`, `{"item":"a",`, `{"item":"a","qty":1}{}`, "\ufeff" + `{"item":"a","qty":1}`,
			`{"item":"a","qty":1,"qty":1}`, `{"item":"\ud800","qty":1}`, "{\"item\":\"\xff\",\"qty\":1}",
		}).Draw(t, "body")
		d.refusal = "no object in I-JSON"
		return
	}
	var members []string
	for name := range schema.Properties {
		members = append(members, name)
	}
	slices.Sort(members) // the same is drawn each time
	for i, name := range members {
		property := schema.Properties[name].Value
		value, unsendable := text(t, name, property), false
		beyond := []string{"null", "true", "[]", "{}", `"1"`, "1.5", "1e300", `"\u0000"`, "01", "x"}
		if property.Type.Is("integer") {
			value += rapid.SampledFrom([]string{"", ".0", "e0", "0e-1", "00E-02"}).Draw(t, "form")
			beyond = append(beyond, fmt.Sprintf("%.0f", *property.Min-1), fmt.Sprintf("%.0f", *property.Max+1))
		} else {
			unsendable = strings.TrimSpace(value) == "" || strings.ContainsFunc(value, ijson.IsNoncharacter)
			quoted := must.Get(json.Marshal(value))(t)
			value = string(quoted)
			beyond = append(beyond, `""`, `"`+strings.Repeat("x", int(*property.MaxLength)+1)+`"`)
		}
		if d.spoil(wrong) {
			value = rapid.SampledFrom(beyond).Draw(t, name)
		} else if unsendable {
			d.refusal = "an item of spaces that the pattern takes for others, or that I-JSON has not"
		}
		if d.spoil(wrong) {
			name = strings.ToUpper(name)
		}
		members[i] = fmt.Sprintf("%q:%s", name, value)
	}
	if d.spoil(wrong) {
		members = append(members, `"`+rapid.StringMatching(`[a-z]{1,5}`).Draw(t, "name")+`":1`)
	}
	if d.spoil(wrong) {
		gone := rapid.IntRange(0, len(members)-1).Draw(t, "gone")
		members = slices.Delete(members, gone, gone+1)
	}
	d.body = "{" + strings.Join(members, ",") + "}"
}
