package storefront

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"example.com/storefront/internal/agecache"
)

// getProduct serves GET /v1/products/{product_id}.
func (s *service) getProduct(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("product_id")
	if checkID(id) != nil { // no product has such an ID
		s.writeProblem(w, r, productNotFound, "There is no product with this ID.")
		return
	}
	answer, err := s.findProduct(r, id)
	if status := s.cacheStatus(&answer, err); status != "" {
		w.Header()["Cache-Status"] = []string{status}
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
