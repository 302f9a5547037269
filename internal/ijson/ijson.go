// Package ijson reads and writes the text of JSON (RFC 8259) that all programs read
// alike: I-JSON (RFC 7493), which is UTF-8 without duplicate names, lone surrogates
// and noncharacters. Parse checks a text and splits an object into its members;
// AppendCanonical and AppendString write a value always in the same way, and IsCanonical
// recognizes text that is written so.
package ijson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how many levels of objects and arrays may be nested, so that no text can
// make the stack grow at will.
const MaxDepth = 1000

// An Error says why a text is not I-JSON.
type Error struct {
	Path   []string // the names and indexes that lead to the fault; empty if it is the whole text
	Reason string   // continues a sentence that begins with "The JSON", such as "has a duplicate member"

	malformed bool   // the text is no JSON
	found     string // the character or the end that is in the place of JSON, or ""
}

// Error returns the pointer to the fault, unless the fault is the whole text, then the
// reason, and then the character or the end that was found in the place of JSON.
func (e *Error) Error() string {
	text := "the JSON " + e.Reason
	if len(e.Path) > 0 {
		text = Pointer(e.Path...) + ": " + text
	}
	if e.found != "" {
		text += ": " + e.found
	}
	return text
}

// Pointer returns the JSON Pointer for path as a URI fragment (RFC 6901, Section
// 6).
func Pointer(path ...string) string {
	var b strings.Builder
	b.WriteByte('#')
	for _, token := range path {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
		b.WriteString("/" + url.PathEscape(token))
	}
	return b.String()
}

// A Member is a member of an object. Its slices may be parts of the text.
type Member struct {
	Name  []byte // unescaped
	Value []byte // as it was written
	text  []byte // the value unescaped, if it is a string
}

// Text returns the value of the member and true if it is a string.
func (m Member) Text() (string, bool) { return string(m.text), m.Value[0] == '"' }

// Int64 returns the value of the member and true if it is a number whose value is a whole
// one of 64 bits, however it is written: 2, 2.0, 2e0 and 20e-1 are one number. No digit is
// rounded away, and the time that it takes is linear in the length of the number.
func (m Member) Int64() (n int64, ok bool) {
	if n, err := strconv.ParseInt(string(m.Value), 10, 64); err == nil {
		return n, true // digits alone, as nearly all are
	}
	if number(m.Value) == 0 {
		return 0, false
	}
	mantissa, power := string(m.Value), int64(0)
	if i := strings.IndexAny(mantissa, "eE"); i >= 0 {
		// It stops at 2^62, which no number of digits makes up for.
		power, _ = strconv.ParseInt(mantissa[i+1:], 10, 63)
		mantissa = mantissa[:i]
	}
	unsigned := strings.TrimPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(unsigned, ".")
	power -= int64(len(fraction))
	digits := strings.TrimLeft(whole+fraction, "0")
	significant := strings.TrimRight(digits, "0")
	power += int64(len(digits) - len(significant))
	switch {
	case significant == "":
		return 0, true
	case power < 0, power > int64(len("9223372036854775807")-len(significant)):
		return 0, false
	}
	sign := mantissa[:len(mantissa)-len(unsigned)]
	n, err := strconv.ParseInt(sign+significant+strings.Repeat("0", int(power)), 10, 64)
	if err != nil {
		return 0, false
	}
	return n, true
}

// Parse checks that text is a single I-JSON value and returns its members, in their
// sequence, if it is an object. The error is an [*Error]. If a text is no JSON at all, the
// error says that, whatever else is wrong with the text, unless it is nested too deeply
// before.
func Parse(text []byte) (members []Member, isObject bool, err error) {
	switch {
	case !utf8.Valid(text):
		return nil, false, &Error{Reason: "is not valid UTF-8"}
	case len(text) == 0:
		return nil, false, &Error{Reason: "is empty"}
	}
	p := parser{text: text, rest: text, most: MaxDepth}
	members, isObject = p.document()
	if p.reason == "" {
		return members, isObject, nil
	}
	if !p.malformed {
		if err := Syntax(text); err != nil && err.malformed {
			return nil, false, err
		}
	}
	return nil, false, p.err()
}

