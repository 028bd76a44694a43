// Package kubescheduler computes which nodes kube-scheduler's own plugins rule out for a pod before
// it calls an extender: NodeName, NodeUnschedulable, TaintToleration, NodeAffinity with the
// nodeSelector, and NodeResourcesFit, in this order, as in kube-scheduler's default profile.
// Reasons are kube-scheduler's own texts.
//
// It does not evaluate ports, volumes, dynamic resources, topology spread and affinity between
// pods: nodes that these rule out pass, also for extended resources that DeviceClasses serve.
package kubescheduler

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"outboard.dev/outboard/snapshot"
)

// The reasons that do not depend on the pods on a node.
const (
	Unschedulable     = "node(s) were unschedulable"
	OtherName         = "node(s) didn't match the requested node name"
	UntoleratedTaint  = "node(s) had untolerated taint(s)"
	AffinityMismatch  = "node(s) didn't match Pod's node affinity/selector"
	tooManyPods       = "Too many pods"
	insufficientStart = "Insufficient "
)

// Filters are kube-scheduler's filters for one pod. They are safe for concurrent use.
type Filters struct {
	pod      *corev1.Pod
	affinity *nodeaffinity.RequiredNodeAffinity // nil: any node
	requests []request                          // in order of name
}

// request is an amount of a resource. What a pod requests is more than 0.
type request struct {
	name   corev1.ResourceName
	amount resource.Quantity
	served bool // by a DeviceClass, on nodes that do not report the resource
}

// For returns the filters for the pod, which must not be changed afterwards. They do not count the
// ignored resources, which are those with ignoredByScheduler.
func For(pod *corev1.Pod, ignored ...corev1.ResourceName) *Filters {
	f := &Filters{pod: pod}
	if pod.Spec.NodeSelector != nil || pod.Spec.Affinity != nil {
		affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
		f.affinity = &affinity
	}
	requests := snapshot.PodRequests(pod)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if amount := requests[name]; amount.Sign() > 0 && !slices.Contains(ignored, name) {
			f.requests = append(f.requests, request{name: name, amount: amount})
		}
	}
	return f
}

// In returns the filters with the DeviceClasses of the View. A node that does not report a resource
// which a class serves does not lack it: kube-scheduler allocates devices for it.
func (f *Filters) In(view *snapshot.View) *Filters {
	for i := range f.requests {
		f.requests[i].served, _ = view.ServesResource(f.requests[i].name)
	}
	return f
}

// Excludes returns why the pod cannot run on the node, whatever pods are there; "" if it can.
func (f *Filters) Excludes(n *corev1.Node) string {
	switch {
	case f.pod.Spec.NodeName != "" && f.pod.Spec.NodeName != n.Name:
		return OtherName
	case n.Spec.Unschedulable && !f.tolerates(corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}):
		return Unschedulable
	case !f.tolerates(n.Spec.Taints...):
		return UntoleratedTaint
	case f.affinity != nil:
		if matches, _ := f.affinity.Match(n); !matches { // kube-scheduler ignores unparsable terms, too
			return AffinityMismatch
		}
	}
	return ""
}

func (f *Filters) tolerates(taints ...corev1.Taint) bool {
	if len(taints) == 0 {
		return true
	}
	_, untolerated := scheduling.FindMatchingUntoleratedTaint(klog.Background(), taints, f.pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, true) // the API server decides whether pods may have tolerations with Lt and Gt
	return !untolerated
}

// Lacks returns the resource of which the node has too little left for the pod, as "Insufficient
// cpu"; "" if it has enough of all.
func (f *Filters) Lacks(n *snapshot.Node) string { return f.LacksWithout(n) }

