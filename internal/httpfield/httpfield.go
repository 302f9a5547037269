// Package httpfield reads the values of header fields by their grammar: the lists
// of entity tags in If-Match and If-None-Match (RFC 9110, Section 13.1), the
// directives in the Cache-Control of a request (RFC 9111, Section 5.2.1, and RFC
// 5861, Section 4), Strings of structured fields (RFC 9651), and the type and coding of
// a JSON body. It takes the lines of a field as [net/http.Header] holds them, and knows
// of no request.
package httpfield

import (
	"encoding/base64"
	"iter"
	"maps"
	"math"
	"mime"
	"strconv"
	"strings"
	"time"
)

// ETag returns the strong entity tag (RFC 9110, Section 8.8.3) with these bytes in unpadded
// URL-safe base64 (RFC 4648, Section 5).
func ETag(opaque [16]byte) string {
	b := make([]byte, 0, 24)
	return string(append(base64.RawURLEncoding.AppendEncode(append(b, '"'), opaque[:]), '"'))
}

// MatchETag reports whether the lines of If-Match or If-None-Match, taken as one
// list, contain the strong entity tag etag, or are "*". The comparison is weak or
// strong (RFC 9110, Section 8.8.3.2). Reading stops at the first element that is
// not an entity tag.
func MatchETag(lines []string, etag string, weak bool) bool {
	if len(lines) == 1 && strings.Trim(lines[0], " \t") == "*" {
		return true
	}
	for _, rest := range lines {
		for {
			rest = strings.TrimLeft(rest, " \t,")
			if rest == "" {
				break
			}
			isWeak := strings.HasPrefix(rest, "W/")
			tag := strings.TrimPrefix(rest, "W/")
			n := entityTagLen(tag)
			if n == 0 {
				return false
			}
			tag, rest = tag[:n], strings.TrimLeft(tag[n:], " \t")
			if rest != "" && rest[0] != ',' {
				return false
			}
			if tag == etag && (weak || !isWeak) {
				return true
			}
		}
	}
	return false
}

// entityTagLen returns the length in bytes of the opaque-tag (RFC 9110, Section 8.8.3) at
// the beginning of s, with its quotes, or 0 if there is none.
func entityTagLen(s string) int {
	if s == "" || s[0] != '"' {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return i + 1
		case c < '!' || c == 0x7F:
			return 0
		}
	}
	return 0
}

// Forever stands for a number of seconds too large to represent (RFC 9111,
// Section 1.2.2).
const Forever time.Duration = math.MaxInt64

// CacheControl holds the directives of a request's Cache-Control.
type CacheControl struct {
	AcceptsAge   bool // some directive allows a stored response
	NoCache      bool // also set by max-age=0 and by anything malformed
	NoStore      bool
	OnlyIfCached bool
	MaxAge       time.Duration // Forever if absent
	MinFresh     time.Duration // 0 if absent
	MaxStale     time.Duration // -1 if absent, Forever if it has no argument
	StaleIfError time.Duration // -1 if absent
}

// ParseCacheControl parses the lines of a Cache-Control as one list. If a
// directive is repeated, the most restrictive one counts.
func ParseCacheControl(lines []string) CacheControl {
	c := CacheControl{MaxAge: Forever, MaxStale: -1, StaleIfError: -1}
	for element := range elements(lines) {
		if element != "" {
			c.add(element)
		}
	}
	return c
}

// elements returns the elements of the lines, which are one comma-separated list, trimmed. A
// comma in a quoted string does not separate. Some elements may be empty (RFC 9110, Section
// 5.6.1).
func elements(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, rest := range lines {
			for more := true; more; {
				var element string
				element, rest, more = cutElement(rest)
				if !yield(strings.Trim(element, " \t")) {
					return
				}
			}
		}
	}
}

// cutElement is like [strings.Cut] at the first comma that is not in a quoted string.
func cutElement(list string) (element, rest string, more bool) {
	quoted := false
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == ',' && !quoted:
			return list[:i], list[i+1:], true
		}
	}
	return list, "", false
}

