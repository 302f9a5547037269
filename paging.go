package storefront

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A listKind is one of the paged lists. Its value stands in the list's cursors.
type listKind byte

const (
	usersList   listKind = 'u'
	widgetsList listKind = 'w'
)

// A pageQuery is the parsed query of a list.
type pageQuery struct {
	limit    int
	position string // an ID, or "" for the beginning
}

// parsePageQuery parses a query of the parameters limit and position. Where limit
// is absent it is the given default, or a fault when there is none (0).
func (s *service) parsePageQuery(rawQuery string, l listKind, position string, defaultLimit int) (pageQuery, []fault) {
	params, faults := parseQuery(rawQuery, "limit", position)
	q := pageQuery{limit: defaultLimit}
	if limit := params[0]; limit.given || defaultLimit == 0 {
		q.limit = parseLimit(limit.value, s.opts.MaxPageSize)
		if q.limit == 0 {
			detail := "limit must be a whole number from 1 to " + strconv.Itoa(s.opts.MaxPageSize) + ", in decimal digits."
			if !limit.given {
				detail = "limit is required: a whole number from 1 to " + strconv.Itoa(s.opts.MaxPageSize) + "."
			}
			faults = append(faults, fault{Detail: detail, Parameter: "limit", Minimum: 1, Maximum: int64(s.opts.MaxPageSize)})
		}
	}
	if cursor := params[1]; cursor.given {
		var ok bool
		if q.position, ok = l.position(cursor.value); !ok {
			faults = append(faults, fault{
				Detail:    position + " must be a cursor from the \"next\" of a page of this list, unchanged. For the first page leave it out.",
				Parameter: position,
			})
		}
	}
	return q, faults
}

// parseLimit returns the number that value says in decimal digits, or 0 if it
// says none from 1 to most.
func parseLimit(value string, most int) int {
	if strings.Trim(value, "0123456789") != "" { // Atoi takes a sign
		return 0
	}
	n, err := strconv.Atoi(value)
	if err != nil || n > most {
		return 0
	}
	return n
}

// A queryParam is the value of a query parameter, and whether there was one.
type queryParam struct {
	value string
	given bool
}

// parseQuery parses a raw query (application/x-www-form-urlencoded) of at most
// two parameters. It is stricter than [url.ParseQuery]: every parameter must be
// one of names, and be there once. Empty pairs, as in "a=1&&b=2", are passed over.
func parseQuery(rawQuery string, names ...string) (params [2]queryParam, faults []fault) {
	for rawQuery != "" {
		var pair string
		pair, rawQuery, _ = strings.Cut(rawQuery, "&")
		if pair == "" {
			continue
		}
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, nameErr := url.QueryUnescape(rawName)
		if nameErr != nil {
			name = rawName
		}
		value, valueErr := url.QueryUnescape(rawValue)
		i := len(names) - 1
		for i >= 0 && names[i] != name {
			i--
		}
		var detail string
		switch {
		case nameErr != nil || valueErr != nil:
			detail = "The query has a % that two hexadecimal digits do not follow."
		case strings.Contains(pair, ";"):
			detail = "The query has a semicolon. Parameters are separated by &; in a value write %3B."
		case i < 0:
			detail = "There is no such parameter here."
			if len(names) > 0 {
				detail += " There are: " + strings.Join(names, ", ") + "."
			}
		case params[i].given:
			detail = "The parameter is given more than once."
		}
		if detail != "" {
			if name == "" { // a fault says where it is
				name = pair
			}
			faults = append(faults, fault{Detail: detail, Parameter: name})
		}
		if i >= 0 && !params[i].given {
			params[i] = queryParam{value, true}
		}
	}
	return params, faults
}

const (
	cursorVersion = 1
	maxCursor     = 512 // bytes
)

// cursor returns the cursor of a position: the format version, the list, the ID
// and a CRC-32 of these three, in the URL-safe base64 of RFC 4648, Section 5,
// without padding.
func (l listKind) cursor(id string) string {
	return string(l.appendCursor(make([]byte, 0, maxCursor), id))
}

func (l listKind) appendCursor(dst []byte, id string) []byte {
	raw := make([]byte, 0, 2+255+4)
	raw = append(raw, cursorVersion, byte(l))
	raw = append(raw, id...)
	raw = binary.BigEndian.AppendUint32(raw, crc32.ChecksumIEEE(raw))
	return base64.RawURLEncoding.AppendEncode(dst, raw)
}

// position returns the ID that a cursor of this list says. Anything that is not,
// to the byte, what cursor returns is not ok.
func (l listKind) position(cursor string) (id string, ok bool) {
	if len(cursor) > maxCursor {
		return "", false
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) < 2+4 {
		return "", false
	}
	id = string(raw[2 : len(raw)-4])
	if checkID(id) != nil {
		return "", false
	}
	return id, string(l.appendCursor(make([]byte, 0, maxCursor), id)) == cursor
}

// writePage answers a request for a list with the first limit of items. param and
// next are the query parameter and the cursor of the page that follows; an empty
// next says that none does.
func (s *service) writePage(w http.ResponseWriter, r *http.Request, items []Resource, limit int, param, next string) {
	const opening, more, last, closing = `{"data":[`, `],"has_more":true,"next":"`, `],"has_more":false}`, `"}`

	if slices.Contains(items, Resource{}) {
		s.storeFailed(w, r, errZeroResource)
		return
	}
	items = items[:min(limit, len(items))]

	// The tag is made of the items' tags: they stand for the items' bytes.
	var scratch [1024]byte
	tags := scratch[:0]
	size := len(opening) + len(items) + len(more) + len(next) + len(closing)
	for _, item := range items {
		size += len(item.r.json)
		tags = append(tags, item.r.tag[:]...)
	}
	if s.answerCondition(w, r, []string{tagOf(append(tags, next...)).String()}) {
		return
	}

	buffer, _ := s.pages.Get().(*[]byte)
	if buffer == nil {
		buffer = new([]byte)
	}
	defer s.pages.Put(buffer)
	body := append(slices.Grow((*buffer)[:0], size), opening...)
	for i, item := range items {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, item.r.json...)
	}
	if next == "" {
		body = append(body, last...)
	} else {
		body = append(append(append(body, more...), next...), closing...)
		h := w.Header() // a wrapper may have set other links
		h["Link"] = append(h["Link"], "<?limit="+strconv.Itoa(limit)+"&"+param+"="+next+`>; rel="next"`)
	}
	*buffer = body
	s.writeJSON(w, r, http.StatusOK, body)
}
