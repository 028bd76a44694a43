package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"outboard.dev/outboard/bench/trials"
)

// result is what one arm did in one round, between two readings.
type result struct {
	Nodes, Percentage, Templates int
	Kind                         podKind // of the pods
	Arm                          string
	Round                        int
	Pods                         int
	PodsPerSecond                float64
	// Milliseconds of processor time for each pod.
	Scheduler, Extender, APIServer, Etcd float64
	// Allocated is how many KB kube-scheduler allocates for each pod, which is what its garbage collector costs.
	Allocated float64
	// Milliseconds of an attempt: the mean of the Filter plugins and of the choice of a node, and percentiles of the whole, which are at most
	// the last finite bound of kube-scheduler's histogram.
	Filter, Algorithm, AttemptP50, AttemptP99 float64
	// Failed counts attempts that placed no pod, from the start of kube-scheduler on, Hinted pods that were placed with the result of the pod
	// before.
	Failed, Hinted int
	// NodesUsed is on how many nodes the pods are, and MostOnOne how many are on the node with the most.
	NodesUsed, MostOnOne int
	// FewestInZone and MostInZone are how many pods are in the zones with the fewest and the most.
	FewestInZone, MostInZone int
	// Eligible is the part of the attempts, from the start of kube-scheduler on, in which the plugin named nodes.
	Eligible float64
	// Others is the part of the processors that programs took which do not belong to the measurement.
	Others float64
}

func newResult(s setting, a arm, round int, first, last reading) result {
	pods := last.scheduled - first.scheduled
	filter, attempts, algorithm := last.filter.Since(&first.filter), last.attempts.Since(&first.attempts), last.algorithm.Since(&first.algorithm)
	known := func(r *reading) float64 { return (r.scheduler + r.extender + r.apiserver + r.etcd + r.self).Seconds() }
	others := (last.machine - first.machine).Seconds() - known(&last) + known(&first)
	return result{
		Nodes: s.nodes, Percentage: s.percentage, Templates: s.templates, Kind: s.kind, Arm: a.name, Round: round,
		Pods: int(pods), PodsPerSecond: pods / last.at.Sub(first.at).Seconds(),
		Scheduler: 1e3 * (last.scheduler - first.scheduler).Seconds() / pods,
		Extender:  1e3 * (last.extender - first.extender).Seconds() / pods,
		APIServer: 1e3 * (last.apiserver - first.apiserver).Seconds() / pods,
		Etcd:      1e3 * (last.etcd - first.etcd).Seconds() / pods,
		Allocated: (last.allocated - first.allocated) / 1000 / pods,
		Filter:    1e3 * filter.Mean(), Algorithm: 1e3 * algorithm.Mean(),
		AttemptP50: 1e3 * attempts.Quantile(0.5), AttemptP99: 1e3 * attempts.Quantile(0.99),
		Failed: int(last.failed), Hinted: int(last.hinted - first.hinted),
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
	fmt.Fprintf(out, "Policies of Outboard: ImageLocality and PodLimit, or GPUMemory with LeastWaste for pods with GPU memory. Median [range] of the rounds.\n")
}

// report prints a table of one setting. The first arm is what the others are compared with, in the same round.
func report(out io.Writer, s setting, results []result) error {
	fmt.Fprintf(out, "\n%s\n", s)
	base := s.arms[0]
	table := trials.NewTable(out, "arm", "n", "pods/s", "÷ "+base.name, "÷ "+base.name+", normalized", "scheduler ms/pod", "scheduler KB/pod",
		"extender ms/pod", "API server + etcd ms/pod", "Filter plugins ms", "attempt ms p50, p99", "failed", "hinted", "eligible", "nodes, most pods on one", "in a zone", "other programs", "what")
	of := map[string]map[int]result{}
	for _, r := range results {
		if of[r.Arm] == nil {
			of[r.Arm] = map[int]result{}
		}
		of[r.Arm][r.Round] = r
	}
	for _, a := range s.arms {
		rounds := of[a.name]
		figures := func(figure func(r, base result) float64) (all trials.Figures) {
			for round, r := range rounds {
				if b, ok := of[base.name][round]; ok { // or the round was interrupted
					all = append(all, figure(r, b))
				}
			}
			return all
		}
		normalized := "–"
		if comparable(a, base) {
			normalized = figures(func(r, base result) float64 { return r.normalized() / base.normalized() }).Spread("%.2f")
		}
		eligible := "–"
		if a.plugin && a.shortlist > 0 && !a.idealPlugin {
			eligible = figures(func(r, _ result) float64 { return 100 * r.Eligible }).Median("%.0f %%")
		}
		failed, hinted := 0, 0
		for _, r := range rounds {
			failed, hinted = failed+r.Failed, hinted+r.Hinted
		}
		table.Row(a.name, len(rounds),
			figures(func(r, _ result) float64 { return r.PodsPerSecond }).Spread("%.0f"),
			figures(func(r, base result) float64 { return r.PodsPerSecond / base.PodsPerSecond }).Spread("%.2f"),
			normalized,
			figures(func(r, _ result) float64 { return r.Scheduler }).Spread("%.2f"),
			figures(func(r, _ result) float64 { return r.Allocated }).Median("%.0f"),
			figures(func(r, _ result) float64 { return r.Extender }).Spread("%.2f"),
			figures(func(r, _ result) float64 { return r.APIServer + r.Etcd }).Median("%.2f"),
			figures(func(r, _ result) float64 { return r.Filter }).Median("%.2f"),
			figures(func(r, _ result) float64 { return r.AttemptP50 }).Median("%.1f")+", "+
				figures(func(r, _ result) float64 { return r.AttemptP99 }).Median("%.1f"),
			failed, hinted, eligible,
			figures(func(r, _ result) float64 { return float64(r.NodesUsed) }).Median("%.0f")+", "+
				figures(func(r, _ result) float64 { return float64(r.MostOnOne) }).Median("%.0f"),
			figures(func(r, _ result) float64 { return float64(r.FewestInZone) }).Median("%.0f")+"–"+
				figures(func(r, _ result) float64 { return float64(r.MostInZone) }).Median("%.0f"),
			figures(func(r, _ result) float64 { return 100 * r.Others }).Median("%.0f %%"), a.describe())
	}
	return table.Flush()
}

// comparable reports whether kube-scheduler's Filter plugins do the same in both arms. With the plugin, the time includes
// Outboard's own Filter.
func comparable(a, b arm) bool {
	return a.percentage == b.percentage && a.batching == b.batching && a.plugin == b.plugin && (!a.plugin || a.shortlist == b.shortlist)
}
