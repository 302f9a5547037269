// Package ijson reads and writes the text of JSON (RFC 8259) that all programs read
// alike: I-JSON (RFC 7493), which is UTF-8 without duplicate names, lone surrogates
// and noncharacters. Parse checks a text and splits an object into its members;
// AppendCanonical and AppendString write values in one way, and IsCanonical
// recognizes what is written so. The syntax is left to encoding/json.
package ijson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how many objects and arrays may be nested, so that a text cannot
// choose how much stack it takes.
const MaxDepth = 1000

// An Error says why a text is not I-JSON.
type Error struct {
	Path   []string // the names and indexes that lead to the fault; empty if it is the whole text
	Reason string   // what follows "The JSON", such as "has a duplicate member"
}

// Error returns the pointer to the fault, unless it is the whole text, and the
// reason.
func (e *Error) Error() string {
	if len(e.Path) == 0 {
		return "the JSON " + e.Reason
	}
	return Pointer(e.Path...) + ": the JSON " + e.Reason
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

// Parse checks that text is a single I-JSON value and returns its members, in
// their sequence, if it is an object. The error is an [*Error].
func Parse(text []byte) (members []Member, isObject bool, err error) {
	switch {
	case !utf8.Valid(text):
		return nil, false, &Error{Reason: "is not valid UTF-8"}
	case len(text) == 0:
		return nil, false, &Error{Reason: "is empty"}
	case bytes.HasPrefix(text, []byte(byteOrderMark)):
		return nil, false, &Error{Reason: "begins with a byte order mark, which it must not have"}
	}
	if line, column, err := Syntax(text); err != nil {
		return nil, false, &Error{Reason: fmt.Sprintf("is not well-formed, at line %d, column %d or before", line, column)}
	}
	p := parser{rest: text}
	p.space()
	if p.rest[0] == '{' {
		p.depth = 1
		members, isObject = p.object()
	} else {
		p.value()
	}
	if p.reason != "" {
		slices.Reverse(p.path)
		return nil, false, &Error{p.path, p.reason}
	}
	return members, isObject, nil
}

const byteOrderMark = "\ufeff"

// Syntax returns nil if text is a single JSON value (RFC 8259), and otherwise what
// is wrong and where that was found: the line, and the column in characters, both
// from 1.
func Syntax(text []byte) (line, column int, err error) {
	if bytes.HasPrefix(text, []byte(byteOrderMark)) {
		return 1, 1, errors.New("a byte order mark, which JSON must not have")
	}
	if json.Valid(text) {
		return 0, 0, nil
	}
	syntax, _ := errors.AsType[*json.SyntaxError](json.Unmarshal(text, new(any)))
	before := text[:max(syntax.Offset-1, 0)]
	start := bytes.LastIndexByte(before, '\n') + 1
	return 1 + bytes.Count(before, []byte("\n")), 1 + utf8.RuneCount(before[start:]), syntax
}

// A parser walks a text that is known to be valid JSON. Its methods report
// whether they found no fault.
type parser struct {
	rest   []byte
	depth  int
	reason string   // what is wrong, or ""
	path   []string // the way to it, innermost first
}

func (p *parser) fault(reason string, path ...string) bool {
	p.reason, p.path = reason, path
	return false
}

func (p *parser) space() {
	for len(p.rest) > 0 && isSpace(p.rest[0]) {
		p.rest = p.rest[1:]
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// object consumes the object that rest begins with and returns its members.
func (p *parser) object() (members []Member, ok bool) {
	members = make([]Member, 0, 2)
	var names map[string]bool // nil while there are few enough to search in turn
	for {
		p.rest = p.rest[1:] // { or ,
		p.space()
		if p.rest[0] == '}' { // only in an empty object
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
			return nil, p.fault("has a duplicate member", string(m.Name))
		}
		if names != nil {
			names[string(m.Name)] = true
		}
		p.space()
		p.rest = p.rest[1:] // :
		p.space()
		before := p.rest
		if m.text, ok = p.value(); !ok {
			p.path = append(p.path, string(m.Name))
			return nil, false
		}
		m.Value = before[:len(before)-len(p.rest)]
		members = append(members, m)
		p.space()
		if p.rest[0] == '}' {
			break
		}
	}
	p.rest = p.rest[1:]
	return members, true
}

func (m Member) sameName(other Member) bool { return bytes.Equal(m.Name, other.Name) }

// value consumes the value that rest begins with and returns its text if it is a
// string.
func (p *parser) value() (text []byte, ok bool) {
	switch p.rest[0] {
	case '{', '[':
		if p.depth++; p.depth > MaxDepth {
			return nil, p.fault("is nested too deeply")
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
	// A number, true, false or null.
	for len(p.rest) > 0 && !isSpace(p.rest[0]) && p.rest[0] != ',' && p.rest[0] != ']' && p.rest[0] != '}' {
		p.rest = p.rest[1:]
	}
	return nil, true
}

func (p *parser) array() bool {
	for i := 0; ; i++ {
		p.rest = p.rest[1:] // [ or ,
		p.space()
		if p.rest[0] == ']' { // only in an empty array
			break
		}
		if _, ok := p.value(); !ok {
			p.path = append(p.path, strconv.Itoa(i))
			return false
		}
		p.space()
		if p.rest[0] == ']' {
			break
		}
	}
	p.rest = p.rest[1:]
	return true
}

// str consumes the string that rest begins with and returns its text.
func (p *parser) str() (text []byte, ok bool) {
	end, escaped := 1, false
	for ; p.rest[end] != '"'; end++ {
		if p.rest[end] == '\\' {
			escaped = true
			end++
		}
	}
	literal := p.rest[:end+1]
	p.rest = p.rest[end+1:]
	text = literal[1:end]
	if escaped {
		if hasLoneSurrogate(literal) {
			return nil, p.fault(`has a surrogate (\uD800 to \uDFFF) that is not one of a pair`)
		}
		text = unescape(literal)
	}
	if bytes.ContainsFunc(text, IsNoncharacter) {
		return nil, p.fault("has a noncharacter, such as U+FFFF")
	}
	return text, true
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
