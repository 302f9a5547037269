package storefront

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"example.com/storefront/internal/httpfield"
)

// A representation is what a read answers with: all but its bytes.
type representation struct {
	etag      string
	freshness freshness
	length    int    // of the body, in bytes
	link      string // to the next page, or ""
	date, age string // of a stored product, or ""
	expired   bool   // its age has reached its freshness lifetime
}

// A freshness is what Cache-Control says of a representation to each kind of cache.
type freshness struct{ private, shared string }

// mustRevalidate is the freshness of what no cache may use without asking again.
var mustRevalidate = freshness{"private, no-cache", "no-cache"}

// ownedByOne is the freshness of what no cache may give to anybody else, with Options.Shared, too.
var ownedByOne = freshness{"private, no-cache", "private, no-cache"}

// newFreshness returns that of a lifetime, in whole seconds. If it is negative, caches
// must revalidate.
func newFreshness(lifetime time.Duration) freshness {
	if lifetime < 0 {
		return mustRevalidate
	}
	maxAge := "max-age=" + strconv.FormatInt(int64(lifetime/time.Second), 10)
	return freshness{"private, " + maxAge, maxAge}
}

// writeHead evaluates the request's preconditions in the order of RFC 9110, Section
// 13.2.2, writes the head of the response, and reports whether the body is to follow.
// If the preconditions say so, the response is 304 or 412.
//
// A representation that is expired is marked no-cache and goes out in full, as some
// caches on the way ignore Age and would take a 304 as a renewal for others.
func (s *service) writeHead(w http.ResponseWriter, r *http.Request, rep representation) (body bool) {
	h := w.Header()
	if lines := r.Header["If-Match"]; isPresent(lines) && !httpfield.MatchETag(lines, rep.etag, false) {
		s.writeProblem(w, r, preconditionFailed, "If-Match does not list the current entity tag.")
		return false
	}
	cacheControl := s.cacheControl(r, &rep)
	if s.vary != "" { // middleware may have set others
		h["Vary"] = append(slices.Clip(h["Vary"]), s.vary)
	}
	if rep.age != "" {
		h["Date"] = []string{rep.date}
		h["Age"] = []string{rep.age}
	}
	lines := r.Header["If-None-Match"]
	if !rep.expired && isPresent(lines) && httpfield.MatchETag(lines, rep.etag, true) {
		v := []string{rep.etag, cacheControl}
		h["Etag"], h["Cache-Control"] = v[:1:1], v[1:]
		w.WriteHeader(http.StatusNotModified)
		return false
	}
	if rep.link != "" {
		h["Link"] = append(slices.Clip(h["Link"]), rep.link)
	}
	h["Etag"] = []string{rep.etag}
	setContent(h, "application/json", rep.length, cacheControl)
	w.WriteHeader(http.StatusOK)
	return r.Method != http.MethodHead
}

// cacheControl returns the Cache-Control of the response to a read. It is private
// also with Shared where the request has credentials: RFC 9111, Section 3.5, keeps
// shared caches from storing the response, but not all of them keep to it.
func (s *service) cacheControl(r *http.Request, rep *representation) string {
	f := rep.freshness
	if rep.expired {
		f = mustRevalidate
	}
	if s.opts.Shared && r.Header["Authorization"] == nil && r.Header["Cookie"] == nil {
		return f.shared
	}
	return f.private
}

// isPresent reports whether a header field is present and not empty.
func isPresent(lines []string) bool { return len(lines) > 0 && (len(lines) > 1 || lines[0] != "") }
