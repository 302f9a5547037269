package main

import (
	"fmt"
	"math"
	"strings"
)

// What docs/scale.md takes for granted, and says so.
const (
	peak       = 5.0    // how often the mean an hour's orders come at their peak
	keyHours   = 25.0   // how long keys are kept: storefront.KeyLifetime and an hour
	perSecond  = 10_000 // orders, in the table of 24 hours of keys
	checkpoint = 300.0  // seconds from one checkpoint to the next
)

// An engine is what an order and its key take there.
type engine struct {
	name              string
	row, id, key, ms  float64 // bytes on disk
	page              float64 // bytes of one in an index
	log, logAlone     float64 // bytes written to the log
	logForget         float64
	own, ownAlone     float64 // seconds of CPU time of the program
	server, serverOne float64 // and of the database
	ratePerCaller     float64 // orders per second that one caller creates
	most              float64 // and that any number of callers do
}

func engineOf(name string, size, databases *output) engine {
	get := func(unit string) float64 { return size.get("Size/"+name, unit) }
	e := engine{
		name: name, row: get("row-B/order"), key: get("key_hash-B/order"), ms: get("keyed_ms-B/order"),
		page: map[string]float64{"SQLite": 4096, "MariaDB": 16384}[name],
		log:  get("log-B/create"), logAlone: get("log-B/create-alone"), logForget: get("log-B/forget"),
		own: get("own-CPU-µs/create") / 1e6, ownAlone: get("own-CPU-µs/create-alone") / 1e6,
	}
	if e.page == 0 { // PostgreSQL, with whatever settings
		e.page = 8192
	}
	if name != "MariaDB" { // whose rows are in the index of IDs
		e.id = get("id-B/order")
	}
	if name != "SQLite" { // which is in the program
		e.server, e.serverOne = get("server-CPU-µs/create")/1e6, get("server-CPU-µs/create-alone")/1e6
	}
	if databases != nil {
		for _, n := range callers {
			rate := databases.get(fmt.Sprintf("Handwritten/%s/create/callers=%d", name, n), "service-req/s")
			e.most = max(e.most, rate)
			if n == 1 {
				e.ratePerCaller = rate
			}
		}
	}
	return e
}

// sizeTable has what was measured.
func sizeTable(o *output) string {
	t := newTable(o, append([]string{"Of an order"}, engines...)...)
	for _, line := range []struct{ about, unit, name string }{
		{"row", "B", "row-B/order"},
		{"index of IDs", "B", "id-B/order"},
		{"index of `key_hash`", "B", "key_hash-B/order"},
		{"index of `keyed_ms`", "B", "keyed_ms-B/order"},
		{"log, commit shared", "B", "log-B/create"},
		{"log, alone", "B", "log-B/create-alone"},
		{"log, right after a checkpoint", "B", "log-B/create-after-checkpoint"},
		{"log, replay", "B", "log-B/replay"},
		{"log, its key forgotten", "B", "log-B/forget"},
		{"CPU of the program's store, commit shared", "µs", "own-CPU-µs/create"},
		{"the same, alone", "µs", "own-CPU-µs/create-alone"},
		{"the same, replay", "µs", "own-CPU-µs/replay"},
		{"CPU of the server, commit shared", "µs", "server-CPU-µs/create"},
		{"the same, alone", "µs", "server-CPU-µs/create-alone"},
		{"the same, replay", "µs", "server-CPU-µs/replay"},
	} {
		row := []string{line.about}
		for _, engine := range engines {
			switch _, there := o.values["Size/"+engine][line.name]; {
			case engine == "SQLite" && line.name[:2] == "se", engine == "MariaDB" && line.name[:2] == "id" && !there:
				row = append(row, "–")
			default:
				row = append(row, number(o.get("Size/"+engine, line.name))+" "+line.unit)
			}
		}
		t.row(row...)
	}
	return t.measured(func(name, unit string) string {
		what := "bytes"
		if strings.Contains(unit, "CPU") {
			what = "CPU time"
		}
		return what + " on " + byEngine(name, unit)
	})
}