// add records one element of the list.
func (c *CacheControl) add(element string) {
	name, arg, hasArg := strings.Cut(element, "=")
	if !IsToken(name) || hasArg && !IsToken(arg) && !isQuoted(arg) {
		c.NoCache = true
		return
	}
	is := func(directive string) bool { return strings.EqualFold(name, directive) }
	switch {
	case is("no-cache"):
		c.NoCache = true
	case is("no-store"):
		c.NoStore = true
	case is("only-if-cached"):
		c.OnlyIfCached = true
		c.AcceptsAge = true
	case is("max-stale") && !hasArg:
		c.AcceptsAge = true
		if c.MaxStale < 0 {
			c.MaxStale = Forever
		}
	case is("max-age"), is("min-fresh"), is("max-stale"), is("stale-if-error"):
		seconds, ok := parseDeltaSeconds(arg)
		switch {
		case !ok:
			c.NoCache = true
		case is("max-age"):
			c.AcceptsAge = true
			c.MaxAge = min(c.MaxAge, seconds)
			c.NoCache = c.NoCache || seconds == 0
		case is("min-fresh"):
			c.AcceptsAge = true
			c.MinFresh = max(c.MinFresh, seconds)
		case is("max-stale"):
			c.AcceptsAge = true
			if c.MaxStale < 0 || seconds < c.MaxStale {
				c.MaxStale = seconds
			}
		case c.StaleIfError < 0 || seconds < c.StaleIfError:
			c.StaleIfError = seconds
		}
	}
}

// parseDeltaSeconds parses a number of seconds as a token or a quoted string;
// recipients ought to accept both forms (RFC 9111, Section 5.2).
func parseDeltaSeconds(arg string) (time.Duration, bool) {
	if isQuoted(arg) {
		arg = arg[1 : len(arg)-1]
	}
	if arg == "" || strings.Trim(arg, digits) != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || n > int64(Forever/time.Second) {
		return Forever, true
	}
	return time.Duration(n) * time.Second, true
}

const (
	lowers = "abcdefghijklmnopqrstuvwxyz"
	uppers = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
	tchars = lowers + uppers + digits + "!#$%&'*+-.^_`|~" // RFC 9110, Section 5.6.2
)

// IsToken reports whether s is a token (RFC 9110, Section 5.6.2).
func IsToken(s string) bool {
	for i := range len(s) {
		if strings.IndexByte(tchars, s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

// isQuoted reports whether s is a quoted string (RFC 9110, Section 5.6.4).
func isQuoted(s string) bool {
	if s == "" || s[0] != '"' {
		return false
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i == len(s)-1
		}
	}
	return false
}

// IsJSON reports whether the lines of a Content-Type are application/json, in UTF-8 if it
// has a charset (RFC 8259, Section 8.1). The field has one value, but some gateways send it
// twice, in two lines or joined by a comma (RFC 9110, Section 8.3): equal values are one.
// They are equal with the same parameters, in any order and quoted or not.
func IsJSON(lines []string) bool {
	if len(lines) == 1 && lines[0] == "application/json" {
		return true
	}
	var first map[string]string // the parameters of the first value
	for value := range elements(lines) {
		mediaType, params, err := mime.ParseMediaType(value)
		if err != nil || mediaType != "application/json" {
			return false
		}
		if charset, ok := params["charset"]; ok {
			if !strings.EqualFold(charset, "utf-8") {
				return false
			}
			params["charset"] = "utf-8"
		}
		if first == nil {
			first = params
		}
		if !maps.Equal(params, first) {
			return false
		}
	}
	return first != nil
}

// HasCoding reports whether the lines of a Content-Encoding list a coding other than
// identity (RFC 9110, Section 8.4).
func HasCoding(lines []string) bool {
	for coding := range elements(lines) {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return true
		}
	}
	return false
}
