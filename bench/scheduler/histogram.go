package main

import (
	"outboard.dev/outboard/internal/histogram"
	"outboard.dev/outboard/test/measure"
)

// durations are a histogram in seconds, with their sum.
type durations struct {
	count   int64
	sum     float64
	buckets histogram.Histogram
}

// Since returns what has been observed after an earlier reading.
func (h *durations) Since(earlier *durations) durations {
	return durations{h.count - earlier.count, h.sum - earlier.sum, h.buckets.Since(earlier.buckets)}
}

// Count returns how many durations were observed.
func (h *durations) Count() float64 { return float64(h.count) }

// Mean is 0 if nothing was observed.
func (h *durations) Mean() float64 {
	if h.count == 0 {
		return 0
	}
	return h.sum / h.Count()
}

// Quantile estimates a quantile. It is 0 if nothing was observed.
func (h *durations) Quantile(q float64) float64 { return h.buckets.Quantile(q, h.count) }

// durationsOf returns the sum of the histograms with this name whose label has the value; of all of them, if label is "".
func durationsOf(m measure.Metrics, name, label, value string) durations {
	var h durations
	for _, metric := range m.With(name, label, value) {
		from := metric.GetHistogram()
		h.count += int64(from.GetSampleCount())
		h.sum += from.GetSampleSum()
		h.buckets = h.buckets.Plus(histogram.Of(from))
	}
	return h
}
