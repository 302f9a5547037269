package storefront

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"example.com/storefront/internal/httpfield"
	"example.com/storefront/internal/ijson"
)

// A listKind identifies a paged list. Its value is part of the list's cursors, so it must never change.
type listKind byte

const (
	usersList   listKind = 'u'
	ordersList  listKind = 'o'
	widgetsList listKind = 'w'
)

// A pageQuery is the parsed query of a list.
type pageQuery struct {
	limit    int
	position string // an ID, or "" for the beginning
	key      string // of the only order that is asked for, or ""
}

// parsePageQuery parses a query with the parameter limit and the one that position names. An absent
// limit is fallback; if that is 0, limit is required. Orders have the parameter idempotency_key, too.
func (s *service) parsePageQuery(raw string, l listKind, position string, fallback int) (pageQuery, []Fault) {
	names := []string{"limit", position, keyParameter}
	if l != ordersList {
		names = names[:2]
	}
	params, faults := parseQuery(raw, names...)
	q := pageQuery{limit: fallback}
	if limit := params[0]; !limit.faulty && (limit.given || fallback == 0) {
		q.limit = parseLimit(limit.value, s.opts.MaxPageSize)
		if q.limit == 0 {
			most := s.opts.MaxPageSize
			detail := "limit must be a whole number from 1 to " + strconv.Itoa(most) + ", in decimal digits."
			if !limit.given {
				detail = "limit is required: a whole number from 1 to " + strconv.Itoa(most) + "."
			}
			faults = append(faults, Fault{
				Detail: detail, Parameter: "limit", Minimum: new(int64(1)), Maximum: new(int64(most)),
			})
		}
	}
	if cursor := params[1]; cursor.given && !cursor.faulty {
		var ok bool
		if q.position, ok = l.decodeCursor(cursor.value); !ok {
			faults = append(faults, Fault{
				Detail: position + " must be a cursor from the \"next\" of a page of this list, unchanged. " +
					"For the first page leave it out.",
				Parameter: position,
			})
		}
	}
	if key := params[2]; key.given && !key.faulty {
		var wrong string
		q.key, wrong = parseKey(key.value)
		switch {
		case params[0].given || params[1].given:
			wrong = "A key is looked for without limit and after."
		case strings.Contains(raw, "+"), // a space, but whoever wrote it may have meant a +
			!strings.HasPrefix(key.value, `"`) && strings.Contains(key.value, " "):
			wrong = "In a key, a + is written %2B, and a space %20, with double quotes around the key."
		}
		if wrong != "" {
			faults = append(faults, Fault{Detail: wrong, Parameter: keyParameter})
		}
	}
	return q, faults
}

const keyParameter = "idempotency_key"

// parseLimit parses a limit of 1 to most in decimal digits. It returns 0 for anything else.
func parseLimit(value string, most int) int {
	if strings.Trim(value, "0123456789") != "" { // Atoi accepts a sign
		return 0
	}
	n, err := strconv.Atoi(value)
	if err != nil || n > most {
		return 0
	}
	return n
}

// A queryParam is the value of a query parameter, whether it is present, and
// whether a fault was found in it.
type queryParam struct {
	value         string
	given, faulty bool
}

// parseQuery parses a raw query (application/x-www-form-urlencoded) and returns the parameters
// called names, of which there are at most three. It is stricter than [url.ParseQuery]: unknown and
// repeated parameters are faults. Empty pairs, as in "a=1&&b=2", are ignored.
func parseQuery(rawQuery string, names ...string) (params [3]queryParam, faults []Fault) {
	for rawQuery != "" && len(faults) < maxFaults {
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
			detail = "Unknown parameter."
			if len(names) > 0 {
				detail += " The parameters are: " + strings.Join(names, ", ") + "."
			}
		case params[i].given:
			detail = "The parameter is given more than once."
		}
		if detail != "" {
			if name == "" { // a fault must name something
				name = pair
			}
			faults = append(faults, Fault{Detail: detail, Parameter: ijson.Truncate(name, maxNameInFault)})
		}
		if i >= 0 && !params[i].given {
			params[i] = queryParam{value, true, detail != ""}
		}
	}
	return params, faults
}

// withoutQuery returns a handler that refuses requests with query parameters and
// leaves all others to handler.
func (s *service) withoutQuery(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, faults := parseQuery(r.URL.RawQuery); faults != nil {
			s.writeProblem(w, r, invalidQuery, "This resource takes no query parameters.", faults...)
			return
		}
		handler(w, r)
	}
}

const (
	cursorVersion  = 1
	maxCursor      = 512 // bytes
	maxNameInFault = 255 // bytes of a parameter's name that a fault repeats
)

// encodeCursor returns the cursor for the position of id: the format version, the
// list, the ID and a CRC-32 of these three, in unpadded URL-safe base64 (RFC
// 4648, Section 5). The checksum catches damage; it does not authenticate.
func (l listKind) encodeCursor(id string) string {
	return string(l.appendCursor(make([]byte, 0, maxCursor), id))
}

func (l listKind) appendCursor(dst []byte, id string) []byte {
	raw := make([]byte, 0, 2+len(id)+4)
	raw = append(raw, cursorVersion, byte(l))
	raw = append(raw, id...)
	raw = binary.BigEndian.AppendUint32(raw, crc32.ChecksumIEEE(raw))
	return base64.RawURLEncoding.AppendEncode(dst, raw)
}

// decodeCursor is the inverse of encodeCursor. It rejects everything that is not,
// byte for byte, a result of encodeCursor for this list and a valid ID.
func (l listKind) decodeCursor(cursor string) (id string, ok bool) {
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

// writePage answers a request for a list with the first limit of items. The last segment
// of the list's path is name. The next page is at the cursor next, in the query parameter
// param; on the last page next is empty.
func (s *service) writePage(
	w http.ResponseWriter, r *http.Request, items []Resource, limit int, name, param, next string, f freshness,
) {
	const opening, last = `{"data":[`, `],"has_more":false}`
	const more, closing = `],"has_more":true,"next":"`, `"}`
	buffer, _ := s.pages.Get().(*[]byte)
	if buffer == nil {
		buffer = new([]byte)
	}

	// The tag is computed from the items' tags, which stand for their bytes, and from next. A
	// change to what surrounds the items must change the tag as well.
	var scratch [1024]byte
	tags, body := scratch[:0], append((*buffer)[:0], opening...)
	for i, item := range items[:min(limit, len(items))] {
		json, _, tag := item.parts()
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, json...)
		tags = append(tags, tag...)
	}
	link := ""
	if next == "" {
		body = append(body, last...)
	} else {
		body = append(append(append(body, more...), next...), closing...)
		// Some resolvers, such as Java's, get a reference wrong that is a query alone.
		link = "<" + name + "?limit=" + strconv.Itoa(limit) + "&" + param + "=" + next + `>; rel="next"`
	}
	etag := httpfield.ETag(tagOf(append(tags, next...)))
	page := representation{etag: etag, freshness: f, length: len(body), link: link}
	if s.writeHead(w, r, page) {
		w.Write(body)
	}
	if cap(body) <= 1<<20 { // larger ones are rare, and would stay for long
		*buffer = body
		s.pages.Put(buffer)
	}
}
