package ijson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const object = `{"item":"teapot","qty":2}`

// refused are texts that are not I-JSON, with a pointer to the fault.
var refused = []struct{ name, text, pointer string }{
	{"empty", "", "#"},
	{"only white space", " \r\n\t", "#"},
	{"byte order mark", "\ufeff" + object, "#"},
	{"byte order mark alone", "\ufeff", "#"},
	{"byte order mark after a space", " \ufeff" + object, "#"},
	{"UTF-16", "{\x00\"\x00i\x00\"\x00:\x001\x00}\x00", "#"},
	{"UTF-16 with its byte order mark", "\xff\xfe{\x00}\x00", "#"},

	{"ends after the brace", `{`, "#"},
	{"ends in a name", `{"item`, "#"},
	{"ends after a name", `{"item"`, "#"},
	{"ends after a colon", `{"item":`, "#"},
	{"ends in a string", `{"item":"teapot`, "#"},
	{"ends after a value", `{"item":"teapot"`, "#"},
	{"ends after a comma", `{"item":"teapot",`, "#"},
	{"ends before the brace", `{"item":"teapot","qty":2`, "#"},
	{"ends in an array", `[1`, "#"},
	{"ends in a literal", `tru`, "#"},

	{"comma before the brace", `{"item":"teapot","qty":2,}`, "#"},
	{"comma first", `{,"item":"teapot","qty":2}`, "#"},
	{"two commas", `{"item":"teapot",,"qty":2}`, "#"},
	{"comma alone", `{,}`, "#"},
	{"no comma", `{"item":"teapot" "qty":2}`, "#"},
	{"no colon", `{"item" "teapot","qty":2}`, "#"},
	{"two colons", `{"item"::"teapot","qty":2}`, "#"},
	{"equals sign", `{"item"="teapot","qty":2}`, "#"},
	{"semicolon", `{"item":"teapot";"qty":2}`, "#"},
	{"no value", `{"item":,"qty":2}`, "#"},
	{"comma before the bracket", `{"item":["teapot",],"qty":2}`, "#"},
	{"brace for bracket", `{"item":["teapot"},"qty":2}`, "#"},
	{"bracket for brace", `{"item":"teapot","qty":2]`, "#"},
	{"single quotes", `{'item':'teapot','qty':2}`, "#"},
	{"name without quotes", `{item:"teapot","qty":2}`, "#"},
	{"number for a name", `{1:"teapot","qty":2}`, "#"},
	{"null for a name", `{null:"teapot","qty":2}`, "#"},
	{"line comment", "{\"item\":\"teapot\", // tea\n\"qty\":2}", "#"},
	{"block comment", `{"item":"teapot",/* tea */"qty":2}`, "#"},
	{"form", `item=teapot&qty=2`, "#"},

	{"second object", object + object, "#"},
	{"second object on its own line", object + "\n" + object, "#"},
	{"two values", `1 2`, "#"},
	{"brace too many", object + `}`, "#"},
	{"comma at the end", object + `,`, "#"},
	{"letter at the end", object + `x`, "#"},
	{"NUL at the end", object + "\x00", "#"},
	{"no-break space", "\u00a0" + object, "#"},
	{"form feed", "\f" + object, "#"},
	{"vertical tab", "{\v\"item\":\"teapot\",\"qty\":2}", "#"},
	{"line separator", object + "\u2028", "#"},

	{"NaN", `{"item":"teapot","qty":NaN}`, "#"},
	{"Infinity", `{"item":"teapot","qty":Infinity}`, "#"},
	{"negative infinity", `{"item":"teapot","qty":-Infinity}`, "#"},
	{"leading zero", `{"item":"teapot","qty":02}`, "#"},
	{"two zeros", `{"item":"teapot","qty":00}`, "#"},
	{"plus sign", `{"item":"teapot","qty":+2}`, "#"},
	{"minus alone", `{"item":"teapot","qty":-}`, "#"},
	{"two minus signs", `{"item":"teapot","qty":--2}`, "#"},
	{"no digit before the point", `{"item":"teapot","qty":.5}`, "#"},
	{"no digit behind the point", `{"item":"teapot","qty":2.}`, "#"},
	{"no digit in the exponent", `{"item":"teapot","qty":2e}`, "#"},
	{"hexadecimal", `{"item":"teapot","qty":0x2}`, "#"},
	{"underscore in a number", `{"item":"teapot","qty":1_000}`, "#"},
	{"space in a number", `{"item":"teapot","qty":1 000}`, "#"},
	{"digits of another script", `{"item":"teapot","qty":٢}`, "#"},
	{"suffix of a number", `{"item":"teapot","qty":2n}`, "#"},
	{"wrongly cased literal", `{"item":"teapot","qty":True}`, "#"},
	{"undefined", `{"item":undefined,"qty":2}`, "#"},

	{"line feed in a string", "{\"item\":\"tea\npot\",\"qty\":2}", "#"},
	{"tab in a string", "{\"item\":\"tea\tpot\",\"qty\":2}", "#"},
	{"NUL in a string", "{\"item\":\"tea\x00pot\",\"qty\":2}", "#"},
	{"U+001F in a string", "{\"item\":\"tea\x1fpot\",\"qty\":2}", "#"},
	{"line feed in a name", "{\"it\nem\":\"teapot\",\"qty\":2}", "#"},
	{"escape x", `{"item":"\x41","qty":2}`, "#"},
	{"escape of a single quote", `{"item":"\'","qty":2}`, "#"},
	{"escape of a digit", `{"item":"\0","qty":2}`, "#"},
	{"escape U in upper case", `{"item":"\U0041","qty":2}`, "#"},
	{"two hexadecimal digits", `{"item":"\u41","qty":2}`, "#"},
	{"not hexadecimal", `{"item":"\u00g1","qty":2}`, "#"},
	{"escape with braces", `{"item":"\u{41}","qty":2}`, "#"},
	{"escape of the closing quote", `{"item":"teapot\","qty":2}`, "#"},

	{"byte that UTF-8 has not", "{\"item\":\"\xff\",\"qty\":2}", "#"},
	{"Latin-1", "{\"item\":\"caf\xe9\",\"qty\":2}", "#"},
	{"overlong UTF-8", "{\"item\":\"\xc0\xaf\",\"qty\":2}", "#"},
	{"surrogate in UTF-8", "{\"item\":\"\xed\xa0\x80\",\"qty\":2}", "#"},
	{"surrogate pair in UTF-8", "{\"item\":\"\xed\xa0\xbd\xed\xb8\x80\",\"qty\":2}", "#"},
	{"above U+10FFFF", "{\"item\":\"\xf4\x90\x80\x80\",\"qty\":2}", "#"},
	{"character cut off", "{\"item\":\"\xe2\x82\",\"qty\":2}", "#"},
	{"invalid UTF-8 in a name", "{\"\xff\":1,\"item\":\"teapot\",\"qty\":2}", "#"},
	{"invalid UTF-8 in an unknown member", "{\"note\":\"\xff\",\"item\":\"teapot\",\"qty\":2}", "#"},
	{"invalid UTF-8 outside strings", "{\"item\":\"teapot\",\xff\"qty\":2}", "#"},

	{"high surrogate alone", `{"item":"\ud83d","qty":2}`, "#/item"},
	{"low surrogate alone", `{"item":"\ude00","qty":2}`, "#/item"},
	{"surrogates the wrong way round", `{"item":"\ude00\ud83d","qty":2}`, "#/item"},
	{"two high surrogates", `{"item":"\ud83d\ud83d","qty":2}`, "#/item"},
	{"high surrogate before a pair", `{"item":"\ud83d\ud83d\ude00","qty":2}`, "#/item"},
	{"low surrogate after a pair", `{"item":"\ud83d\ude00\ude00","qty":2}`, "#/item"},
	{"high surrogate before a letter", `{"item":"\ud83dx\ude00","qty":2}`, "#/item"},
	{"high surrogate before another escape", `{"item":"\ud83d\n\ude00","qty":2}`, "#/item"},
	{"high surrogate before an escaped letter", `{"item":"\ud83d\u0041","qty":2}`, "#/item"},
	{"high surrogate before a backslash and a low one's digits", `{"item":"\ud83d\\ude00","qty":2}`, "#/item"},
	{"surrogate in upper case", `{"item":"\uDBFF","qty":2}`, "#/item"},
	{"surrogate in a name", `{"\ud800":1,"item":"teapot","qty":2}`, "#"},
	{"surrogate in an unknown member", `{"note":"\ud800","item":"teapot","qty":2}`, "#/note"},
	{"surrogate deep inside", `{"item":"teapot","qty":2,"note":[0,{"a":["\udfff"]}]}`, "#/note/1/a/0"},
	{"surrogate alone in the body", `"\ud800"`, "#"},

	{"noncharacter U+FFFF", "{\"item\":\"\uffff\",\"qty\":2}", "#/item"},
	{"noncharacter U+FFFE, escaped", `{"item":"\ufffe","qty":2}`, "#/item"},
	{"noncharacter U+FDD0", "{\"item\":\"\ufdd0\",\"qty\":2}", "#/item"},
	{"noncharacter U+FDEF, escaped", `{"item":"\uFDEF","qty":2}`, "#/item"},
	{"noncharacter U+1FFFE", "{\"item\":\"\U0001fffe\",\"qty\":2}", "#/item"},
	{"noncharacter U+10FFFF as a pair", `{"item":"\udbff\udfff","qty":2}`, "#/item"},
	{"noncharacter in a name", `{"\uffff":1,"item":"teapot","qty":2}`, "#"},

	{"item twice", `{"item":"teapot","item":"kettle","qty":2}`, "#/item"},
	{"item twice, equal", `{"item":"teapot","item":"teapot","qty":2}`, "#/item"},
	{"qty twice", `{"item":"teapot","qty":2,"qty":3}`, "#/qty"},
	{"item twice, once escaped", `{"item":"teapot","\u0069tem":"kettle","qty":2}`, "#/item"},
	{"unknown member twice", `{"note":1,"item":"teapot","qty":2,"note":2}`, "#/note"},
	{"member without name twice", `{"":1,"item":"teapot","qty":2,"":1}`, "#/"},
	{"name that a pointer escapes, twice", `{"a/b~ %é":1,"a\/b~ %\u00e9":2}`, "#/a~1b~0%20%25%C3%A9"},
	{"member of a member twice", `{"item":{"a":1,"a":1},"qty":2}`, "#/item/a"},
	{"member in an array twice", `{"item":"teapot","qty":[1,{"b":1,"a":2,"b":3}]}`, "#/qty/1/b"},
	{"twice in an array", `[0,{"a":1,"a":2}]`, "#/1/a"},
	{"the first of seven twice", `{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"1":1}`, "#/1"},
	{"the ninth of many twice", `{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"9":1}`, "#/9"},
	{"the first of many twice", `{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"1":1}`, "#/1"},
	{"the eighth of many twice", `{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"8":1}`, "#/8"},
	{"first of several faults", `{"a":{"b":1,"b":2},"c":"\ud800","a":1}`, "#/a/b"},

	{"nested too deeply", strings.Repeat("[", 1001) + strings.Repeat("]", 1001), "#" + strings.Repeat("/0", 1000)},
	{"nested deeper than encoding/json goes", strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001), "#" + strings.Repeat("/0", 1000)},
	{"brackets without end", strings.Repeat("[", 60_000), "#" + strings.Repeat("/0", 1000)},
	{"braces without end", strings.Repeat(`{"":`, 16_000), "#" + strings.Repeat("/", 1000)},
	{"nested too deeply behind another fault", `{"a":1,"a":` + strings.Repeat("[", 1001), "#"},
}