// Syntax returns nil if text is a single JSON value (RFC 8259) with at most 10,000 levels
// of objects and arrays. The error says where the fault is, by the line and the column in
// characters, both from 1.
func Syntax(text []byte) *Error {
	p := parser{text: text, rest: text, most: 10_000, lenient: true}
	p.document()
	err := p.err()
	if err != nil {
		err.Path = nil // if the text is nested too deeply, a path of 10,000 names helps nobody
	}
	return err
}

// A parser walks a text. Its methods report whether they found no fault.
type parser struct {
	text, rest []byte
	depth      int
	most       int      // the largest depth allowed
	lenient    bool     // JSON that is not I-JSON is no fault
	reason     string   // Error.Reason, or "" while there is no fault
	malformed  bool     // as in Error
	found      string   // as in Error
	path       []string // Error.Path, innermost first
}

func (p *parser) err() *Error {
	if p.reason == "" {
		return nil
	}
	slices.Reverse(p.path)
	return &Error{p.path, p.reason, p.malformed, p.found}
}

// fault notes that the text is not I-JSON, although it may be JSON.
func (p *parser) fault(reason string, path ...string) bool {
	if !p.lenient {
		p.reason, p.path = reason, path
	}
	return p.lenient
}

// syntax notes that the text stops being JSON at the first character of rest, or if rest is
// empty, at the last one of the text.
func (p *parser) syntax() bool {
	end := len(p.text) - len(p.rest)
	if len(p.rest) == 0 {
		_, n := utf8.DecodeLastRune(p.text)
		end -= n
	}
	before := p.text[:end]
	start := bytes.LastIndexByte(before, '\n') + 1
	p.reason = fmt.Sprintf("is not well-formed, at line %d, column %d", 1+bytes.Count(before, []byte("\n")),
		1+utf8.RuneCount(before[start:]))
	p.malformed, p.found = true, "unexpected end"
	if len(p.rest) > 0 {
		r, _ := utf8.DecodeRune(p.rest)
		p.found = fmt.Sprintf("invalid character %q", r)
	}
	return false
}

// document consumes the whole text, and returns its members if it is an object.
func (p *parser) document() (members []Member, isObject bool) {
	if bytes.HasPrefix(p.text, []byte("\ufeff")) {
		p.reason, p.malformed = "begins with a byte order mark, which it must not have", true
		return nil, false
	}
	p.space()
	ok := false
	if p.next() == '{' {
		p.depth = 1
		members, ok = p.object()
	} else {
		_, ok = p.value()
	}
	if p.space(); ok && len(p.rest) > 0 {
		ok = p.syntax()
	}
	if !ok {
		return nil, false
	}
	return members, members != nil
}

// next returns the first byte of rest, or at the end 0, which is in no JSON.
func (p *parser) next() byte {
	if len(p.rest) == 0 {
		return 0
	}
	return p.rest[0]
}

