// Package kubescheduler computes which nodes kube-scheduler's own plugins rule out for a pod before
// it calls an extender: NodeName, NodeUnschedulable, TaintToleration, NodeAffinity with the
// nodeSelector, and NodeResourcesFit, in this order, as in kube-scheduler's default profile.
// Reasons are kube-scheduler's own texts.
//
// It does not evaluate ports, volumes, dynamic resources, topology spread and affinity between
// pods: nodes that these rule out pass.
package kubescheduler

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
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
	requests corev1.ResourceList
	names    []corev1.ResourceName // of requests, in order
}

// For returns the filters for the pod, which must not be changed afterwards. They do not count the
// ignored resources, which are those with ignoredByScheduler.
func For(pod *corev1.Pod, ignored ...corev1.ResourceName) *Filters {
	f := &Filters{pod: pod, requests: snapshot.PodRequests(pod)}
	if pod.Spec.NodeSelector != nil || pod.Spec.Affinity != nil {
		affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
		f.affinity = &affinity
	}
	for _, name := range slices.Sorted(maps.Keys(f.requests)) {
		if quantity := f.requests[name]; quantity.Sign() > 0 && !slices.Contains(ignored, name) {
			f.names = append(f.names, name)
		}
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
func (f *Filters) Lacks(n *snapshot.Node) string {
	allocatable := n.Object.Status.Allocatable
	if limit := allocatable[corev1.ResourcePods]; int64(len(n.Pods)) >= limit.Value() {
		return tooManyPods
	}
	if len(f.names) == 0 {
		return ""
	}
	used := *requested.Of(n)
	for _, name := range f.names {
		all := used[name].DeepCopy()
		all.Add(f.requests[name])
		if all.Cmp(allocatable[name]) > 0 {
			return insufficientStart + string(name)
		}
	}
	return ""
}

// requested is what the pods of a node request together. It does not depend on the pod that is to be placed.
var requested = snapshot.NewFact(func(n *snapshot.Node) corev1.ResourceList {
	sums := corev1.ResourceList{}
	for _, pod := range n.Pods {
		for name, quantity := range snapshot.PodRequests(pod) {
			sum := sums[name]
			sum.Add(quantity)
			sums[name] = sum
		}
	}
	return sums
})