func TestParseRefuses(t *testing.T) {
	for _, test := range refused {
		t.Run(test.name, func(t *testing.T) {
			members, isObject, err := Parse([]byte(test.text))
			fault, ok := err.(*Error)
			if !ok || members != nil || isObject {
				t.Fatalf("%q: %v, %t and the error %v, want an *Error alone", test.text, members, isObject, err)
			}
			if got := Pointer(fault.Path...); got != test.pointer {
				t.Errorf("%q: fault at %s, want %s", test.text, got, test.pointer)
			}
			if fault.Reason == "" || !strings.HasPrefix(fault.Error(), strings.TrimPrefix(test.pointer+": the JSON "+fault.Reason, "#: ")) {
				t.Errorf("%q: the error is %q", test.text, fault)
			}
		})
	}
}

// The error says that a text is nested too deeply, however deep it is.
func TestParseSaysWhatIsNestedTooDeeply(t *testing.T) {
	for _, depth := range []int{MaxDepth + 1, 10_000, 10_001, 60_000} {
		_, _, err := Parse([]byte(strings.Repeat("[", depth) + strings.Repeat("]", depth)))
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
		if err := Syntax([]byte(test.text)); err == nil || !strings.Contains(err.Error(), " at "+test.place+": ") {
			t.Errorf("%q: %v, want %s", test.text, err, test.place)
		}
	}
}

