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
	"iter"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how many levels of objects and arrays may be nested, as programs that read the
// text recurse. Nothing in this package does: a goroutine keeps a stack that has grown, and one
// that serves a connection may then wait for long.
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
	d, ok := parseDecimal(string(m.Value))
	switch {
	case !ok:
		return 0, false
	case d.digits == "":
		return 0, true
	case d.power < 0, d.power > int64(len("9223372036854775807")-len(d.digits)):
		return 0, false
	}
	n, err := strconv.ParseInt(d.sign+d.digits+strings.Repeat("0", int(d.power)), 10, 64)
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
	var (
		s     = scanner{text: text}
		names = make([][]byte, 0, 8) // as in addName
		many  []nameSet              // of the open objects with more than few names
		isNew bool
		value int // where the value of the last of members begins
	)
	for reason := ""; s.next() != endOfText; {
		var unquoted []byte
		switch s.last {
		case '{', '[':
			if s.depth > MaxDepth {
				return nil, false, s.fault("is nested too deeply", s.depth-1)
			}
			if s.last == '{' {
				names = append(names, nil)
				if s.depth == 1 {
					members, isObject = make([]Member, 0, 2), true
				}
			}
			continue
		case ':':
			if unquoted, reason = s.unquote(); reason != "" {
				return nil, false, s.fault(reason, s.depth-1)
			}
			if names, many, isNew = addName(names, many, unquoted, s.depth); !isNew {
				return nil, false, s.fault("has a duplicate member", s.depth)
			}
			if isObject && s.depth == 1 {
				members, value = append(members, Member{Name: unquoted}), s.at
			}
			continue
		case '"':
			if unquoted, reason = s.unquote(); reason != "" {
				return nil, false, s.fault(reason, s.depth)
			}
		case '}':
			for names[len(names)-1] != nil {
				names = names[:len(names)-1]
			}
			names = names[:len(names)-1]
			if i := len(many) - 1; i >= 0 && many[i].depth > s.depth {
				many = many[:i]
			}
		}
		if isObject && s.depth == 1 { // the value of a member has ended
			m := &members[len(members)-1]
			m.Value, m.text = text[value:s.at], unquoted
		}
	}
	if s.err != nil {
		return nil, false, s.err
	}
	return members, isObject, nil
}

// A nameSet is the names of an open object.
type nameSet struct {
	depth int // of the object
	names map[string]bool
}

// few is how many names an object has at most for which a linear search is fast.
const few = 8

// addName adds a name to the innermost object and reports whether it is new. names has those of
// all open objects, a nil before those of each; of an object with more than a few, it has the first
// ones, and the last of many has all.
func addName(names [][]byte, many []nameSet, name []byte, depth int) (_ [][]byte, _ []nameSet, isNew bool) {
	if i := len(many) - 1; i >= 0 && many[i].depth == depth {
		before := len(many[i].names)
		many[i].names[string(name)] = true
		return names, many, len(many[i].names) > before
	}
	first := len(names)
	for ; names[first-1] != nil; first-- {
		if bytes.Equal(names[first-1], name) {
			return names, many, false
		}
	}
	names = append(names, name)
	if own := names[first:]; len(own) > few {
		set := make(map[string]bool)
		for _, name := range own {
			set[string(name)] = true
		}
		many = append(many, nameSet{depth, set})
	}
	return names, many, true
}

// fault returns the error for a text that has shown to be no I-JSON with its last token, or to be
// no JSON behind that. The path has as many levels.
func (s *scanner) fault(reason string, levels int) *Error {
	fault := &Error{Path: s.path(levels), Reason: reason}
	for s.next() != endOfText {
	}
	if s.err != nil && s.err.malformed {
		return s.err
	}
	return fault
}

// path returns the names and indexes of the last token in the outermost levels. It reads
// the text again, as hardly any has a fault.
func (s *scanner) path(levels int) []string {
	type place struct {
		name  []byte // as it is written; nil in an array
		index int
	}
	places := make([]place, levels)
	for again := (scanner{text: s.text}); again.at < s.at; {
		kind := again.next()
		if again.depth == 0 || again.depth > levels {
			continue
		}
		switch p := &places[again.depth-1]; {
		case kind == '{' || kind == '[':
			*p = place{}
		case kind == ':':
			p.name = again.token()
		case again.at < s.at: // a value has ended that is not the last token
			p.index++
		}
	}
	path := make([]string, levels)
	for i, p := range places {
		if p.name == nil {
			path[i] = strconv.Itoa(p.index)
		} else {
			path[i] = string(unquote(p.name))
		}
	}
	return path
}

// Syntax returns nil if text is a single JSON value (RFC 8259) with at most 10,000 levels
// of objects and arrays. The error says where the fault is, by the line and the column in
// characters, both from 1.
func Syntax(text []byte) *Error {
	s := scanner{text: text}
	for s.next() != endOfText {
	}
	return s.err
}

// Children returns what is in an object, by name, or in an array, as it is written. Syntax has found
// no fault with the text.
func Children(text []byte) iter.Seq2[string, []byte] {
	return func(yield func(name string, value []byte) bool) {
		s, name, value := scanner{text: text}, "", 0
		for s.next() != endOfText {
			switch s.last {
			case ':':
				if s.depth == 1 {
					name = string(unquote(s.token()))
				}
				continue
			case '{', '[':
				if s.depth == 2 {
					value = s.at - 1
				}
				continue
			case '"', '0':
				if s.depth == 1 {
					value = s.start
				}
			}
			if s.depth == 1 && !yield(name, text[value:s.at]) { // a value has ended
				return
			}
		}
	}
}

