package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"time"

	"example.com/storefront/internal/audit"
	"example.com/storefront/internal/chart"
)

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Parse(reportHTML))

// A page is what report.html shows.
type page struct {
	*summary
	Faults   []audit.Fault
	Cards    []figure // what matters most
	Gap      string
	Timeline *timeline
	Latency  *latencyChart
}

// writeHTML writes the summary as a page that needs nothing else.
func (s *summary) writeHTML(w io.Writer) error {
	p := page{
		summary:  s,
		Faults:   s.faults(10),
		Gap:      showGap(s.Result),
		Timeline: newTimeline(s.Result),
		Latency:  newLatencyChart(s.Result),
	}
	const always = 4 // acknowledged, lost, replayed differently, created twice
	for i, f := range s.Promises {
		if i < always || f.Bad {
			p.Cards = append(p.Cards, f)
		}
	}
	p.Cards = append(p.Cards, figure{Name: "longest gap", Value: p.Gap})
	return reportTemplate.Execute(w, p)
}

// Interval returns the length of the timeline's buckets, with a space before the unit.
func (p page) Interval() string {
	length := p.Timeline.Bucket
	text := fmt.Sprintf("%g s", length.Seconds())
	if length < time.Second {
		text = fmt.Sprintf("%d ms", length.Milliseconds())
	}
	if p.Timeline.Longer {
		text += ", the last one longer"
	}
	return text
}

// The charts are drawn in a square of this side, which the page stretches. What is
// written beside them is not stretched, so its places are in percent.
const side = 1000

// A tick is a place on an axis.
type tick struct {
	At    float64 // percent from the left, or from the bottom
	Text  string
	Minor bool // there is no room for its text on a small screen
}

// Y returns the place of a tick in the drawing, from its top.
func (t tick) Y() float64 { return side * (1 - t.At/100) }

// X returns the place of a tick in the drawing.
func (t tick) X() float64 { return side * t.At / 100 }

// ticks returns those of a linear scale.
func ticks(scale chart.Scale) (places []tick) {
	const few = 5
	for i, value := range scale.Ticks {
		places = append(places, tick{
			At:    100 * scale.At(value),
			Text:  fmt.Sprint(math.Round(value*1000) / 1000),
			Minor: len(scale.Ticks) > few && i%2 == 1,
		})
	}
	return places
}

// A timeline has the requests of the creating by the time when they ended.
type timeline struct {
	Bucket time.Duration // its length
	Longer bool          // the last bucket is
	Bars   []bar
	X, Y   []tick

	GapX, GapWidth float64 // of the longest gap, in the drawing
}

// A bar is a bucket of the timeline.
type bar struct {
	From                        string // since the creating began
	Acknowledged, Again, Failed int    // requests
	X, Width                    float64
	Parts                       []part
}

// A part of a bar is a rectangle in the drawing.
type part struct {
	Class     string
	Y, Height float64
}

func newTimeline(r *audit.Result) *timeline {
	const mostBars = 120
	length := max(r.Creating.Seconds(), 0.01)
	bucket := max(0.01, chart.Step(length, mostBars))
	t := &timeline{Bucket: time.Duration(bucket * float64(time.Second)).Round(time.Millisecond)}
	n := max(1, int(length/bucket+1e-9))
	t.Bars = make([]bar, n)
	for _, request := range r.Requests {
		b := &t.Bars[min(n-1, int(request.Ended.Seconds()/bucket))]
		switch request.Outcome {
		case audit.Acknowledged:
			b.Acknowledged++
		case audit.TryAgain:
			b.Again++
		case audit.NoAnswer, audit.Odd:
			b.Failed++
		}
	}
	lengthOf := func(i int) float64 { // the last bucket has what is left, too
		if i == n-1 {
			return length - float64(i)*bucket
		}
		return bucket
	}
	t.Longer = lengthOf(n-1) > 1.001*bucket
	perSecond := 1.0
	for i, b := range t.Bars {
		perSecond = max(perSecond, float64(b.Acknowledged+b.Again+b.Failed)/lengthOf(i))
	}
	x, y := chart.Linear(length, 8), chart.Linear(chart.NiceEnd(perSecond, 4), 4)
	t.X, t.Y = ticks(x), ticks(y)

	for i := range t.Bars {
		b := &t.Bars[i]
		b.From = fmt.Sprintf("%.*f s", max(0, -int(math.Floor(math.Log10(bucket)))), float64(i)*bucket)
		b.X = side * x.At(float64(i)*bucket)
		b.Width = side * x.At(lengthOf(i))
		below := 0.0
		for _, p := range []struct {
			class string
			n     int
		}{{"acknowledged", b.Acknowledged}, {"again", b.Again}, {"failed", b.Failed}} {
			if p.n == 0 {
				continue
			}
			const least = side / 100 // so that a single failure is seen
			height := max(least, side*y.At(float64(p.n)/lengthOf(i)))
			b.Parts = append(b.Parts, part{p.class, side - below - height, height})
			below += height
		}
	}
	t.GapX = side * x.At(r.GapBegan.Seconds())
	t.GapWidth = side * x.At(r.LongestGap.Seconds())
	return t
}

