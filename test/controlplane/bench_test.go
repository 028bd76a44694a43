package controlplane_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"outboard.dev/outboard/test/controlplane"
)

// BenchmarkFirstPod measures the time from the start of a control plane to a bound pod, and the
// time to stop everything.
func BenchmarkFirstPod(b *testing.B) {
	var spent struct{ start, scheduler, bound, stop time.Duration }
	for b.Loop() {
		last := time.Now()
		lap := func(d *time.Duration) { *d += time.Since(last); last = time.Now() }

		cp, err := controlplane.Start(b.Context(), controlplane.Options{})
		if err != nil {
			b.Fatal(err)
		}
		lap(&spent.start)
		if _, err := cp.StartScheduler(b.Context(), controlplane.SchedulerOptions{}); err != nil {
			b.Fatal(err)
		}
		lap(&spent.scheduler)
		client, err := kubernetes.NewForConfig(cp.AdminConfig())
		if err != nil {
			b.Fatal(err)
		}
		if err := controlplane.CreateNodes(b.Context(), client, controlplane.NodeSpec{Name: "n"}.Node()); err != nil {
			b.Fatal(err)
		}
		pod, err := client.CoreV1().Pods("default").Create(b.Context(), controlplane.PodSpec{Name: "p"}.Pod(), metav1.CreateOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := controlplane.WaitForPodBound(b.Context(), client, pod); err != nil {
			b.Fatal(err)
		}
		lap(&spent.bound)
		if err := cp.Stop(); err != nil {
			b.Fatal(err)
		}
		lap(&spent.stop)
	}
	for unit, d := range map[string]time.Duration{
		"ms/start": spent.start, "ms/scheduler": spent.scheduler, "ms/bound": spent.bound, "ms/stop": spent.stop,
	} {
		b.ReportMetric(float64(d.Milliseconds())/float64(b.N), unit)
	}
}

// BenchmarkCreateNodes measures the creation of 5,000 nodes.
func BenchmarkCreateNodes(b *testing.B) {
	cp, err := controlplane.Start(b.Context(), controlplane.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer cp.Stop()
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		b.Fatal(err)
	}
	round := 0
	for b.Loop() {
		round++
		nodes := make([]*corev1.Node, 5000)
		for i := range nodes {
			nodes[i] = controlplane.NodeSpec{Name: fmt.Sprintf("node-%d-%04d", round, i)}.Node()
		}
		if err := controlplane.CreateNodes(b.Context(), client, nodes...); err != nil {
			b.Fatal(err)
		}
	}
}
