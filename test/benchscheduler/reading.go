package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"outboard.dev/outboard/test/baseline"
)

// reading is the state of the processes at one time. All figures have grown from 0 on.
type reading struct {
	at                          time.Time
	scheduled                   float64 // pods that kube-scheduler has placed
	failed                      float64 // attempts that did not place a pod
	hinted                      float64 // pods placed with the result of the pod before
	allocated                   float64 // bytes that kube-scheduler has allocated
	filter, attempts, algorithm histogram
	// Processor time, that of the machine for all programs, and self that of this one.
	scheduler, extender, apiserver, etcd, self, machine time.Duration
}

func (p *playing) read(ctx context.Context) (r reading, err error) {
	families, err := p.scrape(ctx)
	if err != nil {
		return r, fmt.Errorf("kube-scheduler's metrics: %w", err)
	}
	r.at = time.Now()
	for _, m := range families["scheduler_schedule_attempts_total"].GetMetric() {
		if label(m, "result") == "scheduled" {
			r.scheduled += m.GetCounter().GetValue()
		} else {
			r.failed += m.GetCounter().GetValue()
		}
	}
	for _, m := range families["scheduler_batch_attempts_total"].GetMetric() {
		if label(m, "result") == "hint_used" {
			r.hinted += m.GetCounter().GetValue()
		}
	}
	for _, m := range families["go_memstats_alloc_bytes_total"].GetMetric() {
		r.allocated += m.GetCounter().GetValue()
	}
	r.filter.add(families["scheduler_framework_extension_point_duration_seconds"], "extension_point", "Filter")
	r.attempts.add(families["scheduler_scheduling_attempt_duration_seconds"], "result", "scheduled")
	r.algorithm.add(families["scheduler_scheduling_algorithm_duration_seconds"], "", "")
	var errs []error
	used := func(pid int) time.Duration {
		t, err := baseline.ProcessorTime(pid)
		errs = append(errs, err)
		return t
	}
	r.scheduler, r.apiserver, r.etcd = used(p.scheduler.PID()), used(p.cluster.APIServer().PID()), used(p.cluster.Etcd().PID())
	if p.extender != nil {
		r.extender = used(p.extender.PID())
	}
	r.self = used(os.Getpid())
	r.machine, err = machineTime()
	return r, errors.Join(append(errs, err)...)
}

// machineTime is how long all processors together have worked for any program.
func machineTime() (time.Duration, error) {
	const path, tick = "/proc/stat", 10 * time.Millisecond // see proc_stat(5); USER_HZ is 100
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var user, nice, system, idle, wait, irq, softIRQ int64
	if _, err := fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &softIRQ); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return time.Duration(user+nice+system+irq+softIRQ) * tick, nil
}

func (p *playing) scrape(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.scheduler.URL()+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.scheduler.Client().Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}

func label(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// histogram is a histogram of durations in seconds. The bounds of two readings of one metric are the same.
type histogram struct {
	count, sum float64
	buckets    []bucket // cumulative
}

type bucket struct{ upTo, count float64 }

// add adds the metrics of the family with this value of the label; of any, if there is no name.
func (h *histogram) add(family *dto.MetricFamily, name, value string) {
	for _, m := range family.GetMetric() {
		if name != "" && label(m, name) != value {
			continue
		}
		from := m.GetHistogram()
		h.count += float64(from.GetSampleCount())
		h.sum += from.GetSampleSum()
		for i, b := range from.GetBucket() {
			if i == len(h.buckets) {
				h.buckets = append(h.buckets, bucket{upTo: b.GetUpperBound()})
			}
			h.buckets[i].count += float64(b.GetCumulativeCount())
		}
	}
}

// since is what has been observed after an earlier reading.
func (h *histogram) since(earlier *histogram) histogram {
	d := histogram{count: h.count - earlier.count, sum: h.sum - earlier.sum}
	for i, b := range h.buckets {
		if i < len(earlier.buckets) {
			b.count -= earlier.buckets[i].count
		}
		d.buckets = append(d.buckets, b)
	}
	return d
}

// mean is 0 if nothing was observed.
func (h *histogram) mean() float64 {
	if h.count == 0 {
		return 0
	}
	return h.sum / h.count
}

// quantile returns the quantile as Prometheus does: linear within its bucket. It is 0 if nothing was observed.
func (h *histogram) quantile(q float64) float64 {
	if h.count == 0 {
		return 0
	}
	rank, from, before := q*h.count, 0.0, 0.0
	for _, b := range h.buckets {
		if b.count >= rank && b.count > before {
			return from + (b.upTo-from)*(rank-before)/(b.count-before)
		}
		from, before = b.upTo, b.count
	}
	return from // beyond the last bound
}
