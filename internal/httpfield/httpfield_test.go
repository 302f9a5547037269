package httpfield

import (
	"maps"
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

// tagLines are lines of a field by whether they match the tag "tag" in a weak comparison.
var tagLines = map[bool][]string{
	true: {
		`"tag"`, `W/"tag"`, `*`, " *\t", " \t\"tag\"\t ", `"tag", "b"`, `"a", "b", "tag"`, `"a","b","tag"`,
		"\"a\"\t,\t\"tag\"", `"a", W/"tag"`, `, ,,"tag"`, `"a",, ,"tag",`, `"","tag"`, `"ä", "tag"`,
		"\"\x80\xff\", \"tag\"", `"tag", junk`,
		// Several lines are one list.
		"\"a\"\n\"tag\"", "\"a\", \"b\"\n\"c\", W/\"tag\"", "\n\"tag\"", "\"a\",\n\"tag\"",
		// Quotes end nowhere but at a quote, and what is between them is a tag's.
		`"a,b", "tag"`, `"a,","tag"`, `"a,*", "tag"`, `"a\", "tag"`,
	},
	false: {
		`"other"`, `W/"other"`, `"*"`, `"a", W/"b", "c"`, `, ,`, "\"a\"\n\"b\"", `""`, `"a,b"`, `"a,tag"`, ``,
		" \t", `"TAG"`, `"ta"`, `" tag"`,
		// What is no tag, and what follows on it.
		`tag`, `'tag'`, `tag"`, `"tag`, `"`, `w/"tag"`, `W"tag"`, `W\"tag"`, `W/W/"tag"`, `W/ "tag"`, `W/`,
		`"a b", "tag"`, "\"a\x01\", \"tag\"", "\"a\x7f\", \"tag\"", `junk, "tag"`, `"tag"junk`, `"tag" junk`,
		`"a"; "tag"`, `"a" "tag"`, `"a, "tag"`, "\"a\n\"tag\"", "junk\n\"tag\"",
		// An asterisk is the only one.
		`"a", *`, `*, "a"`, "*\n\"a\"", "\"a\"\n*", `*, *`, `**`,
	},
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

// absent is a Cache-Control without any directive that has a meaning.
var absent = CacheControl{MaxAge: Forever, MaxStale: -1, StaleIfError: -1}

var cacheControls = []struct {
	change func(*CacheControl) // to absent
	fields []string
}{
	{func(c *CacheControl) {}, []string{``, `, ,`, `x, y=1, z="2"`}},
	{func(c *CacheControl) { c.NoCache = true }, []string{`no-cache`, `no-cache="x"`, `max-age`, `max-age=`,
		`max-age=""`, `max-age=+30`, `max-age=30.0`, `max-age=30s`, `max-age=٣٠`, `max-age = 30`,
		`max-age=" 30"`, `max-age="30`, `max-age=30"`, `max-age="3"0`, `max-age=30; x`, `@`,
		`x="a, max-age=30`, `x="a\`, `=1`}},
	{func(c *CacheControl) { c.NoStore = true }, []string{`no-store`}},
	{func(c *CacheControl) { c.OnlyIfCached, c.AcceptsAge = true, true }, []string{`only-if-cached`}},
	{func(c *CacheControl) { c.AcceptsAge, c.MaxAge = true, 30*time.Second }, []string{`max-age=30`,
		`max-age="30"`, `MAX-AGE=30`, `max-age=0030`, " ,\t, max-age=30 ,\t,", "x\nmax-age=30",
		"max-age=60, max-age=30\nmax-age=90", `x="a, no-cache", max-age=30`, `x="a\", no-cache", max-age=30`,
		`x="a\\", max-age=30`}},
	{func(c *CacheControl) { c.AcceptsAge, c.NoCache, c.MaxAge = true, true, 0 }, []string{`max-age=0`}},
	{func(c *CacheControl) { c.AcceptsAge = true }, []string{`max-age=99999999999999999999`,
		`max-age=9223372037`}},
	{func(c *CacheControl) { c.AcceptsAge, c.MinFresh = true, 5*time.Second },
		[]string{`min-fresh=1, min-fresh=5, min-fresh=2`}},
	{func(c *CacheControl) { c.AcceptsAge, c.MaxStale = true, Forever }, []string{`max-stale`,
		`max-stale=99999999999999999999`}},
	{func(c *CacheControl) { c.AcceptsAge, c.MaxStale = true, 2*time.Second },
		[]string{`max-stale, max-stale=3, max-stale=2, max-stale=4, max-stale`}},
	{func(c *CacheControl) { c.StaleIfError = 2 * time.Second },
		[]string{`stale-if-error=3, stale-if-error=2, stale-if-error=4`}},
}

func TestParseCacheControl(t *testing.T) {
	for _, row := range cacheControls {
		want := absent
		row.change(&want)
		for _, field := range row.fields {
			if got := ParseCacheControl(strings.Split(field, "\n")); got != want {
				t.Errorf("%q\n got %+v\nwant %+v", field, got, want)
			}
		}
	}
	if got := ParseCacheControl(nil); got != absent {
		t.Errorf("no line: %+v", got)
	}
}

// mediaTypes are lines of a Content-Type by whether they are JSON.
var mediaTypes = map[bool][]string{
	true: {
		"application/json", "application/json\napplication/json",
		"application/json\napplication/json\napplication/json", "application/json, application/json",
		"application/json,application/json", "application/json\napplication/json,\tapplication/json",
		"application/json, Application/JSON",
		"application/json; charset=utf-8\napplication/json;Charset=UTF-8",
		`application/json; charset=utf-8, application/json; charset="utf-8"`,
		"application/json; a=1; b=2\napplication/json; b=2; a=1", `application/json; a="1,2"`,
		`application/json; a="1,2", application/json; a="1\,2"`,
	},
	false: {
		"", "text/plain", "application/json\ntext/plain", "text/plain, application/json",
		"text/plain\ntext/plain", "application/json\napplication/json; charset=utf-8",
		"application/json; charset=utf-8, application/json; charset=utf-16",
		"application/json; charset=utf-16\napplication/json; charset=utf-16",
		"application/json; v=1, application/json; v=2", "application/json; v=a, application/json; v=A",
		"application/json; v=1\napplication/json; v=1; w=1", "application/json\n", "application/json,",
		", application/json", "application/json; application/json", "application/json application/json",
		`application/json; a="1, application/json`,
	},
}

func TestIsJSON(t *testing.T) {
	for want, fields := range mediaTypes {
		for _, field := range fields {
			if got := IsJSON(strings.Split(field, "\n")); got != want {
				t.Errorf("%q: %t", field, got)
			}
		}
	}
	if IsJSON(nil) {
		t.Error("no line is JSON")
	}
}

// FuzzIsJSON compares what is said of two lines with what is said of each.
func FuzzIsJSON(f *testing.F) {
	for _, fields := range mediaTypes {
		for _, field := range fields {
			first, others, _ := strings.Cut(field, "\n")
			f.Add(first, strings.ReplaceAll(others, "\n", ","))
		}
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

// stringItems are items and their strings, and notStringItems are none.
var (
	stringItems = map[string]string{
		`"abc"`:     `abc`,
		`""`:        ``,
		`"a\"b\\c"`: `a"b\c`,
		`" , ;"`:    ` , ;`,
		`" !~"`:     ` !~`,
		`"abc";v`:   `abc`,
		`"a;b";v=1`: `a;b`,
		`"abc";a;b="x, y";c=?1;d=:YQ==:;e=1.5;f=tok/en;g=@123;h=%"display"`: `abc`,
		`"abc";a;a;a=2`: `abc`,
		`"abc";   v=1`:  `abc`,
		`"abc";*a_-.*9`: `abc`,
	}
	notStringItems = []string{`"`, ``, `abc`, `xabc"`, `"abc`, `"abc\"`, `"abc\`, `"a\bc"`, `"abc"x`,
		`"abc" `, `"abc", "def"`, "\"a\tb\"", "\"a\x7fb\"", `"é"`, `%"abc"`, `"abc";v=1;`, `"abc";`,
		`"abc";;v`, `"abc" ;v`, `"abc";v `, "\"abc\";\tv", `"abc";V=1`, `"abc";1v`, `"abc";_v`, `"abc";vW`,
		`"abc";v=`, `"abc";v =1`, `"abc";v= 1`, `"abc";v=1, "def"`, `"abc";v=(1)`, `"abc";é`, `"abc"é`}
)

// bareItems are values of parameters.
var bareItems = map[bool][]string{
	true: {`0`, `-0`, `00`, `999999999999999`, `-999999999999999`, `1.5`, `-0.0`, `999999999999.999`,
		`-999999999999.999`, `""`, `"\"\\"`, `a`, `*`, `Z9:/!#$%&'*+-.^_` + "`|~", `?0`, `?1`, `@0`,
		`@-62135596800`, `@999999999999999`, `::`, `:YQ==:`, `:YQ:`, `:YR==:`, `:YWI=:`, `:YWI:`, `:+/+/:`,
		`%""`, `%"a%22%25\"`, `%"%c3%a9 %f0%9f%98%80"`},
	false: {`-`, `--1`, `+1`, `1000000000000000`, `-1000000000000000`, `1.`, `.5`, `1.2345`,
		`1000000000000.0`, `1e2`, `1.5.`, `1.-5`, `"`, `"\a"`, `"é"`, `?`, `?2`, `?true`, `?01`, `@`, `@1.5`,
		`@a`, `@@1`, `@1000000000000000`, `:`, `:YQ==`, `:Y:`, `:YQ=:`, `:Y=Q=:`, `:=:`, `:Y Q:`, `:-_-_:`,
		`:YQ==YQ==:`, `%`, `%"`, `%a`, `%"%C3%A9"`, `%"%c3"`, `%"%"`, `%"%c"`, `%"%+1"`, `%"%ff"`, `%"é"`,
		"%\"\x7f\"", `a"b`, `(`, `{`, `é`, "a\x00"},
}

func TestParseStringItem(t *testing.T) {
	check := func(text, want string, wantOK bool) {
		if got, ok := ParseStringItem(text); got != want || ok != wantOK {
			t.Errorf("%q: %q, %t, want %q, %t", text, got, ok, want, wantOK)
		}
	}
	for text, want := range stringItems {
		check(text, want, true)
	}
	for _, text := range notStringItems {
		check(text, "", false)
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
	for _, text := range slices.Concat(slices.Collect(maps.Keys(stringItems)), notStringItems) {
		f.Add(text)
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
	for want, fields := range tagLines {
		for _, field := range fields {
			if got := MatchETag(strings.Split(field, "\n"), etag, true); got != want {
				f.Errorf("%q: %t", field, got)
			}
			f.Add(field, true)
			f.Add(field, false)
		}
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
	for _, row := range cacheControls {
		for _, field := range row.fields {
			f.Add(field, uint64(len(field)))
		}
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
