package chart

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	nearly      = cmpopts.EquateApprox(0, 1e-9)
	threeTenths = math.Nextafter(0.3, 1) // as floats add a tenth and two
)

func TestStepIsTheLeastRoundOneThatIsLongEnough(t *testing.T) {
	for _, row := range []struct {
		length    float64
		intervals int
		want      float64
	}{
		{1, 1, 1}, {1.1, 1, 2}, {2, 1, 2}, {2.1, 1, 5}, {5.1, 1, 10},
		{90, 4, 50}, {8000, 4, 2000}, {0.7, 120, 0.01}, {threeTenths, 3, 0.1},
	} {
		if got := Step(row.length, row.intervals); math.Abs(got-row.want) > 1e-9 {
			t.Errorf("%v is cut into %d by %v, want %v", row.length, row.intervals, got, row.want)
		}
	}
}

func TestLinearTicks(t *testing.T) {
	for _, row := range []struct {
		end       float64
		intervals int
		want      []float64
	}{
		{7, 4, []float64{0, 2, 4, 6}},
		{8, 4, []float64{0, 2, 4, 6, 8}},
		{threeTenths, 3, []float64{0, 0.1, 0.2, 0.3}},
		{0.3, 3, []float64{0, 0.1, 0.2, 0.3}}, // which is less than 3 * 0.1
		{3, 1, []float64{0}},
	} {
		s := Linear(row.end, row.intervals)
		if diff := cmp.Diff(row.want, s.Ticks, nearly); diff != "" {
			t.Errorf("ticks up to %v, in %d intervals (-want +got):\n%s", row.end, row.intervals, diff)
		}
		for value, want := range map[float64]float64{0: 0, row.end / 4: 0.25, row.end: 1} {
			if got := s.At(value); math.Abs(got-want) > 1e-9 {
				t.Errorf("on an axis up to %v, %v is at %v, want %v", row.end, value, got, want)
			}
		}
	}
}

func TestScaleUpToANiceEndEndsWithATick(t *testing.T) {
	if got := NiceEnd(threeTenths, 4); math.Abs(got-0.3) > tolerance {
		t.Errorf("the end for three tenths is %v, want 0.3", got)
	}
	values := []float64{4.0002, 4 * (1 + tolerance/2), 4 * (1 - tolerance/2)}
	for value := 0.003; value < 1e6; value *= 1.07 {
		values = append(values, value)
	}
	for intervals := 1; intervals <= 10; intervals++ {
		for _, value := range values {
			end := NiceEnd(value, intervals)
			ticks := Linear(end, intervals).Ticks
			step := Step(value, intervals)
			if end < value*(1-2*tolerance) || end > value+step || len(ticks) > intervals+1 || math.Abs(ticks[len(ticks)-1]/end-1) > 1e-9 {
				t.Errorf("for %v in at most %d intervals, the end is %v and the ticks are %v", value, intervals, end, ticks)
			}
		}
	}
}

func TestLogarithmicScaleHasWholeDecades(t *testing.T) {
	for _, row := range []struct {
		least, most float64
		want        []float64
	}{
		{0.5, 20, []float64{0.1, 1, 10, 100}},
		{1, 100, []float64{1, 10, 100}},
		{3, 4, []float64{1, 10}},
		{10, 10, []float64{10, 100}},
	} {
		s := Logarithmic(row.least, row.most)
		if diff := cmp.Diff(row.want, s.Ticks, nearly); diff != "" {
			t.Errorf("ticks from %v to %v (-want +got):\n%s", row.least, row.most, diff)
		}
		for i, tick := range row.want {
			if got, want := s.At(tick), float64(i)/float64(len(row.want)-1); math.Abs(got-want) > 1e-9 {
				t.Errorf("from %v to %v, %v is at %v, want %v", row.least, row.most, tick, got, want)
			}
		}
	}
}

func TestPath(t *testing.T) {
	if got, want := Path([]Point{{1, 2}, {3.04, -4}, {5.06, 0}}), "M1.0 2.0L3.0 -4.0L5.1 0.0"; got != want {
		t.Errorf("the path is %s, want %s", got, want)
	}
	if got := Path(nil); got != "" {
		t.Errorf("the path of no points is %s", got)
	}
}
