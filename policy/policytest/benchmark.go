package policytest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Benchmark measures the cost of the policy for the pod over all nodes of the View: Prepare once
// for each request, Filter and Score for each node, with the nodes' Facts computed ("Filter",
// "Score") and without ("cold", both). It reports nanoseconds per node.
func Benchmark(b *testing.B, p policy.Policy, pod *corev1.Pod, view *snapshot.View) {
	cycle, err := p.Prepare(b.Context(), pod, view)
	if err != nil || cycle == nil {
		b.Fatalf("Prepare returned the Cycle %v and the error %v: nothing to measure", cycle, err)
	}
	over := func(nodes []*snapshot.Node, calls ...func(*snapshot.Node)) {
		for _, n := range nodes {
			for _, call := range calls {
				call(n)
			}
		}
	}
	fresh := func() []*snapshot.Node {
		nodes := make([]*snapshot.Node, 0, view.Len())
		for n := range view.All() {
			nodes = append(nodes, snapshot.NewNode(n.Object, n.Pods...))
		}
		return nodes
	}
	measure := func(name string, run func(*testing.B)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				run(b)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(max(1, view.Len())), "ns/node")
		})
	}
	measure("Prepare", func(b *testing.B) { _, _ = p.Prepare(b.Context(), pod, view) })
	var both []func(*snapshot.Node)
	warm := fresh()
	add := func(name string, call func(*snapshot.Node)) {
		over(warm, call)
		measure(name, func(*testing.B) { over(warm, call) })
		both = append(both, call)
	}
	if filter, ok := cycle.(policy.Filter); ok {
		add("Filter", func(n *snapshot.Node) { filter.Filter(n) })
	}
	if score, ok := cycle.(policy.Score); ok {
		add("Score", func(n *snapshot.Node) { score.Score(n) })
	}
	measure("cold", func(b *testing.B) {
		b.StopTimer()
		nodes := fresh()
		b.StartTimer()
		over(nodes, both...)
	})
}
