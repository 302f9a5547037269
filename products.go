package storefront

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"example.com/storefront/internal/agecache"
	"example.com/storefront/internal/httpfield"
)

// getProduct serves GET /v1/products/{product_id}.
func (s *service) getProduct(w http.ResponseWriter, r *http.Request) {
	answer, err := s.findProduct(r, r.PathValue("product_id"))
	if r.Header["Cache-Control"] != nil {
		w.Header()["Cache-Status"] = []string{s.cacheStatus(&answer)}
	}
	if err != nil {
		s.productFailed(w, r, err)
		return
	}
	if answer.Failure != nil {
		s.logFailure(r, slog.LevelWarn, "the store failed; a stored product was given", answer.Failure)
	}
	body, etag, _ := answer.Value.parts()
	rep := representation{etag: etag, freshness: s.freshness, length: len(body)}
	if !answer.Began.IsZero() { // it was stored
		seconds := answer.Age / time.Second // whole ones, as in max-age
		rep.expired = seconds >= s.opts.MaxAge/time.Second
		rep.age = strconv.FormatInt(int64(seconds), 10)
		rep.date = answer.Began.UTC().Format(http.TimeFormat)
	}
	if s.writeHead(w, r, rep) {
		io.WriteString(w, body)
	}
}

// findProduct returns the product with this ID, from memory if the request's Cache-Control allows
// it. A request without Cache-Control has nothing to do with the memory.
func (s *service) findProduct(r *http.Request, id string) (answer agecache.Answer[Resource], err error) {
	lines := r.Header["Cache-Control"]
	switch {
	case checkID(id) != nil: // no product has such an ID
		return answer, ErrNotFound
	case lines == nil:
		answer.Value, err = s.store.GetProduct(r.Context(), id)
		return answer, err
	}
	d := agecache.Directives(httpfield.ParseCacheControl(lines))
	if s.bypassesMemory(r) {
		if d.OnlyIfCached {
			return answer, agecache.ErrNotCached
		}
		answer.Forwarded = "bypass"
		answer.Value, err = s.store.GetProduct(r.Context(), id)
		return answer, err
	}
	if isPresent(r.Header["If-Match"]) { // only the origin can evaluate it (RFC 9111, Section 4.3.2)
		d.NoCache, d.StaleIfError = true, -1
	}
	key := agecache.Key{ID: id}
	if s.opts.Scope != nil && !s.opts.Shared {
		key.Scope = s.opts.Scope(r)
	}
	return s.products.Get(r.Context(), key, &d)
}

// bypassesMemory reports whether no product in memory may answer r. Without a scope,
// the response to a request with credentials may be for its sender alone.
func (s *service) bypassesMemory(r *http.Request) bool {
	if s.opts.CacheSize < 0 || s.opts.MaxAge < 0 {
		return true
	}
	differs := func(name string) bool {
		// net/http keeps the header Host in a field.
		return name == "*" || r.Header[name] != nil || name == "Host" && r.Host != ""
	}
	return !s.opts.Shared && s.opts.Scope == nil && slices.ContainsFunc(s.bypassHeaders, differs)
}

// cacheStatus returns the Cache-Status (RFC 9211) of a response for which findProduct returned answer.
func (s *service) cacheStatus(answer *agecache.Answer[Resource]) string {
	switch {
	case answer.Forwarded != "" && answer.Collapsed:
		return "storefront; fwd=" + string(answer.Forwarded) + "; collapsed"
	case answer.Forwarded != "":
		return "storefront; fwd=" + string(answer.Forwarded)
	case !answer.Began.IsZero():
		return "storefront; hit; ttl=" + strconv.FormatInt(int64((s.opts.MaxAge-answer.Age)/time.Second), 10)
	}
	return "storefront" // neither memory nor store was asked
}

// productFailed answers a request for a product that findProduct did not return.
func (s *service) productFailed(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrNotFound):
		s.writeProblem(w, r, productNotFound, "There is no product with this ID.")
	case err == agecache.ErrNotCached:
		s.writeProblem(w, r, notCached, "No stored response satisfies the Cache-Control of the request. "+
			"Leave out only-if-cached to have the product read.")
	default:
		s.storeFailed(w, r, err)
	}
}