// A scanner splits JSON (RFC 8259), which need not be I-JSON, into tokens. A level of objects and
// arrays takes it one bit of memory, on the heap.
type scanner struct {
	text       []byte
	at         int    // where the text goes on
	start, end int    // of the last name, string, number or word, as it is written
	plain      bool   // the last name or string has ASCII characters alone, and no escapes
	last       byte   // what next has returned
	err        *Error // why the text is no JSON

	depth int
	inner uint64   // the innermost up to 64 levels, a bit for each: 1 is an object
	outer []uint64 // the others, by 64
}

// maxLevels is how many levels a scanner reads.
const maxLevels = 10_000

// endOfText is what next returns at the end, or at the fault that is in err.
const endOfText = 0

// next reads a token and returns its kind: one of {}[] is itself, a colon is the name of a
// member with the colon behind it, a quotation mark is a string, and a zero is a number, true,
// false or null. After a name, the text goes on with the value.
func (s *scanner) next() byte {
	s.last = s.read()
	return s.last
}

func (s *scanner) read() byte {
	if s.at == 0 && bytes.HasPrefix(s.text, []byte("\ufeff")) {
		s.err = &Error{Reason: "begins with a byte order mark, which it must not have", malformed: true}
		return endOfText
	}
	c := s.space()
	inObject := s.depth > 0 && s.inner&1 == 1
	closes := inObject && c == '}' || s.depth > 0 && !inObject && c == ']'
	switch s.last {
	case '}', ']', '"', '0': // a value has ended
		switch {
		case closes:
			return s.close()
		case s.depth > 0 && c == ',':
			s.at++
			c = s.space()
		case s.depth == 0 && s.at == len(s.text):
			return endOfText
		default:
			return s.malformed()
		}
	case '{', '[':
		if closes {
			return s.close()
		}
	case ':':
		inObject = false // the value comes
	}
	if inObject {
		if c != '"' || !s.quoted() || s.space() != ':' {
			return s.malformed()
		}
		s.at++
		s.space()
		return ':'
	}
	switch c {
	case '{', '[':
		return s.open()
	case '"':
		if !s.quoted() {
			return s.malformed()
		}
		return '"'
	}
	n := scalar(s.text[s.at:])
	if n == 0 {
		return s.malformed()
	}
	s.start = s.at
	s.at += n
	s.end = s.at
	return '0'
}

// space skips white space, and returns the character behind it, or at the end 0, which is in
// no JSON.
func (s *scanner) space() byte {
	for ; s.at < len(s.text); s.at++ {
		if c := s.text[s.at]; !isSpace(c) {
			return c
		}
	}
	return 0
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func (s *scanner) open() byte {
	if s.depth == maxLevels {
		s.err = &Error{Reason: "is nested too deeply"}
		return endOfText
	}
	if s.depth > 0 && s.depth%64 == 0 {
		s.outer = append(s.outer, s.inner)
	}
	c := s.text[s.at]
	s.inner <<= 1
	if c == '{' {
		s.inner |= 1
	}
	s.depth++
	s.at++
	return c
}

func (s *scanner) close() byte {
	s.depth--
	s.inner >>= 1
	if s.depth > 0 && s.depth%64 == 0 {
		s.inner = s.outer[len(s.outer)-1]
		s.outer = s.outer[:len(s.outer)-1]
	}
	s.at++
	return s.text[s.at-1]
}

// malformed notes that the text stops being JSON where it would go on, or at its last character.
func (s *scanner) malformed() byte {
	end, found := s.at, "unexpected end"
	if end < len(s.text) {
		r, _ := utf8.DecodeRune(s.text[end:])
		found = fmt.Sprintf("invalid character %q", r)
	} else {
		_, n := utf8.DecodeLastRune(s.text)
		end -= n
	}
	before := s.text[:end]
	line := bytes.LastIndexByte(before, '\n') + 1
	reason := fmt.Sprintf("is not well-formed, at line %d, column %d", 1+bytes.Count(before, []byte("\n")),
		1+utf8.RuneCount(before[line:]))
	s.err = &Error{Reason: reason, malformed: true, found: found}
	return endOfText
}

// quoted consumes a string, at whose quotation mark the text goes on. If it is none, the text
// goes on where it stops being one.
func (s *scanner) quoted() bool {
	s.start, s.plain = s.at, true
	for s.at++; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			s.end = s.at
			return true
		case c < ' ':
			return false
		case c >= utf8.RuneSelf:
			s.plain = false
		case c == '\\':
			s.plain = false
			n := escape(s.text[s.at:])
			if n == 0 {
				return false
			}
			s.at += n - 1
		}
	}
	return false
}

// token returns the last name, string, number or word, as it is written.
func (s *scanner) token() []byte { return s.text[s.start:s.end] }

// unquote returns the text of the last name or string, and the reason why it is not I-JSON, or "".
func (s *scanner) unquote() (text []byte, reason string) {
	if s.plain {
		return s.text[s.start+1 : s.end-1], ""
	}
	if hasLoneSurrogate(s.token()) {
		return nil, `has a surrogate (\uD800 to \uDFFF) that is not one of a pair`
	}
	text = unquote(s.token())
	if bytes.ContainsFunc(text, IsNoncharacter) {
		return nil, "has a noncharacter, such as U+FFFF"
	}
	return text, ""
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

// unquote returns the text of a valid JSON string.
func unquote(literal []byte) []byte {
	if bytes.IndexByte(literal, '\\') < 0 {
		return literal[1 : len(literal)-1]
	}
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
