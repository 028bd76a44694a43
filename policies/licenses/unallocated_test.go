package licenses_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/policies/licenses"
	"outboard.dev/outboard/policy/policytest"
)

// boundAt is the condition that the API server writes with a binding.
func boundAt(pod *corev1.Pod, at time.Time) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at.Truncate(time.Second))}}
}

// The ledgers are deleted, as when somebody reinstalls their CRD, or another tool has bound the
// pods: pods on nodes still hold their seats, and each pod once.
func TestSeatsOfPodsWithoutAAllocation(t *testing.T) {
	const config = `{features: [{name: solver, seats: 8, maxPerNamespace: 6, resource: example.com/solver}, {name: cad, seatsPerNode: 2}]}`
	p := policytest.Build(t, licenses.Type(), config)
	start := func(t *testing.T) *world {
		w := newWorld("a", "b")
		w.bind(t, p, needing("x", "first", "solver=5"), "a")
		w.bind(t, p, needing("y", "other", "cad=2"), "a")
		w.bind(t, p, needing("y", "second", "solver=2"), "b")
		return w
	}
	for _, tc := range []struct {
		name   string
		change func(w *world)
		pod    *corev1.Pod
		want   string
	}{
		{"with allocations", func(*world) {}, needing("z", "new", "solver=2"), "NoFreeSeat 1/2 seats"},
		{"all ledgers deleted", func(w *world) { clear(w.ledgers) }, needing("z", "new", "solver=2"), "NoFreeSeat 1/2 seats"},
		{"what is left", func(w *world) { clear(w.ledgers) }, needing("z", "new", "solver"), "fits"},
		{"seats of the node", func(w *world) { clear(w.ledgers) }, needing("z", "new", "cad"), "NoFreeNodeSeat 0/1 seats"},
		{"one allocation is lost", func(w *world) { w.drop(pool("solver"), "uid-x-first") }, needing("z", "new", "solver=2"), "NoFreeSeat 1/2 seats"},
		{"the namespace's limit", func(w *world) { clear(w.ledgers) }, needing("x", "new", "solver=2"), "NamespaceLimit 1/2 seats"},
		{"a pod has ended", func(w *world) { clear(w.ledgers); w.end("uid-x-first") }, needing("z", "new", "solver=6"), "fits"},
		{"by a resource", func(w *world) {
			clear(w.ledgers)
			w.pods[0].Annotations = nil
			w.pods[0].Spec.Containers = policytest.Pods(`[{metadata: {name: p}, spec: {containers: [{resources: {limits: {example.com/solver: 5}}}]}}]`)[0].Spec.Containers
		}, needing("z", "new", "solver=2"), "NoFreeSeat 1/2 seats"},
		{"nonsense needs nothing", func(w *world) { clear(w.ledgers); w.pods[0].Annotations[annotation] = "solver=x" }, needing("z", "new", "solver=6"), "fits"},
		{"no more than a namespace may have", func(w *world) {
			w.drop(pool("solver"), "uid-x-first")
			w.pods[0].Annotations[annotation] = "solver=1000000"
		}, needing("z", "new", "solver"), "NoFreeSeat 0/1 seats"}, // 8 - 6 - 2
		{"beside what it has allocated", func(w *world) {
			more := needing("x", "more", "solver=1000000")
			more.Spec.NodeName = "b"
			w.pods = append(w.pods, more)
		}, needing("z", "new", "solver"), "NoFreeSeat 0/1 seats"}, // 8 - 5 - 2 - 1
		{"an allocation of less than the annotation says now", func(w *world) { w.pods[0].Annotations[annotation] = "solver=8" }, needing("z", "new", "solver"), "fits"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := start(t)
			tc.change(w)
			expect(t, "Filter", hard(w.filter(t, p, tc.pod, "a")), tc.want)
			expect(t, "Reserve", hard(w.allocation(t, p, tc.pod, "a")), tc.want)
		})
	}
}

// hard removes from a verdict whether evictions can help.
func hard(verdict string) string {
	return string(slices.DeleteFunc([]byte(verdict), func(b byte) bool { return b == '!' }))
}

