// Package metrics gives the metrics of a shop to Prometheus.
//
//	m := metrics.New(db.DB, store) // of shopdb.Open and sqlstore.New
//	mux.Handle("GET /metrics", m.Handler())
//	mux.Handle("/", m.Wrap(storefront.New(store)))
//
// These are the metrics, beside those of the Go runtime (go_…), of the process (process_…) and of the pool
// of connections (go_sql_…, with db_name="shop"):
//
//	requests_total                       requests answered, by code, method and route
//	request_duration_seconds             a histogram of the time that they took, by code and route
//	requests_in_flight                   requests that are being answered
//	sqlstore_create_order_calls_total    calls of CreateOrder, by outcome
//	sqlstore_commits_total               transactions that have created orders
//	sqlstore_committed_orders_total      orders that these have created
//	sqlstore_retries_total               tries that followed a failed one
//	sqlstore_dropped_connections_total   connections that were given up
//	sqlstore_forgotten_keys_total        keys that were forgotten
//	sqlstore_calls                       calls now, by state: running, or waiting
//
// The outcomes and the numbers of the store are those of [sqlstore.Stats]. A route is one of
// [storefront.Route], so that its values are few, whatever clients send; the route of a request that does
// not reach the service is "". docs/operations.md of the repository has alerts on these metrics, and
// docs/deploy/dashboard.json is a dashboard for Grafana.
//
// The metrics tell how many orders there are. Do not show them to everybody.
package metrics

import (
	"database/sql"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// Metrics are the metrics of one shop. Make them with [New].
type Metrics struct {
	// Registry has all metrics. The program may add its own.
	Registry *prometheus.Registry

	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

// New returns the metrics of a store and of its pool of connections. Without the metrics of either, it is
// nil.
func New(db *sql.DB, store *sqlstore.Store) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "requests_total", Help: "Requests answered.",
		}, []string{"code", "method", "route"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "request_duration_seconds", Help: "Time that requests took.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"code", "route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "requests_in_flight", Help: "Requests that are being answered.",
		}),
	}
	m.Registry.MustRegister(m.total, m.duration, m.inFlight, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if db != nil {
		m.Registry.MustRegister(collectors.NewDBStatsCollector(db, "shop"))
	}
	if store != nil {
		m.Registry.MustRegister(collector(store.Stats))
	}
	return m
}

// Handler returns a handler that serves the metrics, in a format that Prometheus accepts.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{Registry: m.Registry})
}

// Wrap returns a handler that counts and times the requests that next answers. The storefront may be
// anywhere inside of next.
func (m *Metrics) Wrap(next http.Handler) http.Handler {
	route := promhttp.WithLabelFromCtx("route", storefront.Route)
	counted := promhttp.InstrumentHandlerInFlight(m.inFlight,
		promhttp.InstrumentHandlerDuration(m.duration,
			promhttp.InstrumentHandlerCounter(m.total, next, route), route))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		counted.ServeHTTP(w, r.WithContext(storefront.WithRoute(r.Context())))
	})
}

// A collector collects what a sqlstore.Store counts.
type collector func() sqlstore.Stats

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sqlstore_"+name, help, labels, nil)
}

// Describe implements [prometheus.Collector].
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c()
	send := func(d *prometheus.Desc, kind prometheus.ValueType, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, float64(n), labels...)
	}
	orders := desc("create_order_calls_total", "Calls of CreateOrder by outcome.", "outcome")
	for outcome, n := range map[string]int64{
		"created": s.Created, "replayed": s.Replayed, "key_reused": s.KeyReused, "refused": s.Refused,
		"unavailable": s.Unavailable, "canceled": s.Canceled, "failed": s.Failed,
	} {
		send(orders, prometheus.CounterValue, n, outcome)
	}
	for name, row := range map[string]struct {
		help string
		n    int64
	}{
		"commits_total":             {"Transactions that created orders.", s.Commits},
		"committed_orders_total":    {"Orders in these transactions.", s.Committed},
		"retries_total":             {"Tries after the first, of any method.", s.Retries},
		"dropped_connections_total": {"Connections that were given up.", s.Dropped},
		"forgotten_keys_total":      {"Keys that were forgotten.", s.Forgotten},
	} {
		send(desc(name, row.help), prometheus.CounterValue, row.n)
	}
	calls := desc("calls", "Calls of the store now.", "state")
	send(calls, prometheus.GaugeValue, s.Waiting, "waiting")
	send(calls, prometheus.GaugeValue, s.Running, "running")
}
