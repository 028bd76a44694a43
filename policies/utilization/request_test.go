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

// TestUnmeasured: of what a pod uses, a mean has the part of its window in which the pod was bound.
func TestUnmeasured(t *testing.T) {
	config := Defaults()
	config.CPU = &Use{Signal: "cpu", Unit: Percent}
	p := newUtilization(config)
	at := time.Date(2026, 1, 1, 0, 0, 0, 5e8, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		window := time.Duration(rapid.SampledFrom([]int{0, 1, 7, 300, 6 * 3600}).Draw(t, "window")) * time.Second
		var on []*corev1.Pod
		want := 0.0
		for i, millis := range rapid.SliceOfN(rapid.Int64Range(1, 1000), 0, 12).Draw(t, "millis") {
			limits := corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(millis, resource.DecimalSI)}
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: limits}}}},
			}
			share := 1.0 // of a pod in flight
			if rapid.Bool().Draw(t, "bound") {
				age := rapid.SampledFrom([]int{-3, 0, 1, 2, 5, 299, 300, 301, 3600, 6 * 3600, 7 * 3600}).Draw(t, "age")
				second := at.Truncate(time.Second).Add(-time.Duration(age) * time.Second)
				pod.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(second),
				}}
				measured := at.Sub(second.Add(time.Second)) // the API server truncates to seconds
				switch {
				case measured >= max(window, 1):
					share = 0
				case measured > 0:
					share = 1 - measured.Seconds()/window.Seconds()
				}
			}
			want += share * float64(millis) / 1000
			on = append(on, pod)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
		bound := p.boundPods.Of(snapshot.NewNode(node, on...))
		if got, pods := bound.unmeasured(cpu, at, window); math.Abs(got-want) > 1e-6 || want > 0 && pods == 0 {
			t.Fatalf("%d pods use %v cores that are not measured, want %v", pods, got, want)
		}
	})
}
