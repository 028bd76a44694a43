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
	filter, _ := cycle.(policy.Filter)
	score, _ := cycle.(policy.Score)
	over := func(nodes []*snapshot.Node, filter policy.Filter, score policy.Score) {
		for _, n := range nodes {
			if filter != nil {
				filter.Filter(n)
			}
			if score != nil {
				score.Score(n)
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
	warm := fresh()
	over(warm, filter, score)
	perNode := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(max(1, len(warm))), "ns/node")
	}

	b.Run("Prepare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.Prepare(b.Context(), pod, view); err != nil {
				b.Fatal(err)
			}
		}
	})
	overWarm := func(name string, filter policy.Filter, score policy.Score) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				over(warm, filter, score)
			}
			perNode(b)
		})
	}
	if filter != nil {
		overWarm("Filter", filter, nil)
	}
	if score != nil {
		overWarm("Score", nil, score)
	}
	b.Run("cold", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			nodes := fresh()
			b.StartTimer()
			over(nodes, filter, score)
		}
		perNode(b)
	})
}
