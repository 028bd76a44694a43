package engine

import (
	"hash/maphash"
	"sync/atomic"
)

// remembered is how many evaluations an Engine keeps. Each holds 18 bytes for
// each node of the view, the prepared policies, and the view itself.
const remembered = 64

// maxOutcomes bounds what is kept of a policy that builds its Reasons in the
// request, against its contract.
const maxOutcomes = 1000

// memory keeps the latest evaluations, one in each slot; a pod's UID decides the
// slot. An evaluation is owned by one request at a time: taking it empties the
// slot, so nothing is shared and nothing is locked. A second request about the
// same pod at the same time just evaluates for itself.
type memory struct {
	slots [remembered]atomic.Pointer[evaluation]
}

var seed = maphash.MakeSeed()

// slot returns the request's slot, or nil if its pod has no identity.
func (m *memory) slot(key evaluationKey) *atomic.Pointer[evaluation] {
	if !key.identified() {
		return nil
	}
	return &m.slots[maphash.String(seed, string(key.uid))%remembered]
}

// take returns an evaluation for the request, and whether it already knows
// something about it.
func (m *memory) take(req Request) (ev *evaluation, same bool) {
	key := keyOf(req)
	if slot := m.slot(key); slot != nil {
		ev = slot.Swap(nil)
	}
	if ev == nil {
		ev = new(evaluation)
	}
	same = ev.key == key && ev.prepared
	ev.key = key
	return ev, same
}

// put keeps a prepared evaluation. One that leaves a policy out is not kept: the
// failure may depend on the nodes asked, and the next request may ask others.
func (m *memory) put(ev *evaluation) {
	if slot := m.slot(ev.key); slot != nil && !ev.leavesOut() && len(ev.outcomes) <= maxOutcomes {
		slot.Store(ev)
	}
}
