package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"text/template"

	"example.com/storefront/internal/chart"
)

// A drawing is an SVG image. It brings its own background, so that it is readable
// on any page, and goes by what the reader prefers, light or dark.
type drawing struct {
	Width, Height int
	Title, About  string
	shapes        strings.Builder
}

func (d *drawing) Shapes() string { return d.shapes.String() }

func (d *drawing) text(x, y float64, class, text string) {
	fmt.Fprintf(&d.shapes, "<text x=\"%.1f\" y=\"%.1f\" class=%q>%s</text>\n", x, y, class, html.EscapeString(text))
}

func (d *drawing) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(&d.shapes, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=%q/>\n", x1, y1, x2, y2, class)
}

func (d *drawing) rect(x, y, width, height float64, class string) {
	fmt.Fprintf(&d.shapes, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=%q/>\n", x, y, width, height, class)
}

// curve draws lines from point to point, each with a mark: a disc, or a square,
// for those who do not see colours.
func (d *drawing) curve(points []chart.Point, class string, square bool) {
	fmt.Fprintf(&d.shapes, "<path d=%q class=\"line %s\"/>\n", chart.Path(points), class)
	for _, p := range points {
		d.mark(p.X, p.Y, class, square)
	}
}

func (d *drawing) mark(x, y float64, class string, square bool) {
	if square {
		d.rect(x-4, y-4, 8, 8, "mark "+class)
	} else {
		fmt.Fprintf(&d.shapes, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" class=\"mark %s\"/>\n", x, y, class)
	}
}

var svg = template.Must(template.New("svg").Funcs(template.FuncMap{
	"escape": html.EscapeString,
	"inner":  func(n int) int { return n - 2 },
}).Parse(
	`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" width="{{.Width}}" height="{{.Height}}" role="img" aria-labelledby="title about">
<title id="title">{{escape .Title}}</title>
<desc id="about">{{escape .About}}</desc>
<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1f2328 }
.head { font-size: 15px; font-weight: 600 }
.soft { fill: #59636e }
.end { text-anchor: end }
.middle { text-anchor: middle }
.page { fill: #ffffff; stroke: #d1d9e0 }
.grid { stroke: #d1d9e0 }
.line { fill: none; stroke-width: 2.5 }
.line.service { stroke: #0969da }
.line.other { stroke: #9a6700; stroke-dasharray: 6 4 }
.mark { stroke: #ffffff }
.mark.service, .bar.service { fill: #0969da }
.mark.other, .bar.other { fill: #9a6700 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
.soft { fill: #9198a1 }
.page { fill: #0d1117; stroke: #3d444d }
.grid { stroke: #3d444d }
.line.service { stroke: #4493f8 }
.line.other { stroke: #d29922 }
.mark { stroke: #0d1117 }
.mark.service, .bar.service { fill: #4493f8 }
.mark.other, .bar.other { fill: #d29922 }
}
</style>
<rect x="1" y="1" width="{{inner .Width}}" height="{{inner .Height}}" rx="6" class="page"/>
{{.Shapes}}</svg>
`))

func (d *drawing) render() []byte {
	var b bytes.Buffer
	if err := svg.Execute(&b, d); err != nil {
		panic(err) // the template is a part of this program
	}
	return b.Bytes()
}

// A comparison is of the service and the handwritten program on an engine, at each
// number of callers.
type comparison struct {
	engine               string
	service, handwritten []float64
}

// compare reads a comparison of each engine for orders that are created.
func compare(o *output, unit string) (all []comparison) {
	for _, engine := range engines {
		c := comparison{engine: engine}
		for _, n := range callers {
			name := fmt.Sprintf("Handwritten/%s/create/callers=%d", engine, n)
			c.service = append(c.service, o.get(name, "service-"+unit))
			c.handwritten = append(c.handwritten, o.get(name, "handwritten-"+unit))
		}
		all = append(all, c)
	}
	return all
}

func throughputChart(o *output) []byte {
	all := compare(o, "req/s")
	most := 0.0
	for _, c := range all {
		most = max(most, slices.Max(c.service), slices.Max(c.handwritten))
	}
	return panels("Orders created per second, by the number of callers", "orders/s", all, chart.Linear(chart.NiceEnd(most, 6), 6))
}

func latencyChart(o *output) []byte {
	all := compare(o, "p99-ms")
	least, most := math.Inf(1), 0.0
	for _, c := range all {
		least = min(least, slices.Min(c.service), slices.Min(c.handwritten))
		most = max(most, slices.Max(c.service), slices.Max(c.handwritten))
	}
	return panels("Time in which 99 of 100 orders are answered, by the number of callers", "ms", all, chart.Logarithmic(least, most))
}

// panels draws a panel for each engine, side by side and to the same scale.
func panels(title, unit string, all []comparison, y chart.Scale) []byte {
	const left, top, width, height, gap = 64.0, 104.0, 212.0, 210.0, 30.0
	d := &drawing{Width: 780, Height: 372, Title: title}
	d.text(20, 28, "head", title)
	d.curve([]chart.Point{{X: 22, Y: 50}, {X: 58, Y: 50}}, "service", false)
	d.text(68, 54.5, "", "service on sqlstore")
	d.curve([]chart.Point{{X: 222, Y: 50}, {X: 258, Y: 50}}, "other", true)
	d.text(268, 54.5, "", "handwritten program")
	for i, c := range all {
		x0 := left + float64(i)*(width+gap)
		at := func(values []float64) (points []chart.Point) {
			for j, v := range values {
				points = append(points, chart.Point{
					X: x0 + 14 + float64(j)*(width-28)/float64(len(values)-1),
					Y: top + height*(1-y.At(v)),
				})
			}
			return points
		}
		for _, tick := range y.Ticks {
			ty := top + height*(1-y.At(tick))
			d.line(x0, ty, x0+width, ty, "grid")
			if i == 0 {
				d.text(left-8, ty+4.5, "soft end", number(tick))
			}
		}
		d.text(x0, top-9, "head", c.engine)
		for j, p := range at(c.service) {
			d.text(p.X, top+height+20, "soft middle", fmt.Sprint(callers[j]))
		}
		d.curve(at(c.handwritten), "other", true)
		d.curve(at(c.service), "service", false)
		d.About += fmt.Sprintf("%s, with %s callers: the service %s %s, the handwritten program %s. ",
			c.engine, numbers(ints(callers)), numbers(c.service), unit, numbers(c.handwritten))
	}
	d.text(left-8, top-9, "soft end", unit)
	d.text(left+1.5*width+gap, top+height+42, "soft middle", "callers, each of which sends its next order when the one before is answered")
	d.About = strings.TrimSpace(d.About)
	return d.render()
}

func cpuChart(o *output) []byte {
	const left, top, width, row = 190.0, 78.0, 480.0, 46.0
	d := &drawing{Width: 780, Height: int(top + row*float64(len(requests)) + 44), Title: "CPU time of the server per request, over a socket"}
	d.text(20, 28, "head", d.Title)
	d.rect(22, 44, 12, 12, "bar service")
	d.text(42, 54.5, "", "service")
	d.rect(122, 44, 12, 12, "bar other")
	d.text(142, 54.5, "", "handler that has every response ready")
	var service, records []float64 // µs
	for _, r := range requests {
		service = append(service, o.get("Socket/"+r.name, "front-cpu-ns")/1000)
		records = append(records, o.get("Socket/"+r.name, "records-cpu-ns")/1000)
	}
	x := chart.Linear(chart.NiceEnd(max(slices.Max(service), slices.Max(records)), 6), 6)
	bottom := top + row*float64(len(requests))
	for _, tick := range x.Ticks {
		d.line(left+width*x.At(tick), top, left+width*x.At(tick), bottom, "grid")
		d.text(left+width*x.At(tick), bottom+20, "soft middle", number(tick))
	}
	d.text(left+width+24, bottom+20, "soft", "µs")
	for i, r := range requests {
		y := top + row*float64(i)
		d.text(left-12, y+27, "end", r.about)
		d.rect(left, y+6, width*x.At(service[i]), 16, "bar service")
		d.text(left+width*x.At(service[i])+6, y+18.5, "", number(service[i]))
		d.rect(left, y+24, width*x.At(records[i]), 16, "bar other")
		d.text(left+width*x.At(records[i])+6, y+36.5, "", number(records[i]))
		d.About += fmt.Sprintf("%s: the service %s µs, the handler with every response ready %s µs. ", r.about, number(service[i]), number(records[i]))
	}
	d.About = strings.TrimSpace(d.About)
	return d.render()
}
