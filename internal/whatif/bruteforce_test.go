package whatif_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/whatif"
)

var (
	cases = flag.Int("cases", 1000, "how many random waiting pods are compared with brute force")
	seed  = flag.Uint64("seed", 1, "which random pods")
)

// brute finds the changes by trying all of them, each in a cluster that is built from changed objects, with the calls of
// kube-scheduler.
type brute struct {
	tb      testing.TB
	w       *world
	members []engine.WeightedPolicy
	engine  *engine.Engine
	pod     *corev1.Pod
}

func (b *brute) fits(w *world, pod *corev1.Pod) bool { return len(w.fitting(b.tb, b.engine, pod)) > 0 }

// with returns the pod with another amount, in units of 1m of CPU, 1Mi of memory and 1 of anything else.
func (b *brute) with(name corev1.ResourceName, units int64) *corev1.Pod {
	q := *resource.NewQuantity(units, resource.DecimalSI)
	switch name {
	case "cpu":
		q = *resource.NewMilliQuantity(units, resource.DecimalSI)
	case "memory":
		q = *resource.NewQuantity(units<<20, resource.BinarySI)
	}
	pod := b.pod.DeepCopy()
	list := pod.Spec.Containers[0].Resources
	list.Requests[name] = q
	if _, ok := list.Limits[name]; ok {
		list.Limits[name] = q
	}
	return pod
}

func units(name corev1.ResourceName, q resource.Quantity) int64 {
	switch name {
	case "cpu":
		return q.MilliValue()
	case "memory":
		return q.Value() >> 20
	}
	return q.Value()
}

// requests returns the largest amount of each resource with which the pod fits.
func (b *brute) requests() map[corev1.ResourceName]int64 {
	all := map[corev1.ResourceName]int64{}
	for name, from := range b.pod.Spec.Containers[0].Resources.Requests {
		for amount := units(name, from) - 1; amount > 0; amount-- {
			if b.fits(b.w, b.with(name, amount)) {
				all[name] = amount
				break
			}
		}
	}
	return all
}

// fewest returns the size of the smallest of the sets that make the pod fit on the node, or 0. What they hold in pools of the cluster stays.
func (b *brute) fewest(uids []types.UID, onNode string) int {
	least := 0
	for set := 1; set < 1<<len(uids); set++ {
		var gone []types.UID
		for i, uid := range uids {
			if set>>i&1 == 1 {
				gone = append(gone, uid)
			}
		}
		if least > 0 && len(gone) >= least {
			continue
		}
		rest := b.w.without(gone...)
		rest.pools = b.w.pools
		if slices.Contains(rest.fitting(b.tb, b.engine, b.pod), onNode) {
			least = len(gone)
		}
	}
	return least
}

// ends returns how many pods of one node must end, or 0.
func (b *brute) ends() int {
	least := 0
	try := func(uids []types.UID, node string) {
		if size := b.fewest(uids, node); size > 0 && (least == 0 || size < least) {
			least = size
		}
	}
	for _, n := range b.w.nodes {
		var uids []types.UID
		for _, pod := range b.w.pods {
			if pod.Spec.NodeName == n.Name && len(pod.OwnerReferences) == 0 { // a DaemonSet would replace it
				uids = append(uids, pod.UID)
			}
		}
		try(uids, n.Name)
	}
	return least
}

// nodes returns the largest number of nodes on which the pod fits after one change of what kube-scheduler excludes nodes for.
func (b *brute) nodes() int {
	most := b.uncordoned()
	try := func(change func(*corev1.PodSpec)) {
		pod := b.pod.DeepCopy()
		change(&pod.Spec)
		most = max(most, len(b.w.fitting(b.tb, b.engine, pod)))
	}
	for _, n := range b.w.nodes {
		for _, taint := range n.Spec.Taints {
			if taint.Key != corev1.TaintNodeUnschedulable {
				try(func(spec *corev1.PodSpec) {
					spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpEqual, Value: taint.Value, Effect: taint.Effect})
				})
			}
		}
	}
	for key := range b.pod.Spec.NodeSelector {
		try(func(spec *corev1.PodSpec) { delete(spec.NodeSelector, key) })
	}
	return most
}

