package storefront

import "net/http"

// listWidgets serves GET /v2/widgets.
func (s *service) listWidgets(w http.ResponseWriter, r *http.Request) {
	q, faults := s.parsePageQuery(r.URL.RawQuery, widgetsList, "start", 0)
	if faults != nil {
		s.writeProblem(w, r, invalidQuery, "The query is not valid for this list.", faults...)
		return
	}
	widgets, err := s.store.ListWidgets(r.Context(), q.position, q.limit+1)
	if err != nil {
		s.storeFailed(w, r, err)
		return
	}
	next := ""
	if len(widgets) > q.limit { // the extra one starts the next page
		next = widgetsList.encodeCursor(widgets[q.limit].ID())
	}
	s.writePage(w, r, widgets, q.limit, "widgets", "start", next, s.listFreshness)
}
