package gpumemory

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// holdWorld is a cluster with holds for pods with four GPUs or more.
type holdWorld struct {
	snapshot.Builder
	policy *gpuMemory
	now    time.Time
}

func newHoldWorld(t *testing.T, hold *HoldFor) *holdWorld {
	config := Defaults()
	config.ScoringStrategy.Type, config.HoldFor = LeastWaste, hold
	p, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	w := &holdWorld{policy: p.(*gpuMemory), now: time.Unix(1000, 0)}
	w.SetTime(w.now)
	return w
}

// node adds a node with four GPUs, of which pods have this many.
func (w *holdWorld) node(name string, used int, taints ...corev1.Taint) {
	for i := range used {
		w.SetPod(onGPU(name, fmt.Sprint(name, "-", i), 16, fmt.Sprint(i)))
	}
	n := sharingNode(name, "T4", 4, 16)
	n.Spec.Taints = taints
	w.SetNode(n)
}

// waits adds a pod that has waited so long.
func (w *holdWorld) waits(name string, gpus int64, priority int32, since time.Duration) *corev1.Pod {
	p := sharingPod(name, 0, 0, gpus, "")
	p.CreationTimestamp, p.Spec.Priority = metav1.NewTime(w.now.Add(-since)), &priority
	w.SetPod(p)
	return p
}

// from returns the nodes that are held from the pod, in order: with a question mark, those that only
// rank last.
func (w *holdWorld) from(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	return heldFrom(t, w.policy, w.View(), pod, w.now)
}

func heldFrom(t *testing.T, p *gpuMemory, view *snapshot.View, pod *corev1.Pod, now time.Time) string {
	t.Helper()
	made, err := p.Prepare(t.Context(), pod, view)
	if err != nil {
		t.Fatal(err)
	}
	var held []string
	for n := range view.All() {
		said := strings.Join(made.(policy.Explainer).Explain(n), "\n")
		switch filter, ok := made.(policy.Filter); {
		case ok && filter.Filter(n).Reason == heldForOthers:
			held = append(held, n.Name)
			if !strings.Contains(said, "hold: the node is held for pod ns/") {
				t.Errorf("node %s: %s", n.Name, said)
			}
			ask := policy.ReserveRequest{Pod: pod, Node: n, View: view, At: now}
			if _, verdict := p.Reserve(ask); snapshot.NamesResource(pod, memoryResource) && verdict.Reason != heldForOthers {
				t.Errorf("node %s: reserve: %+v", n.Name, verdict)
			}
		case strings.Contains(said, "hold: the node ranks last, because it is held for pod ns/"):
			held = append(held, n.Name+"?")
		}
	}
	slices.Sort(held)
	return strings.Join(held, " ")
}

func TestHoldFor(t *testing.T) {
	taint := corev1.Taint{Key: "k", Effect: corev1.TaintEffectNoSchedule}
	for _, tt := range []struct {
		name string
		idle int32
		make func(*holdWorld)
		want string
	}{
		{"the node that lacks fewest GPUs", 4, func(w *holdWorld) { w.node("a", 2); w.node("b", 1); w.node("c", 3); w.waits("w", 4, 0, 0) }, "b"},
		{"the node on which it fits", 4, func(w *holdWorld) { w.node("a", 1); w.node("b", 0); w.waits("w", 4, 0, time.Hour) }, "b"},
		{"nobody waits", 4, func(w *holdWorld) { w.node("a", 1) }, ""},
		{"a smaller pod waits", 4, func(w *holdWorld) { w.node("a", 1); w.waits("w", 3, 0, 0) }, ""},
		{"no node has so many GPUs", 4, func(w *holdWorld) { w.node("a", 1); w.waits("w", 5, 0, 0) }, ""},
		{"kube-scheduler excludes the best node", 4, func(w *holdWorld) { w.node("a", 1, taint); w.node("b", 2); w.waits("w", 4, 0, 0) }, "b"},
		{"more than may be withheld", 2, func(w *holdWorld) { w.node("a", 1); w.waits("w", 4, 0, 0) }, "a?"},
		{"more than may rank last", 1, func(w *holdWorld) {
			w.node("a", 1)
			w.node("b", 2)
			w.node("c", 3)
			w.waits("u", 4, 0, 0)
			w.waits("v", 4, 0, 0)
			w.waits("w", 4, 0, 0)
		}, "a? b?"},
		{"after a while, a second node", 4, func(w *holdWorld) { w.node("a", 1); w.node("b", 2); w.node("c", 3); w.waits("w", 4, 0, 6*time.Minute) }, "a b?"},
		{"one node for each pod", 8, func(w *holdWorld) {
			w.node("a", 1)
			w.node("b", 2)
			w.node("c", 3)
			w.waits("v", 4, 0, 0)
			w.waits("w", 4, 0, 0)
		}, "a b"},
		{"an unhealthy GPU", 4, func(w *holdWorld) {
			w.node("a", 1)
			w.SetConfigMap(unhealthyGPUs, "a", map[string]string{"gpus": "3"})
			w.node("b", 2)
			w.waits("w", 4, 0, 0)
		}, "b"},
	} {
		w := newHoldWorld(t, &HoldFor{GPUs: 4, IdleGPUs: tt.idle})
		tt.make(w)
		for what, pod := range map[string]*corev1.Pod{"a GPU": sharingPod("new", 1, 16, 0, ""), "no GPU": sharingPod("new", 1, 0, 0, "")} {
			if got := w.from(t, pod); got != tt.want {
				t.Errorf("%s: held from a pod with %s: %q, want %q", tt.name, what, got, tt.want)
			}
		}
		off := newHoldWorld(t, nil)
		tt.make(off)
		if got := off.from(t, sharingPod("new", 1, 16, 0, "")); got != "" {
			t.Errorf("%s: without holdFor, %q", tt.name, got)
		}
	}
}

