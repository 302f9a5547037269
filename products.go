package storefront

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

// getProduct serves GET /v1/products/{product_id}.
func (s *service) getProduct(w http.ResponseWriter, r *http.Request) {
	if !s.checkNoQuery(w, r) {
		return
	}
	id := r.PathValue("product_id")
	if checkID(id) != nil { // no product has such an ID
		s.writeProblem(w, r, productNotFound, "There is no product with this ID.")
		return
	}
	answer, err := s.products.get(r, id)
	if err != nil {
		s.productFailed(w, r, answer.cacheStatus, err)
		return
	}
	if answer.failure != nil {
		s.log(r, slog.LevelWarn, "the store failed; a stored product was given", slog.Any("error", answer.failure))
	}
	body, etag, _ := answer.product.parts()
	rep := representation{etag: etag, length: len(body), cacheStatus: answer.cacheStatus}
	if !answer.began.IsZero() { // it was stored
		seconds := answer.age / time.Second // whole ones, as in max-age
		rep.expired = seconds >= s.opts.MaxAge/time.Second
		rep.age = strconv.FormatInt(int64(seconds), 10)
		rep.date = answer.began.UTC().Format(http.TimeFormat)
	}
	if s.writeHead(w, r, rep) {
		io.WriteString(w, body)
	}
}

// productFailed answers a request for a product that is not to be had.
func (s *service) productFailed(w http.ResponseWriter, r *http.Request, cacheStatus string, err error) {
	setHeaders(w.Header(), "Cache-Status", cacheStatus)
	switch {
	case errors.Is(err, ErrNotFound):
		s.writeProblem(w, r, productNotFound, "There is no product with this ID.")
	case err == errNotCached:
		setHeaders(w.Header(), "Cache-Status", noForward)
		s.writeProblem(w, r, notCached, "No stored response satisfies the Cache-Control of the request. Leave out only-if-cached to have the product read.")
	default:
		s.storeFailed(w, r, err)
	}
}
