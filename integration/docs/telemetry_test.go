package docs

import (
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// withRoute lets what is inside of it, and next to it, ask for the route.
func withRoute(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(storefront.WithRoute(r.Context())))
	})
}

// mounted is the service under a prefix and with a time limit, as it would be in a
// program, so that the instrumentation around it sees another request than the
// service does.
func mounted() http.Handler {
	store := new(storefront.MemStore)
	store.Products.Put(storefront.MustResource("teapot", nil))
	service := storefront.NewWithOptions(store, &storefront.Options{Logger: slog.New(slog.DiscardHandler)})
	return http.TimeoutHandler(http.StripPrefix("/shop", service), time.Minute, "")
}

func request(h http.Handler, methodsAndPaths ...string) {
	for _, line := range methodsAndPaths {
		method, path, _ := strings.Cut(line, " ")
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, nil))
	}
}

// withMetrics counts and times requests by route: promhttp asks for the label after each
// request.
func withMetrics(registry prometheus.Registerer, next http.Handler) http.Handler {
	total := prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: "requests_total"}, []string{"code", "method", "route"})
	duration := prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Name: "request_duration_seconds"}, []string{"route"})
	inFlight := prometheus.NewGauge(prometheus.GaugeOpts{Name: "requests_in_flight"})
	registry.MustRegister(total, duration, inFlight)
	route := promhttp.WithLabelFromCtx("route", storefront.Route)
	return withRoute(
		promhttp.InstrumentHandlerInFlight(inFlight,
			promhttp.InstrumentHandlerDuration(duration,
				promhttp.InstrumentHandlerCounter(total, next, route), route)))
}

func Example_prometheus() {
	registry := prometheus.NewRegistry()
	handler := withMetrics(registry, mounted())

	request(handler, "GET /shop/v1/products/teapot", "GET /shop/v1/products/kettle",
		"HEAD /shop/v1/products/teapot", "PUT /shop/v1/products/teapot", "BREW /shop/v1/orders",
		"GET /shop//v1/users", "GET /elsewhere")

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
	}
	last := families[len(families)-1] // they are sorted: requests_total
	for _, metric := range last.GetMetric() {
		for _, label := range metric.GetLabel() {
			fmt.Printf("%s=%q ", label.GetName(), label.GetValue())
		}
		fmt.Println(metric.GetCounter().GetValue())
	}
	// Output:
	// code="200" method="get" route="GET /v1/products/{product_id}" 1
	// code="200" method="head" route="GET /v1/products/{product_id}" 1
	// code="404" method="get" route="" 1
	// code="404" method="get" route="/" 1
	// code="404" method="get" route="GET /v1/products/{product_id}" 1
	// code="405" method="put" route="/v1/products/{product_id}" 1
	// code="501" method="unknown" route="/v1/orders" 1
}

// storeMetrics gives what a sqlstore.Store counts to Prometheus.
type storeMetrics func() sqlstore.Stats