// A hold concerns neither the pod itself, nor pods of higher priority, nor those that wait and are
// more important: that have waited for longer, or that fewer nodes can serve.
func TestHoldsAreForLessImportantPods(t *testing.T) {
	w := newHoldWorld(t, &HoldFor{GPUs: 4, IdleGPUs: 8})
	w.node("a", 0)
	w.node("b", 1)
	waits, longer := w.waits("waits", 4, 0, time.Minute), w.waits("longer", 4, 0, 2*time.Minute)
	idle, urgent := w.waits("idle", 1, -1, time.Hour), w.waits("urgent", 1, 1, 0)
	for _, tt := range []struct {
		pod  *corev1.Pod
		want string
	}{{waits, "a"}, {longer, ""}, {idle, "a b"}, {urgent, ""}, {sharingPod("new", 1, 16, 0, ""), "a b"}} {
		if got := w.from(t, tt.pod); got != tt.want {
			t.Errorf("held from pod %s: %q, want %q", tt.pod.Name, got, tt.want)
		}
	}
	made, err := w.policy.Prepare(t.Context(), waits, w.View())
	if err != nil {
		t.Fatal(err)
	}
	if said, want := made.(policy.Explainer).Explain(nil), "hold: b is held for it; 3 of 4 GPUs are unused, waiting since 1m0s"; !slices.Contains(said, want) {
		t.Errorf("explained %q, want %q", said, want)
	}
}

// What is held depends on the View alone: a policy that has seen all Views before agrees with a new one.
func TestHoldsDependOnTheViewAlone(t *testing.T) {
	w := newHoldWorld(t, &HoldFor{GPUs: 4, IdleGPUs: 3})
	w.node("a", 3)
	w.node("b", 2)
	for i, step := range []struct {
		change func()
		want   string
	}{
		{func() { w.waits("w", 4, 0, 0) }, "b"},
		{func() { w.waits("x", 4, 7, 0) }, "b"}, // a new pod alone makes no new View
		{func() { w.DeletePod("a-0"); w.DeletePod("a-1") }, "a b?"},
		{func() { w.now = w.now.Add(time.Hour); w.SetTime(w.now) }, "a b?"},
		{func() { w.DeletePod("x") }, "a b?"},
		{func() { w.node("c", 3) }, "a b? c?"},
		{func() { w.DeletePod(types.UID("w")); w.node("c", 4) }, ""},
	} {
		step.change()
		pod, fresh := sharingPod("new", 1, 16, 0, ""), newHoldWorld(t, &HoldFor{GPUs: 4, IdleGPUs: 3}).policy
		if got, other := w.from(t, pod), heldFrom(t, fresh, w.View(), pod, w.now); got != step.want || other != got {
			t.Errorf("step %d: %q, and %q for a new policy, want %q", i, got, other, step.want)
		}
	}
}
