package measure

import (
	"context"
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
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
	for _, metric := range m.With(name, label, value) {
		sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
	}
	return sum
}

// With returns the metrics with this name whose label has the value; all of them, if label is "".
func (m Metrics) With(name, label, value string) []*dto.Metric {
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
