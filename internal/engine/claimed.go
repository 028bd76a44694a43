package engine

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// preferClaimed gives a node on which the pod already holds a claim the largest total, and every
// other node less, because the pod would hold a second claim there.
func (c *Cycle) preferClaimed(indices []int32, totals []int64) {
	most := c.maxTotal()
	if c.engine.claimants == nil || most == 0 {
		return
	}
	found := false
	for j, i := range indices {
		if c.holdsClaim(c.nodes[i]) {
			totals[j], found = most, true
		}
	}
	if !found {
		return
	}
	for j, i := range indices {
		if totals[j] == most && !c.holdsClaim(c.nodes[i]) {
			totals[j]--
		}
	}
}

// holdsClaim reports whether the pod holds a claim on the node from an earlier attempt to bind it.
func (c *Cycle) holdsClaim(n *snapshot.Node) bool {
	claimants := c.engine.claimants
	return claimants != nil && c.pod.UID != "" && slices.Contains(*claimants.Of(n), c.pod.UID)
}

// claimants returns the pods that hold claims on the node's units and are not bound to it.
func claimants(n *snapshot.Node) []types.UID {
	if len(n.Ledgers) == 0 {
		return nil
	}
	bound := make(map[types.UID]struct{}, len(n.Pods))
	for _, pod := range n.Pods {
		bound[pod.UID] = struct{}{}
	}
	var waiting []types.UID
	for _, l := range n.Ledgers {
		for i := range l.Pods {
			if _, ok := bound[l.Pods[i].UID]; !ok {
				waiting = append(waiting, l.Pods[i].UID)
			}
		}
	}
	return waiting
}

// holders are the pods on the nodes of a View, and in the ledgers of the nodes. A policy that allocates resources evaluates the nodes that
// have something for the pod in another way for this pod than for all others. The zero value is ready to use.
type holders struct {
	mu   sync.Mutex
	view *snapshot.View // nil: none yet
	// counts is how often each pod is there: usually once on a node, and twice in each ledger.
	counts map[types.UID]int32
}

// has reports whether the pod is there in the View. It takes as long as the nodes that have changed since the last call require.
func (h *holders) has(view *snapshot.View, pod types.UID) bool {
	if pod == "" {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.view != view {
		h.update(view)
	}
	return h.counts[pod] > 0
}

func (h *holders) update(view *snapshot.View) {
	last := h.view
	h.view = view
	switch {
	case last == nil:
		h.counts = map[types.UID]int32{}
		for n := range view.All() {
			h.replace(nil, n)
		}
	case last.NodeIndex() == view.NodeIndex():
		for n := range view.ChangedSince(last) {
			h.replace(last.At(n.Row()), n)
		}
	default:
		for row := range max(last.Rows(), view.Rows()) {
			if last.Version(row) != view.Version(row) {
				h.replace(last.At(row), view.At(row))
			}
		}
	}
}

// replace replaces what a node, or nil, has.
func (h *holders) replace(was, is *snapshot.Node) {
	var before, after []*corev1.Pod
	var held, holds []*snapshot.Ledger
	if was != nil {
		before, held = was.Pods, was.Ledgers
	}
	if is != nil {
		after, holds = is.Pods, is.Ledgers
	}
	for len(before) > 0 && len(after) > 0 && before[0].UID == after[0].UID {
		before, after = before[1:], after[1:]
	}
	for len(before) > 0 && len(after) > 0 && before[len(before)-1].UID == after[len(after)-1].UID {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	for _, pod := range after {
		h.add(pod.UID, 1)
	}
	for _, pod := range before {
		h.add(pod.UID, -1)
	}
	if !slices.Equal(held, holds) {
		h.addLedgers(holds, 1)
		h.addLedgers(held, -1)
	}
}

func (h *holders) addLedgers(ledgers []*snapshot.Ledger, n int32) {
	for _, l := range ledgers {
		for i := range l.Pods {
			h.add(l.Pods[i].UID, n)
		}
		for i := range l.Units {
			for _, claim := range l.Units[i].Claims { // the ledger may hold only the claims
				h.add(claim.Pod, n)
			}
		}
	}
}

func (h *holders) add(pod types.UID, n int32) {
	if h.counts[pod] += n; h.counts[pod] == 0 {
		delete(h.counts, pod)
	}
}
