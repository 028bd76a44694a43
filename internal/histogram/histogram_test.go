package histogram_test

import (
	"math"
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"outboard.dev/outboard/internal/histogram"
)

func TestQuantile(t *testing.T) {
	// 5 up to 1, none up to 2, 4 up to 4, 1 beyond.
	h := histogram.Histogram{{Seconds: 1, Count: 5}, {Seconds: 2, Count: 5}, {Seconds: 4, Count: 9}}
	for q, want := range map[float64]float64{0: 0, 0.1: 0.2, 0.5: 1, 0.7: 3, 0.9: 4, 0.99: 4} {
		if got := h.Quantile(q, 10); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %.2f is %f, want %f", q, got, want)
		}
	}
	if got := h.Since(h).Quantile(0.5, 0); got != 0 {
		t.Errorf("without durations, the median is %f", got)
	}
}

// Sums and differences leave what they are made of.
func TestPlusAndSince(t *testing.T) {
	one := histogram.Histogram{{Seconds: 1, Count: 2}, {Seconds: 2, Count: 3}}
	sum := histogram.Histogram(nil).Plus(one).Plus(one)
	if want := (histogram.Histogram{{Seconds: 1, Count: 4}, {Seconds: 2, Count: 6}}); !slices.Equal(sum, want) {
		t.Errorf("the sum is %v, want %v", sum, want)
	}
	if got := sum.Since(one); !slices.Equal(got, one) || sum[0].Count != 4 || one[0].Count != 2 {
		t.Errorf("since %v, there are %v in %v", one, got, sum)
	}
	if got := one.Since(nil); !slices.Equal(got, one) {
		t.Errorf("since nothing, there are %v", got)
	}
}

// A histogram in the text format ends with a bucket for all.
func TestOf(t *testing.T) {
	bounds, counts := []float64{1, math.Inf(1)}, []uint64{2, 3}
	got := histogram.Of(&dto.Histogram{Bucket: []*dto.Bucket{{UpperBound: &bounds[0], CumulativeCount: &counts[0]}, {UpperBound: &bounds[1], CumulativeCount: &counts[1]}}})
	if want := (histogram.Histogram{{Seconds: 1, Count: 2}}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
