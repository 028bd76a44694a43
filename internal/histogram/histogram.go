// Package histogram reads histograms of durations: their sums, what was observed between two
// readings, and quantiles.
package histogram

import (
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// Histogram counts durations. The bounds of two histograms of one metric are the same. Nil counts
// nothing.
type Histogram []Bucket

// Bucket counts the durations of at most so many seconds, including the shorter ones.
type Bucket struct {
	Seconds float64 `json:"seconds"`
	Count   int64   `json:"count"`
}

// Of returns the histogram of a metric, without the bucket for all durations that the text format
// has.
func Of(metric *dto.Histogram) (h Histogram) {
	for _, b := range metric.GetBucket() {
		if !math.IsInf(b.GetUpperBound(), 1) {
			h = append(h, Bucket{b.GetUpperBound(), int64(b.GetCumulativeCount())})
		}
	}
	return h
}

// Plus returns the sum of both.
func (h Histogram) Plus(other Histogram) Histogram { return h.plus(other, 1) }

// Since returns what has been observed after an earlier reading.
func (h Histogram) Since(earlier Histogram) Histogram { return h.plus(earlier, -1) }

func (h Histogram) plus(other Histogram, sign int64) Histogram {
	sum := slices.Clone(h)
	for i, b := range other {
		if i == len(sum) {
			sum = append(sum, Bucket{Seconds: b.Seconds})
		}
		sum[i].Count += sign * b.Count
	}
	return sum
}

// Quantile estimates a quantile of so many durations in seconds, as Prometheus does: linear within
// its bucket, and the last bound if it is beyond that; 0 without durations.
func (h Histogram) Quantile(q float64, count int64) float64 {
	rank, low := q*float64(count), Bucket{}
	for _, b := range h {
		if float64(b.Count) >= rank && b.Count > low.Count {
			return low.Seconds + (b.Seconds-low.Seconds)*(rank-float64(low.Count))/float64(b.Count-low.Count)
		}
		low = b
	}
	if count == 0 {
		return 0
	}
	return low.Seconds
}
