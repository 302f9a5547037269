package storefront

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
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
	h := w.Header()
	if answer.cacheStatus != nil {
		h["Cache-Status"] = answer.cacheStatus
	}
	switch {
	case errors.Is(err, ErrNotFound):
		s.writeProblem(w, r, productNotFound, "There is no product with this ID.")
		return
	case err == errNotCached:
		s.writeProblem(w, r, notCached, "No stored response satisfies the Cache-Control of the request. Leave out only-if-cached to have the product read.")
		return
	case err != nil:
		s.storeFailed(w, r, err)
		return
	}
	if answer.failure != nil {
		s.log(r, slog.LevelWarn, "the store failed; a stored product was given", slog.Any("error", answer.failure))
	}
	if answer.age != nil {
		h["Age"], h["Date"] = answer.age, answer.date
	}
	if s.checkPreconditions(w, r, answer.product.r.etag) {
		return
	}
	body := answer.product.r.json
	writeHeader(w, http.StatusOK, "application/json", len(body))
	if r.Method != http.MethodHead {
		io.WriteString(w, body)
	}
}

// readProduct reads a product from the store.
func (s *service) readProduct(ctx context.Context, id string) (Resource, error) {
	product, err := s.store.GetProduct(ctx, id)
	if err == nil && product.r == nil {
		err = errZeroResource
	}
	return product, err
}
