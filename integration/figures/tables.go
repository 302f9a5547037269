package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

var (
	engines = []string{"SQLite", "PostgreSQL", "MariaDB"}
	callers = []int{1, 4, 16, 64, 256}
)

// requests are those that are compared with a bare handler.
var requests = []struct{ name, about string }{
	{"product", "product"},
	{"product-304", "product, 304"},
	{"product-cached", "product from memory"},
	{"users-50", "50 users"},
	{"widgets-50", "50 widgets"},
	{"create", "create an order"},
	{"replay", "replay an order"},
}

// number writes a value with three digits that count, or all before the point.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case math.Abs(v) >= 999.5:
		return thousands(strconv.FormatFloat(math.Round(v), 'f', 0, 64))
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

func thousands(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func numbers(values []float64) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, number(v))
	}
	return strings.Join(texts, ", ")
}

func ints(values []int) (floats []float64) {
	for _, v := range values {
		floats = append(floats, float64(v))
	}
	return floats
}

// ratio writes a ratio with two digits, or one after the point.
func ratio(v float64) string {
	if v < 2 {
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// A table is one in Markdown.
type table struct {
	strings.Builder
	of *output // whose values it has; nil if it is computed
}

// newTable begins a table.
func newTable(o *output, columns ...string) *table {
	t := &table{of: o}
	if o != nil {
		o.used = nil
	}
	t.row(columns...)
	fmt.Fprintf(t, "|%s\n", strings.Repeat("---|", len(columns)))
	return t
}

func (t *table) row(cells ...string) { fmt.Fprintf(t, "| %s |\n", strings.Join(cells, " | ")) }

// measured returns the table and, below it, on what its values were measured.
func (t *table) measured(label func(name, unit string) string) string {
	return t.String() + "\n" + t.of.measured(label)
}

func cpuTable(o *output) string {
	t := newTable(o, "Request", "Over a socket", "records", "ratio", "bare", "ratio", "Handler alone", "records", "ratio", "Allocations", "records")
	for _, r := range requests {
		socket, handler := "Socket/"+r.name, "Handler/"+r.name
		t.row(r.about,
			number(o.get(socket, "front-cpu-ns")/1000)+" µs",
			number(o.get(socket, "records-cpu-ns")/1000)+" µs", ratio(o.get(socket, "records-ratio")),
			number(o.get(socket, "bare-cpu-ns")/1000)+" µs", ratio(o.get(socket, "ratio")),
			number(o.get(handler, "front-ns")/1000)+" µs", number(o.get(handler, "records-ns")/1000)+" µs", ratio(o.get(handler, "records-ratio")),
			number(o.get(handler, "front-allocs")), number(o.get(handler, "records-allocs")))
	}
	return t.measured(byEngine)
}

func memStoreTable(o *output) string {
	t := newTable(o, "", "1,000", "1,000,000", "10,000,000")
	for _, op := range []struct{ name, about string }{
		{"put", "put (each)"},
		{"get", "get"},
		{"get-while-writing", "get, while a writer does nothing but put"},
		{"page-50", "page of 50"},
		{"service-get", "`GET` a product through the service"},
		{"service-page-50", "`GET` a page of 50 through the service"},
	} {
		row := []string{op.about}
		for _, size := range []string{"1000", "1000000", "10000000"} {
			row = append(row, number(o.get("MemStore/"+size+"/"+op.name, "ns/op"))+" ns")
		}
		t.row(row...)
	}
	fmt.Fprintf(t, "\nA resource takes %s bytes there, and an order %s.\n",
		number(o.get("MemStore/10000000/put", "bytes/resource")), number(o.get("MemStoreOrders", "bytes/order")))
	return t.measured(byEngine)
}

func ordersTable(o *output) string {
	t := newTable(o, "Engine", "Callers", "Orders/s, handwritten", "service", "ratio", "p99, handwritten", "service")
	for _, engine := range engines {
		for _, n := range callers {
			name := fmt.Sprintf("Handwritten/%s/create/callers=%d", engine, n)
			t.row(engine, fmt.Sprint(n),
				number(o.get(name, "handwritten-req/s")), number(o.get(name, "service-req/s")), ratio(o.get(name, "ratio")),
				number(o.get(name, "handwritten-p99-ms"))+" ms", number(o.get(name, "service-p99-ms"))+" ms")
		}
	}
	return t.measured(byEngine)
}

func readsTable(o *output) string {
	columns := []string{"Engine", "Request"}
	for _, n := range callers {
		columns = append(columns, fmt.Sprintf("%d callers", n))
	}
	columns[2] = "1 caller"
	t := newTable(o, columns...)
	for _, engine := range engines {
		for _, op := range []struct{ name, about string }{{"get", "product"}, {"list", "50 users"}} {
			row := []string{engine, op.about}
			for _, n := range callers {
				row = append(row, ratio(o.get(fmt.Sprintf("Handwritten/%s/%s/callers=%d", engine, op.name, n), "ratio")))
			}
			t.row(row...)
		}
	}
	return t.measured(byEngine)
}

func bareTable(o *output) string {
	t := newTable(o, "Engine", "Request", "1 client", "16 clients", "Handlers alone")
	for _, engine := range engines {
		for _, op := range []struct{ name, about string }{{"create", "create an order"}, {"get", "product"}, {"list", "50 users"}} {
			name := "Service/" + engine + "/" + op.name + "/"
			t.row(engine, op.about, ratio(o.get(name+"clients=1", "ratio")), ratio(o.get(name+"clients=16", "ratio")), ratio(o.get(name+"handlers", "ratio")))
		}
	}
	return t.measured(byEngine)
}
