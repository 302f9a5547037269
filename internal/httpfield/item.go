package httpfield

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ParseStringItem returns the value of an Item of a structured field that is a String (RFC
// 9651, Sections 3.3.3 and 4.2.3), without white space around it. Its parameters must be
// well-formed, and mean nothing.
func ParseStringItem(item string) (value string, ok bool) {
	p := itemParser{item}
	value, ok = p.str()
	for ok && p.take(";") {
		p.rest = strings.TrimLeft(p.rest, " ")
		ok = p.parameter()
	}
	if !ok || p.rest != "" {
		return "", false
	}
	return value, true
}

// An itemParser consumes an Item from its beginning. Its methods report whether they found
// what they look for.
type itemParser struct{ rest string }

// take consumes prefix, if it is there.
func (p *itemParser) take(prefix string) (ok bool) {
	p.rest, ok = strings.CutPrefix(p.rest, prefix)
	return ok
}

// run consumes and returns the characters up to the first that is none of these.
func (p *itemParser) run(of string) string {
	n := len(p.rest) - len(strings.TrimLeft(p.rest, of))
	text := p.rest[:n]
	p.rest = p.rest[n:]
	return text
}

// begins reports whether one of these characters comes next.
func (p *itemParser) begins(with string) bool {
	return p.rest != "" && strings.IndexByte(with, p.rest[0]) >= 0
}

// parameter consumes what follows a semicolon (Section 4.2.3.2).
func (p *itemParser) parameter() bool {
	if !p.begins(lowers + "*") {
		return false
	}
	p.run(lowers + digits + "_-.*")
	return !p.take("=") || p.bareItem()
}

// bareItem consumes a value of any type (Section 4.2.3.1).
func (p *itemParser) bareItem() bool {
	switch {
	case p.begins(`"`):
		_, ok := p.str()
		return ok
	case p.begins(lowers + uppers + "*"): // a Token
		p.run(tchars + ":/")
		return true
	case p.take(":"): // a Byte Sequence
		return p.bytes()
	case p.take("?"): // a Boolean
		return p.take("0") || p.take("1")
	case p.take("@"): // a Date
		decimal, ok := p.number()
		return ok && !decimal
	case p.take(`%"`): // a Display String
		return p.display()
	}
	_, ok := p.number()
	return ok
}

// number consumes an Integer or a Decimal (Section 4.2.4).
func (p *itemParser) number() (decimal, ok bool) {
	p.take("-")
	whole := len(p.run(digits))
	if !p.take(".") {
		return false, 1 <= whole && whole <= 15
	}
	fraction := len(p.run(digits))
	return true, 1 <= whole && whole <= 12 && 1 <= fraction && fraction <= 3
}

// str consumes a String and returns its value (Section 4.2.5).
func (p *itemParser) str() (value string, ok bool) {
	if !p.take(`"`) {
		return "", false
	}
	var text []byte
	for c, ok := p.char(); ok; c, ok = p.char() {
		if c == '\\' {
			if !p.begins(`"\`) {
				return "", false
			}
			c, p.rest = p.rest[0], p.rest[1:]
		}
		text = append(text, c)
	}
	return string(text), p.take(`"`)
}

// char consumes and returns a printable character that does not end a string.
func (p *itemParser) char() (c byte, ok bool) {
	if p.rest == "" || p.rest[0] < ' ' || p.rest[0] > '~' || p.rest[0] == '"' {
		return 0, false
	}
	c, p.rest = p.rest[0], p.rest[1:]
	return c, true
}

// bytes consumes a Byte Sequence behind its first colon (Section 4.2.7). The padding may be
// absent, and its bits need not be zero.
func (p *itemParser) bytes() bool {
	text := p.run(lowers + uppers + digits + "+/=")
	_, padded := base64.StdEncoding.DecodeString(text)
	_, bare := base64.RawStdEncoding.DecodeString(text)
	return p.take(":") && (padded == nil || bare == nil)
}

// display consumes a Display String behind its first quote (Section 4.2.10).
func (p *itemParser) display() bool {
	var text []byte
	for c, ok := p.char(); ok; c, ok = p.char() {
		if c == '%' {
			n := min(len(p.rest), 2)
			code, err := strconv.ParseUint(p.rest[:n], 16, 8)
			if err != nil || n < 2 || strings.ContainsAny(p.rest[:n], uppers) {
				return false
			}
			c, p.rest = byte(code), p.rest[n:]
		}
		text = append(text, c)
	}
	return p.take(`"`) && utf8.Valid(text)
}
