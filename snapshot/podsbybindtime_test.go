package snapshot_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/snapshot"
)

// TestPodsByBindTime: the search of Since returns the same as a check of each pod.
func TestPodsByBindTime(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		since := start.Add(time.Duration(rapid.IntRange(-1000, 8000).Draw(t, "since")) * time.Millisecond)
		var on []*corev1.Pod
		var want []string
		// In seconds after the start; a pod below 0 has no bind time.
		for i, bound := range rapid.SliceOfN(rapid.IntRange(-2, 6), 0, 12).Draw(t, "bound") {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i)}}
			second := start.Add(time.Duration(bound) * time.Second)
			switch {
			case bound >= 0:
				pod.Status.Conditions = []corev1.PodCondition{
					{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(time.Hour))},
					{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(second)},
				}
			case bound == -1:
				pod.Status.Conditions = []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(start.Add(-time.Hour))},
				}
			}
			on = append(on, pod)
			if bound < 0 || second.Add(time.Second).After(since) {
				want = append(want, pod.Name)
			}
		}
		n := snapshot.NewNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, on...)
		before := slices.Clone(n.Pods)
		pods := snapshot.PodsByBindTimeOf(n)
		var got []string
		for _, pod := range pods.Pods[:pods.Since(since)] {
			got = append(got, pod.Name)
		}
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Fatalf("%q were bound since %v, want %q", got, since, want)
		}
		if len(pods.Pods) != len(on) || !slices.Equal(n.Pods, before) {
			t.Fatalf("of %d pods there are %d, or the node's are in another order", len(on), len(pods.Pods))
		}
	})
}