// If a pod is on its node and its allocation is lost, the pod's own seats are not counted against it.
func TestAPodWithoutItsAllocationHasItsSeats(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: solver, seats: 2}]}`)
	w := newWorld("a")
	pod := needing("x", "first", "solver=2")
	w.bind(t, p, pod, "a")
	clear(w.ledgers)
	expect(t, "Filter", w.filter(t, p, pod, "a"), "fits")
	expect(t, "Reserve", w.allocation(t, p, pod, "a"), "fits")
	expect(t, "of another pod", w.allocation(t, p, needing("x", "second", "solver"), "a"), "NoFreeSeat 0/1 seats")
}

// If the used seats include those of pods, the server also counts pods without an allocation that have
// checked out their seats, so the policy does not count those twice. The time of a pod's binding
// limits when it checks out its seats.
func TestPodsWithoutAAllocationAreNotCountedTwice(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: solver, server: {signal: flexnet, usedIncludesPods: true}}]}`)
	for name, tc := range map[string]struct {
		bound time.Time
		used  string
		want  string
	}{
		"just checked out":    {policytest.Now.Add(-5*time.Minute - time.Second), "4", "fits"},     // times of the API server have whole seconds
		"not checked out yet": {policytest.Now.Add(-5 * time.Minute), "4", "NoFreeSeat 2/3 seats"}, // 10 - 4 - 4
		"at an unknown time":  {time.Time{}, "4", "NoFreeSeat 2/3 seats"},                          // 10 - 4 - 4
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("a")
			w.signals = told(map[string]string{"solver/total": "10", "solver/used": tc.used})
			pod := needing("x", "first", "solver=4")
			pod.Spec.NodeName = "a"
			if !tc.bound.IsZero() {
				boundAt(pod, tc.bound)
			}
			w.pods = append(w.pods, pod)
			expect(t, "Filter", hard(w.filter(t, p, needing("x", "new", "solver=3"), "a")), tc.want)
			expect(t, "Reserve", hard(w.allocation(t, p, needing("x", "new", "solver=3"), "a")), tc.want)
		})
	}
}

func TestExplainPodsWithoutAAllocation(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: solver, seats: 9}]}`)
	w := newWorld("a")
	w.bind(t, p, needing("x", "lost", "solver=3"), "a")
	clear(w.ledgers)
	w.bind(t, p, needing("x", "held", "solver"), "a")
	said := prepare(t, p, needing("x", "new", "solver=2"), w.view()).Explain(nil)
	want := []string{"solver: requests 2 seats of 9; 1 allocated by pods: x/held; 3 used by pods without an allocation: x/lost (3)"}
	if !slices.Equal(said, want) {
		t.Errorf("the explanation is %q, want %q", said, want)
	}
}

// kube-scheduler evicts pods for an important one that also needs seats. The policy reserves the
// seats for that pod on every node until it has allocated them.
func TestSeatsAreKeptForNominatedPods(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: solver, seats: 8}]}`)
	important := func(pod *corev1.Pod, priority int32) *corev1.Pod {
		pod.Spec.Priority = &priority
		return pod
	}
	nominated := important(needing("y", "nominated", "solver=4"), 10)
	nominated.Status.NominatedNodeName = "b"
	start := func(t *testing.T) *world {
		w := newWorld("a", "b")
		w.bind(t, p, needing("x", "first", "solver=3"), "a")
		w.pods = append(w.pods, nominated)
		return w
	}
	for _, tc := range []struct {
		name   string
		change func(w *world)
		pod    *corev1.Pod
		want   string
	}{
		{"less important", func(*world) {}, needing("z", "new", "solver=2"), "NoFreeSeat 1/2 seats"},
		{"what is left", func(*world) {}, needing("z", "new", "solver"), "fits"},
		{"as important", func(*world) {}, important(needing("z", "new", "solver=2"), 10), "NoFreeSeat 1/2 seats"},
		{"more important", func(*world) {}, important(needing("z", "new", "solver=5"), 11), "fits"},
		{"itself", func(*world) {}, nominated, "fits"},
		{"has allocated them", func(w *world) { w.allocation(t, p, nominated, "b") }, needing("z", "new", "solver"), "fits"},
		{"needs more than there is", func(w *world) {
			greedy := important(needing("y", "nominated", "solver=9"), 10)
			greedy.Status.NominatedNodeName = "b"
			w.pods[len(w.pods)-1] = greedy
		}, needing("z", "new", "solver=5"), "fits"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := start(t)
			tc.change(w)
			expect(t, "Filter", hard(w.filter(t, p, tc.pod, "a")), tc.want)
			expect(t, "Reserve", hard(w.allocation(t, p, tc.pod, "a")), tc.want)
		})
	}
}