// hourTable has what a number of orders an hour needs. It is computed.
func hourTable(outputs map[string]*output) string {
	front := outputs["package"].get("Socket/create", "front-cpu-ns") / 1e9
	t := newTable(nil, "Engine", "Orders an hour", "Orders/s at the peak", "Cores, program", "Cores, server",
		"Connections", "Log at the peak", "Log a day", "Orders a month", "Keys")
	for _, name := range engines {
		e := engineOf(name, outputs["size"], outputs["databases"])
		for _, hourly := range []float64{1000, 100_000, 10_000_000} {
			mean := hourly / 3600
			rate := mean * peak
			own, server, log, connections := e.ownAlone, e.serverOne, e.logAlone, math.Ceil(rate/e.ratePerCaller)
			if rate > e.ratePerCaller { // then they share commits
				own, server, log, connections = e.own, e.server, e.log, 4
				if name == "SQLite" {
					connections = 1
				}
			}
			cores := "–"
			if server > 0 {
				cores = orLess(rate*server, 0.01)
			}
			t.row(name, number(hourly), number(rate),
				orLess(rate*(own+front), 0.01), cores, number(connections),
				bytesOf(rate*log)+"/s", bytesOf(24*hourly*(log+e.logForget)),
				bytesOf(30*24*hourly*(e.row+e.id)), bytesOf(keyHours*hourly*(e.key+e.ms)))
		}
	}
	var bursts []string
	outputs["databases"].used = nil
	for _, name := range engines {
		bursts = append(bursts, fmt.Sprintf("%s %s", name, number(engineOf(name, outputs["size"], outputs["databases"]).most)))
	}
	return t.String() + fmt.Sprintf("\nThe most orders a second in the bursts of a quarter of a second that figures.md has: %s.\n\n", strings.Join(bursts, ", ")) +
		outputs["databases"].measured(byEngine)
}

// millionTable has what a million orders take. It is computed.
func millionTable(outputs map[string]*output) string {
	front := outputs["package"].get("Socket/create", "front-cpu-ns") / 1e9
	const million = 1e6
	t := newTable(nil, "Of a million orders", "SQLite", "PostgreSQL", "MariaDB")
	all := make(map[string]engine)
	for _, name := range engines {
		all[name] = engineOf(name, outputs["size"], nil)
	}
	for _, line := range []struct {
		about string
		of    func(e engine) string
	}{
		{"processor of the program, commits shared", func(e engine) string { return cpuTime(million * (e.own + front)) }},
		{"the same, each order alone", func(e engine) string { return cpuTime(million * (e.ownAlone + front)) }},
		{"processor of the server, commits shared", func(e engine) string { return cpuTime(million * e.server) }},
		{"the same, each order alone", func(e engine) string { return cpuTime(million * e.serverOne) }},
		{"disk, until the orders are deleted", func(e engine) string { return bytesOf(million * (e.row + e.id)) }},
		{"more, while their keys are remembered", func(e engine) string { return bytesOf(million * (e.key + e.ms)) }},
		{"log, commits shared", func(e engine) string { return bytesOf(million * e.log) }},
		{"log, each order alone", func(e engine) string { return bytesOf(million * e.logAlone) }},
	} {
		row := []string{line.about}
		for _, name := range engines {
			row = append(row, line.of(all[name]))
		}
		t.row(row...)
	}
	return t.String()
}

// cpuTime writes the time for which one core is busy.
func cpuTime(seconds float64) string {
	if seconds == 0 {
		return "–"
	}
	return number(seconds) + " s"
}

// orLess writes a number, unless it is too small to matter.
func orLess(v, least float64) string {
	if v < least {
		return "< " + number(least)
	}
	return number(v)
}

// touched returns how many of some pages n writes to random places change: those
// that are not missed by all of them.
func touched(pages, n float64) float64 { return pages * (1 - math.Exp(-n/pages)) }

// idBytes returns what an order takes in the index of IDs, which has the whole row in
// MariaDB.
func (e engine) idBytes() float64 {
	if e.id == 0 {
		return e.row
	}
	return e.id
}

// randomPages returns how many pages of the two indexes that hashes and random IDs are
// spread over are changed by new orders, where there are so many keys and orders.
func (e engine) randomPages(keys, orders, created float64) float64 {
	return touched(keys*e.key/e.page, created) + touched(orders*e.idBytes()/e.page, created)
}