// LacksWithout is like Lacks for the node without these of its pods, which are few or all of them.
func (f *Filters) LacksWithout(n *snapshot.Node, gone ...*corev1.Pod) string {
	here := free.Of(n)
	if here.pods+int64(len(gone)) <= 0 {
		return tooManyPods
	}
	if len(f.requests) == 0 {
		return ""
	}
	var freed []corev1.ResourceList
	empty := len(gone) > 0 && len(gone) == len(n.Pods)
	if !empty {
		for _, pod := range gone {
			freed = append(freed, snapshot.PodRequests(pod))
		}
	}
	for i := range f.requests {
		r := &f.requests[i]
		if r.served && !reports(n, r.name) {
			continue
		}
		rest := here.left(r.name)
		if empty {
			rest = n.Object.Status.Allocatable[r.name].DeepCopy()
		}
		for _, list := range freed {
			rest.Add(list[r.name])
		}
		if rest.Cmp(r.amount) < 0 { // Cmp may change its receiver
			return insufficientStart + string(r.name)
		}
	}
	return ""
}

const (
	minNodesToFind     = 100 // kube-scheduler's minFeasibleNodesToFind
	minPercentageFound = 5   // and minFeasibleNodesPercentageToFind
)

// NodesToFind returns how many feasible nodes kube-scheduler looks for, out of all nodes, before it
// stops. percentage is percentageOfNodesToScore, where 0 is the adaptive default.
func NodesToFind(all, percentage int) int {
	if all < minNodesToFind {
		return all
	}
	if percentage == 0 {
		percentage = max(minPercentageFound, 50-all/125)
	}
	return min(all, max(minNodesToFind, all*percentage/100))
}

// Sampled reports whether a call for so many of all nodes may be for a sample: whether
// kube-scheduler looks for exactly so many with any percentageOfNodesToScore. By chance, about
// every (all/100)th call for all nodes that pass kube-scheduler's filters is such a call, too.
func Sampled(asked, all int) bool {
	fewest := (100*asked + all - 1) / max(all, 1) // percent that makes so many
	return asked < all && (asked == minNodesToFind || asked > minNodesToFind && asked == all*fewest/100)
}

// Unsure reports whether nodes for which Lacks gives the reason may have enough, because a
// DeviceClass may serve the extended resource: no class is known, and no node reports the resource.
func Unsure(reason string, view *snapshot.View) bool {
	name, unsure := strings.CutPrefix(reason, insufficientStart)
	unsure = unsure && strings.Contains(name, "/")
	if _, known := view.ServesResource(corev1.ResourceName(name)); known {
		return false
	}
	for n := range view.All() {
		unsure = unsure && !reports(n, corev1.ResourceName(name))
	}
	return unsure
}

func reports(n *snapshot.Node, name corev1.ResourceName) bool {
	amount := n.Object.Status.Allocatable[name]
	return !amount.IsZero()
}

// remaining is how much the pods on a node leave, less than 0 if they request more than it has.
type remaining struct {
	pods      int64
	resources []request // a list, because maps of a few thousand nodes take longer to read
}

// left returns how much of the resource is left; it shares nothing with the room.
func (r *remaining) left(name corev1.ResourceName) resource.Quantity {
	for i := range r.resources {
		if r.resources[i].name == name {
			return r.resources[i].amount.DeepCopy() // Add changes what copies of a large Quantity share
		}
	}
	return resource.Quantity{}
}

// free is the room on a node. A node keeps it, so that only changed nodes cost the sum over their
// pods.
var free = snapshot.NewFact(func(n *snapshot.Node) remaining {
	left := maps.Clone(n.Object.Status.Allocatable)
	if left == nil {
		left = corev1.ResourceList{}
	}
	for _, pod := range n.Pods {
		for name, quantity := range snapshot.PodRequests(pod) {
			rest := left[name].DeepCopy()
			rest.Sub(quantity)
			left[name] = rest
		}
	}
	pods := n.Object.Status.Allocatable[corev1.ResourcePods]
	r := remaining{pods: pods.Value() - int64(len(n.Pods)), resources: make([]request, 0, len(left))}
	for name, amount := range left {
		r.resources = append(r.resources, request{name: name, amount: amount})
	}
	return r
})
