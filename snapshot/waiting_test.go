package snapshot_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// The pods on no node wait, the most important first, whatever becomes known in which order.
func TestWaiting(t *testing.T) {
	pod := func(name string, priority int32, created int64) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Unix(created, 0)}}
		p.Spec.Priority = &priority
		return p
	}
	with := func(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
		p = p.DeepCopy()
		change(p)
		return p
	}
	young, old, urgent := pod("young", 0, 20), pod("old", 0, 10), pod("urgent", 5, 30)
	bound := with(old, func(p *corev1.Pod) { p.Spec.NodeName = "n" })
	var b snapshot.Builder
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	last, had := (*snapshot.View)(nil), []string(nil)
	for _, step := range []struct {
		name   string
		change func()
		want   []string
	}{
		{"none", func() {}, nil},
		{"in order", func() { b.SetPod(young); b.SetPod(urgent); b.SetPod(old) }, []string{"urgent", "old", "young"}},
		{"shown again", func() { b.SetPod(with(young, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} })) }, []string{"urgent", "old", "young"}},
		{"assumed on a node", func() { b.AssumePod(old, "n") }, []string{"urgent", "young"}},
		{"and not any more", func() { b.AssumePod(old, "") }, []string{"urgent", "old", "young"}},
		{"bound", func() { b.SetPod(bound) }, []string{"urgent", "young"}},
		{"deleted", func() { b.DeletePod(urgent.UID); b.DeletePod(old.UID); b.DeletePod("unknown") }, []string{"young"}},
		{"gated", func() {
			b.SetPod(with(pod("gated", 0, 1), func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }))
		}, []string{"young"}},
		{"not gated any more", func() { b.SetPod(pod("gated", 0, 1)) }, []string{"gated", "young"}},
		{"being deleted", func() {
			b.SetPod(with(young, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(50, 0)} }))
		}, []string{"gated"}},
		{"without a History", func() { b.DropHistory() }, nil},
		{"with a new one", func() { b.KeepHistory(slices.Values([]*corev1.Pod{young, bound, pod("gated", 0, 1)})) }, []string{"gated", "young"}},
	} {
		step.change()
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"step": step.name}}}) // for a new View
		if got := waiting(b.View()); !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
		if last != nil && !slices.Equal(waiting(last), had) {
			t.Errorf("%s: the former View has %v, and had %v", step.name, waiting(last), had)
		}
		last, had = b.View(), waiting(b.View())
	}
}

// While pods wait, time alone makes a new View, in which rejected pods may fit.
func TestTime(t *testing.T) {
	var b snapshot.Builder
	now := time.Unix(1000, 0)
	step := func(name string, by time.Duration, want bool, pods int) {
		now = now.Add(by)
		b.SetTime(now)
		last := b.View()
		b.SetTime(now.Add(snapshot.TimeStep))
		next := b.View()
		if got := next != last; got != want || len(next.Waiting()) != pods {
			t.Errorf("%s: a new View: %v, %d pods wait", name, got, len(next.Waiting()))
		}
		if want && (next.FreedGeneration() == last.FreedGeneration() || !next.Time().Equal(last.Time().Add(snapshot.TimeStep))) {
			t.Errorf("%s: time %v after %v, and FreedGeneration %d after %d", name, next.Time(), last.Time(), next.FreedGeneration(), last.FreedGeneration())
		}
		now = now.Add(snapshot.TimeStep)
	}
	step("no pod waits", 0, false, 0)
	b.SetPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}})
	step("a pod waits", time.Minute, true, 1)
	step("still", time.Millisecond, true, 1)
	b.DeletePod("p")
	step("it is gone", 0, true, 0)
	step("no pod waits any more", time.Minute, false, 0)
}

func waiting(v *snapshot.View) (all []string) {
	for _, pod := range v.Waiting() {
		all = append(all, pod.Name)
	}
	return all
}
