package docs

import (
	"database/sql"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb/metrics"
	"example.com/storefront/sqlstore"
)

// TestDocumentedMetrics has the documents and the dashboard name only metrics and labels that there are.
func TestDocumentedMetrics(t *testing.T) {
	db := new(sql.DB)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := must.Get(metrics.New(registry, &metrics.Options{DB: db, Store: sqlstore.New(db, nil)}))(t)
	service := m.Wrap(storefront.New(new(storefront.MemStore)))
	service.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/users", nil))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	have := w.Body.String()
	names := regexp.MustCompile(`\b(?:storefront|requests?|go|process|sqlstore)_\w+(?:\{(?:outcome|state)=.*?\})?`)
	for _, document := range []string{"operations.md", "failures.md", "deploy/dashboard.json"} {
		text := must.Get(os.ReadFile(filepath.Join(repository, "docs", document)))(t)
		found := names.FindAllString(strings.ReplaceAll(string(text), `\"`, `"`), -1)
		for _, name := range found {
			isOther := strings.HasSuffix(name, "_test") || // a file
				slices.Contains([]string{"storefront_schema", "storefront_orders", "storefront_products"}, name) // tables
			if !isOther && !strings.Contains(have, "\n"+name+" ") && !strings.Contains(have, "\n"+name+"{") {
				t.Errorf("%s: there is no %s", document, name)
			}
		}
		if len(found) == 0 {
			t.Errorf("%s names no metric", document)
		}
	}
}
