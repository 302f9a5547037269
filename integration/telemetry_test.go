package integration

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/storefront"
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

// Metrics by route: promhttp asks for the label after each request.
func Example_prometheus() {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total"}, []string{"code", "method", "route"})
	registry.MustRegister(counter)
	handler := withRoute(promhttp.InstrumentHandlerCounter(counter, mounted(),
		promhttp.WithLabelFromCtx("route", storefront.Route)))

	request(handler, "GET /shop/v1/products/teapot", "GET /shop/v1/products/kettle", "HEAD /shop/v1/products/teapot",
		"PUT /shop/v1/products/teapot", "BREW /shop/v1/orders", "GET /shop//v1/users", "GET /elsewhere")

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
	}
	for _, metric := range families[0].GetMetric() {
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
