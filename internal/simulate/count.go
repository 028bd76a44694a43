package simulate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// CountBy lets nodes report the resource, and pods request it, as the policy counts it, if no node
// reports it: labels and annotations do, with some node agents. A pod requests what it would get on
// the first empty node on which it fits. If counted is true, kube-scheduler must ignore the resource.
func (p *Plan) CountBy(allocator policy.Reserver, name corev1.ResourceName) (counted bool) {
	lister, ok := allocator.(policy.UnitLister)
	reports := func(n *corev1.Node) bool { return n.Status.Allocatable.Name(name, resource.DecimalSI).Sign() > 0 }
	if !ok || slices.ContainsFunc(p.Nodes, reports) {
		return false
	}
	var builder snapshot.Builder
	for _, n := range p.Nodes {
		builder.SetNode(n)
	}
	view := builder.View()
	units := lister.Units(view)
	if units.Resource != name {
		return false
	}
	for _, pod := range slices.Concat(p.Running, p.Pending, p.Mix) {
		if amount := first(allocator, pod, view, name); amount > 0 {
			pod.Spec.Containers = slices.Clone(pod.Spec.Containers)
			c := &pod.Spec.Containers[0]
			c.Resources = *c.Resources.DeepCopy()
			setAmount(&c.Resources.Requests, name, amount)
		}
	}
	for _, of := range units.Nodes {
		sum := int64(0)
		for i := range of.Units {
			if !of.Units[i].Unhealthy {
				sum += of.Units[i].Capacity
			}
		}
		i := slices.IndexFunc(p.Nodes, func(n *corev1.Node) bool { return n.Name == of.Node })
		setAmount(&p.Nodes[i].Status.Allocatable, name, sum)
	}
	return true
}

func setAmount(list *corev1.ResourceList, name corev1.ResourceName, amount int64) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = *resource.NewQuantity(amount, resource.DecimalSI)
}

// first returns what the pod would get of the resource on the first node on which it fits.
func first(allocator policy.Reserver, pod *corev1.Pod, view *snapshot.View, name corev1.ResourceName) (sum int64) {
	for n := range view.All() {
		keys, err := allocator.Ledgers(pod, n)
		if err != nil || !slices.Contains(keys, snapshot.LedgerKey{Resource: string(name), Node: n.Name}) {
			return 0
		}
		allocation, verdict := allocator.Reserve(policy.ReserveRequest{Pod: pod, Node: n, View: view, Ledger: &snapshot.Ledger{Resource: string(name), Node: n.Name}, At: start})
		for _, a := range allocation.Amounts {
			sum += a.Amount
		}
		if verdict.Fits() {
			return sum
		}
	}
	return 0
}