func (b *brute) uncordoned() int {
	count := 0
	for i, n := range b.w.nodes {
		if !n.Spec.Unschedulable {
			continue
		}
		w := &world{nodes: slices.Clone(b.w.nodes), pods: b.w.pods, pools: b.w.pools}
		w.nodes[i] = n.DeepCopy()
		w.nodes[i].Spec = corev1.NodeSpec{}
		if b.fits(w, b.pod) {
			count++
		}
	}
	return count
}

// Of random waiting pods, every remedy is true, at least 95 % of those that a change of a kind can make fit have one of that kind, and at
// least 90 % of these are the smallest.
func TestRemediesEqualBruteForce(t *testing.T) {
	all := members(t, several)
	own, others := engineOf(t, all), engineOf(t, members(t, several))
	r := rand.New(rand.NewPCG(*seed, 2))
	possible, found, smallest := map[whatif.Kind]int{}, map[whatif.Kind]int{}, map[whatif.Kind]int{}
	for waiting := 0; waiting < *cases; {
		w, pod := random(t, r, others)
		if len(w.fitting(t, others, pod)) > 0 {
			continue
		}
		waiting++
		remedies, err := whatif.Find(t.Context(), whatif.Cluster{Engine: own, View: w.view()}, pod)
		if err != nil {
			t.Fatal(err)
		}
		b := brute{t, w, all, others, pod}
		requests, ends, nodes := b.requests(), b.ends(), b.nodes()
		for kind, can := range map[whatif.Kind]bool{whatif.Request: len(requests) > 0, whatif.End: ends > 0, whatif.Nodes: nodes > 0} {
			if can {
				possible[kind]++
			}
			if slices.ContainsFunc(remedies, func(r whatif.Remedy) bool { return r.Kind == kind }) {
				found[kind]++
			}
		}
		counted := map[whatif.Kind]bool{}
		for i := range remedies {
			r := &remedies[i]
			b.judge(r)
			exact := r.Kind == whatif.End && len(r.End) == ends || r.Kind == whatif.Nodes && r.Nodes == nodes ||
				r.Kind == whatif.Request && units(r.Resource, *r.To) == requests[r.Resource]
			if exact && !counted[r.Kind] {
				counted[r.Kind] = true
				smallest[r.Kind]++
			}
		}
		if t.Failed() {
			t.Fatalf("case %d: %+v", waiting, pod.Spec)
		}
	}
	for _, kind := range []whatif.Kind{whatif.Request, whatif.End, whatif.Nodes} {
		t.Logf("%s: possible for %d pods, found for %d, the smallest for %d", kind, possible[kind], found[kind], smallest[kind])
		if possible[kind] == 0 || found[kind]*100 < possible[kind]*95 || smallest[kind]*100 < found[kind]*90 {
			t.Errorf("%s: possible for %d pods, found for %d, the smallest for %d", kind, possible[kind], found[kind], smallest[kind])
		}
	}
}

// judge checks that the pod fits with the remedy.
func (b *brute) judge(r *whatif.Remedy) {
	ok := true
	switch r.Kind {
	case whatif.Request:
		ok = b.fits(b.w, b.with(r.Resource, units(r.Resource, *r.To))) && (r.Next == nil || !b.fits(b.w, b.with(r.Resource, units(r.Resource, *r.Next))))
	case whatif.End:
		var gone []types.UID
		for _, h := range r.End {
			gone = append(gone, types.UID(h.UID))
		}
		ok = slices.Contains(b.w.without(gone...).fitting(b.tb, b.engine, b.pod), r.Node)
	case whatif.Nodes:
		ok = b.nodes() >= r.Nodes
	}
	if !ok {
		b.tb.Errorf("not true: %s", r)
	}
}
