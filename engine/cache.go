package engine

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// cachedEvaluations is how many evaluations an Engine keeps. Each holds the prepared policies and their view.
const cachedEvaluations = 16

// evaluations holds the latest evaluations with prepared policies, one for each slot; the UID of a pod determines its
// slot. One request at a time owns an evaluation: taking it empties the slot, so that no locks are needed. A concurrent
// request for the same pod prepares an evaluation of its own.
type evaluations struct {
	slots [cachedEvaluations]atomic.Pointer[evaluation]
}

var seed = maphash.MakeSeed()

// slot returns the slot for the key, or nil if the key does not identify a pod.
func (es *evaluations) slot(key evaluationKey) *atomic.Pointer[evaluation] {
	if !key.identified() {
		return nil
	}
	return &es.slots[maphash.String(seed, string(key.uid))%cachedEvaluations]
}

// take returns an evaluation for the request, and whether it is prepared for it already.
func (es *evaluations) take(req Request) (ev *evaluation, same bool) {
	key := keyOf(req)
	if slot := es.slot(key); slot != nil {
		ev = slot.Swap(nil)
	}
	if ev == nil {
		ev = new(evaluation)
	}
	same = ev.key == key && ev.prepared
	ev.key = key
	return ev, same
}

// put keeps a prepared evaluation. It does not keep one that ignores a failed policy: the failure
// may depend on the nodes of the request, and the next request may have others.
func (es *evaluations) put(ev *evaluation) {
	if slot := es.slot(ev.key); slot != nil && !ev.leavesOut() {
		slot.Store(ev)
	}
}

const (
	// maxNodeCaches is for how many signatures an Engine caches nodes. Each cache takes 16 bytes for every row of the
	// view, and keeps outdated nodes alive until the next request for a pod with its signature.
	maxNodeCaches = 16
	// minCachedNodes is how many nodes a request must have to use the cache.
	minCachedNodes = 8
	// maxSignature is the length in bytes of the longest signature that is cached.
	maxSignature = 16 << 10
	// cachedScores is for how many policies the score of a node is cached.
	cachedScores = 7
)

// nodeCaches holds the caches for the latest signatures. One request at a time owns a nodeCache.
type nodeCaches struct {
	mu     sync.Mutex
	latest []*nodeCache // the latest one last
}

// nodeCache holds the results of the policies with a signature, for all pods for which these signatures are the same.
type nodeCache struct {
	signature []byte
	nodes     []cachedNode // by row
	rows      []int32      // scratch memory for the rows of the requested nodes
}

// cachedNode holds the results for one node. They are valid only while the row has the same node.
type cachedNode struct {
	node *snapshot.Node
	// fits is true if all policies with a signature let the node pass. Rejections are not cached, because they have
	// numbers.
	fits bool
	// scores are those of the first policies with a signature that score and do not normalize; notScored if the score
	// is unknown.
	scores [cachedScores]int8
}

const notScored = policy.NoOpinion - 1

// sign appends the signature of a member's cycle to that of the evaluation. It returns false if the cycle has none.
func (ev *evaluation) sign(member int, cycle policy.Cycle) bool {
	s, ok := cycle.(policy.Signature)
	if !ok {
		return false
	}
	text := s.Signature()
	_, filters := cycle.(policy.Filter)
	_, scores := cycle.(policy.Score)
	_, normalizes := cycle.(policy.NormalizeScore)
	ev.signature = binary.AppendUvarint(ev.signature, uint64(member))
	for _, does := range []bool{filters, scores, normalizes} {
		if does {
			ev.signature = append(ev.signature, 1)
		} else {
			ev.signature = append(ev.signature, 0)
		}
	}
	ev.signature = binary.AppendUvarint(ev.signature, uint64(len(text)))
	ev.signature = append(ev.signature, text...)
	return true
}

// take gives the evaluation the cache for its signature, if it has one and the request has enough nodes.
func (cs *nodeCaches) take(ev *evaluation, req *Request) {
	if len(ev.signature) == 0 || len(ev.signature) > maxSignature || len(req.Nodes) < minCachedNodes {
		return
	}
	c := cs.find(ev.signature)
	if rows := req.View.Rows(); rows > len(c.nodes) {
		c.nodes = append(make([]cachedNode, 0, rows), c.nodes...)[:rows]
	}
	if ev.rows = req.Rows; ev.rows == nil {
		c.rows = c.rows[:0]
		for _, n := range req.Nodes {
			row := -1
			if n != nil {
				row = n.Row()
			}
			c.rows = append(c.rows, int32(row))
		}
		ev.rows = c.rows
	}
	ev.cache = c
}

// find removes the cache for the signature from the caches and returns it. If there is none, it returns an empty one, in the memory of
// the least recently used one if the caches are full, so that pods of more templates than there are caches leave no garbage.
func (cs *nodeCaches) find(signature []byte) *nodeCache {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	at := slices.IndexFunc(cs.latest, func(c *nodeCache) bool { return string(c.signature) == string(signature) })
	if at < 0 && len(cs.latest) < maxNodeCaches {
		return &nodeCache{signature: slices.Clone(signature)}
	}
	c := cs.latest[max(at, 0)]
	cs.latest = slices.Delete(cs.latest, max(at, 0), max(at, 0)+1)
	if at < 0 {
		clear(c.nodes)
		c.signature = append(c.signature[:0], signature...)
	}
	return c
}

// put returns the cache of the evaluation to the caches.
func (cs *nodeCaches) put(ev *evaluation) {
	c := ev.cache
	if ev.cache, ev.rows = nil, nil; c == nil {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.latest = append(cs.latest, c)
	if len(cs.latest) > maxNodeCaches {
		cs.latest = slices.Delete(cs.latest, 0, 1)
	}
}

// cachedNode returns the entry for the node with this index in the request. The entry is empty if the node has changed.
// It is nil if the node is not in the view.
func (ev *evaluation) cachedNode(n *snapshot.Node, index int) *cachedNode {
	if ev.cache == nil {
		return nil
	}
	row := ev.rows[index]
	if ev.key.view.At(int(row)) != n {
		return nil
	}
	c := &ev.cache.nodes[row]
	if c.node != n {
		*c = cachedNode{node: n}
		for i := range c.scores {
			c.scores[i] = int8(notScored)
		}
	}
	return c
}

// nameOf returns the name of the node with this index in the request.
func (ev *evaluation) nameOf(n *snapshot.Node, index int) string {
	if ev.cache == nil || ev.key.view.At(int(ev.rows[index])) != n {
		return n.Name
	}
	return ev.key.view.NodeIndex().Name(int(ev.rows[index]))
}

// scoreOf returns the score of the node with this index in the request, from the cache if it is there.
func (ev *evaluation) scoreOf(scorer *scorerRef, n *snapshot.Node, index int) int64 {
	var c *cachedNode
	if scorer.slot >= 0 {
		c = ev.cachedNode(n, index)
	}
	if c != nil && int64(c.scores[scorer.slot]) != notScored {
		return int64(c.scores[scorer.slot])
	}
	score := scorer.score.Score(n)
	if c != nil && score >= policy.NoOpinion && score <= policy.MaxScore {
		c.scores[scorer.slot] = int8(score)
	}
	return score
}
