package equality

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	semantics "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// observer is a policy that applies to no pod, and records the View by which pods are evaluated.
type observer struct {
	view *atomic.Pointer[snapshot.View]
}

// Prepare implements policy.Policy.
func (o observer) Prepare(_ context.Context, _ *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	o.view.Store(view)
	return nil, nil
}

const observerType = "Observer"

// policyTypes are the types that configurations of cases use. Views are recorded in seen.
func policyTypes(seen *atomic.Pointer[snapshot.View]) []policy.Type {
	own := policy.TypeOf(observerType, func() struct{} { return struct{}{} }, func(struct{}) (policy.Policy, error) { return observer{seen}, nil })
	return append(standard.Types(), own)
}

// alike maps each node of a world to an equal node of another View. Nodes are immutable, and Views share unchanged nodes.
type alike map[*snapshot.Node]*snapshot.Node

// lacks returns how the View differs from the world; "" if it shows everything. A View has ConfigMaps only if a policy reads
// them. lacks compares only nodes that are not in alike, and adds equal ones.
func (w *world) lacks(view *snapshot.View, configMaps bool, known alike) string {
	want := w.builder.View()
	if view == nil || view.Len() != want.Len() {
		return "nodes"
	}
	for n := range want.All() {
		got := view.Node(n.Name)
		switch {
		case got == nil, known[n] != got && !(sameNode(got.Object, n.Object) && samePods(got.Pods, n.Pods)):
			return "node " + n.Name
		case configMaps && !maps.Equal(got.ConfigMap(unhealthyGPUs), n.ConfigMap(unhealthyGPUs)):
			return "the ConfigMap of " + n.Name
		}
		known[n] = got
	}
	if !samePods(view.Nominated(), want.Nominated()) { // also to nodes that do not exist
		return "nominated pods"
	}
	for key, l := range w.allocated {
		if key.Node != "" && want.Node(key.Node) == nil {
			continue
		}
		if got := view.Ledger(key); got == nil || describe(got) != describe(l) {
			return "the ledger of " + key.Resource + " on " + key.Node
		}
	}
	for name, s := range w.signals {
		if !slices.Equal(values(s, want), values(view.Signal(name), want)) {
			return "signal " + name
		}
	}
	return ""
}

// sameNode reports whether the nodes are equal, except for their versions.
func sameNode(a, b *corev1.Node) bool {
	x, y := *a, *b
	x.TypeMeta, y.TypeMeta, x.ResourceVersion, y.ResourceVersion = metav1.TypeMeta{}, metav1.TypeMeta{}, "", ""
	return semantics.Semantic.DeepEqual(&x, &y)
}

// samePods reports whether the pods are equal, except for their versions.
func samePods(a, b []*corev1.Pod) bool {
	return slices.EqualFunc(a, b, func(a, b *corev1.Pod) bool {
		x, y := *a, *b
		x.TypeMeta, y.TypeMeta, x.ResourceVersion, y.ResourceVersion = metav1.TypeMeta{}, metav1.TypeMeta{}, "", ""
		return semantics.Semantic.DeepEqual(&x, &y)
	})
}

// keyed is a number of a signal, without the time.
type keyed struct {
	key    string
	number float64
	stale  bool
}

// values are the numbers of the signal, except for nodes that do not exist.
func values(s *snapshot.Signal, view *snapshot.View) []keyed {
	var all []keyed
	for key, v := range s.All() {
		if !slices.Contains(nodeSignals(), s.Name()) || view.Node(key) != nil {
			all = append(all, keyed{key, v.Number, v.Stale})
		}
	}
	return all
}