func TestSyntaxOfWhatIsNestedTooDeeplyIsShort(t *testing.T) {
	if err := Syntax([]byte(strings.Repeat("[", 20_000))); err == nil || err.Error() != "the JSON is nested too deeply" {
		t.Errorf("%.100v", err)
	}
}

func TestSyntaxTakesWhatIsNoIJSON(t *testing.T) {
	for _, text := range []string{`{"a":1,"a":2}`, `"\ud800"`, `"\uffff"`, strings.Repeat("[", MaxDepth+2) + strings.Repeat("]", MaxDepth+2)} {
		if err := Syntax([]byte(text)); err != nil {
			t.Errorf("%.50s: %v", text, err)
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
		t.Run(test.name, func(t *testing.T) {
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
				t.Errorf("got %q, %t, %v, want %q", got, isObject, err, test.want)
			}
		})
	}
}

var (
	zeros     = strings.Repeat("0", 60_000)
	int64Rows = []struct {
		value string
		want  int64
		ok    bool
	}{
		{"2", 2, true},
		{"2.0", 2, true},
		{"2e0", 2, true},
		{"2E+0", 2, true},
		{"2e-0", 2, true},
		{"20e-1", 2, true},
		{"0.2e1", 2, true},
		{"0.02E+2", 2, true},
		{"2000000e-6", 2, true},
		{"20.00e-1", 2, true},
		{"120", 120, true},
		{"1.2e2", 120, true},
		{"100.5e1", 1005, true},
		{"2e0000000000000000000000000000", 2, true},
		{"2." + zeros, 2, true},
		{"2" + zeros + "e-60000", 2, true},
		{"0." + zeros + "2e60001", 2, true},
		{"2e" + zeros + "0", 2, true},
		{"2e-" + zeros, 2, true},
		{"-2.0", -2, true},
		{"-20e-1", -2, true},
		{"0", 0, true},
		{"-0", 0, true},
		{"0.0", 0, true},
		{"-0.0e5", 0, true},
		{"0e999999999", 0, true},
		{"0e-999999999", 0, true},
		{"0.00e99999999999999999999", 0, true},
		{"-0e-99999999999999999999", 0, true},
		{"9007199254740993", 1<<53 + 1, true}, // as a float, it would be 2^53
		{"9007199254740993.0", 1<<53 + 1, true},
		{"9007199254740992.9999999999999999999999e0", 0, false},
		{"9223372036854775807", 1<<63 - 1, true},
		{"9223372036854775807.0", 1<<63 - 1, true},
		{"0.9223372036854775807e19", 1<<63 - 1, true},
		{"-9223372036854775808", -1 << 63, true},
		{"-92233720368547758080e-1", -1 << 63, true},
		{"1e18", 1e18, true},
		{"9223372036854775808", 0, false},
		{"-9223372036854775809", 0, false},
		{"1e19", 0, false},
		{"1e999", 0, false},
		{"1e99999999999999999999", 0, false},
		{"-1e99999999999999999999", 0, false},
		{"1e4611686018427387904", 0, false}, // 2^62
		{"1e9223372036854775808", 0, false}, // 2^63
		{"1e18446744073709551616", 0, false},
		{"1" + zeros + "e-18446744073709551616", 0, false},
		{"100e9223372036854775807", 0, false},
		{"0.001e-9223372036854775808", 0, false},
		{"1" + zeros, 0, false},
		{strings.Repeat("9", 60_000), 0, false},
		{"1.5", 0, false},
		{"0.1", 0, false},
		{"1e-1", 0, false},
		{"1e-99999999999999999999", 0, false},
		{"2." + zeros + "1", 0, false},
		{"15e-1", 0, false},
		{`"2"`, 0, false},
		{`"-"`, 0, false},
		{"true", 0, false},
		{"null", 0, false},
		{"[2]", 0, false},
		{`{"a":2}`, 0, false},
	}
)

