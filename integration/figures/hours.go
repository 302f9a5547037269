package main

import (
	"fmt"
	"strconv"
	"strings"
)

// hoursTable has what was seen while durable created orders for long.
func hoursTable(tests map[string]attributes) (string, error) {
	names := []string{"PostgreSQL", "SQLite", "MariaDB", "MySQL"}
	var missing []string
	get := func(engine, key string) float64 {
		v, err := strconv.ParseFloat(tests["TestHours/"+engine][key], 64)
		if err != nil {
			missing = append(missing, engine+" "+key)
		}
		return v
	}
	t := newTable(nil, append([]string{""}, names...)...)
	for _, row := range []struct {
		about, key string
	}{
		{"minutes", "minutes"},
		{"orders that the table began with", "filled"},
		{"orders a second that it could take", "capacity"},
		{"that were sent", "rate"},
		{"orders acknowledged", "acknowledged"},
		{"of which lost", "lost"},
		{"there twice", "duplicated"},
		{"requests sent again", "retries"},
		{"keys forgotten", "forgotten"},
		{"backups taken", "backups"},
		{"changes of lists", "changes"},
		{"goroutines that wait for what never comes", "leaked"},
	} {
		cells := []string{row.about}
		for _, engine := range names {
			cells = append(cells, number(get(engine, row.key)))
		}
		t.row(cells...)
	}
	for _, row := range []struct {
		about, key, unit string
		per              float64 // how many of what was counted are one
	}{
		{"median time of an order", "p50-ms", "ms", 1},
		{"p99", "p99-ms", "ms", 1},
		{"memory of the program", "resident", "MB", 1e6},
		{"its heap, after a collection", "heap", "MB", 1e6},
		{"its goroutines", "goroutines", "", 1},
		{"its open files and connections", "files", "", 1},
		{"connections of the server", "connections", "", 1},
		{"room of an order", "order", "B", 1},
		{"room of all else", "rest", "MB", 1e6},
	} {
		cells := []string{row.about}
		for _, engine := range names {
			var quarters []float64
			for q := 1; q <= 4; q++ {
				quarters = append(quarters, get(engine, fmt.Sprintf("%s-%d", row.key, q))/row.per)
			}
			cell := strings.TrimSpace(strings.ReplaceAll(numbers(quarters), ", ", " · ") + " " + row.unit)
			if row.key == "connections" && engine == "SQLite" {
				cell = "–"
			}
			cells = append(cells, cell)
		}
		t.row(cells...)
	}
	text := t.String() + "\nMeasured:\n\n"
	for _, engine := range names {
		m := tests["TestHours/"+engine]["machine"]
		if m == "" {
			missing = append(missing, engine+" machine")
		}
		text += "- " + engine + ": " + m + ".\n"
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("the output of TestHours has no %s", strings.Join(missing, ", "))
	}
	return text, nil
}
