package strategy

import (
	"sync/atomic"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/snapshot"
)

// ratingSlots is how many ratings are kept with a node: about the number of common shapes of pods.
const ratingSlots = 64

// nodeState holds what is free of a node, and its ratings for some shapes of pods.
type nodeState struct {
	node    placement.Node
	kind    placement.Kind
	order   placement.Cost
	ratings [ratingSlots]atomic.Pointer[rating]
}

// rating is what a node offers for a shape. It is immutable.
type rating struct {
	model  *workloadModel
	shape  placement.Shape
	offers placement.Offers
}

func newNodeState(n *snapshot.Node, free placement.Node) *nodeState {
	return &nodeState{node: free, kind: free.Kind(), order: placement.Order(string(n.Object.UID))}
}
