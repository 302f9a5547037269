package storefront

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"strings"

	"example.com/storefront/internal/httpfield"
	"example.com/storefront/internal/ijson"
)

// An IdempotencyKey makes a request safe to retry (draft-ietf-httpapi-idempotency-key-header-07).
// Two keys are the same key if Scope and Value are equal. Comparing keys with == does not compile:
// it would compare the fingerprints, too, and a map would take a reused key for a new one.
type IdempotencyKey struct {
	_ [0]func()

	Scope       string   // whose key it is, as returned by Options.Scope: any bytes, may be empty
	Value       string   // chosen by the client: 1 to 255 printable ASCII characters
	Fingerprint [32]byte // of the request sent with the key
}

// parseIdempotencyKey returns the key in the lines of an Idempotency-Key header.
// The key is bare or a String (RFC 9651, Section 3.3.3), which are the same key.
// A String may have parameters, which mean nothing.
func parseIdempotencyKey(lines []string) (string, problemType, *Fault) {
	problem, detail := idempotencyKeyInvalid, ""
	switch len(lines) {
	case 0:
		problem = idempotencyKeyMissing
		detail = "The header Idempotency-Key is required: " + keyForm +
			", a new one for each order and the same one for each retry."
	case 1:
		var key string
		if key, detail = parseKey(strings.Trim(lines[0], " \t")); detail == "" {
			return key, problemType{}, nil
		}
	default:
		detail = "The header Idempotency-Key is given more than once."
	}
	return "", problem, &Fault{Detail: detail, Header: "Idempotency-Key"}
}

const keyForm = "1 to 255 printable ASCII characters, bare or in double quotes"

// parseKey returns the key in a text, or what is wrong with that.
func parseKey(text string) (key, wrong string) {
	key = text
	if strings.HasPrefix(key, `"`) {
		var ok bool
		if key, ok = httpfield.ParseStringItem(key); !ok {
			return "", `A key in double quotes has printable ASCII characters, \ only before " and \, ` +
				"and behind the closing quote nothing but parameters (RFC 9651)."
		}
	} else if strings.ContainsAny(key, `",`) { // with a comma, it may be two lines that were joined
		return "", "A key with a double quote or a comma in it must be in double quotes."
	}
	if len(key) < 1 || len(key) > 255 || !isPrintableASCII(key) {
		return "", "The key must be " + keyForm + "."
	}
	return key, ""
}

// fingerprint returns the SHA-256 sum of the method, the route, the quantity and
// the item and, if there are any, the fields, so that it does not depend on how the JSON was
// written. Stores keep fingerprints: this function must never change.
func (o Order) fingerprint() [32]byte {
	b := make([]byte, 0, 512)
	b = append(b, http.MethodPost+" "+ordersPath+"\n"...)
	b = binary.BigEndian.AppendUint64(b, uint64(o.Qty))
	b = append(b, o.Item...)
	if o.Fields != "" {
		sum := ijson.Sum([]byte(o.Fields))
		b = append(append(b, 0), sum[:]...) // no item has a 0
	}
	return sha256.Sum256(b)
}

// digest returns the SHA-256 sum of the scope and the value. Two keys are the same
// if their digests are. Unlike the strings, a digest keeps no request in memory.
func (k *IdempotencyKey) digest() [32]byte {
	b := make([]byte, 0, 512)
	b = binary.BigEndian.AppendUint64(b, uint64(len(k.Scope)))
	b = append(append(b, k.Scope...), k.Value...)
	return sha256.Sum256(b)
}
