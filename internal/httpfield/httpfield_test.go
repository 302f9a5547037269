package httpfield

import (
	"math/rand/v2"
	"mime"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// matchCases says which lines match the tag "tag" in a weak comparison.
var matchCases = []struct {
	name  string
	lines []string
	match bool
}{
	{"the tag", []string{`"tag"`}, true},
	{"another tag", []string{`"other"`}, false},
	{"the tag, weak: the comparison is weak", []string{`W/"tag"`}, true},
	{"another tag, weak", []string{`W/"other"`}, false},
	{"asterisk", []string{`*`}, true},
	{"asterisk with white space around", []string{" *\t"}, true},
	{"quoted asterisk is a tag", []string{`"*"`}, false},
	{"white space around the tag", []string{" \t\"tag\"\t "}, true},
	{"first of a list", []string{`"tag", "b"`}, true},
	{"last of a list", []string{`"a", "b", "tag"`}, true},
	{"last of a list without white space", []string{`"a","b","tag"`}, true},
	{"list with tabs", []string{"\"a\"\t,\t\"tag\""}, true},
	{"weak in a list", []string{`"a", W/"tag"`}, true},
	{"not in a list", []string{`"a", W/"b", "c"`}, false},
	{"empty elements before", []string{`, ,,"tag"`}, true},
	{"empty elements between and after", []string{`"a",, ,"tag",`}, true},
	{"only commas", []string{`, ,`}, false},
	{"second line", []string{`"a"`, `"tag"`}, true},
	{"second line, weak", []string{`"a", "b"`, `"c", W/"tag"`}, true},
	{"no line", []string{`"a"`, `"b"`}, false},
	{"empty line before", []string{``, `"tag"`}, true},
	{"comma at the end of a line", []string{`"a",`, `"tag"`}, true},
	{"empty tag", []string{`""`}, false},
	{"empty tag before", []string{`"","tag"`}, true},
	{"comma inside the quotes", []string{`"a,b"`}, false},
	{"comma inside the quotes before", []string{`"a,b", "tag"`}, true},
	{"comma at the end inside the quotes", []string{`"a,","tag"`}, true},
	{"asterisk inside the quotes before", []string{`"a,*", "tag"`}, true},
	{"the tag's characters inside the quotes of another one", []string{`"a,tag"`}, false},
	{"backslash before a quote does not escape it", []string{`"a\", "tag"`}, true},
	{"obs-text", []string{"\"\x80\xff\", \"tag\""}, true},
	{"UTF-8", []string{`"ä", "tag"`}, true},
	{"empty", []string{``}, false},
	{"white space", []string{" \t"}, false},
	{"no quotes", []string{`tag`}, false},
	{"single quotes", []string{`'tag'`}, false},
	{"no opening quote", []string{`tag"`}, false},
	{"no closing quote", []string{`"tag`}, false},
	{"one quote", []string{`"`}, false},
	{"lower-case w", []string{`w/"tag"`}, false},
	{"W without slash", []string{`W"tag"`}, false},
	{"W with backslash", []string{`W\"tag"`}, false},
	{"W twice", []string{`W/W/"tag"`}, false},
	{"white space after W/", []string{`W/ "tag"`}, false},
	{"W/ alone", []string{`W/`}, false},
	{"other case", []string{`"TAG"`}, false},
	{"shortened", []string{`"ta"`}, false},
	{"white space inside the quotes", []string{`" tag"`}, false},
	{"space in a tag before: that is not a tag", []string{`"a b", "tag"`}, false},
	{"control character in a tag before", []string{"\"a\x01\", \"tag\""}, false},
	{"DEL in a tag before", []string{"\"a\x7f\", \"tag\""}, false},
	{"junk before", []string{`junk, "tag"`}, false},
	{"junk behind", []string{`"tag", junk`}, true},
	{"junk joined on", []string{`"tag"junk`}, false},
	{"junk after white space", []string{`"tag" junk`}, false},
	{"semicolon for a comma", []string{`"a"; "tag"`}, false},
	{"no comma", []string{`"a" "tag"`}, false},
	{"unterminated before", []string{`"a, "tag"`}, false},
	{"unterminated line before", []string{`"a`, `"tag"`}, false},
	{"junk line before", []string{`junk`, `"tag"`}, false},
	{"asterisk in a list", []string{`"a", *`}, false},
	{"asterisk before a tag", []string{`*, "a"`}, false},
	{"asterisk before another line", []string{`*`, `"a"`}, false},
	{"asterisk in a second line", []string{`"a"`, `*`}, false},
	{"asterisk twice", []string{`*, *`}, false},
	{"asterisk twice without a comma", []string{`**`}, false},
}

func TestMatchETag(t *testing.T) {
	for _, test := range matchCases {
		t.Run(test.name, func(t *testing.T) {
			if got := MatchETag(test.lines, `"tag"`, true); got != test.match {
				t.Errorf("%q: %t", test.lines, got)
			}
		})
	}
}

func TestETagMatchesItself(t *testing.T) {
	etag := ETag([16]byte{0xFB, 0xFF, 2})
	if want := `"-_8CAAAAAAAAAAAAAAAAAA"`; etag != want {
		t.Errorf("%s, want %s", etag, want)
	}
	if !MatchETag([]string{`"a", ` + etag}, etag, false) {
		t.Errorf("%s is not found in a list", etag)
	}
}

func TestStrongComparisonMatchesNoWeakTag(t *testing.T) {
	for line, want := range map[string]bool{
		`"tag"`: true, `W/"tag"`: false, `W/"tag", "tag"`: true, `"a", W/"tag"`: false, `*`: true,
	} {
		if got := MatchETag([]string{line}, `"tag"`, false); got != want {
			t.Errorf("%s: %t", line, got)
		}
	}
}

// absent is a Cache-Control without any directive that has a meaning.
var absent = CacheControl{MaxAge: Forever, MaxStale: -1, StaleIfError: -1}

// with returns absent with changes.
func with(change func(*CacheControl)) CacheControl {
	c := absent
	change(&c)
	return c
}

var (
	noCache  = with(func(c *CacheControl) { c.NoCache = true })
	thirty   = with(func(c *CacheControl) { c.AcceptsAge, c.MaxAge = true, 30*time.Second })
	anyStale = with(func(c *CacheControl) { c.AcceptsAge, c.MaxStale = true, Forever })
)

var cacheControlCases = []struct {
	name  string
	lines []string
	want  CacheControl
}{
	{"no line", nil, absent},
	{"empty", []string{``}, absent},
	{"only commas", []string{`, ,`}, absent},
	{"unknown", []string{`x, y=1, z="2"`}, absent},
	{"no-cache", []string{`no-cache`}, noCache},
	{"no-cache with an argument", []string{`no-cache="x"`}, noCache},
	{"no-store", []string{`no-store`}, with(func(c *CacheControl) { c.NoStore = true })},
	{"only-if-cached", []string{`only-if-cached`}, with(func(c *CacheControl) { c.OnlyIfCached, c.AcceptsAge = true, true })},
	{"max-age", []string{`max-age=30`}, thirty},
	{"max-age in quotes", []string{`max-age="30"`}, thirty},
	{"max-age in capitals", []string{`MAX-AGE=30`}, thirty},
	{"max-age with leading zeros", []string{`max-age=0030`}, thirty},
	{"max-age among empty elements and white space", []string{" ,\t, max-age=30 ,\t,"}, thirty},
	{"max-age in the second line", []string{`x`, `max-age=30`}, thirty},
	{"the least max-age", []string{`max-age=60, max-age=30`, `max-age=90`}, thirty},
	{"max-age=0", []string{`max-age=0`}, with(func(c *CacheControl) { c.AcceptsAge, c.NoCache, c.MaxAge = true, true, 0 })},
	{"max-age of more than 64 bits", []string{`max-age=99999999999999999999`}, with(func(c *CacheControl) { c.AcceptsAge = true })},
	{"max-age of more nanoseconds than 63 bits", []string{`max-age=9223372037`}, with(func(c *CacheControl) { c.AcceptsAge = true })},
	{"the most min-fresh", []string{`min-fresh=1, min-fresh=5, min-fresh=2`}, with(func(c *CacheControl) { c.AcceptsAge, c.MinFresh = true, 5*time.Second })},
	{"max-stale without an argument", []string{`max-stale`}, anyStale},
	{"max-stale, huge", []string{`max-stale=99999999999999999999`}, anyStale},
	{"the least max-stale", []string{`max-stale, max-stale=3, max-stale=2, max-stale=4, max-stale`}, with(func(c *CacheControl) { c.AcceptsAge, c.MaxStale = true, 2*time.Second })},
	{"the least stale-if-error", []string{`stale-if-error=3, stale-if-error=2, stale-if-error=4`}, with(func(c *CacheControl) { c.StaleIfError = 2 * time.Second })},
	{"a comma in quotes does not separate", []string{`x="a, no-cache", max-age=30`}, thirty},
	{"an escaped quote does not end", []string{`x="a\", no-cache", max-age=30`}, thirty},
	{"an escaped backslash does not escape", []string{`x="a\\", max-age=30`}, thirty},

	{"no argument", []string{`max-age`}, noCache},
	{"empty argument", []string{`max-age=`}, noCache},
	{"empty quoted argument", []string{`max-age=""`}, noCache},
	{"sign", []string{`max-age=+30`}, noCache},
	{"fraction", []string{`max-age=30.0`}, noCache},
	{"unit", []string{`max-age=30s`}, noCache},
	{"digits that are not ASCII", []string{`max-age=٣٠`}, noCache},
	{"white space around the equals sign", []string{`max-age = 30`}, noCache},
	{"white space in the quotes", []string{`max-age=" 30"`}, noCache},
	{"no closing quote", []string{`max-age="30`}, noCache},
	{"no opening quote", []string{`max-age=30"`}, noCache},
	{"quoted and more", []string{`max-age="3"0`}, noCache},
	{"semicolon", []string{`max-age=30; x`}, noCache},
	{"not a directive", []string{`@`}, noCache},
	{"an unterminated quote swallows the rest", []string{`x="a, max-age=30`}, noCache},
	{"an escape at the end", []string{`x="a\`}, noCache},
	{"no name", []string{`=1`}, noCache},
}

func TestParseCacheControl(t *testing.T) {
	for _, test := range cacheControlCases {
		t.Run(test.name, func(t *testing.T) {
			if got := ParseCacheControl(test.lines); got != test.want {
				t.Errorf("%q\n got %+v\nwant %+v", test.lines, got, test.want)
			}
		})
	}
}

var jsonCases = []struct {
	name  string
	lines []string
	json  bool
}{
	{"none", nil, false},
	{"empty", []string{""}, false},
	{"one", []string{"application/json"}, true},
	{"another", []string{"text/plain"}, false},
	{"two lines", []string{"application/json", "application/json"}, true},
	{"three lines", []string{"application/json", "application/json", "application/json"}, true},
	{"joined", []string{"application/json, application/json"}, true},
	{"joined without white space", []string{"application/json,application/json"}, true},
	{"joined in one of two lines", []string{"application/json", "application/json,\tapplication/json"}, true},
	{"in another case", []string{"application/json, Application/JSON"}, true},
	{"charset in another case", []string{"application/json; charset=utf-8", "application/json;Charset=UTF-8"}, true},
	{"charset in quotes", []string{`application/json; charset=utf-8, application/json; charset="utf-8"`}, true},
	{"parameters in another order", []string{"application/json; a=1; b=2", "application/json; b=2; a=1"}, true},
	{"a comma in a parameter", []string{`application/json; a="1,2"`}, true},
	{"a comma in equal parameters", []string{`application/json; a="1,2", application/json; a="1\,2"`}, true},
	{"another behind", []string{"application/json", "text/plain"}, false},
	{"another before", []string{"text/plain, application/json"}, false},
	{"two others", []string{"text/plain", "text/plain"}, false},
	{"one with a charset", []string{"application/json", "application/json; charset=utf-8"}, false},
	{"charsets that differ", []string{"application/json; charset=utf-8, application/json; charset=utf-16"}, false},
	{"two of a charset that is none of JSON's", []string{"application/json; charset=utf-16", "application/json; charset=utf-16"}, false},
	{"parameters that differ", []string{"application/json; v=1, application/json; v=2"}, false},
	{"parameters that differ in case", []string{"application/json; v=a, application/json; v=A"}, false},
	{"one parameter more", []string{"application/json; v=1", "application/json; v=1; w=1"}, false},
	{"an empty line", []string{"application/json", ""}, false},
	{"a comma at the end", []string{"application/json,"}, false},
	{"a comma at the beginning", []string{", application/json"}, false},
	{"a semicolon for the comma", []string{"application/json; application/json"}, false},
	{"no comma", []string{"application/json application/json"}, false},
	{"a quote that does not end", []string{`application/json; a="1, application/json`}, false},
}

func TestIsJSON(t *testing.T) {
	for _, test := range jsonCases {
		t.Run(test.name, func(t *testing.T) {
			if got := IsJSON(test.lines); got != test.json {
				t.Errorf("%q: %t", test.lines, got)
			}
		})
	}
}

// FuzzIsJSON compares what is said of two lines with what is said of each.
func FuzzIsJSON(f *testing.F) {
	for _, test := range jsonCases {
		f.Add(strings.Join(test.lines[:min(len(test.lines), 1)], ""), strings.Join(test.lines[min(len(test.lines), 1):], ","))
	}
	// normal is how package mime writes a single value, or "".
	normal := func(value string) string {
		mediaType, params, _ := mime.ParseMediaType(value)
		if params["charset"] != "" {
			params["charset"] = strings.ToLower(params["charset"])
		}
		return mime.FormatMediaType(mediaType, params)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		isA, isB := IsJSON([]string{a}), IsJSON([]string{b})
		if twice := IsJSON([]string{a, a}); twice != isA {
			t.Errorf("%q twice: %t, once: %t", a, twice, isA)
		}
		if isA && !IsJSON([]string{a + ", " + a}) {
			t.Errorf("%q is not JSON when it is joined with itself", a)
		}
		both := IsJSON([]string{a, b})
		if both != IsJSON([]string{b, a}) || both && !(isA && isB) {
			t.Errorf("%q and %q: %t; each: %t, %t; or the other way round it differs", a, b, both, isA, isB)
		}
		if na, nb := normal(a), normal(b); isA && isB && na != "" && nb != "" && both != (na == nb) {
			t.Errorf("%q and %q: %t, though they are %s and %s", a, b, both, na, nb)
		}
	})
}

var stringItems = []struct {
	text, want string
	ok         bool
}{
	{`"abc"`, `abc`, true},
	{`""`, ``, true},
	{`"a\"b\\c"`, `a"b\c`, true},
	{`" , ;"`, ` , ;`, true},
	{`" !~"`, ` !~`, true},
	{`"`, ``, false},
	{``, ``, false},
	{`abc`, ``, false},
	{`xabc"`, ``, false},
	{`"abc`, ``, false},
	{`"abc\"`, ``, false},
	{`"abc\`, ``, false},
	{`"a\bc"`, ``, false},
	{`"abc"x`, ``, false},
	{`"abc" `, ``, false},
	{`"abc", "def"`, ``, false},
	{"\"a\tb\"", ``, false},
	{"\"a\x7fb\"", ``, false},
	{`"é"`, ``, false},
	{`%"abc"`, ``, false},

	{`"abc";v`, `abc`, true},
	{`"a;b";v=1`, `a;b`, true},
	{`"abc";a;b="x, y";c=?1;d=:YQ==:;e=1.5;f=tok/en;g=@123;h=%"display"`, `abc`, true},
	{`"abc";a;a;a=2`, `abc`, true},
	{`"abc";   v=1`, `abc`, true},
	{`"abc";*a_-.*9`, `abc`, true},
	{`"abc";v=1;`, ``, false},
	{`"abc";`, ``, false},
	{`"abc";;v`, ``, false},
	{`"abc" ;v`, ``, false},
	{`"abc";v `, ``, false},
	{"\"abc\";\tv", ``, false},
	{`"abc";V=1`, ``, false},
	{`"abc";1v`, ``, false},
	{`"abc";_v`, ``, false},
	{`"abc";vW`, ``, false},
	{`"abc";v=`, ``, false},
	{`"abc";v =1`, ``, false},
	{`"abc";v= 1`, ``, false},
	{`"abc";v=1, "def"`, ``, false},
	{`"abc";v=(1)`, ``, false},
	{`"abc";é`, ``, false},
	{`"abc"é`, ``, false},
}

// bareItems are values of parameters.
var bareItems = map[bool][]string{
	true: {
		`0`, `-0`, `00`, `999999999999999`, `-999999999999999`, `1.5`, `-0.0`, `999999999999.999`, `-999999999999.999`,
		`""`, `"\"\\"`, `a`, `*`, `Z9:/!#$%&'*+-.^_` + "`|~", `?0`, `?1`, `@0`, `@-62135596800`, `@999999999999999`,
		`::`, `:YQ==:`, `:YQ:`, `:YR==:`, `:YWI=:`, `:YWI:`, `:+/+/:`, `%""`, `%"a%22%25\"`, `%"%c3%a9 %f0%9f%98%80"`,
	},
	false: {
		`-`, `--1`, `+1`, `1000000000000000`, `-1000000000000000`, `1.`, `.5`, `1.2345`, `1000000000000.0`, `1e2`, `1.5.`, `1.-5`,
		`"`, `"\a"`, `"é"`, `?`, `?2`, `?true`, `?01`, `@`, `@1.5`, `@a`, `@@1`, `@1000000000000000`, `:`, `:YQ==`, `:Y:`, `:YQ=:`, `:Y=Q=:`, `:=:`,
		`:Y Q:`, `:-_-_:`, `:YQ==YQ==:`, `%`, `%"`, `%a`, `%"%C3%A9"`, `%"%c3"`, `%"%"`, `%"%c"`, `%"%+1"`, `%"%ff"`, `%"é"`, "%\"\x7f\"",
		`a"b`, `(`, `{`, `é`, "a\x00",
	},
}

func TestParseStringItem(t *testing.T) {
	check := func(text, want string, wantOK bool) {
		if got, ok := ParseStringItem(text); got != want || ok != wantOK {
			t.Errorf("%q: %q, %t, want %q, %t", text, got, ok, want, wantOK)
		}
	}
	for _, test := range stringItems {
		check(test.text, test.want, test.ok)
	}
	for ok, values := range bareItems {
		want := ""
		if ok {
			want = "abc"
		}
		for _, value := range values {
			check(`"abc";v=`+value, want, ok)
			check(`"abc";v=`+value+`;w`, want, ok)
		}
	}
}

// FuzzStringItem compares ParseStringItem with the grammar of RFC 9651 as regular
// expressions.
func FuzzStringItem(f *testing.F) {
	for _, test := range stringItems {
		f.Add(test.text)
	}
	for _, values := range bareItems {
		for _, value := range values {
			f.Add(`"abc";v=` + value)
		}
	}
	const (
		str     = `"(?:[ !#-\[\]-~]|\\["\\])*"`
		display = `%"((?:[ !#$&-~]|%[0-9a-f]{2})*)"`
		bytes   = `:(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?:`
		value   = `@?-?[0-9]{1,15}|-?[0-9]{1,12}\.[0-9]{1,3}|[A-Za-z*][A-Za-z0-9!#$%&'*+.^_` + "`" + `|~:/-]*|\?[01]|` + str + `|` + display + `|` + bytes
	)
	item := regexp.MustCompile(`^(` + str + `)((?:; *[a-z*][a-z0-9_.*-]*(?:=(?:` + value + `))?)*)$`)
	parameter := regexp.MustCompile(`; *[a-z*][a-z0-9_.*-]*(?:=(?:` + value + `))?`)
	escape := regexp.MustCompile(`\\(.)`)
	f.Fuzz(func(t *testing.T, text string) {
		want, ok := "", false
		if m := item.FindStringSubmatch(text); m != nil {
			want, ok = escape.ReplaceAllString(m[1][1:len(m[1])-1], "$1"), true
			for _, p := range parameter.FindAllStringSubmatch(m[2], -1) {
				decoded, err := url.PathUnescape(p[1])
				ok = ok && err == nil && utf8.ValidString(decoded)
			}
			if !ok {
				want = ""
			}
		}
		if got, gotOK := ParseStringItem(text); got != want || gotOK != ok {
			t.Errorf("%q: %q, %t, want %q, %t", text, got, gotOK, want, ok)
		}
	})
}

// FuzzMatchETag compares MatchETag with regular expressions on the lines joined to one (RFC
// 9110, Section 5.3).
func FuzzMatchETag(f *testing.F) {
	const etag = `"tag"`
	for _, test := range matchCases {
		f.Add(strings.Join(test.lines, "\n"), true)
		f.Add(strings.Join(test.lines, "\n"), false)
	}
	const entityTag = `(?:W/)?"[^\x00-\x20"\x7F]*"`
	wellFormed := regexp.MustCompile(`^(?:[ \t]*(?:` + entityTag + `)?[ \t]*(?:,|$))*`)
	tags := regexp.MustCompile(entityTag)
	f.Fuzz(func(t *testing.T, text string, weak bool) {
		lines := strings.Split(text, "\n")
		joined := strings.Join(lines, ", ")
		named := tags.FindAllString(wellFormed.FindString(joined), -1)
		want := regexp.MustCompile(`^[ \t]*\*[ \t]*$`).MatchString(joined) ||
			slices.Contains(named, etag) || weak && slices.Contains(named, "W/"+etag)
		if got := MatchETag(lines, etag, weak); got != want {
			t.Errorf("MatchETag(%q, weak %v) = %v, want %v", lines, weak, got, want)
		}
	})
}

// FuzzCacheControl compares what ParseCacheControl says of many elements, in whatever sequence, with what it
// says of each. Regular expressions separate the elements.
func FuzzCacheControl(f *testing.F) {
	for _, test := range cacheControlCases {
		f.Add(strings.Join(test.lines, "\n"), uint64(len(test.name)))
	}
	f.Add(`max-age=5, a="b\", max-age="7"`, uint64(1))
	f.Add("a=\"b\"c\", max-age=0, d=\"e\"\nmax-age=9", uint64(2))
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		lines := strings.Split(text, "\n")
		elements, malformed := splitDirectives(lines)
		want := absent
		want.NoCache = malformed
		for _, element := range elements {
			c := ParseCacheControl([]string{element})
			want = CacheControl{
				NoCache:      want.NoCache || c.NoCache,
				NoStore:      want.NoStore || c.NoStore,
				OnlyIfCached: want.OnlyIfCached || c.OnlyIfCached,
				AcceptsAge:   want.AcceptsAge || c.AcceptsAge,
				MaxAge:       min(want.MaxAge, c.MaxAge),
				MinFresh:     max(want.MinFresh, c.MinFresh),
				// As an unsigned number, the negative one that stands for none is the greatest.
				MaxStale:     time.Duration(min(uint64(want.MaxStale), uint64(c.MaxStale))),
				StaleIfError: time.Duration(min(uint64(want.StaleIfError), uint64(c.StaleIfError))),
			}
		}
		if got := ParseCacheControl(lines); got != want {
			t.Fatalf("ParseCacheControl(%q)\n got %+v\nwant %+v", lines, got, want)
		}
		if malformed {
			return
		}
		random := rand.New(rand.NewPCG(seed, 0))
		random.Shuffle(len(elements), func(i, j int) { elements[i], elements[j] = elements[j], elements[i] })
		shuffled := []string{""}
		for _, element := range elements {
			if random.IntN(2) == 0 {
				shuffled = append(shuffled, element)
			} else {
				shuffled[len(shuffled)-1] += []string{",", " , ", ",,\t"}[random.IntN(3)] + element
			}
		}
		if got := ParseCacheControl(shuffled); got != want {
			t.Fatalf("ParseCacheControl(%q), which are those of %q in another order\n got %+v\nwant %+v", shuffled, lines, got, want)
		}
	})
}

var (
	directiveElement = regexp.MustCompile(`(?s)(?:"(?:\\.|[^"\\])*(?:"|\\?$)|[^",])+`)
	directiveForm    = regexp.MustCompile(`(?s)^([!#$%&'*+\-.^_|~0-9A-Za-z` + "`" + `]+)(?:=([!#$%&'*+\-.^_|~0-9A-Za-z` + "`" + `]+|"(?:\\.|[^"\\])*"))?$`)
)

// splitDirectives returns the well-formed elements of lines, and whether there were
// malformed ones.
func splitDirectives(lines []string) (elements []string, malformed bool) {
	for _, line := range lines {
		for _, element := range directiveElement.FindAllString(line, -1) {
			element = strings.Trim(element, " \t")
			switch {
			case element == "":
			case directiveForm.MatchString(element):
				elements = append(elements, element)
			default:
				malformed = true
			}
		}
	}
	return elements, malformed
}
