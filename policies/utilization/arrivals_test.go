package utilization

import (
	"fmt"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/snapshot"
)

// TestArrivals: what a search finds is what counting each pod finds.
func TestArrivals(t *testing.T) {
	config := Defaults()
	config.CPU = Use{Signal: "cpu", Unit: Percent}
	p := newUtilization(config)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		type podAt struct {
			bound  int // seconds after the start; negative: not seen yet
			millis int64
		}
		pods := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) podAt {
			return podAt{rapid.IntRange(-2, 6).Draw(t, "bound"), rapid.Int64Range(1, 1000).Draw(t, "millis")}
		}), 0, 12).Draw(t, "pods")
		since := start.Add(time.Duration(rapid.IntRange(-1000, 8000).Draw(t, "since")) * time.Millisecond)
		var on []*corev1.Pod
		wantPods, wantCores := 0, 0.0
		for i, pod := range pods {
			limits := corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(pod.millis, resource.DecimalSI)}
			object := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: limits}}}},
			}
			second := start.Add(time.Duration(pod.bound) * time.Second)
			if pod.bound >= 0 {
				object.Status.Conditions = []corev1.PodCondition{
					{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(time.Hour))},
					{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(second)},
				}
			}
			on = append(on, object)
			if pod.bound < 0 || second.Add(time.Second).After(since) {
				wantPods, wantCores = wantPods+1, wantCores+float64(pod.millis)/1000
			}
		}
		n := snapshot.NewNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, on...)
		gotPods, gotCores := p.arrivals.Of(n).since(since, cpu)
		if gotPods != wantPods || math.Abs(gotCores-wantCores) > 1e-9 {
			t.Fatalf("%d pods with %v cores since %v, want %d with %v", gotPods, gotCores, since, wantPods, wantCores)
		}
	})
}
