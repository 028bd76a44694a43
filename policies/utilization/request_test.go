package utilization

import (
	"fmt"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/snapshot"
)

// TestBoundPods: the use of the latest pods is the sum of the use of each.
func TestBoundPods(t *testing.T) {
	config := Defaults()
	config.CPU = &Use{Signal: "cpu", Unit: Percent}
	p := newUtilization(config)
	rapid.Check(t, func(t *rapid.T) {
		var on []*corev1.Pod
		for i, millis := range rapid.SliceOfN(rapid.Int64Range(1, 1000), 0, 12).Draw(t, "millis") {
			limits := corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(millis, resource.DecimalSI)}
			on = append(on, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: limits}}}},
			})
		}
		bound := p.boundPods.Of(snapshot.NewNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, on...))
		want := 0.0
		for i, pod := range bound.Pods {
			if got := bound.uses[i][cpu]; math.Abs(got-want) > 1e-9 {
				t.Fatalf("%d pods use %v cores, want %v", i, got, want)
			}
			want += float64(pod.Spec.Containers[0].Resources.Limits.Cpu().MilliValue()) / 1000
		}
		if got := bound.uses[len(on)][cpu]; math.Abs(got-want) > 1e-9 {
			t.Fatalf("all pods use %v cores, want %v", got, want)
		}
	})
}