// GapEnd returns where the longest gap ends, in the drawing.
func (t *timeline) GapEnd() float64 { return t.GapX + t.GapWidth }

// GapAt returns the middle of the longest gap, in percent from the left.
func (t *timeline) GapAt() float64 { return 100 * (t.GapX + t.GapWidth/2) / side }

// GapSide returns which side the middle is near, where a text would have no room.
func (t *timeline) GapSide() string {
	switch at := t.GapAt(); {
	case at < 15:
		return "left"
	case at > 85:
		return "right"
	}
	return ""
}

// A latencyChart has latencies by percentile. Both its axes are logarithmic: that of
// the percentiles has as much room for the last tenth as for the last hundredth.
type latencyChart struct {
	Curves []curve
	X, Y   []tick
}

// A curve is a line in the drawing.
type curve struct{ Class, Path string }

func newLatencyChart(r *audit.Result) *latencyChart {
	if len(r.OrderLatencies) == 0 {
		return nil
	}
	least := min(r.RequestLatencies[0], r.OrderLatencies[0])
	most := max(audit.Percentile(r.RequestLatencies, 1), audit.Percentile(r.OrderLatencies, 1))
	y := chart.Logarithmic(least.Seconds(), most.Seconds())
	right := max(1, math.Log10(float64(max(len(r.RequestLatencies), len(r.OrderLatencies)))))

	c := new(latencyChart)
	for _, seconds := range y.Ticks {
		text := fmt.Sprintf("%g s", seconds)
		switch {
		case seconds < 0.001:
			text = fmt.Sprintf("%.4g µs", 1e6*seconds)
		case seconds < 1:
			text = fmt.Sprintf("%.4g ms", 1e3*seconds)
		}
		c.Y = append(c.Y, tick{At: 100 * y.At(seconds), Text: text})
	}
	for _, p := range []struct {
		nines float64 // -log10 of the share above
		text  string
		minor bool
	}{{0, "0", false}, {math.Log10(2), "50", true}, {1, "90", false}, {2, "99", false}, {3, "99.9", false},
		{4, "99.99", false}, {5, "99.999", true}} {
		if p.nines <= right {
			c.X = append(c.X, tick{100 * p.nines / right, p.text, p.minor})
		}
	}
	for _, l := range []struct {
		class  string
		values []time.Duration
	}{{"request", r.RequestLatencies}, {"order", r.OrderLatencies}} {
		const steps = 250
		end := math.Log10(float64(len(l.values)))
		var points []chart.Point
		for i := range steps + 1 {
			nines := end * float64(i) / steps
			p := 1 - math.Pow(10, -nines)
			if i == steps {
				p = 1 // the slowest
			}
			value := audit.Percentile(l.values, p)
			points = append(points,
				chart.Point{X: side * nines / right, Y: side * (1 - y.At(value.Seconds()))})
		}
		c.Curves = append(c.Curves, curve{l.class, chart.Path(points)})
	}
	return c
}
