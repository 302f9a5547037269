package ijson

import (
	"bytes"
	"encoding/json"
	"reflect"
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

// Unmarshal decodes text into a struct as [json.Unmarshal] does, but an object has to be I-JSON, and only
// members whose names are exactly those in the tags of the struct are decoded. To encoding/json, a member Qty
// is the field qty, too, and overwrites what came before.
func Unmarshal(text []byte, v any) error {
	members, isObject, err := Parse(text)
	if err != nil {
		return err
	}
	if !isObject {
		return json.Unmarshal(text, v)
	}
	names := make(map[string]bool)
	for field := range reflect.TypeOf(v).Elem().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names[name] = true
	}
	exact := append(make([]byte, 0, len(text)+2), '{')
	for _, m := range members {
		if names[string(m.Name)] {
			exact = AppendString(exact, string(m.Name))
			exact = append(append(append(exact, ':'), m.Value...), ',')
		}
	}
	exact = append(bytes.TrimSuffix(exact, []byte(",")), '}')
	return json.Unmarshal(exact, v)
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
			s := scanner{text: value}
			s.quoted()
			text, _ := s.unquote()
			b = AppendString(b, string(text))
			value = value[s.at:]
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
func IsCanonical(text []byte) bool {
	const (
		most = 64 // levels
		few  = 16 // names of an object, so that a linear search is fast
	)
	var (
		depth   int
		objects uint64                  // a bit for each open level, the innermost the lowest: 1 is an object
		names   = make([][]byte, 0, 32) // of the open objects, behind a nil for each of these
	)
	for i := 0; i < len(text); {
		if depth > 0 && objects&1 == 1 {
			n := canonicalString(text[i:])
			if n == 0 || i+n == len(text) || text[i+n] != ':' {
				return false
			}
			name := text[i : i+n]
			for j := len(names) - 1; names[j] != nil; j-- {
				if len(names)-j == few || bytes.Equal(names[j], name) {
					return false
				}
			}
			names = append(names, name)
			if i += n + 1; i == len(text) {
				return false
			}
		}
		n := 0
		switch c := text[i]; c {
		case '{', '[':
			if n = 2; i+1 < len(text) && text[i+1] == c+2 { // } or ]
				break
			}
			if depth == most {
				return false
			}
			depth++
			objects <<= 1
			if c == '{' {
				objects |= 1
				names = append(names, nil)
			}
			i++
			continue
		case '"':
			n = canonicalString(text[i:])
		default:
			n = scalar(text[i:])
		}
		if n == 0 {
			return false
		}
		// A value has ended, and perhaps those that it is in.
		for i += n; depth > 0 && i < len(text) && text[i] != ','; i++ {
			if objects&1 == 1 {
				if text[i] != '}' {
					return false
				}
				for names[len(names)-1] != nil {
					names = names[:len(names)-1]
				}
				names = names[:len(names)-1]
			} else if text[i] != ']' {
				return false
			}
			depth--
			objects >>= 1
		}
		if depth == 0 {
			return i == len(text)
		}
		i++ // ,
	}
	return false
}

// scalar returns the length of the number, true, false or null at the beginning of b, or 0
// if there is none.
func scalar(b []byte) int {
	word := ""
	if len(b) > 0 {
		switch b[0] {
		case 't':
			word = "true"
		case 'f':
			word = "false"
		case 'n':
			word = "null"
		}
	}
	if word == "" {
		return number(b)
	}
	if !bytes.HasPrefix(b, []byte(word)) {
		return 0
	}
	return len(word)
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
