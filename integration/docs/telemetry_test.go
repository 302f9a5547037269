package docs

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/storefront"
	"example.com/storefront/integration/internal/need"
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
	for _, document := range []string{"operations.md", "failures.md", "deploy/dashboard.json", "deploy/alerts.yaml"} {
		text := must.Get(os.ReadFile(filepath.Join(repository, "docs", document)))(t)
		found := names.FindAllString(strings.ReplaceAll(string(text), `\"`, `"`), -1)
		for _, name := range found {
			isOther := strings.HasSuffix(name, "_test") || // a file
				slices.Contains([]string{"storefront_schema", "storefront_orders", "storefront_products", // tables
					"request_header_access"}, name) // a setting of Squid
			if !isOther && !strings.Contains(have, "\n"+name+" ") && !strings.Contains(have, "\n"+name+"{") {
				t.Errorf("%s: there is no %s", document, name)
			}
		}
		if len(found) == 0 {
			t.Errorf("%s names no metric", document)
		}
	}
}

// TestDocumentedAlerts has Prometheus evaluate the alerts, fifteen minutes after a test's begin. Those that
// compare a value with a bound are only parsed here, and TestDocumentedMetrics has their metrics.
func TestDocumentedAlerts(t *testing.T) {
	need.Programs(t, need.Tools, "promtool")
	const (
		failed  = `storefront_create_order_calls_total{outcome="failed"}`
		is500   = `storefront_requests_total{code="500",method="get",route=""}`
		is503   = `storefront_requests_total{code="503",method="post",route="POST /v1/orders"}`
		is422   = `storefront_requests_total{code="422",method="post",route="POST /v1/orders"}`
		away    = `storefront_create_order_calls_total{outcome="unavailable"}`
		took    = `storefront_request_duration_seconds_bucket{code="201",route="POST /v1/orders",`
		second  = took + `le="1"}`
		longer  = took + `le="2.5"}`
		whole   = took + `le="+Inf"}`
		dropped = `storefront_dropped_connections_total`
	)
	type series map[string]string // values at minutes: _ is none, axn is a and n more times a
	var tests []any
	for _, row := range []struct {
		alert string
		fires bool
		given series
	}{
		{"Requests are 500", true, series{is500: "_x12 3x9"}},          // before the first look at the process
		{"Requests are 500", true, series{is500: "5x13 6x5"}},          // one more
		{"Requests are 500", true, series{is500: "5x8 stale _x3 1x5"}}, // the first of a process anew
		{"Requests are 500", false, series{is500: "5x20"}},             // long ago
		{"Requests are 500", false, series{is503: "0+9x20"}},           // another failure
		{"Orders are 500", true, series{failed: "_x13 1x5"}},           // before the first look at the process
		{"Orders are 500", true, series{failed: "0x13 1x5"}},           // the first
		{"Orders are 500", false, series{failed: "0x20", away: "1x9"}}, // another failure
		{"Requests are 503", true, series{is503: "_x9 1+9x10"}},
		{"Requests are 503", false, series{is503: "0x12 50 90x9"}}, // a fail-over
		{"Orders are 503", true, series{away: "0x9 1+9x10"}},
		{"Orders are 503", false, series{away: "0x12 50 90x9"}},
		{"Nothing answers", true, series{`process_start_time_seconds{job="other"}`: "1x20"}},
		{"Nothing answers", false, series{`process_start_time_seconds{job="shop"}`: "1x20"}},
		{"Orders are slow", true, series{second: "0+9x20", longer: "0+10x20", whole: "0+10x20"}},
		{"Orders are slow", false, series{second: "0+9x20", longer: "0+9x20", whole: "0+9x20"}},
		{"Orders are refused", true, series{is422: "0+1x20"}}, // where none is as usual
		{"Orders are refused", false, series{is422: "0x10 9x20"}},
		{"Connections were dropped", true, series{dropped: "_x13 1x5"}},
		{"Connections were dropped", false, series{dropped: "0x20"}},
	} {
		var given, want []any
		for name, values := range row.given {
			given = append(given, map[string]string{"series": name, "values": values})
		}
		if row.fires {
			want = append(want, map[string]any{"labels": "{}", "value": 1})
		}
		tests = append(tests, map[string]any{
			"name": fmt.Sprint(row.alert, row.given), "interval": "1m", "input_series": given,
			"promql_expr_test": []any{map[string]any{"eval_time": "15m", "exp_samples": want,
				"expr": fmt.Sprintf("count(ALERTS{alertname=%q,alertstate=%q})", row.alert, "firing")}},
		})
	}
	rules := must.Get(filepath.Abs(filepath.Join(repository, "docs/deploy/alerts.yaml")))(t)
	text := must.Get(json.Marshal(map[string]any{"rule_files": []string{rules}, "tests": tests}))(t) // which is YAML
	file := filepath.Join(t.TempDir(), "tests.yaml")
	must.OK(t, os.WriteFile(file, text, 0o600))
	if out, err := exec.Command("promtool", "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
