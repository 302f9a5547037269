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
	at("#", `{"a":1,}`, `{,"a":1}`, `{"a":1,,"c":2}`, `{"a":1 "c":2}`, `{"a" 1}`, `{"a":,"c":2}`, `{"a":[1,],"c":2}`,
		`{"a":[1},"c":2}`, `{"a":1]`, `{'a':1}`, `{a:1}`, `{"a":1,/* tea */"c":2}`),
	// What comes after the value, and white space that is none.
	at("#", `{}{}`, `1 2`, `{},`, "{}\x00", "\u00a0{}", "\f{}", "{}\u2028"),
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

func TestSyntaxNamesThePlace(t *testing.T) {
	for _, test := range []struct{ text, place string }{
		{``, "line 1, column 1"},
		{`{"a":1]`, "line 1, column 7"},
		{`{"a":1,}`, "line 1, column 8"},
		{`[1`, "line 1, column 2"},
		{"{\n\t\"é😀\": x}", "line 2, column 8"},
		{`{"a" 1}`, "line 1, column 6"},
		{`[tru]`, "line 1, column 2"},
		{`["😀`, "line 1, column 3"},
		{"[\"a\tb\"]", "line 1, column 4"},
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
		{"of every type", `{"a":1,"b":"x","c":null,"d":true,"e":[1],"f":{"g":2}}`, `a=1 b="x"(x) c=null d=true e=[1] f={"g":2}`},
		{"in their sequence", `{"z":1,"a":2,"m":3}`, `z=1 a=2 m=3`},
		{"values as written", `{ "a" : [ 1 , 2 ] , "b" : -1.50E+2 }`, `a=[ 1 , 2 ] b=-1.50E+2`},
		{"text unescaped", `{"\u0061":"\u00e9\/\ud83d\ude00"}`, `a="\u00e9\/\ud83d\ude00"(é/😀)`},
		{"more than eight", `{"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9,"10":0}`, `1=1 2=2 3=3 4=4 5=5 6=6 7=7 8=8 9=9 10=0`},
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
	for _, text := range []string{ // FuzzCanonical has what is none
		`{}`, `[]`, `""`, `0`, `-1.5e+7`, `true`, `false`, `null`, `[{},[],"a"]`,
		`{"id":"kettle","name":"Wasserkocher für Ästheten ☕","price":{"amount":"39.00"},` +
			`"stock":0,"litres":1.7,"tags":[],"more":{},"old":null,"sale":true,"x":-1e-9}`,
	} {
		if !IsCanonical([]byte(text)) {
			t.Errorf("%s is not recognized", text)
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

// sums are those of values, each of which may be written in several ways. They are frozen: stores keep them.
var sums = map[string][]string{
	"f824c797f1703255126ba38ade59d4a94a4bf48b67a85d14a27978d001e6c1bc": {`{}`, " {\t} "},
	"2c335ad6abbd1e2c820afe793f841e930660db32d0daea430ba9c0cda7891855": {`[]`, "[\n]"},
	"c3831b40f6917b01707ac3a891e9fc990a52d9b49b92000c8c556d2b0fc94bd1": {`[{}]`},
	"6a4ee59066348ec85d2fb7758c208a43a07337d3383f5e7ccb5260408f8a0b98": {
		`{"a":1,"b":[2,{"c":null,"d":"é"}]}`, `{"b":[2.0,{"d":"\u00e9","c":null}],"a":10e-1}`,
		"{ \"b\" : [ 0.2e1, {\"d\":\"\u00e9\",\"\\u0063\":null} ], \"a\":1e0 }"},
	"4bc149e8de93bf8108104b43227bba867b907374432f23b8f011a2e60f9ee88c": {
		`{"a":1,"b":[{"c":null,"d":"é"},2]}`,
	},
	"4eb905e1d8a47c821e53dd1ff5c782e3624f9aca9d87b49ab4f663784edaf79c": {
		`[0]`, `[-0]`, `[0.00]`, `[-0e7]`, `[0e99999999999999999999]`,
	},
	"e6c3bc8f049ac52b913c4de7ea4d45c207b3129b45d40f657547ce4923b54ee5": {`["0"]`},
	"82e6dabdc549ff2c19f276094086f3511a45e8bfa2244d0b39ade76dab33df24": {
		`[9007199254740993]`, `[9007199254740993.0]`, `[900719925474099.3e1]`,
	},
	"18961bf73a44263dbe6ef3af77400c2b43419a065e789da2caebbcfd1557d8a8": {
		`[9007199254740992]`, `[9007199254740992.0]`,
	},
	"987a31df47106f5c335e03e5c91ee6e888ce4548fbb910155905526961bfb89f": {
		`[1e4611686018427387903]`, `[10e4611686018427387902]`,
	},
	"b12d73ea1eb8d12575b10d64ac07f865d1b15476ea41dd30d6a02b9942b5a5bf": {`[1e4611686018427387904]`},
	"199efa9ed987f25b8bd05fe1c257c793dbfe903bf9c17612d115a511970639f2": {`[1e+4611686018427387904]`},
	"32aedb9dd2d2c00139b4d8d96c940e2f20c66498e06c1da5cabbfcf7672cc234": {`[true]`},
	"89e624075b97e27331f6faa2fd6439c0600208eaedded05eacfe8bc9dc512626": {`["true"]`},
	"021b3e735d8bf99f9dc6e639080aee69dd5e07df8c396a29d7d3c39f8fe9ff84": {`[null]`},
	"4d2622351fffe40b6c4264aab866187dbc2785d6b91b64e6b5e2a03216034832": {`{"a":"b"}`},
	"ec73cdfa6e645ffb6f0aefa352108d367b4e4508761b6afc59cb7c43f7dcec39": {`["a","b"]`},
	"a0537f5c676021efd54ba52a3636b6205573a80be15a58d3da69ce688c1fd810": {`["ab"]`},
	"fc0fe0ad7438eb727a718d7b182b278c2db0beee15b44611804d7d328d0cc2e9": {`[[1],2]`},
	"555d4bdc4362f6f9099c1bca87ed64e23beeb824db1f4e65e94fb46f0abcd3ed": {`[[1,2]]`},
	"bd7b5d83a1a2ea4c2a60ca191317f4b98cbc21d6708d179867ad487ccd305507": {`[1,[2]]`},
	"9508bbfa41f84996d3ea4362a135290ba2dbd54e7e6795d9dc8cf1952a5a4108": {`{"":{"":{}}}`},
	"e01a89d99ed5f2fa73bf733a10fa0398dcc6e6ee0776601ca1cc738ba9310a13": {
		`{"a":{"b":1},"c":2}`, `{"c":2,"a":{"b":1}}`,
	},
	"f0d36087b594296272b9dd4f5c49ddb08b92866ef9853da33fb20369d7a38818": {`{"a":{"b":1,"c":2}}`},
	"b08170b48325e295b559a1540413045788d76fd7b788a2765dce31c0acd4a3ea": {nested(1000)},
}

func TestSumIsThatOfTheValueHoweverItIsWritten(t *testing.T) {
	for want, texts := range sums {
		for _, text := range texts {
			if got := fmt.Sprintf("%x", Sum([]byte(text))); got != want {
				t.Errorf("%.99q: %s, want %s", text, got, want)
			}
		}
	}
}

// FuzzSum compares Sum with encoding/json and math/big.
func FuzzSum(f *testing.F) {
	all := slices.Concat(slices.Collect(maps.Values(sums))...)
	for i, text := range all {
		f.Add(text, all[(i+1)%len(all)])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, okX := decodeValue(a)
		y, okY := decodeValue(b)
		if !okX || !okY {
			return
		}
		if same := Sum([]byte(a)) == Sum([]byte(b)); same != (exact(x) == exact(y)) {
			t.Errorf("%.99q and %.99q: the same is %t, but they mean %s and %s", a, b, same, exact(x), exact(y))
		}
		if sorted, err := json.Marshal(x); err != nil || Sum([]byte(a)) != Sum(sorted) { // with other escapes
			t.Errorf("%.99q and %.99q mean the same, and have two sums (%v)", a, sorted, err)
		}
	})
}

// decodeValue returns the value of an I-JSON text without exponents that take math/big long.
func decodeValue(text string) (v any, ok bool) {
	if _, _, err := Parse([]byte(text)); err != nil || longExponent.MatchString(text) {
		return nil, false
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	ok = dec.Decode(&v) == nil
	return v, ok
}

var longExponent = regexp.MustCompile(`(?i)[0-9]e[+-]?[0-9]{5}`)

// exact writes a value in one form, with its numbers as fractions.
func exact(v any) string {
	switch v := v.(type) {
	case json.Number:
		r, _ := new(big.Rat).SetString(string(v))
		return r.RatString()
	case []any:
		texts := make([]string, len(v))
		for i, item := range v {
			texts[i] = exact(item)
		}
		return "[" + strings.Join(texts, ",") + "]"
	case map[string]any:
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			texts = append(texts, fmt.Sprintf("%q:%s", name, exact(v[name])))
		}
		return "{" + strings.Join(texts, ",") + "}"
	default:
		return fmt.Sprintf("%T%q", v, fmt.Sprint(v))
	}
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
				Sum(text)
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
		{strings.Repeat("n", 256), strings.Repeat("n", 255)},
		{strings.Repeat("n", 254) + "é", strings.Repeat("n", 254)},
		{strings.Repeat("n", 251) + "😀x", strings.Repeat("n", 251) + "😀"},
		{"a\xffb", "a\ufffdb"},
		{"a\uffffb", "a\ufffdb"},
	} {
		if got := Truncate(test.name, 255); got != test.want {
			t.Errorf("%q is repeated as %q, want %q", test.name, got, test.want)
		}
	}
}
