package ijson

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

// Sum returns a SHA-256 sum of a value that [Parse] has found no fault with. Two texts have the same sum
// if they are the same value: members may come in any sequence, strings may have other escapes, and
// numbers are compared exactly (2, 2.0 and 20e-1 are one, as are 0 and -0). Others than 0 with an exponent
// of 2^62 or more, which no program reads, are the same only if they are written the same.
//
// Each object and array is hashed by itself, an object with its members sorted. So Sum takes linear time
// (but for the sorting of names), memory of the length of the text, and no stack however the value is
// nested. Sums are kept: this function must never change.
func Sum(value []byte) [32]byte {
	var (
		s          = scanner{text: value}
		done       = make([]byte, 0, 2*len(value)) // the values that have ended in open containers
		members    []member                        // of the open objects
		containers []container
		h          = sha256.New()
	)
	for s.next() != endOfText {
		switch s.last {
		case '{', '[':
			containers = append(containers, container{s.last, len(done), len(members)})
			continue
		case ':':
			members = append(members, member{start: len(done)})
			name, _ := s.unquote()
			done = appendSized(done, 's', name)
			members[len(members)-1].value = len(done)
			continue
		case '"':
			text, _ := s.unquote()
			done = appendSized(done, 's', text)
		case '}', ']':
			c := containers[len(containers)-1]
			containers = containers[:len(containers)-1]
			h.Reset()
			h.Write([]byte{c.kind})
			if c.kind == '[' {
				h.Write(done[c.done:])
			} else {
				own := members[c.members:]
				slices.SortFunc(own, func(a, b member) int {
					return bytes.Compare(done[a.start:a.value], done[b.start:b.value])
				})
				for _, m := range own {
					h.Write(done[m.start:m.end])
				}
				members = members[:c.members]
			}
			done = h.Sum(append(done[:c.done], c.kind))
		default:
			done = appendSized(done, 'n', scalarText(s.token()))
		}
		if n := len(containers); n > 0 && containers[n-1].kind == '{' { // the value of a member has ended
			members[len(members)-1].end = len(done)
		}
	}
	return sha256.Sum256(done)
}

// A container is an open object or array: its opening bracket, and what there was before it.
type container struct {
	kind          byte
	done, members int
}

// A member is where its name and its value are.
type member struct{ start, value, end int }

func appendSized(b []byte, kind byte, text []byte) []byte {
	return append(binary.AppendUvarint(append(b, kind), uint64(len(text))), text...)
}

// scalarText returns a word as it is, and a number in one form for each value.
func scalarText(token []byte) []byte {
	d, ok := parseDecimal(string(token))
	switch {
	case !ok:
		return token
	case d.digits == "":
		return []byte("0")
	}
	return strconv.AppendInt([]byte(d.sign+d.digits+"e"), d.power, 10)
}

// A decimal is the value of a number: an integer without zeros at its ends, or "" for zero, times a
// power of ten.
type decimal struct {
	sign, digits string
	power        int64
}

// parseDecimal reports whether text is a number, and zero or one whose exponent is less than 2^62.
func parseDecimal(text string) (d decimal, ok bool) {
	if number([]byte(text)) == 0 {
		return d, false
	}
	mantissa, exponent := text, "0"
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i+1:]
	}
	unsigned := strings.TrimPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(unsigned, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return d, true
	}
	power, err := strconv.ParseInt(exponent, 10, 63)
	d.sign = mantissa[:len(mantissa)-len(unsigned)]
	d.digits = strings.TrimRight(digits, "0")
	d.power = power + int64(len(digits)-len(d.digits)-len(fraction))
	return d, err == nil
}
