package ijson

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Marshal renders v as [json.Marshal] does, but with <, > and & as they are.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// AppendString appends s to b as a JSON string.
func AppendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			literal, _ := Marshal(s) // strings have no errors
			return append(b, literal...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// Truncate cuts s to at most the given number of bytes, and makes it a valid string of
// I-JSON: replacement characters, which may make it longer again, stand for invalid UTF-8
// and for noncharacters.
func Truncate(s string, most int) string {
	if end := most; len(s) > end {
		for end > most-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	return strings.Map(func(r rune) rune {
		if IsNoncharacter(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}

// AppendCanonical appends to b a value that Parse has found no fault with, without white
// space and with its strings as [AppendString] writes them. Numbers and the sequence of
// members stay as they are.
func AppendCanonical(b, value []byte) []byte {
	for len(value) > 0 {
		switch c := value[0]; {
		case c == '"':
			p := parser{rest: value}
			text, _ := p.str()
			b = AppendString(b, string(text))
			value = p.rest
		case isSpace(c):
			value = value[1:]
		default:
			b = append(b, c)
			value = value[1:]
		}
	}
	return b
}

// IsCanonical reports whether text is a single I-JSON value that AppendCanonical would not
// change. It may say false for some such values, but it is much faster than Parse and
// AppendCanonical.
func IsCanonical(text []byte) bool { return canonicalValue(text, 1) == len(text) && len(text) > 0 }

// canonicalValue returns the length of the JSON value at the beginning of b, or 0 if
// AppendCanonical might change it or Parse refuse it.
func canonicalValue(b []byte, depth int) int {
	if len(b) == 0 || depth > MaxDepth {
		return 0
	}
	switch b[0] {
	case '{', '[':
		return canonicalContainer(b, depth)
	case '"':
		return canonicalString(b)
	}
	return scalar(b)
}

// scalar returns the length of the number, true, false or null at the beginning of b, or 0
// if there is none.
func scalar(b []byte) int {
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(b, []byte(word)) {
			return len(word)
		}
	}
	return number(b)
}

func canonicalContainer(b []byte, depth int) int {
	end := b[0] + 2 // } or ]
	if len(b) > 1 && b[1] == end {
		return 2
	}
	var names [16][]byte // so few that a linear search is fast
	for i, count := 1, 0; i < len(b); count++ {
		if end == '}' {
			n := canonicalString(b[i:])
			if n == 0 || i+n == len(b) || b[i+n] != ':' || count == len(names) {
				return 0
			}
			name := b[i : i+n]
			for _, earlier := range names[:count] {
				if bytes.Equal(earlier, name) {
					return 0
				}
			}
			names[count] = name
			i += n + 1
		}
		n := canonicalValue(b[i:], depth+1)
		i += n
		if n == 0 || i == len(b) {
			return 0
		}
		if b[i] == end {
			return i + 1
		}
		if b[i] != ',' {
			return 0
		}
		i++
	}
	return 0
}

func canonicalString(b []byte) int {
	if len(b) == 0 || b[0] != '"' {
		return 0
	}
	for i := 1; i < len(b); {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ' || c == '\\':
			return 0
		case c < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' || IsNoncharacter(r) {
				return 0
			}
			i += size
		}
	}
	return 0
}

// number returns the length of the number at the beginning of b, or 0 if there is none.
func number(b []byte) int {
	digits := func(from int) (end int) {
		for end = from; end < len(b) && '0' <= b[end] && b[end] <= '9'; {
			end++
		}
		return end
	}
	start := 0
	if len(b) > 0 && b[0] == '-' {
		start = 1
	}
	end := digits(start)
	if end == start {
		return 0
	}
	if b[start] == '0' {
		end = start + 1
	}
	if end < len(b) && b[end] == '.' {
		if fraction := digits(end + 1); fraction > end+1 {
			end = fraction
		}
	}
	if end < len(b) && (b[end] == 'e' || b[end] == 'E') {
		from := end + 1
		if from < len(b) && (b[from] == '+' || b[from] == '-') {
			from++
		}
		if exponent := digits(from); exponent > from {
			end = exponent
		}
	}
	return end
}
