package binder_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/binder"
	"outboard.dev/outboard/snapshot"
)

// An attempt while pods are being bound to other nodes: the View with these pods, then one pod more and one pod less. A View is
// published every ten attempts.
func BenchmarkInFlight(b *testing.B) {
	const nodes, attemptsPerView = 5000, 10
	name := func(i int) string { return fmt.Sprintf("node-%05d", i*7%nodes) }
	for _, inFlight := range []int{1, 50, 500, 5000} {
		b.Run(fmt.Sprint(inFlight), func(b *testing.B) {
			b.ReportAllocs()
			var builder snapshot.Builder
			for i := range nodes {
				builder.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i)}})
			}
			f := new(binder.InFlight)
			ends := make([]func(), 0, b.N+inFlight)
			pods := make([]*corev1.Pod, 0, b.N+inFlight)
			for i := range b.N + inFlight {
				pods = append(pods, named(fmt.Sprint("pod-", i)))
			}
			for i := range inFlight {
				ends = append(ends, f.Begin(name(i), pods[i]))
			}
			view := builder.View()
			f.Complete(view, f.Now(), "nobody")
			b.ResetTimer()
			for i := range b.N {
				if i%attemptsPerView == 0 {
					b.StopTimer()
					bound := pods[i].DeepCopy()
					bound.Spec.NodeName = name(i)
					builder.SetPod(bound)
					view = builder.View()
					b.StartTimer()
				}
				ends = append(ends, f.Begin(name(i+inFlight), pods[i+inFlight]))
				ends[i]()
				f.Complete(view, f.Now(), "nobody")
			}
		})
	}
}
