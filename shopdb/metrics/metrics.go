// Package metrics registers the metrics of a shop with Prometheus.
//
//	m, err := metrics.New(prometheus.DefaultRegisterer, &metrics.Options{DB: db.DB, Store: store})
//	mux.Handle("GET /metrics", promhttp.Handler())
//	mux.Handle("/", m.Wrap(storefront.New(store)))
//
// These are the metrics:
//
//	storefront_requests_total                    requests answered, by code, method and route
//	storefront_request_duration_seconds          a histogram of the time that they took, by code and route
//	storefront_requests_in_flight                requests that are being answered
//	storefront_create_order_calls_total          calls of CreateOrder, by outcome
//	storefront_commits_total                     transactions that have created orders
//	storefront_committed_orders_total            orders that these have created
//	storefront_retries_total                     tries that followed a failed one
//	storefront_dropped_connections_total         connections that were given up
//	storefront_forgotten_keys_total              keys that were forgotten
//	storefront_calls                             calls of the store now, by state: running, or waiting
//	storefront_go_sql_…                          those of [collectors.NewDBStatsCollector]: the pool
//
// The outcomes and the numbers of the store are those of [sqlstore.Stats]. A route is one of
// [storefront.Route], so that its values are few, whatever clients send; the route of a request that does
// not reach the service is "". docs/deploy of the repository has alerts on these metrics
// (alerts.yaml), and a dashboard for Grafana (dashboard.json).
//
// Two shops of one program are told apart by a label that the program chooses:
//
//	metrics.New(prometheus.WrapRegistererWith(prometheus.Labels{"shop": "tea"}, registerer), …)
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

const prefix = "storefront_"

// Options say what has metrics beside requests.
type Options struct {
	Store *sqlstore.Store // nil: there are no metrics of a store
	DB    *sql.DB         // its pool of connections; nil: there are none of a pool
}

// Metrics count the requests to one shop. Make them with [New].
type Metrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

// New registers the metrics of a shop. nil options are those of no store. The error is that of the
// registerer, such as [prometheus.AlreadyRegisteredError] for a second shop without a label of its own. Then
// nothing stays registered.
func New(registerer prometheus.Registerer, opts *Options) (*Metrics, error) {
	m := &Metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "requests_total", Help: "Requests answered.",
		}, []string{"code", "method", "route"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "request_duration_seconds", Help: "Time that requests took.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"code", "route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "requests_in_flight", Help: "Requests that are being answered.",
		}),
	}
	all := []prometheus.Collector{m.total, m.duration, m.inFlight}
	if opts != nil && opts.Store != nil {
		all = append(all, collector(opts.Store.Stats))
	}
	if opts != nil && opts.DB != nil {
		all = append(all, prometheus.WrapCollectorWithPrefix(prefix, collectors.NewDBStatsCollector(opts.DB, "shop")))
	}
	for i, c := range all {
		if err := registerer.Register(c); err != nil {
			for _, registered := range all[:i] {
				registerer.Unregister(registered)
			}
			return nil, err
		}
	}
	return m, nil
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
	return prometheus.NewDesc(prefix+name, help, labels, nil)
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