func TestInt64IsTheValueHoweverItIsWritten(t *testing.T) {
	for _, test := range int64Rows {
		members, _, err := Parse([]byte(`{"n": ` + test.value + ` }`))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := members[0].Int64(); got != test.want || ok != test.ok {
			t.Errorf("%.50s (of %d bytes): %d, %t, want %d, %t", test.value, len(test.value), got, ok, test.want, test.ok)
		}
	}
}

// FuzzInt64 compares Int64 with math/big.
func FuzzInt64(f *testing.F) {
	for _, test := range int64Rows {
		if len(test.value) < 1024 {
			f.Add(test.value)
		}
	}
	f.Fuzz(func(t *testing.T, value string) {
		members, _, err := Parse([]byte(`{"n":` + value + `}`))
		if err != nil || len(members) != 1 {
			return
		}
		value = string(members[0].Value)
		if _, exponent, _ := strings.Cut(strings.ToLower(value), "e"); len(exponent) > 4 {
			return // math/big would take long; int64Rows has such numbers
		}
		want, isNumber := new(big.Rat).SetString(value)
		wantOK := isNumber && want.IsInt() && want.Num().IsInt64()
		if got, ok := members[0].Int64(); ok != wantOK || ok && got != want.Num().Int64() {
			t.Errorf("%s: %d, %t, want %v, %t", value, got, ok, want, wantOK)
		}
	})
}