// keysTable has what keys are after some hours of many orders. It is computed.
func keysTable(o *output) string {
	t := newTable(nil, "Engine", "After", "Orders", "Keys", "Index of `key_hash`", "of IDs", "of `keyed_ms`", "Rows",
		"Random pages an order", "Log", "Written")
	image := wholePagesOf(o, "PostgreSQL").image
	for _, name := range engines {
		e := engineOf(name, o, nil)
		for _, hours := range []float64{1, 6, 25, 30 * 24} {
			orders := hours * 3600 * perSecond
			keys := min(hours, keyHours) * 3600 * perSecond
			interval := perSecond * checkpoint
			random := e.randomPages(keys, orders, interval) / interval
			log, written := e.log, 0.0
			switch name {
			case "PostgreSQL": // logs the whole page at its first change after a checkpoint
				log += random * image
				written = log + random*e.page
			case "MariaDB": // writes each page twice
				written = log + random*2*e.page
			case "SQLite": // writes pages to its log, and then to the file
				log = max(log, random*(e.page+24))
				written = 2 * log
			}
			id := "–" // which are the rows
			if e.id > 0 {
				id = bytesOf(orders * e.id)
			}
			t.row(name, duration(hours), count(orders), count(keys), bytesOf(keys*e.key), id, bytesOf(keys*e.ms), bytesOf(orders*e.row),
				number(random), bytesOf(perSecond*log)+"/s", bytesOf(perSecond*written)+"/s")
		}
	}
	return t.String()
}

// A wholePages is what PostgreSQL logged right after a checkpoint, when it logs each
// page as a whole that it changes for the first time.
type wholePages struct {
	orders float64 // that were created
	pages  float64 // of the two indexes that they changed, by the model
	more   float64 // bytes of log for each order, beyond those of later ones
	image  float64 // bytes of log for each page
}

// wholePagesOf takes the name of PostgreSQL with a setting.
func wholePagesOf(o *output, name string) wholePages {
	e := engineOf(name, o, nil)
	get := func(unit string) float64 { return o.get("Size/"+name, unit) }
	w := wholePages{orders: get("orders-after-checkpoint"), more: get("log-B/create-after-checkpoint") - e.log}
	stored := get("orders-at-checkpoint")
	w.pages = e.randomPages(stored, stored, w.orders)
	w.image = w.more * w.orders / w.pages
	return w
}

// checkTable compares what the model says of the log with what was measured.
func checkTable(o *output) string {
	w := wholePagesOf(o, "PostgreSQL")
	return fmt.Sprintf(`By the model, the %s orders then changed %s pages of the two indexes for the first time
(computed). Each of them took %s more of the log than later orders (measured). That is %s
for each of these pages, or %.0f %% of one, as PostgreSQL leaves out its free space.
`, number(w.orders), number(w.pages), bytesOf(w.more), bytesOf(w.image), 100*w.image/8192)
}

// movesTable has what settings of PostgreSQL make of its log. It is computed.
func movesTable(o *output) string {
	t := newTable(nil, "`checkpoint_timeout`", "`wal_compression`", "A whole page", "Log after 25 hours of keys")
	for _, of := range []struct{ name, compression string }{{"PostgreSQL", "off"}, {"PostgreSQL-lz4", "lz4"}} {
		e, image := engineOf(of.name, o, nil), wholePagesOf(o, of.name).image
		for _, minutes := range []float64{5, 30, 60} {
			orders, interval := keyHours*3600*perSecond, perSecond*60*minutes
			random := e.randomPages(orders, orders, interval) / interval
			t.row(number(minutes)+" min", of.compression, bytesOf(image), bytesOf(perSecond*(e.log+random*image))+"/s")
		}
	}
	return t.String()
}

