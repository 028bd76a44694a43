package policy

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// UnitLister is implemented by a Policy that allocates units, such as GPUs or seats, so that people
// can look at all of them.
type UnitLister interface {
	// Units returns the units in the View. It is called about once for each View that somebody
	// looks at, so it takes what belongs to one node from a snapshot.Fact.
	Units(view *snapshot.View) UnitList
}

// UnitList are the units of one resource.
type UnitList struct {
	// Resource is the extended resource, or the prefix of the resources of ledgers that pools have,
	// without a slash at the end.
	Resource corev1.ResourceName
	// Title is what people call the resource, such as "GPU memory", and Unit the unit of the
	// amounts, such as "GiB"; "" if they have none.
	Title, Unit string
	// Nodes have units, in any order; their Units are shared, and not changed. A pool that belongs
	// to no node has its own name as Node, and one unit of that name.
	Nodes []NodeUnits
}

// NodeUnits are the units of one node.
type NodeUnits struct {
	Node string
	// Group is what similar nodes are shown under, such as the model of their GPUs; "" if that is
	// not known.
	Group string
	Units []Unit
}

// Unit is one GPU, device or pool.
type Unit struct {
	Name string
	// Capacity is how much there is, Used how much of that pods hold, which may be more, and
	// Reserved the part of Used that is not in use yet.
	Capacity, Used, Reserved int64
	// Unhealthy units are not given to pods. A unit that is Gone does not exist any more, but a pod
	// holds some of it.
	Unhealthy, Gone bool
	// Holders have Used, if no ledger says who does.
	Holders []UnitHolder
}

// UnitHolder is a ResourceClaim that has something of a unit.
type UnitHolder struct {
	Claim types.NamespacedName
	// Pod is a pod on the node that uses the claim; "" if there is none.
	Pod    types.UID
	Amount int64
}