func TestParseOfWhatIsNoObject(t *testing.T) {
	for _, text := range []string{`null`, `[]`, `[{}]`, `[0, [], {"a": 1}]`, `""`, ` "a" `, `0`, "\ttrue\n", `-1e999`, strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)} {
		if members, isObject, err := Parse([]byte(text)); members != nil || isObject || err != nil {
			t.Errorf("%.50s: %v, %t, %v", text, members, isObject, err)
		}
	}
}

func TestPointer(t *testing.T) {
	for _, test := range []struct {
		path []string
		want string
	}{
		{nil, "#"},
		{[]string{""}, "#/"},
		{[]string{"a", "0"}, "#/a/0"},
		{[]string{"~", "/", "~1"}, "#/~0/~1/~01"},
		{[]string{"%2F #\"é😀\x00"}, "#/%252F%20%23%22%C3%A9%F0%9F%98%80%00"},
	} {
		if got := Pointer(test.path...); got != test.want {
			t.Errorf("%q: %s, want %s", test.path, got, test.want)
		}
	}
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
		t.Run(test.name, func(t *testing.T) {
			if got := AppendCanonical([]byte("x"), []byte(test.text)); string(got) != "x"+test.want {
				t.Errorf("got %s, want x%s", got, test.want)
			}
			if got := AppendCanonical(nil, []byte(test.want)); string(got) != test.want {
				t.Errorf("what it writes is not canonical: %s becomes %s", test.want, got)
			}
		})
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
}

func TestMarshalReturnsTheErrorsOfEncodingJSON(t *testing.T) {
	if text, err := Marshal(make(chan int)); err == nil {
		t.Errorf("a channel is %s", text)
	}
}

func TestIsCanonicalRecognizes(t *testing.T) {
	for _, text := range []string{
		`{}`, `[]`, `""`, `0`, `-1.5e+7`, `true`, `false`, `null`, `[{},[],"a"]`,
		`{"id":"kettle","name":"Wasserkocher für Ästheten ☕","price":{"amount":"39.00","currency":"EUR"},"stock":0,"litres":1.7,"tags":[],"more":{},"old":null,"sale":true,"x":-1e-9}`,
	} {
		if !IsCanonical([]byte(text)) {
			t.Errorf("%s is not recognized", text)
		}
	}
}

func TestIsCanonicalRefuses(t *testing.T) {
	for _, text := range []string{
		``, ` `, `{} `, ` {}`, `{"a": 1}`, `{"a":1,"a":1}`, `{"a":1,}`, `[1,]`, `{"a"}`, `{"a"`, `{"a":`, `{"a":1`, `[1`, `[1 2]`, `{1:2}`, `nul`, `nulll`,
		`01`, `1.`, `.5`, `1e`, `-`, `+1`, `1e+`, `"a`, `"\u0061"`, "\"\n\"", "\"\xff\"", "\"\u2028\"", "\"\uffff\"",
		strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1),
	} {
		if IsCanonical([]byte(text)) {
			t.Errorf("%.50q is recognized", text)
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
