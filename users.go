package storefront

import "net/http"

// listUsers serves GET /v1/users.
func (s *service) listUsers(w http.ResponseWriter, r *http.Request) {
	q, faults := s.parsePageQuery(r.URL.RawQuery, usersList, "after", s.opts.PageSize)
	if faults != nil {
		s.writeProblem(w, r, invalidQuery, "The query is not valid for this list.", faults...)
		return
	}
	users, err := s.store.ListUsers(r.Context(), q.position, q.limit+1)
	if err != nil {
		s.storeFailed(w, r, err)
		return
	}
	next := ""
	if len(users) > q.limit { // the extra one shows that more follow
		next = usersList.encodeCursor(users[q.limit-1].ID())
	}
	s.writePage(w, r, users, q.limit, "users", "after", next, s.listFreshness)
}
