package ijson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// A refusal is a text that is not I-JSON, and the pointer to its fault.
type refusal struct{ pointer, text string }

func at(pointer string, texts ...string) (all []refusal) {
	for _, text := range texts {
		all = append(all, refusal{pointer, text})
	}
	return all
}

// quoted returns arrays of a string each.
func quoted(contents ...string) (texts []string) {
	for _, content := range contents {
		texts = append(texts, `["`+content+`"]`)
	}
	return texts
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

var refused = slices.Concat(
	// Byte order marks, and other encodings.
	at("#", "", " \r\n\t", "\ufeff{}", "\ufeff", " \ufeff{}", "{\x00\"\x00i\x00\"\x00:\x001\x00}\x00",
		"\xff\xfe{\x00}\x00"),
	// What ends too early.
	at("#", `{`, `{"a`, `{"a"`, `{"a":`, `{"a":"b`, `{"a":"b"`, `{"a":"b",`, `{"a":"b","c":2`, `[1`, `tru`),
	// Punctuation.
	at("#", `{"a":1,}`, `{,"a":1}`, `{"a":1,,"c":2}`, `{,}`, `{"a":1 "c":2}`, `{"a" 1}`, `{"a"::1}`,
		`{"a"=1}`, `{"a":1;"c":2}`, `{"a":,"c":2}`, `{"a":[1,],"c":2}`, `{"a":[1},"c":2}`, `{"a":1]`,
		`{'a':1}`, `{a:1}`, `{1:1}`, `{null:1}`, "{\"a\":1, // tea\n\"c\":2}", `{"a":1,/* tea */"c":2}`,
		`a=1&c=2`),
	// What comes after the value, and white space that is none.
	at("#", `{}{}`, "{}\n{}", `1 2`, `{}}`, `{},`, `{}x`, "{}\x00", "\u00a0{}", "\f{}", "{\v\"a\":1}",
		"{}\u2028"),
	// Numbers and words.
	at("#", `[NaN]`, `[Infinity]`, `[-Infinity]`, `[02]`, `[00]`, `[+2]`, `[-]`, `[--2]`, `[.5]`, `[2.]`,
		`[2e]`, `[0x2]`, `[1_000]`, `[1 000]`, `[٢]`, `[2n]`, `[True]`, `[undefined]`),
	// Control characters, and escapes.
	at("#", quoted("\n", "\t", "\x00", "\x1f", `\x41`, `\'`, `\0`, `\U0041`, `\u41`, `\u00g1`, `\u{41}`,
		`a\`)...),
	at("#", "{\"it\nem\":1}"),
	// What is not UTF-8: among others Latin-1, an overlong form, surrogates, and a character that is cut off.
	at("#", quoted("\xff", "caf\xe9", "\xc0\xaf", "\xed\xa0\x80", "\xed\xa0\xbd\xed\xb8\x80",
		"\xf4\x90\x80\x80", "\xe2\x82")...),
	at("#", "{\"\xff\":1}", "{\"a\":\"\xff\",\"c\":2}", "{\"a\":1,\xff\"c\":2}"),

	// Surrogates that are not a pair.
	at("#/0", quoted(`\ud83d`, `\ude00`, `\ude00\ud83d`, `\ud83d\ud83d`, `\ud83d\ud83d\ude00`,
		`\ud83d\ude00\ude00`, `\ud83dx\ude00`, `\ud83d\n\ude00`, `\ud83d\u0041`, `\ud83d\\ude00`,
		`\uDBFF`)...),
	at("#", `{"\ud800":1,"a":2}`, `"\ud800"`),
	at("#/note", `{"note":"\ud800","a":1}`),
	at("#/note/1/a/0", `{"a":1,"note":[0,{"a":["\udfff"]}]}`),
	// Noncharacters.
	at("#/0", quoted("\uffff", `\ufffe`, "\ufdd0", `\uFDEF`, "\U0001fffe", `\udbff\udfff`)...),
	at("#", `{"\uffff":1,"a":2}`),

	// Members that are there twice.
	at("#/a", `{"a":1,"a":2,"c":2}`, `{"a":1,"a":1}`, `{"a":1,"\u0061":2}`, `{"a":1,"c":2,"a":2}`),
	at("#/c", `{"a":1,"c":2,"c":3}`),
	at("#/", `{"":1,"a":1,"":1}`),
	at("#/a~1b~0%20%25%C3%A9", `{"a/b~ %é":1,"a\/b~ %\u00e9":2}`),
	at("#/a/a", `{"a":{"a":1,"a":1},"c":2}`),
	at("#/c/1/b", `{"a":1,"c":[1,{"b":1,"a":2,"b":3}]}`),
	at("#/1/a", `[0,{"a":1,"a":2}]`),
	at("#/1", `{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"1":1}`,
		`{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"1":1}`),
	at("#/8", `{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"8":1}`),
	at("#/9", `{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"9":1}`),
	at("#/a/b", `{"a":{"b":1,"b":2},"c":"\ud800","a":1}`), // the first of several faults

	// What is nested too deeply, some of it deeper than encoding/json goes.
	at("#"+strings.Repeat("/0", 1000), nested(1001), nested(10_001), strings.Repeat("[", 60_000)),
	at("#"+strings.Repeat("/", 1000), strings.Repeat(`{"":`, 16_000)),
	at("#", `{"a":1,"a":`+strings.Repeat("[", 1001)),
)

func TestParseRefuses(t *testing.T) {
	for _, row := range refused {
		members, isObject, err := Parse([]byte(row.text))
		fault, ok := err.(*Error)
		if !ok || members != nil || isObject {
			t.Errorf("%.99q: %v, %t and the error %v, want an *Error alone", row.text, members, isObject, err)
			continue
		}
		if got := Pointer(fault.Path...); got != row.pointer {
			t.Errorf("%.99q: fault at %s, want %s", row.text, got, row.pointer)
		}
		says := strings.TrimPrefix(row.pointer+": the JSON "+fault.Reason, "#: ")
		if fault.Reason == "" || !strings.HasPrefix(fault.Error(), says) {
			t.Errorf("%.99q: the error is %q", row.text, fault)
		}
	}
}

// The error says that a text is nested too deeply, however deep it is.
func TestParseSaysWhatIsNestedTooDeeply(t *testing.T) {
	for _, depth := range []int{MaxDepth + 1, 10_000, 10_001, 60_000} {
		_, _, err := Parse([]byte(nested(depth)))
		if fault, ok := err.(*Error); !ok || fault.Reason != "is nested too deeply" {
			t.Errorf("%d levels: %.100v", depth, err)
		}
	}
}

func TestSyntaxNamesThePlace(t *testing.T) {
	for _, test := range []struct{ text, place string }{
		{``, "line 1, column 1"},
		{" \n ", "line 2, column 1"},
		{`{"a":1]`, "line 1, column 7"},
		{`{"a":1,}`, "line 1, column 8"},
		{`{,}`, "line 1, column 2"},
		{`[1,]`, "line 1, column 4"},
		{`[1`, "line 1, column 2"},
		{"{\n\t\"é😀\": x}", "line 2, column 8"},
		{`{"a" 1}`, "line 1, column 6"},
		{`[tru]`, "line 1, column 2"},
		{`[01]`, "line 1, column 3"},
		{`[1.]`, "line 1, column 3"},
		{`["a`, "line 1, column 3"},
		{`"é`, "line 1, column 2"},
		{`["😀`, "line 1, column 3"},
		{"[\"a\tb\"]", "line 1, column 4"},
		{`["a\x"]`, "line 1, column 4"},
		{`["\u12"]`, "line 1, column 3"},
		{`1 2`, "line 1, column 3"},
		{`{"a":1,"a":2`, "line 1, column 12"},
	} {
		err := Syntax([]byte(test.text))
		if err == nil || !strings.Contains(err.Error(), " at "+test.place+": ") {
			t.Errorf("%q: %v, want %s", test.text, err, test.place)
		}
	}
	if err := Syntax([]byte(nested(20_000))); err == nil || err.Error() != "the JSON is nested too deeply" {
		t.Errorf("20,000 levels: %.100v", err)
	}
	for _, text := range []string{`{"a":1,"a":2}`, `"\ud800"`, `"\uffff"`, nested(MaxDepth + 2)} {
		if err := Syntax([]byte(text)); err != nil {
			t.Errorf("%.50s, which is no I-JSON: %v", text, err)
		}
	}
}

func TestParseReturnsTheMembers(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{ // name, value and text of each
		{"none", `{}`, ``},
		{"none, with space", " {\t\r\n} ", ``},
		{"of every type", `{"a":1,"b":"x","c":null,"d":true,"e":[1],"f":{"g":2}}`, `a=1 b="x"(x) c=null d=true e=[1] f={"g":2}`},
		{"in their sequence", `{"z":1,"a":2,"m":3}`, `z=1 a=2 m=3`},
		{"values as written", `{ "a" : [ 1 , 2 ] , "b" : -1.50E+2 }`, `a=[ 1 , 2 ] b=-1.50E+2`},
		{"text unescaped", `{"\u0061":"\u00e9\/\ud83d\ude00"}`, `a="\u00e9\/\ud83d\ude00"(é/😀)`},
		{"the empty name and text", `{"":""}`, `=""()`},
		{"more than eight", `{"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9,"10":0}`, `1=1 2=2 3=3 4=4 5=5 6=6 7=7 8=8 9=9 10=0`},
		{"same name in two objects", `{"a":{"n":1},"b":{"n":1}}`, `a={"n":1} b={"n":1}`},
	} {
		members, isObject, err := Parse([]byte(test.text))
		var got []string
		for _, m := range members {
			text := fmt.Sprintf("%s=%s", m.Name, m.Value)
			if s, ok := m.Text(); ok {
				text += "(" + s + ")"
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != test.want || !isObject || err != nil {
			t.Errorf("%s: got %q, %t, %v, want %q", test.name, got, isObject, err, test.want)
		}
	}
}

var zeros = strings.Repeat("0", 60_000)

// int64s are numbers by their value.
var int64s = map[int64][]string{
	2: {"2", "2.0", "2e0", "2E+0", "2e-0", "20e-1", "0.2e1", "0.02E+2", "2000000e-6", "20.00e-1",
		"2e0000000000000000000000000000", "2." + zeros, "2" + zeros + "e-60000", "0." + zeros + "2e60001",
		"2e" + zeros + "0", "2e-" + zeros},
	120:  {"120", "1.2e2"},
	1005: {"100.5e1"},
	-2:   {"-2.0", "-20e-1"},
	0: {"0", "-0", "0.0", "-0.0e5", "0e999999999", "0e-999999999", "0.00e99999999999999999999",
		"-0e-99999999999999999999"},
	1<<53 + 1: {"9007199254740993", "9007199254740993.0"}, // as a float, it would be 2^53
	1<<63 - 1: {"9223372036854775807", "9223372036854775807.0", "0.9223372036854775807e19"},
	-1 << 63:  {"-9223372036854775808", "-92233720368547758080e-1"},
	1e18:      {"1e18"},
}

// notInt64s are other values. Some exponents are 2^62, 2^63 and 2^64, and close to those.
var notInt64s = []string{
	"9007199254740992.9999999999999999999999e0", "9223372036854775808", "-9223372036854775809", "1e19",
	"1e999",
	"1e99999999999999999999", "-1e99999999999999999999", "1e4611686018427387904", "1e9223372036854775808",
	"1e18446744073709551616", "1" + zeros + "e-18446744073709551616", "100e9223372036854775807",
	"0.001e-9223372036854775808", "1" + zeros, strings.Repeat("9", 60_000), "1.5", "0.1", "1e-1",
	"1e-99999999999999999999", "2." + zeros + "1", "15e-1", `"2"`, `"-"`, "true", "null", "[2]", `{"a":2}`,
}

func TestInt64IsTheValueHoweverItIsWritten(t *testing.T) {
	check := func(value string, want int64, wantOK bool) {
		members, _, err := Parse([]byte(`{"n": ` + value + ` }`))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := members[0].Int64(); got != want || ok != wantOK {
			t.Errorf("%.50s (of %d bytes): %d, %t, want %d, %t", value, len(value), got, ok, want, wantOK)
		}
	}
	for want, values := range int64s {
		for _, value := range values {
			check(value, want, true)
		}
	}
	for _, value := range notInt64s {
		check(value, 0, false)
	}
}

// FuzzInt64 compares Int64 with math/big.
func FuzzInt64(f *testing.F) {
	for _, values := range append(slices.Collect(maps.Values(int64s)), notInt64s) {
		for _, value := range values {
			if len(value) < 1024 {
				f.Add(value)
			}
		}
	}
	f.Fuzz(func(t *testing.T, value string) {
		members, _, err := Parse([]byte(`{"n":` + value + `}`))
		if err != nil || len(members) != 1 {
			return
		}
		value = string(members[0].Value)
		if _, exponent, _ := strings.Cut(strings.ToLower(value), "e"); len(exponent) > 4 {
			return // math/big would take long; int64s has such numbers
		}
		want, isNumber := new(big.Rat).SetString(value)
		wantOK := isNumber && want.IsInt() && want.Num().IsInt64()
		if got, ok := members[0].Int64(); ok != wantOK || ok && got != want.Num().Int64() {
			t.Errorf("%s: %d, %t, want %v, %t", value, got, ok, want, wantOK)
		}
	})
}

var canonicalCases = []struct{ name, text, want string }{
	{"white space", " { \"a\" : [ 1 , 2 ] ,\r\n\t\"b\" : { } } ", `{"a":[1,2],"b":{}}`},
	{"spaces in strings", `{"a b": " [ \" ] "}`, `{"a b":" [ \" ] "}`},
	{"escapes", `["\u0061\u00e9\/\u003c\ud83d\ude00"]`, `["aé/<😀"]`},
	{"escapes that stay", `["\"\\\n\u0000\u2028\u2029"]`, `["\"\\\n\u0000\u2028\u2029"]`},
	{"numbers as they are", `[1.0, -0, 1E+2, 1.50e-7]`, `[1.0,-0,1E+2,1.50e-7]`},
	{"members in their sequence", `{"b": 1, "a": 2}`, `{"b":1,"a":2}`},
	{"words", `[true, false, null]`, `[true,false,null]`},
	{"no container", ` "a" `, `"a"`},
}

func TestAppendCanonical(t *testing.T) {
	for _, test := range canonicalCases {
		if got := AppendCanonical([]byte("x"), []byte(test.text)); string(got) != "x"+test.want {
			t.Errorf("%s: got %s, want x%s", test.name, got, test.want)
		}
		if got := AppendCanonical(nil, []byte(test.want)); string(got) != test.want {
			t.Errorf("what it writes is not canonical: %s becomes %s", test.want, got)
		}
	}
}

func TestAppendStringWritesAsEncodingJSONDoesWithoutHTML(t *testing.T) {
	for _, s := range []string{"", "teapot", "é", "<>&", `"\`, "\x00\n\x1f\x7f", "\u2028", "\xff", "😀"} {
		want, err := Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendString([]byte("x"), s); string(got) != "x"+string(want) {
			t.Errorf("%q: %s, want x%s", s, got, want)
		}
		var back string
		if err := json.Unmarshal(want, &back); err != nil || back != strings.ToValidUTF8(s, "\ufffd") || strings.Contains(string(want), "u003c") {
			t.Errorf("%q is read back as %q from %s: %v", s, back, want, err)
		}
	}
	if text, err := Marshal(make(chan int)); err == nil {
		t.Errorf("a channel is %s", text)
	}
}

func TestIsCanonical(t *testing.T) {
	for want, texts := range map[bool][]string{
		true: {
			`{}`, `[]`, `""`, `0`, `-1.5e+7`, `true`, `false`, `null`, `[{},[],"a"]`,
			`{"id":"kettle","name":"Wasserkocher für Ästheten ☕","price":{"amount":"39.00"},` +
				`"stock":0,"litres":1.7,"tags":[],"more":{},"old":null,"sale":true,"x":-1e-9}`,
		},
		false: {
			``, ` `, `{} `, ` {}`, `{"a": 1}`, `{"a":1,"a":1}`, `{"a":1,}`, `[1,]`, `{"a"}`, `{"a"`, `{"a":`,
			`{"a":1`, `[1`, `[1 2]`, `{1:2}`, `nul`, `nulll`, `01`, `1.`, `.5`, `1e`, `-`, `+1`, `1e+`, `"a`,
			`"\u0061"`, "\"\n\"", "\"\xff\"", "\"\u2028\"", "\"\uffff\"", nested(MaxDepth + 1),
		},
	} {
		for _, text := range texts {
			if got := IsCanonical([]byte(text)); got != want {
				t.Errorf("%.50q is recognized: %t, want %t", text, got, want)
			}
		}
	}
}

// A text that IsCanonical recognizes must be one that Parse takes and AppendCanonical does
// not change. A text that AppendCanonical writes must have the same meaning as before, and
// AppendCanonical must not change it again.
func FuzzCanonical(f *testing.F) {
	for _, test := range canonicalCases {
		f.Add([]byte(test.text))
		f.Add([]byte(test.want))
	}
	for _, test := range refused {
		if len(test.text) < 1024 {
			f.Add([]byte(test.text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _, err := Parse(text)
		if err != nil {
			if IsCanonical(text) {
				t.Errorf("%q is canonical, but %v", text, err)
			}
			return
		}
		canonical := AppendCanonical(nil, text)
		if IsCanonical(text) && !bytes.Equal(canonical, text) {
			t.Errorf("%q is canonical, but becomes %q", text, canonical)
		}
		if again := AppendCanonical(nil, canonical); !bytes.Equal(again, canonical) {
			t.Errorf("%q becomes %q, and that %q", text, canonical, again)
		}
		if _, _, err := Parse(canonical); err != nil {
			t.Errorf("%q becomes %q: %v", text, canonical, err)
		}
		if before, after := decode(t, text), decode(t, canonical); before != after {
			t.Errorf("%q means %s, and %q means %s", text, before, canonical, after)
		}
	})
}

// decode returns the meaning of a text, with members in the order of their names.
func decode(t *testing.T, text []byte) string {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return fmt.Sprintf("%#v", v)
}

// tokens returns those that encoding/json finds in a text.
func tokens(text []byte) (all []json.Token) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err != nil {
			return all
		}
		all = append(all, token)
	}
}

var (
	plainEscape   = regexp.MustCompile(`\\[^u]`)
	surrogatePair = regexp.MustCompile(`(?i)\\ud[89ab]..\\ud[c-f]..`)
	surrogate     = regexp.MustCompile(`(?i)\\ud[89a-f]`)
)

// isIJSON says by encoding/json whether a text is I-JSON.
func isIJSON(t *testing.T, text []byte) bool {
	escapes := surrogatePair.ReplaceAll(plainEscape.ReplaceAll(text, []byte(".")), []byte("."))
	if !utf8.Valid(text) || !json.Valid(text) || surrogate.Match(escapes) {
		return false
	}
	all, depth := tokens(text), 0
	for _, token := range all {
		switch token := token.(type) {
		case json.Delim:
			if depth += map[json.Delim]int{'{': 1, '[': 1, '}': -1, ']': -1}[token]; depth > MaxDepth {
				return false
			}
		case string:
			if strings.ContainsFunc(token, func(r rune) bool { return r&0xFFFE == 0xFFFE || r >= 0xFDD0 && r <= 0xFDEF }) {
				return false
			}
		}
	}
	var value any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	err := dec.Decode(&value)
	again, marshalErr := json.Marshal(value)
	if err := errors.Join(err, marshalErr); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return len(tokens(again)) == len(all) // of two members with one name, Decode keeps one
}

// FuzzParse compares Parse with encoding/json.
func FuzzParse(f *testing.F) {
	for _, test := range refused {
		if len(test.text) <= 1024 { // the fuzzer spends a minute on minimizing each long one
			f.Add(test.text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		members, isObject, err := Parse([]byte(text))
		switch fault, ok := err.(*Error); {
		case isIJSON(t, []byte(text)) != (err == nil):
			t.Fatalf("%q: the error %v", text, err)
		case err == nil:
			if isObject != strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") || len(members) > 0 && !isObject {
				t.Fatalf("%q: %v, %t", text, members, isObject)
			}
		case !ok || members != nil || isObject:
			t.Fatalf("%q: %v, %t, %v, want an *Error alone", text, members, isObject, fault)
		}
	})
}

// FuzzChildren compares Children with encoding/json.
func FuzzChildren(f *testing.F) {
	for _, text := range []string{
		`[]`, ` [ 1 , "a" , [ 2 ] , {"b" : 3} , null ] `, `{}`, ` { "a" : 1 , "\u0061" : [ "b" ] , "" : { } } `, `{"a":"b"}`,
		`"a"`, `1`, `[[1],[[2]]]`, `{"a":{"b":{"c":1}},"d":2}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || Syntax([]byte(text)) != nil {
			return
		}
		type child struct{ name, value string }
		var got, want []child
		for name, value := range Children([]byte(text)) {
			got = append(got, child{name, string(value)})
		}
		dec := json.NewDecoder(strings.NewReader(text))
		start, _ := dec.Token()
		for _, isContainer := start.(json.Delim); isContainer && dec.More(); {
			var c child
			if start == json.Delim('{') {
				name, _ := dec.Token()
				c.name = name.(string)
			}
			var value json.RawMessage
			if err := dec.Decode(&value); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			c.value = string(value)
			want = append(want, c)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	})
}

// FuzzCostIsBounded is for texts that repeat something. Whatever that is, they cost a little memory for
// each byte, and no stack, which a goroutine would keep.
func FuzzCostIsBounded(f *testing.F) {
	for _, unit := range []string{
		"[", `{"a":`, `[{"a":`, `{"a":[`, `[[],`, `{"a":{},"b":`, `{"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":`,
		" ", "1", `"`, `\u0061`, `\ud83d`, "x", `"a":1,`, "é", "1,",
	} {
		f.Add("", unit, uint16(60_000), "")
		f.Add(`{"a":`, unit, uint16(990), `}`)
		f.Add(`["`, unit, uint16(60_000), `"]`)
	}
	f.Fuzz(func(t *testing.T, start, unit string, times uint16, end string) {
		text := []byte(start + strings.Repeat(unit, min(int(times), 64<<10/max(1, len(unit)))) + end)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		read, idle := make(chan bool), make(chan bool)
		go func() {
			if _, _, err := Parse(text); err == nil {
				AppendCanonical(nil, text)
			}
			Syntax(text)
			IsCanonical(text)
			read <- true
			<-idle
		}()
		<-read
		runtime.ReadMemStats(&after)
		close(idle)
		if stack := int64(after.StackInuse - before.StackInuse); stack > 256<<10 { // the runtime's own are less
			t.Errorf("%.99q, of %d bytes: the stack has %d", text, len(text), stack)
		}
		if allocated, most := int(after.TotalAlloc-before.TotalAlloc), 64<<10+64*len(text); allocated > most {
			t.Errorf("%.99q, of %d bytes: %d are allocated, more than %d", text, len(text), allocated, most)
		}
	})
}

func TestTruncateCutsBetweenCharacters(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{strings.Repeat("n", 255), strings.Repeat("n", 255)},
		{strings.Repeat("n", 256), strings.Repeat("n", 255)},
		{strings.Repeat("n", 254) + "é", strings.Repeat("n", 254)},
		{strings.Repeat("n", 252) + "😀x", strings.Repeat("n", 252)},
		{strings.Repeat("n", 251) + "😀x", strings.Repeat("n", 251) + "😀"},
		{"a\xffb", "a\ufffdb"},
		{"a\uffffb", "a\ufffdb"},
	} {
		if got := Truncate(test.name, 255); got != test.want {
			t.Errorf("%q is repeated as %q, want %q", test.name, got, test.want)
		}
	}
}
