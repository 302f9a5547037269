package storefront

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"strings"
)

// An IdempotencyKey makes a request safe to retry
// (draft-ietf-httpapi-idempotency-key-header-07). Two keys are the same key if
// Scope and Value are equal.
type IdempotencyKey struct {
	Scope       string   // whose key it is, as returned by Options.Scope: any bytes, may be empty
	Value       string   // chosen by the client: 1 to 255 printable ASCII characters
	Fingerprint [32]byte // of the request sent with the key
}

// parseIdempotencyKey returns the key in the lines of an Idempotency-Key header.
// The key is bare or a String (RFC 9651, Section 3.3.3), which are the same key,
// and has no parameters.
func parseIdempotencyKey(lines []string) (string, problemType, *fault) {
	const form = "1 to 255 printable ASCII characters, bare or in double quotes"
	invalid := func(detail string) (string, problemType, *fault) {
		return "", idempotencyKeyInvalid, &fault{Detail: detail, Header: "Idempotency-Key"}
	}
	if len(lines) == 0 {
		return "", idempotencyKeyMissing, &fault{
			Detail: "The header Idempotency-Key is required: " + form + ", a new one for each order and the same one for each retry.",
			Header: "Idempotency-Key",
		}
	}
	if len(lines) > 1 {
		return invalid("The header Idempotency-Key is given more than once.")
	}
	key := strings.Trim(lines[0], " \t")
	if strings.HasPrefix(key, `"`) {
		var ok bool
		if key, ok = unquoteString(key); !ok {
			return invalid(`A key in double quotes ends with the closing quote and has \ only before " and \.`)
		}
	} else if strings.Contains(key, `"`) {
		return invalid("A key with a double quote in it must be in double quotes.")
	}
	if len(key) < 1 || len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return invalid("The key must be " + form + ".")
	}
	return key, 0, nil
}

// unquoteString returns the value of a String (RFC 9651, Section 4.2.5), which
// begins with a quote. The caller checks the characters.
func unquoteString(s string) (string, bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), i == len(s)-1
		case '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", false
}

// fingerprint returns the SHA-256 sum of the method, the route, the quantity and
// the item, so that it does not depend on how the JSON was written. Stores keep
// fingerprints: this function must never change.
func (o Order) fingerprint() [32]byte {
	b := make([]byte, 0, 512)
	b = append(b, http.MethodPost+" "+ordersPath+"\n"...)
	b = binary.BigEndian.AppendUint64(b, uint64(o.Qty))
	b = append(b, o.Item...)
	return sha256.Sum256(b)
}
