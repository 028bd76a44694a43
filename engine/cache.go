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

// cachedEvaluations is how many evaluations an Engine keeps. Each holds the prepared policies, and the view.
const cachedEvaluations = 16

// evaluations are the latest evaluations whose policies are prepared, one in each slot; a pod's UID decides the slot. An
// evaluation is owned by one request at a time: taking it empties the slot, so nothing is shared and nothing is locked. A second
// request about the same pod at the same time just evaluates for itself.
type evaluations struct {
	slots [cachedEvaluations]atomic.Pointer[evaluation]
}

var seed = maphash.MakeSeed()

// slot returns the request's slot, or nil if its pod has no identity.
func (es *evaluations) slot(key evaluationKey) *atomic.Pointer[evaluation] {
	if !key.identified() {
		return nil
	}
	return &es.slots[maphash.String(seed, string(key.uid))%cachedEvaluations]
}

// take returns an evaluation for the request, and whether it is prepared for it.
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

// put keeps a prepared evaluation. One that leaves a policy out is not kept: the
// failure may depend on the nodes asked, and the next request may ask others.
func (es *evaluations) put(ev *evaluation) {
	if slot := es.slot(ev.key); slot != nil && !ev.leavesOut() {
		slot.Store(ev)
	}
}

const (
	// maxNodeCaches is how many signatures an Engine caches nodes for. Each takes 16 bytes for a row of the view, and keeps nodes
	// that have changed since alive until pods with the signature are asked about again.
	maxNodeCaches = 16
	// minCachedNodes is how many nodes a request must ask about to use the cache.
	minCachedNodes = 8
	// maxSignature is the length of the longest signature, in bytes, with which the cache is used.
	maxSignature = 16 << 10
	// cachedScores is how many policies the scores of a node are cached of.
	cachedScores = 7
)

// nodeCaches are the nodeCaches of the latest signatures. A nodeCache is owned by one request at a time.
type nodeCaches struct {
	mu     sync.Mutex
	latest []*nodeCache // the latest last
}

// nodeCache is what the policies with a signature have said about nodes, for all pods with the same signature of all of them.
type nodeCache struct {
	signature []byte
	nodes     []cachedNode // by row
	rows      []int32      // memory for the rows of the nodes asked
}

// cachedNode is what is cached about a node for as long as it is the same. What is cached of another node of its row is not used.
type cachedNode struct {
	node *snapshot.Node
	// fits says that all policies with a signature let the node pass. Rejections are not cached: they have numbers.
	fits bool
	// scores are those of the first policies with a signature that score and do not normalize; notScored if one was not asked.
	scores [cachedScores]int8
}

const notScored = policy.NoOpinion - 1

// sign makes the signature of a member's cycle a part of that of the evaluation, and says whether the cycle has one.
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

// take gives the evaluation the cache for its signature, if it has one and the request asks about many nodes.
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

// find takes the cache for the signature, or makes an empty one.
func (cs *nodeCaches) find(signature []byte) *nodeCache {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	at := slices.IndexFunc(cs.latest, func(c *nodeCache) bool { return string(c.signature) == string(signature) })
	if at < 0 {
		return &nodeCache{signature: slices.Clone(signature)}
	}
	c := cs.latest[at]
	cs.latest = slices.Delete(cs.latest, at, at+1)
	return c
}

// put takes the cache of the evaluation back.
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

// cachedNode returns what is cached about the node with the index in the request: nothing yet if it has changed, and nil if it is
// not a node of the view.
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

// nameOf is the name of the node with the index in the request.
func (ev *evaluation) nameOf(n *snapshot.Node, index int) string {
	if ev.cache == nil || ev.key.view.At(int(ev.rows[index])) != n {
		return n.Name
	}
	return ev.key.view.NodeIndex().Name(int(ev.rows[index]))
}

// scoreOf is the score of the node with the index in the request, from the cache if it is there.
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
