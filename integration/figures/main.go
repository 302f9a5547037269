// Figures makes the charts and tables of docs/figures.md and docs/scale.md from the
// output of the benchmarks in docs/figures, without measuring anything. It is run
// in the repository's root:
//
//	go run ./integration/figures
//
// docs/figures.md says how that output is made.
package main

import (
	"bytes"
	"errors"
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
	for _, name := range []string{"package", "databases", "size"} {
		o, err := readOutput(filepath.Join(root, "docs/figures", name+".txt"))
		if err != nil {
			return nil, err
		}
		outputs[name] = o
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
		"keys":     keysTable(outputs["size"]),
		"check":    checkTable(outputs["size"]),
		"moves":    movesTable(outputs["size"]),
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
	name    string
	on      string                        // which machine
	values  map[string]map[string]float64 // by name without "Benchmark" and unit
	missing []string                      // what was asked for and is not there
}

func readOutput(name string) (*output, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o := &output{name: name, values: make(map[string]map[string]float64)}
	cores := ""
	reader := benchfmt.NewReader(f, name)
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, record
		case *benchfmt.Result:
			full := record.Name.String()
			short, n, _ := cutLast(full, "-") // the number of processors
			cores = n
			if o.values[short] != nil {
				return nil, fmt.Errorf("%s has %s twice", name, full)
			}
			o.values[short] = make(map[string]float64)
			for _, v := range record.Values {
				if v.OrigUnit != "" { // as printed, and not in base units
					v.Value, v.Unit = v.OrigValue, v.OrigUnit
				}
				o.values[short][v.Unit] = v.Value
			}
			o.on = fmt.Sprintf("%s cores of %s, %s", cores, record.GetConfig("cpu"), record.GetConfig("goos"))
		}
	}
	return o, reader.Err()
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// get returns a value. If it is not there, it is noted as missing.
func (o *output) get(name, unit string) float64 {
	v, ok := o.values[name][unit]
	if !ok {
		o.missing = append(o.missing, name+" "+unit)
		return 1
	}
	return v
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
