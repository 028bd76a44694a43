package measure

import (
	"context"
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"outboard.dev/outboard/internal/histogram"
)

// Metrics are the metrics of a process at one time, by name.
type Metrics map[string]*dto.MetricFamily

// Scrape reads the metrics at the URL.
func Scrape(ctx context.Context, client *http.Client, url string) (Metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}

// Sum returns the sum of the counters and gauges with this name whose label has the value; of all of them, if label is "".
func (m Metrics) Sum(name, label, value string) float64 {
	sum := 0.0
	for _, metric := range m.with(name, label, value) {
		sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
	}
	return sum
}

// Histogram returns the sum of the histograms with this name whose label has the value; of all of them, if label is "".
func (m Metrics) Histogram(name, label, value string) Histogram {
	var h Histogram
	for _, metric := range m.with(name, label, value) {
		from := metric.GetHistogram()
		h.count += int64(from.GetSampleCount())
		h.sum += from.GetSampleSum()
		h.buckets = h.buckets.Plus(histogram.Of(from))
	}
	return h
}

func (m Metrics) with(name, label, value string) []*dto.Metric {
	var with []*dto.Metric
	for _, metric := range m[name].GetMetric() {
		matches := label == ""
		for _, pair := range metric.GetLabel() {
			matches = matches || pair.GetName() == label && pair.GetValue() == value
		}
		if matches {
			with = append(with, metric)
		}
	}
	return with
}

// Histogram is a histogram of durations in seconds, with their sum.
type Histogram struct {
	count   int64
	sum     float64
	buckets histogram.Histogram
}

// Since returns what has been observed after an earlier reading.
func (h *Histogram) Since(earlier *Histogram) Histogram {
	return Histogram{h.count - earlier.count, h.sum - earlier.sum, h.buckets.Since(earlier.buckets)}
}

// Count returns how many durations were observed.
func (h *Histogram) Count() float64 { return float64(h.count) }

// Mean is 0 if nothing was observed.
func (h *Histogram) Mean() float64 {
	if h.count == 0 {
		return 0
	}
	return h.sum / h.Count()
}

// Quantile estimates a quantile. It is 0 if nothing was observed.
func (h *Histogram) Quantile(q float64) float64 { return h.buckets.Quantile(q, h.count) }