func (p *parser) space() {
	for len(p.rest) > 0 && isSpace(p.rest[0]) {
		p.rest = p.rest[1:]
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// object consumes the object at the beginning of rest and returns its members, which are
// not nil.
func (p *parser) object() (members []Member, ok bool) {
	members = make([]Member, 0, 2)
	var names map[string]bool // nil while there are so few that a linear search is fast
	for {
		p.rest = p.rest[1:] // { or ,
		p.space()
		if len(members) == 0 && p.next() == '}' {
			break
		}
		var m Member
		if m.Name, ok = p.str(); !ok {
			return nil, false
		}
		if len(members) == 8 {
			names = make(map[string]bool)
			for _, earlier := range members {
				names[string(earlier.Name)] = true
			}
		}
		if names[string(m.Name)] || len(members) < 8 && slices.ContainsFunc(members, m.sameName) {
			if !p.fault("has a duplicate member", string(m.Name)) {
				return nil, false
			}
		}
		if names != nil {
			names[string(m.Name)] = true
		}
		if p.space(); p.next() != ':' {
			return nil, p.syntax()
		}
		p.rest = p.rest[1:]
		p.space()
		before := p.rest
		if m.text, ok = p.value(); !ok {
			if !p.malformed {
				p.path = append(p.path, string(m.Name))
			}
			return nil, false
		}
		m.Value = before[:len(before)-len(p.rest)]
		members = append(members, m)
		if p.space(); p.next() == '}' {
			break
		}
		if p.next() != ',' {
			return nil, p.syntax()
		}
	}
	p.rest = p.rest[1:]
	return members, true
}

func (m Member) sameName(other Member) bool { return bytes.Equal(m.Name, other.Name) }

// value consumes the value at the beginning of rest and returns its text if it is a string.
func (p *parser) value() (text []byte, ok bool) {
	switch p.next() {
	case '{', '[':
		if p.depth++; p.depth > p.most {
			p.reason = "is nested too deeply"
			return nil, false
		}
		if p.rest[0] == '{' {
			_, ok = p.object()
		} else {
			ok = p.array()
		}
		p.depth--
		return nil, ok
	case '"':
		return p.str()
	}
	n := scalar(p.rest)
	if n == 0 {
		return nil, p.syntax()
	}
	p.rest = p.rest[n:]
	return nil, true
}

func (p *parser) array() bool {
	for i := 0; ; i++ {
		p.rest = p.rest[1:] // [ or ,
		p.space()
		if i == 0 && p.next() == ']' {
			break
		}
		if _, ok := p.value(); !ok {
			if !p.malformed {
				p.path = append(p.path, strconv.Itoa(i))
			}
			return false
		}
		if p.space(); p.next() == ']' {
			break
		}
		if p.next() != ',' {
			return p.syntax()
		}
	}
	p.rest = p.rest[1:]
	return true
}

// str consumes the string that must be at the beginning of rest and returns its text.
func (p *parser) str() (text []byte, ok bool) {
	if p.next() != '"' {
		return nil, p.syntax()
	}
	end, escaped, ascii := 1, false, true
	for end < len(p.rest) && p.rest[end] != '"' {
		n := 1
		ascii = ascii && p.rest[end] < utf8.RuneSelf
		if p.rest[end] == '\\' {
			escaped = true
			n = escape(p.rest[end:])
		}
		if n == 0 || p.rest[end] < ' ' {
			break
		}
		end += n
	}
	if end == len(p.rest) || p.rest[end] != '"' {
		p.rest = p.rest[end:]
		return nil, p.syntax()
	}
	literal := p.rest[:end+1]
	p.rest = p.rest[end+1:]
	text = literal[1:end]
	if escaped {
		if hasLoneSurrogate(literal) &&
			!p.fault(`has a surrogate (\uD800 to \uDFFF) that is not one of a pair`) {
			return nil, false
		}
		text = unescape(literal)
	}
	if (escaped || !ascii) && bytes.ContainsFunc(text, IsNoncharacter) &&
		!p.fault("has a noncharacter, such as U+FFFF") {
		return nil, false
	}
	return text, true
}

// escape returns the length of the escape sequence at the beginning of b, or 0 if the
// backslash there begins none.
func escape(b []byte) int {
	switch {
	case len(b) >= 2 && strings.IndexByte(`"\/bfnrt`, b[1]) >= 0:
		return 2
	case len(b) >= 6 && b[1] == 'u' && isHex(b[2]) && isHex(b[3]) && isHex(b[4]) && isHex(b[5]):
		return 6
	}
	return 0
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// unescape returns the text of a valid JSON string.
func unescape(literal []byte) []byte {
	var text string
	if err := json.Unmarshal(literal, &text); err != nil {
		panic(err) // the string is not valid
	}
	return []byte(text)
}

// hasLoneSurrogate reports whether a JSON string contains an escaped surrogate
// that is not part of a pair.
func hasLoneSurrogate(literal []byte) bool {
	for i := 0; i < len(literal); i++ {
		if literal[i] != '\\' {
			continue
		}
		i++
		if literal[i] != 'u' {
			continue
		}
		r := hexRune(literal[i+1 : i+5])
		i += 4
		if !utf16.IsSurrogate(r) {
			continue
		}
		next := literal[i+1:]
		if !bytes.HasPrefix(next, []byte(`\u`)) || utf16.DecodeRune(r, hexRune(next[2:6])) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

func hexRune(digits []byte) rune {
	n, _ := strconv.ParseUint(string(digits), 16, 16) // valid JSON has four hex digits here
	return rune(n)
}

// IsNoncharacter reports whether r is a noncharacter, which I-JSON forbids
// (RFC 7493, Section 2.1).
func IsNoncharacter(r rune) bool {
	return 0xFDD0 <= r && r <= 0xFDEF || r&0xFFFE == 0xFFFE
}
