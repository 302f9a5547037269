// Package orderid makes the IDs of orders, which sort by time: new orders are at one end of every index of IDs,
// however many are kept, and the orders of a time are one range.
package orderid

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"time"
)

// An ID is this prefix and 128 bits in base32hex (RFC 4648, Section 7) of lower case: 56 of the time in
// microseconds since 1970, which last for 2,283 years, and 72 random ones.
const prefix = "ord_"

var encoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// New returns a new ID of a time. IDs of one microsecond are in no sequence.
func New(t time.Time) string {
	b := bits(t)
	rand.Read(b[7:])
	return text(b)
}

// First returns what no ID of a time or later comes before, in the order of bytes, and all earlier ones do.
func First(t time.Time) string { return text(bits(t)) }

func bits(t time.Time) (b [16]byte) {
	binary.BigEndian.PutUint64(b[:], uint64(min(max(t.UnixMicro(), 0), 1<<56-1))<<8)
	return b
}

func text(b [16]byte) string {
	return string(encoding.AppendEncode(append(make([]byte, 0, 32), prefix...), b[:]))
}
