package metrics

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// scrape returns what Prometheus reads.
func scrape(registry *prometheus.Registry) string {
	w := httptest.NewRecorder()
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// Wrappers between the metrics and the service make another request of each. Unknown methods and paths
// make no new values of labels.
func TestRequestsAreCountedByRoute(t *testing.T) {
	store := new(storefront.MemStore)
	store.Products.Put(storefront.MustResource("teapot", nil))
	service := storefront.NewWithOptions(store, &storefront.Options{Logger: slog.New(slog.DiscardHandler)})
	registry := prometheus.NewRegistry()
	m := must.Get(New(registry, nil))(t)
	handler := m.Wrap(http.TimeoutHandler(http.StripPrefix("/shop", service), time.Minute, ""))
	for _, line := range []string{
		"GET /shop/v1/products/teapot", "GET /shop/v1/products/kettle", "HEAD /shop/v1/products/teapot",
		"PUT /shop/v1/products/teapot", "BREW /shop/v1/orders", "GET /shop//v1/users", "GET /elsewhere",
	} {
		method, path, _ := strings.Cut(line, " ")
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, nil))
	}
	text := scrape(registry)
	got := strings.Join(regexp.MustCompile(`(?m)^storefront_requests_total.*$`).FindAllString(text, -1), "\n")
	want := `storefront_requests_total{code="200",method="get",route="GET /v1/products/{product_id}"} 1
storefront_requests_total{code="200",method="head",route="GET /v1/products/{product_id}"} 1
storefront_requests_total{code="404",method="get",route=""} 1
storefront_requests_total{code="404",method="get",route="/"} 1
storefront_requests_total{code="404",method="get",route="GET /v1/products/{product_id}"} 1
storefront_requests_total{code="405",method="put",route="/v1/products/{product_id}"} 1
storefront_requests_total{code="501",method="unknown",route="/v1/orders"} 1`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	timed := `storefront_request_duration_seconds_count{code="200",route="GET /v1/products/{product_id}"} 2`
	if !strings.Contains(text, timed+"\n") {
		t.Errorf("there is no %s", timed)
	}
}

func TestAllThatTheStoreCountsIsShown(t *testing.T) {
	var stats sqlstore.Stats
	fields := reflect.ValueOf(&stats).Elem()
	for i := range fields.NumField() {
		fields.Field(i).SetInt(int64(1000 + i))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector(func() sqlstore.Stats { return stats }))
	text := scrape(registry)
	for i := range fields.NumField() {
		value := regexp.MustCompile(fmt.Sprintf(`(?m)^storefront_.* %d$`, 1000+i))
		if len(value.FindAllString(text, -1)) != 1 {
			t.Errorf("%s is not the value of one metric:\n%s", fields.Type().Field(i).Name, text)
		}
	}
}