var (
	callsDesc     = desc("sqlstore_calls", "Calls of the store now.", "state")
	ordersDesc    = desc("sqlstore_create_order_calls_total", "Calls of CreateOrder by outcome.", "outcome")
	commitsDesc   = desc("sqlstore_commits_total", "Transactions that created orders.")
	committedDesc = desc("sqlstore_committed_orders_total", "Orders in these transactions.")
	retriesDesc   = desc("sqlstore_retries_total", "Tries after the first, of any method.")
	droppedDesc   = desc("sqlstore_dropped_connections_total", "Connections that were given up.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func (stats storeMetrics) Describe(ch chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(stats, ch)
}

func (stats storeMetrics) Collect(ch chan<- prometheus.Metric) {
	s := stats()
	for outcome, n := range map[string]int64{
		"created": s.Created, "replayed": s.Replayed, "key_reused": s.KeyReused, "refused": s.Refused,
		"unavailable": s.Unavailable, "canceled": s.Canceled, "failed": s.Failed,
	} {
		ch <- prometheus.MustNewConstMetric(ordersDesc, prometheus.CounterValue, float64(n), outcome)
	}
	ch <- prometheus.MustNewConstMetric(commitsDesc, prometheus.CounterValue, float64(s.Commits))
	ch <- prometheus.MustNewConstMetric(committedDesc, prometheus.CounterValue, float64(s.Committed))
	ch <- prometheus.MustNewConstMetric(retriesDesc, prometheus.CounterValue, float64(s.Retries))
	ch <- prometheus.MustNewConstMetric(droppedDesc, prometheus.CounterValue, float64(s.Dropped))
	ch <- prometheus.MustNewConstMetric(callsDesc, prometheus.GaugeValue, float64(s.Waiting), "waiting")
	ch <- prometheus.MustNewConstMetric(callsDesc, prometheus.GaugeValue, float64(s.Running), "running")
}

// exposition returns what Prometheus reads of a program.
func exposition(stats func() sqlstore.Stats) string {
	registry := prometheus.NewRegistry()
	registry.MustRegister(storeMetrics(stats))
	return scraped(registry)
}

func scraped(registry *prometheus.Registry) string {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/metrics", nil)
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return w.Body.String()
}

// Metrics of the store. A program registers storeMetrics(store.Stats).
func Example_prometheusStore() {
	fmt.Print(exposition(func() sqlstore.Stats {
		return sqlstore.Stats{Created: 100, Replayed: 12, KeyReused: 1, Refused: 7, Unavailable: 3, Canceled: 2,
			Commits: 40, Committed: 100, Retries: 5, Dropped: 4, Waiting: 6, Running: 8}
	}))
	// Output:
	// # HELP sqlstore_calls Calls of the store now.
	// # TYPE sqlstore_calls gauge
	// sqlstore_calls{state="running"} 8
	// sqlstore_calls{state="waiting"} 6
	// # HELP sqlstore_commits_total Transactions that created orders.
	// # TYPE sqlstore_commits_total counter
	// sqlstore_commits_total 40
	// # HELP sqlstore_committed_orders_total Orders in these transactions.
	// # TYPE sqlstore_committed_orders_total counter
	// sqlstore_committed_orders_total 100
	// # HELP sqlstore_create_order_calls_total Calls of CreateOrder by outcome.
	// # TYPE sqlstore_create_order_calls_total counter
	// sqlstore_create_order_calls_total{outcome="canceled"} 2
	// sqlstore_create_order_calls_total{outcome="created"} 100
	// sqlstore_create_order_calls_total{outcome="failed"} 0
	// sqlstore_create_order_calls_total{outcome="key_reused"} 1
	// sqlstore_create_order_calls_total{outcome="refused"} 7
	// sqlstore_create_order_calls_total{outcome="replayed"} 12
	// sqlstore_create_order_calls_total{outcome="unavailable"} 3
	// # HELP sqlstore_dropped_connections_total Connections that were given up.
	// # TYPE sqlstore_dropped_connections_total counter
	// sqlstore_dropped_connections_total 4
	// # HELP sqlstore_retries_total Tries after the first, of any method.
	// # TYPE sqlstore_retries_total counter
	// sqlstore_retries_total 5
}

// TestStoreMetricsHaveAllThatIsCounted fails when the store counts something new.
func TestStoreMetricsHaveAllThatIsCounted(t *testing.T) {
	var stats sqlstore.Stats
	fields := reflect.ValueOf(&stats).Elem()
	for i := range fields.NumField() {
		fields.Field(i).SetInt(int64(1000 + i))
	}
	text := exposition(func() sqlstore.Stats { return stats })
	for i := range fields.NumField() {
		if value := fmt.Sprintf(" %d\n", 1000+i); strings.Count(text, value) != 1 {
			t.Errorf("%s is not the value of one metric:\n%s", fields.Type().Field(i).Name, text)
		}
	}
}

// TestDocumentedMetrics has the documents name only metrics and labels that there are.
func TestDocumentedMetrics(t *testing.T) {
	have := exposition(func() sqlstore.Stats { return sqlstore.Stats{} })
	registry := prometheus.NewRegistry()
	request(withMetrics(registry, mounted()), "GET /shop/v1/products/teapot")
	db := new(sql.DB)
	registry.MustRegister(collectors.NewDBStatsCollector(db, "shop"), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	have += scraped(registry)
	names := regexp.MustCompile(`\b(?:(?:requests?|go|process)_\w+|sqlstore_\w+(?:\{.*?\})?)`)
	for _, document := range []string{"operations.md", "failures.md"} {
		text, err := os.ReadFile(filepath.Join(repository, "docs", document))
		if err != nil {
			t.Fatal(err)
		}
		found := names.FindAllString(string(text), -1)
		for _, name := range found {
			isFile := strings.HasSuffix(name, "_test")
			if !isFile && !strings.Contains(have, "\n"+name+" ") && !strings.Contains(have, "\n"+name+"{") {
				t.Errorf("%s: there is no %s", document, name)
			}
		}
		if len(found) == 0 {
			t.Errorf("%s names no metric", document)
		}
	}
}

// Traces by route: what is inside of otelhttp names the span once the service has
// answered. The attribute http.route is the pattern without the method.
func Example_openTelemetry() {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	service := mounted()
	handler := withRoute(otelhttp.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		service.ServeHTTP(w, r)
		route := storefront.Route(r.Context())
		span := trace.SpanFromContext(r.Context())
		span.SetName(route)
		span.SetAttributes(attribute.String("http.route", route[max(strings.Index(route, "/"), 0):]))
	}), "shop", otelhttp.WithTracerProvider(provider)))

	request(handler, "GET /shop/v1/products/teapot", "PUT /shop/v1/products/teapot", "GET /shop//v1/users")

	for _, span := range spans.Ended() {
		i := slices.IndexFunc(span.Attributes(), func(a attribute.KeyValue) bool { return a.Key == "http.route" })
		fmt.Printf("%q http.route=%q\n", span.Name(), span.Attributes()[i].Value.AsString())
	}
	// Output:
	// "GET /v1/products/{product_id}" http.route="/v1/products/{product_id}"
	// "/v1/products/{product_id}" http.route="/v1/products/{product_id}"
	// "/" http.route="/"
}