// forgetTable has what PostgreSQL logs for keys that are forgotten and orders that are deleted,
// and what the model says of the pages.
func forgetTable(outputs map[string]*output) string {
	o := outputs["forget"]
	get := func(unit string) float64 { return o.get("Forget", unit) }
	const orders = 1e6 // as the benchmark has
	keys, ids := touchedIn(outputs, orders)
	t := newTable(o, "Of each row", "Rows", "Records in the log", "Whole pages in the log", "How many pages", "by the model", "Rows/s")
	for _, line := range []struct {
		about, name string
		pages       float64 // by the model; negative if it says nothing of them
	}{
		{"key forgotten, right after a checkpoint", "forget-after-checkpoint", ids(get("rows/forget-after-checkpoint"))},
		{"key forgotten, of those that come next", "forget-hour", ids(get("rows/forget-after-checkpoint")+get("rows/forget-hour")) - ids(get("rows/forget-after-checkpoint"))},
		{"key forgotten, once each page is in the log", "forget", 0},
		{"vacuum of the above, without a checkpoint before", "vacuum", keys(get("rows/vacuum"))},
		{"order deleted, right after a checkpoint", "delete-after-checkpoint", 0},
		{"vacuum of these", "vacuum-deleted", keys(get("rows/vacuum-deleted")) + ids(get("rows/vacuum-deleted"))},
	} {
		n := get("rows/" + line.name)
		t.row(line.about, number(n), bytesOf(get("records-B/"+line.name)), bytesOf(get("pages-B/"+line.name)),
			number(get("pages/"+line.name)), number(line.pages/n), number(get("per-s/"+line.name)))
	}
	return t.measured(byEngine)
}

// touchedIn returns how many pages of the indexes of key_hash and of IDs are changed by n
// random changes on PostgreSQL, where there are so many keys and orders.
func touchedIn(outputs map[string]*output, orders float64) (keys, ids func(n float64) float64) {
	e := engineOf("PostgreSQL", outputs["size"], nil)
	keys = func(n float64) float64 { return touched(orders*e.key/e.page, n) }
	ids = func(n float64) float64 { return touched(orders*e.idBytes()/e.page, n) }
	return keys, ids
}

// agingTable has what PostgreSQL logs at many orders a second by what becomes of old ones. It
// is computed.
func agingTable(outputs map[string]*output) string {
	const orders = keyHours * 3600 * perSecond // there are always so many, with their keys
	const interval = perSecond * checkpoint
	const dead = 0.2 * orders // when autovacuum starts, by default
	o := outputs["forget"]
	get := func(unit string) float64 { return o.get("Forget", unit) }
	e, image := engineOf("PostgreSQL", outputs["size"], nil), wholePagesOf(outputs["size"], "PostgreSQL").image
	keys, ids := touchedIn(outputs, orders)
	create := e.log + (keys(interval)+ids(interval))/interval*image
	forget := e.log + get("records-B/forget") + (keys(interval)+ids(2*interval))/interval*image
	vacuum := get("records-B/vacuum-deleted") + (keys(dead)+ids(dead))/dead*image
	remove := get("records-B/delete-after-checkpoint") + get("pages-B/delete-after-checkpoint")
	t := newTable(nil, "With 25 hours of keys, each second 10,000 orders are created and", "Log", "of which vacuum")
	for _, line := range []struct {
		about       string
		log, vacuum float64
	}{
		{"nothing else", create, 0},
		{"10,000 keys are forgotten", forget + vacuum, vacuum},
		{"10,000 orders are deleted, with their keys", create + remove + vacuum, vacuum},
	} {
		ofVacuum := "–"
		if line.vacuum > 0 {
			ofVacuum = bytesOf(perSecond*line.vacuum) + "/s"
		}
		t.row(line.about, bytesOf(perSecond*line.log)+"/s", ofVacuum)
	}
	return t.String()
}

// distanceTable has what the distance of the database makes of orders.
func distanceTable(outputs map[string]*output) string {
	const commits, shared = 4, 64 // under way at a time, and orders in each
	o := outputs["distance"]
	t := newTable(o, "Round trip to PostgreSQL", "Orders/s at most, computed", "measured", "An order alone, measured")
	for _, ms := range []float64{20, 80} {
		name := fmt.Sprintf("Distance/round-trip=%vms", ms)
		t.row(number(ms)+" ms", number(commits*shared/ms*1000), number(o.get(name, "orders/s")), number(o.get(name, "alone-ms"))+" ms")
	}
	return t.measured(byEngine)
}

// bytesOf writes a number of bytes with its unit.
func bytesOf(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	i := 0
	for n >= 1000 && i < len(units)-1 {
		n /= 1000
		i++
	}
	return number(n) + " " + units[i]
}

// count writes a large number.
func count(n float64) string {
	if n >= 1e9 {
		return number(n/1e9) + " billion"
	}
	return number(n/1e6) + " million"
}

func duration(hours float64) string {
	switch {
	case hours == 1:
		return "1 hour"
	case hours >= 48:
		return number(hours/24) + " days"
	}
	return number(hours) + " hours"
}
