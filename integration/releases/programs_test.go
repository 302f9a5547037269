package releases

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/storefront"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb/metrics"
	"example.com/storefront/sqlstore"
)

// listed is a promise of lines: later releases have each of them, and may have more.
func listed(name string, now func(t *testing.T) []string) promise {
	file := name + ".json"
	record := func(t *testing.T, _, release string) { write(t, release, file, toJSON(t, now(t))) }
	check := func(t *testing.T, release string) (lines []string) {
		have := now(t)
		for _, line := range fromJSON[[]string](t, release, file) {
			if !slices.Contains(have, line) {
				lines = append(lines, "no longer: "+line)
			}
		}
		return lines
	}
	return promise{name, record, check}
}

// programs returns the flags of each program with their defaults.
func programs(t *testing.T) (lines []string) {
	for name, command := range map[string]func() (string, error){
		"storefront": process.Storefront, "exactlyonce": process.Exactlyonce, "storefrontd": process.Storefrontd,
	} {
		for flag, value := range process.Flags(t, command) {
			lines = append(lines, fmt.Sprintf("%s -%s, default %q", name, flag, value))
		}
	}
	slices.Sort(lines)
	return lines
}

// metricNames returns the metrics of a shop with their types and labels.
func metricNames(t *testing.T) (lines []string) {
	registry := prometheus.NewRegistry()
	db := sql.OpenDB(nil)
	defer db.Close()
	m := must.Get(metrics.New(registry, &metrics.Options{DB: db, Store: sqlstore.New(db, nil)}))(t)
	get(m.Wrap(storefront.New(new(storefront.MemStore))), "/v1/users")
	for _, family := range must.Get(registry.Gather())(t) {
		line := family.GetName() + ", " + strings.ToLower(family.GetType().String())
		for _, label := range family.GetMetric()[0].GetLabel() {
			line += " " + label.GetName()
		}
		lines = append(lines, line)
	}
	return lines
}
