package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"time"

	"example.com/storefront/internal/audit"
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
func (p page) Interval() (string, error) {
	length, err := time.ParseDuration(p.Timeline.Bucket)
	if length < time.Second {
		return fmt.Sprintf("%d ms", length.Milliseconds()), err
	}
	return fmt.Sprintf("%g s", length.Seconds()), err
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

// ticks returns round places on an axis from 0 to end, not many more than most, and
// the distance between two.
func ticks(end float64, most int) (places []tick, step float64) {
	step = roundUp(end / float64(most))
	for n := 0; float64(n)*step <= end*1.0001; n++ {
		value := float64(n) * step
		places = append(places, tick{At: 100 * value / end, Text: fmt.Sprint(math.Round(value*1000) / 1000)})
	}
	const few = 5
	for i := range places {
		places[i].Minor = len(places) > few && i%2 == 1
	}
	return places, step
}

// roundUp returns the least of …, 0.1, 0.2, 0.5, 1, 2, 5, 10, … that is not less.
func roundUp(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, digit := range []float64{1, 2, 5} {
		if digit*power >= x*0.9999 {
			return digit * power
		}
	}
	return 10 * power
}

// A timeline has the requests of the creating by the time when they ended.
type timeline struct {
	Bucket string // its length
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
	bucket := max(0.01, roundUp(length/mostBars))
	t := &timeline{Bucket: time.Duration(bucket * float64(time.Second)).Round(time.Millisecond).String()}
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
	perSecond := 1.0
	for i, b := range t.Bars {
		perSecond = max(perSecond, float64(b.Acknowledged+b.Again+b.Failed)/lengthOf(i))
	}
	var step float64
	t.Y, step = ticks(perSecond, 4)
	top := math.Ceil(perSecond/step-1e-9) * step
	t.Y, _ = ticks(top, len(t.Y))
	t.X, _ = ticks(length, 8)

	for i := range t.Bars {
		b := &t.Bars[i]
		b.From = fmt.Sprintf("%.*f s", max(0, -int(math.Floor(math.Log10(bucket)))), float64(i)*bucket)
		b.X = side * float64(i) * bucket / length
		b.Width = side * lengthOf(i) / length
		below := 0.0
		for _, p := range []struct {
			class string
			n     int
		}{{"acknowledged", b.Acknowledged}, {"again", b.Again}, {"failed", b.Failed}} {
			if p.n == 0 {
				continue
			}
			const least = side / 100 // so that a single failure is seen
			height := max(least, side*float64(p.n)/lengthOf(i)/top)
			b.Parts = append(b.Parts, part{p.class, side - below - height, height})
			below += height
		}
	}
	t.GapX = side * r.GapBegan.Seconds() / length
	t.GapWidth = side * r.LongestGap.Seconds() / length
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
type curve struct{ Class, Points string }

func newLatencyChart(r *audit.Result) *latencyChart {
	if len(r.OrderLatencies) == 0 {
		return nil
	}
	least := min(r.RequestLatencies[0], r.OrderLatencies[0])
	most := max(audit.Percentile(r.RequestLatencies, 1), audit.Percentile(r.OrderLatencies, 1))
	bottom := math.Floor(math.Log10(least.Seconds()))
	top := max(bottom+1, math.Ceil(math.Log10(most.Seconds())))
	right := max(1, math.Log10(float64(max(len(r.RequestLatencies), len(r.OrderLatencies)))))

	c := new(latencyChart)
	for decade := bottom; decade <= top; decade++ {
		text := fmt.Sprintf("%g s", math.Pow(10, decade))
		switch {
		case decade < -3:
			text = fmt.Sprintf("%g µs", math.Pow(10, decade+6))
		case decade < 0:
			text = fmt.Sprintf("%g ms", math.Pow(10, decade+3))
		}
		c.Y = append(c.Y, tick{At: 100 * (decade - bottom) / (top - bottom), Text: text})
	}
	for _, p := range []struct {
		nines float64 // -log10 of the share above
		text  string
		minor bool
	}{{0, "0", false}, {math.Log10(2), "50", true}, {1, "90", false}, {2, "99", false}, {3, "99.9", false}, {4, "99.99", false}, {5, "99.999", true}} {
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
		var points strings.Builder
		for i := range steps + 1 {
			nines := end * float64(i) / steps
			y := math.Log10(audit.Percentile(l.values, 1-math.Pow(10, -nines)).Seconds())
			fmt.Fprintf(&points, "%.1f,%.1f ", side*nines/right, side*(top-y)/(top-bottom))
		}
		c.Curves = append(c.Curves, curve{l.class, strings.TrimSpace(points.String())})
	}
	return c
}
