package docs

import (
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/storefront"
	"example.com/storefront/durable/metrics"
	"example.com/storefront/internal/must"
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

// TestDocumentedMetrics has the documents and the dashboard name only metrics and labels that there are.
func TestDocumentedMetrics(t *testing.T) {
	db := new(sql.DB)
	m := metrics.New(db, sqlstore.New(db, nil))
	request(m.Wrap(mounted()), "GET /shop/v1/products/teapot")
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	have := w.Body.String()
	names := regexp.MustCompile(`\b(?:(?:requests?|go|process)_\w+|sqlstore_\w+(?:\{.*?\})?)`)
	for _, document := range []string{"operations.md", "failures.md", "deploy/dashboard.json"} {
		text := must.Get(os.ReadFile(filepath.Join(repository, "docs", document)))(t)
		found := names.FindAllString(strings.ReplaceAll(string(text), `\"`, `"`), -1)
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
