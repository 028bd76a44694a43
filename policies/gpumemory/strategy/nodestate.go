package strategy

import (
	"sync/atomic"

	"outboard.dev/outboard/placement"
	"outboard.dev/outboard/snapshot"
)

// ratingSlots is how many ratings are kept with a node: about as many as there are
// shapes of pods that come often.
const ratingSlots = 64

// nodeState is what is free of a node, and how it was rated for some shapes of pods.
type nodeState struct {
	node    placement.Node
	kind    placement.Kind
	order   placement.Cost
	ratings [ratingSlots]atomic.Pointer[rating]
}

// rating is what a node offers a shape. It never changes.
type rating struct {
	model  *workloadModel
	shape  placement.Shape
	offers placement.Offers
}

func newNodeState(n *snapshot.Node, free placement.Node) *nodeState {
	return &nodeState{node: free, kind: free.Kind(), order: placement.Order(string(n.Object.UID))}
}
