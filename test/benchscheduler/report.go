package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// result is what one arm did in one round, between two readings.
type result struct {
	Nodes, Percentage, Templates int
	Arm                          string
	Round                        int
	Pods                         int
	PodsPerSecond                float64
	// Milliseconds of processor time for each pod.
	Scheduler, Extender, APIServer, Etcd float64
	// Allocated is how many KB kube-scheduler allocates for each pod, which is what its garbage collector costs.
	Allocated float64
	// Milliseconds of an attempt: the mean of the Filter plugins and of the choice of a node, and percentiles of the whole.
	Filter, Algorithm, AttemptP50, AttemptP99 float64
	// Failed counts attempts that placed no pod, Hinted pods that were placed with the result of the pod before.
	Failed, Hinted int
	// Others is the part of the processors that programs took which do not belong to the measurement.
	Others float64
}

func newResult(s setting, a arm, round int, first, last reading) result {
	pods := last.scheduled - first.scheduled
	filter, attempts, algorithm := last.filter.since(&first.filter), last.attempts.since(&first.attempts), last.algorithm.since(&first.algorithm)
	known := func(r *reading) float64 { return (r.scheduler + r.extender + r.apiserver + r.etcd + r.self).Seconds() }
	others := (last.machine - first.machine).Seconds() - known(&last) + known(&first)
	return result{
		Nodes: s.nodes, Percentage: s.percentage, Templates: s.templates, Arm: a.name, Round: round,
		Pods: int(pods), PodsPerSecond: pods / last.at.Sub(first.at).Seconds(),
		Scheduler: 1e3 * (last.scheduler - first.scheduler).Seconds() / pods,
		Extender:  1e3 * (last.extender - first.extender).Seconds() / pods,
		APIServer: 1e3 * (last.apiserver - first.apiserver).Seconds() / pods,
		Etcd:      1e3 * (last.etcd - first.etcd).Seconds() / pods,
		Allocated: (last.allocated - first.allocated) / 1000 / pods,
		Filter:    1e3 * filter.mean(), Algorithm: 1e3 * algorithm.mean(),
		AttemptP50: 1e3 * attempts.quantile(0.5), AttemptP99: 1e3 * attempts.quantile(0.99),
		Failed: int(last.failed - first.failed), Hinted: int(last.hinted - first.hinted),
		Others: max(0, others) / last.at.Sub(first.at).Seconds() / float64(runtime.NumCPU()),
	}
}

// normalized is the arm's speed with the differences between rounds taken out of it: pods per second times the time that
// kube-scheduler's own Filter plugins take, which do the same in all arms.
func (r *result) normalized() float64 { return r.PodsPerSecond * r.Filter }

func machine(out io.Writer) {
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	fmt.Fprintf(out, "%d cores, %s. etcd, kube-apiserver, kube-scheduler and the extender share them.\n", runtime.NumCPU(), model)
	fmt.Fprintf(out, "Policies of Outboard: ImageLocality and PodLimit. Median [range] of the rounds.\n")
}

// report prints a table of one setting. The first arm is what the others are compared with, in the same round.
func report(out io.Writer, s setting, results []result) error {
	fmt.Fprintf(out, "\n%s\n", s)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	base := s.arms[0]
	fmt.Fprintf(w, "arm\tn\tpods/s\t÷ %[1]s\t÷ %[1]s, normalized\tscheduler ms/pod\tscheduler KB/pod\textender ms/pod\tAPI server + etcd ms/pod\tFilter plugins ms\tattempt ms p50, p99\tfailed\thinted\tother programs\twhat\n", base.name)
	of := map[string]map[int]result{}
	for _, r := range results {
		if of[r.Arm] == nil {
			of[r.Arm] = map[int]result{}
		}
		of[r.Arm][r.Round] = r
	}
	for _, a := range s.arms {
		rounds := of[a.name]
		spread := func(format string, figure func(r, base result) float64) string {
			var figures []float64
			for round, r := range rounds {
				if b, ok := of[base.name][round]; ok { // or the round was interrupted
					figures = append(figures, figure(r, b))
				}
			}
			return median(format, figures)
		}
		middle := func(format string, figure func(r, base result) float64) string {
			text, _, _ := strings.Cut(spread(format, figure), " [")
			return text
		}
		normalized := spread("%.2f", func(r, base result) float64 { return r.normalized() / base.normalized() })
		if !comparable(a, base) {
			normalized = "–"
		}
		failed, hinted := 0, 0
		for _, r := range rounds {
			failed, hinted = failed+r.Failed, hinted+r.Hinted
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s, %s\t%d\t%d\t%s\t%s\n", a.name, len(rounds),
			spread("%.0f", func(r, _ result) float64 { return r.PodsPerSecond }),
			spread("%.2f", func(r, base result) float64 { return r.PodsPerSecond / base.PodsPerSecond }),
			normalized,
			spread("%.2f", func(r, _ result) float64 { return r.Scheduler }),
			middle("%.0f", func(r, _ result) float64 { return r.Allocated }),
			spread("%.2f", func(r, _ result) float64 { return r.Extender }),
			middle("%.2f", func(r, _ result) float64 { return r.APIServer + r.Etcd }),
			middle("%.2f", func(r, _ result) float64 { return r.Filter }),
			middle("%.1f", func(r, _ result) float64 { return r.AttemptP50 }),
			middle("%.1f", func(r, _ result) float64 { return r.AttemptP99 }),
			failed, hinted, middle("%.0f %%", func(r, _ result) float64 { return 100 * r.Others }), a.describe())
	}
	return w.Flush()
}

// comparable reports whether kube-scheduler's Filter plugins do the same in both arms. With the plugin, the time includes
// Outboard's own Filter.
func comparable(a, b arm) bool {
	return a.percentage == b.percentage && a.batching == b.batching && a.plugin == b.plugin
}

// median is the median of the figures, with their range.
func median(format string, figures []float64) string {
	if len(figures) == 0 {
		return "–"
	}
	slices.Sort(figures)
	middle := figures[len(figures)/2]
	if n := len(figures); n%2 == 0 {
		middle = (figures[n/2-1] + figures[n/2]) / 2
	}
	return fmt.Sprintf(format+" ["+format+"–"+format+"]", middle, figures[0], figures[len(figures)-1])
}

// writeResults writes the results as JSON; nothing if there is no path.
func writeResults(path string, results []result) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
