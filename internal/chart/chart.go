// Package chart has what charts in SVG share: scales with round ticks, and paths.
package chart

import (
	"fmt"
	"math"
	"strings"
)

// A Scale maps the values of an axis to places on it.
type Scale struct {
	Ticks []float64 // round values, ascending

	first, last float64 // the ends of the axis; if it is logarithmic, their exponents
	logarithmic bool
}

// At returns the place of a value: 0 is the beginning of the axis, 1 its end.
func (s Scale) At(value float64) float64 {
	if s.logarithmic {
		value = math.Log10(value)
	}
	return (value - s.first) / (s.last - s.first)
}

// Sums and products of floats may be off by this share: three tenths are
// 0.30000000000000004, and are to be cut by 0.1 all the same.
const tolerance = 1e-9

// Linear returns the scale from 0 to end, with ticks that cut it into at most so many
// intervals. If end is no tick, the last interval is shorter; see NiceEnd.
func Linear(end float64, intervals int) Scale {
	s := Scale{last: end}
	step := Step(end, intervals)
	for n := 0.0; n*step <= end*(1+tolerance); n++ {
		s.Ticks = append(s.Ticks, n*step)
	}
	return s
}

// NiceEnd returns the least end, not before a value, that is a tick of its scale:
// Linear(NiceEnd(value, n), n) ends with a tick.
func NiceEnd(value float64, intervals int) float64 {
	step := Step(value, intervals)
	return min(math.Ceil(value/step-tolerance), float64(intervals)) * step
}

// Step returns the least of …, 0.1, 0.2, 0.5, 1, 2, 5, 10, … that cuts the length into at
// most so many intervals.
func Step(length float64, intervals int) float64 {
	least := length / float64(intervals) * (1 - tolerance)
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, digit := range []float64{1, 2, 5} {
		if digit*power >= least {
			return digit * power
		}
	}
	return 10 * power
}

// Logarithmic returns the scale of whole decades, one at the least, around the values
// from least to most. Its ticks are the powers of ten.
func Logarithmic(least, most float64) Scale {
	s := Scale{first: math.Floor(math.Log10(least)), logarithmic: true}
	s.last = max(s.first+1, math.Ceil(math.Log10(most)))
	for exponent := s.first; exponent <= s.last; exponent++ {
		s.Ticks = append(s.Ticks, math.Pow(10, exponent))
	}
	return s
}

// A Point is a place in a drawing.
type Point struct{ X, Y float64 }

// Path returns the data of an SVG path with straight lines from point to point.
func Path(points []Point) string {
	var path strings.Builder
	for i, p := range points {
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], p.X, p.Y)
	}
	return path.String()
}
