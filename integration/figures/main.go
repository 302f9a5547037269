// Figures makes the charts and tables of docs/figures.md and docs/scale.md from the output
// of benchmarks and tests that is kept in docs/figures. It is run in the repository's
// root:
//
//	go run ./integration/figures
//
// This measures everything anew before, which takes some hours, or only some of it:
//
//	go run ./integration/figures -measure all
//	go run ./integration/figures -measure size,forget
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

func main() {
	log.SetFlags(0)
	list := flag.String("measure", "", "`names` of what is measured anew: all, or files in docs/figures without .txt, with commas")
	flag.Parse()
	names := strings.FieldsFunc(*list, func(r rune) bool { return r == ',' })
	for _, name := range names {
		if name != "all" && !slices.ContainsFunc(measurements, func(m measurement) bool { return m.name == name }) {
			log.Fatalf("there is nothing named %s to measure", name)
		}
	}
	for _, m := range measurements {
		if slices.Contains(names, "all") || slices.Contains(names, m.name) {
			log.Printf("measuring %s", m.name)
			if err := m.measure("."); err != nil {
				log.Fatal(err)
			}
		}
	}
	files, err := figures(".")
	if err != nil {
		log.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// figures returns the files that are made, by their names.
func figures(root string) (map[string][]byte, error) {
	outputs := make(map[string]*output)
	for _, name := range []string{"package", "databases", "size", "forget", "distance"} {
		o, err := readOutput(filepath.Join(root, "docs/figures", name+".txt"))
		if err != nil {
			return nil, err
		}
		outputs[name] = o
	}
	found := make(map[string]map[string]attributes)
	for _, name := range []string{"faults", "releases", "hours"} {
		tests, err := readAttributes(filepath.Join(root, "docs/figures", name+".txt"))
		if err != nil {
			return nil, err
		}
		found[name] = tests
	}
	files := make(map[string][]byte)
	for name, draw := range map[string]func() []byte{
		"throughput": func() []byte { return throughputChart(outputs["databases"]) },
		"latency":    func() []byte { return latencyChart(outputs["databases"]) },
		"cpu":        func() []byte { return cpuChart(outputs["package"]) },
	} {
		files[filepath.Join(root, "docs/figures", name+".svg")] = draw()
	}
	tables := map[string]string{
		"cpu":      cpuTable(outputs["package"]),
		"memstore": memStoreTable(outputs["package"]),
		"orders":   ordersTable(outputs["databases"]),
		"reads":    readsTable(outputs["databases"]),
		"bare":     bareTable(outputs["databases"]),
		"size":     sizeTable(outputs["size"]),
		"hour":     hourTable(outputs),
		"million":  millionTable(outputs),
		"keys":     keysTable(outputs["size"]),
		"check":    checkTable(outputs["size"]),
		"moves":    movesTable(outputs["size"]),
		"forget":   forgetTable(outputs),
		"aging":    agingTable(outputs),
		"distance": distanceTable(outputs),
	}
	var err error
	if tables["faults"], err = scenarioTable("What there was", "What happened", faults, found["faults"]); err != nil {
		return nil, err
	}
	if tables["releases"], err = scenarioTable("Database", "Replicas", exchanges, found["releases"]); err != nil {
		return nil, err
	}
	if tables["hours"], err = hoursTable(found["hours"]); err != nil {
		return nil, err
	}
	for _, name := range []string{"docs/figures.md", "docs/scale.md"} {
		name = filepath.Join(root, name)
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if files[name], err = fill(text, tables); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, o := range outputs {
		if len(o.missing) > 0 {
			return nil, fmt.Errorf("%s has no %s", o.name, o.missing[0])
		}
	}
	if len(tables) > 0 {
		return nil, errors.New("no document has the place for a table")
	}
	return files, nil
}

// An output is what benchmarks have printed.
type output struct {
	name     string
	values   map[string]map[string]float64 // by name without "Benchmark" and unit
	machines map[string]map[string]string  // likewise: on what they were measured
	used     [][2]string                   // names and units of values, since the last table began
	missing  []string                      // what was asked for and is not there
}

// readOutput reads the output of one or more runs. Together, they measure everything once.
func readOutput(name string) (*output, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o := &output{name: name, values: make(map[string]map[string]float64), machines: make(map[string]map[string]string)}
	reader := benchfmt.NewReader(f, name)
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, record
		case *benchfmt.Result:
			full := record.Name.String()
			short := full
			if i := strings.LastIndex(full, "-"); i >= 0 {
				short = full[:i] // without the number of processors
			}
			machine := record.GetConfig("machine")
			if machine == "" {
				return nil, fmt.Errorf("%s does not say on what %s was measured", name, full)
			}
			if o.values[short] == nil {
				o.values[short], o.machines[short] = make(map[string]float64), make(map[string]string)
			}
			for _, v := range record.Values {
				if v.OrigUnit != "" { // as printed, and not in base units
					v.Value, v.Unit = v.OrigValue, v.OrigUnit
				}
				if _, there := o.values[short][v.Unit]; there {
					return nil, fmt.Errorf("%s has %s of %s twice", name, v.Unit, full)
				}
				o.values[short][v.Unit], o.machines[short][v.Unit] = v.Value, machine
			}
		}
	}
	return o, reader.Err()
}

// get returns a value. If it is not there, it is noted as missing.
func (o *output) get(name, unit string) float64 {
	v, ok := o.values[name][unit]
	if !ok {
		o.missing = append(o.missing, name+" "+unit)
		return 1
	}
	o.used = append(o.used, [2]string{name, unit})
	return v
}

// measured says on what the values since the last call were measured. If that is more than
// one machine or time, label says for what a value stands.
func (o *output) measured(label func(name, unit string) string) string {
	var machines []string
	labels := make(map[string][]string) // by machine
	for _, u := range o.used {
		m, l := o.machines[u[0]][u[1]], label(u[0], u[1])
		if !slices.Contains(machines, m) {
			machines = append(machines, m)
		}
		if !slices.Contains(labels[m], l) {
			labels[m] = append(labels[m], l)
		}
	}
	o.used = nil
	if len(machines) == 1 {
		return "Measured: " + machines[0] + ".\n"
	}
	text := "Measured:\n\n"
	for _, m := range machines {
		text += "- " + strings.Join(labels[m], ", ") + ": " + m + ".\n"
	}
	return text
}

// byEngine labels a value with its database.
func byEngine(name, _ string) string {
	for _, engine := range engines {
		if strings.Contains(name, engine) {
			return engine
		}
	}
	return "memory"
}

var place = regexp.MustCompile(`(?s)(<!-- figures: ([a-z]+) -->\n).*?(<!-- end -->\n)`)

// fill puts tables into their places in a document, and takes them out of the map.
func fill(text []byte, tables map[string]string) (filled []byte, err error) {
	filled = place.ReplaceAllFunc(text, func(found []byte) []byte {
		m := place.FindSubmatch(found)
		table, ok := tables[string(m[2])]
		if !ok {
			err = fmt.Errorf("there is no table %s", m[2])
		}
		delete(tables, string(m[2]))
		return slices.Concat(m[1], []byte("\n"+table+"\n"), m[3])
	})
	if bytes.Count(filled, []byte("<!-- figures:")) != len(place.FindAll(filled, -1)) {
		err = errors.New("a place has no end")
	}
	return filled, err
}
