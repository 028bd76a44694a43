package engine

import (
	"container/list"
	"encoding/binary"
	"sync"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

const (
	// maxNodeCacheBytes is how much memory an Engine uses to cache nodes: about 200 signatures with 5,000 nodes.
	maxNodeCacheBytes = 16 << 20
	// nodeCacheBytes is about what a nodeCache takes beside its nodes and its signature.
	nodeCacheBytes = 256
	// cachedNodeBytes is the size of a cachedNode.
	cachedNodeBytes = 16
	// minCachedNodes is how many nodes a request must have to use the cache.
	minCachedNodes = 8
	// maxSignature is the length in bytes of the longest signature that is cached.
	maxSignature = 16 << 10
	// cachedScores is for how many policies the score of a node is cached.
	cachedScores = 7
)

// nodeCaches holds the caches for the latest signatures, at most maxNodeCacheBytes. One request at a time owns a nodeCache. The zero
// value is ready to use.
type nodeCaches struct {
	mu          sync.Mutex
	latest      list.List // of *nodeCache, the latest one last
	bySignature map[string]*list.Element
	bytes       int // of all in latest
}

// nodeCache holds the results of the policies with a signature, for all pods for which these signatures are the same.
type nodeCache struct {
	signature string
	nodes     []cachedNode // by row
	index     index
}

// cachedNode holds the results for one node. It has no pointers, so that the garbage collector neither reads the caches nor keeps the
// nodes for them. The zero value holds nothing.
type cachedNode struct {
	// version is that of the node: if the row has another one, the results are not valid.
	version uint64
	// fits is true if all policies with a signature let the node pass. Rejections are not cached, because they have
	// numbers.
	fits bool
	// scores are those of the first policies with a signature that score and do not normalize, each less the smallest
	// score and plus 1; 0 if the score is unknown.
	scores [cachedScores]uint8
}

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
	_, together := cycle.(policy.ScoreRows)
	ev.signature = binary.AppendUvarint(ev.signature, uint64(member))
	for _, does := range []bool{filters, scores, normalizes, together} {
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

// takeForRequest gives the evaluation the cache for its signature and the rows of the request, unless the evaluation has no signature or the
// request has few nodes.
func (cs *nodeCaches) takeForRequest(ev *evaluation, req *Request, memory *scratch) {
	if ev.cache == nil && (len(req.Nodes) < minCachedNodes || !cs.take(ev)) {
		return
	}
	ev.rows = req.Rows
	if ev.rows == nil {
		memory.rows = memory.rows[:0]
		for _, n := range req.Nodes {
			row := -1
			if n != nil {
				row = n.Row()
			}
			memory.rows = append(memory.rows, int32(row))
		}
		ev.rows = memory.rows
	}
}

// alike reports whether the results of the policies with a signature are those for all pods with the same signatures. A pod for which a
// node has something already, by a claim or because the pod is there, never shares results with others.
func (ev *evaluation) alike() bool {
	return len(ev.signature) > 0 && len(ev.signature) <= maxSignature && ev.pod.Spec.NodeName == "" &&
		(ev.holders == nil || !ev.holders.has(ev.view, ev.pod.UID))
}

// take gives the evaluation the cache for its signature, with all rows of its view. It returns false if it can use none.
func (cs *nodeCaches) take(ev *evaluation) bool {
	if !ev.alike() {
		return false
	}
	rows := ev.view.Rows()
	c, found := cs.find(ev.signature, rows)
	if !found {
		clear(c.nodes)
		c.index.position, c.index.columns = 0, nil
	}
	if rows > len(c.nodes) {
		c.nodes = append(make([]cachedNode, 0, rows), c.nodes...)[:rows]
	}
	ev.cache = c
	return true
}

// find removes the cache for the signature from the caches and returns it. If it finds none, it returns one for this signature, with
// the memory and the results of the least recently used one if a cache with this many rows would exceed the limit: then pods of
// too many templates cause no garbage.
func (cs *nodeCaches) find(signature []byte, rows int) (c *nodeCache, found bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if at := cs.bySignature[string(signature)]; at != nil {
		return cs.remove(at), true
	}
	c = &nodeCache{}
	if oldest := cs.latest.Front(); oldest != nil && cs.bytes+nodeCacheBytes+len(signature)+rows*cachedNodeBytes > maxNodeCacheBytes {
		c = cs.remove(oldest)
	}
	c.signature = string(signature)
	return c, false
}

// put returns the cache of the evaluation to the caches. It replaces one for the same signature, which a concurrent request returned.
func (cs *nodeCaches) put(ev *evaluation) {
	c := ev.cache
	if ev.cache, ev.rows = nil, nil; c == nil {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if at := cs.bySignature[c.signature]; at != nil {
		cs.remove(at)
	}
	if cs.bySignature == nil {
		cs.bySignature = map[string]*list.Element{}
	}
	cs.bySignature[c.signature] = cs.latest.PushBack(c)
	for cs.bytes += c.bytes(); cs.bytes > maxNodeCacheBytes; {
		cs.remove(cs.latest.Front())
	}
}

// remove is for callers that hold the lock.
func (cs *nodeCaches) remove(at *list.Element) *nodeCache {
	c := cs.latest.Remove(at).(*nodeCache)
	delete(cs.bySignature, c.signature)
	cs.bytes -= c.bytes()
	return c
}

func (c *nodeCache) bytes() int {
	return nodeCacheBytes + len(c.signature) + cap(c.nodes)*cachedNodeBytes + c.index.bytes()
}

// cachedNode returns the entry for the node with this index in the request. The entry is empty if the node has changed.
// It is nil if the node is not in the view.
func (ev *evaluation) cachedNode(n *snapshot.Node, index int) *cachedNode {
	if ev.cache == nil {
		return nil
	}
	return ev.cachedAt(n, int(ev.rows[index]))
}

// cachedAt is cachedNode for a node with this row.
func (ev *evaluation) cachedAt(n *snapshot.Node, row int) *cachedNode {
	if ev.cache == nil || ev.view.At(row) != n {
		return nil
	}
	c := &ev.cache.nodes[row]
	if version := ev.view.Version(row); c.version != version {
		*c = cachedNode{version: version}
	}
	return c
}

// nameOf returns the name of the node with this index in the request.
func (ev *evaluation) nameOf(n *snapshot.Node, index int) string {
	if ev.cache == nil || ev.view.At(int(ev.rows[index])) != n {
		return n.Name
	}
	return ev.view.NodeIndex().Name(int(ev.rows[index]))
}

// scoreOf returns the score of the node with this index in the request, from the cache if it is there.
func (ev *evaluation) scoreOf(scorer *scorerRef, n *snapshot.Node, index int) int64 {
	var c *cachedNode
	if scorer.slot >= 0 {
		c = ev.cachedNode(n, index)
	}
	return ev.scoreAt(scorer, n, c)
}

// scoreAt is scoreOf with the node's entry in the cache; nil: the score is not cached.
func (ev *evaluation) scoreAt(scorer *scorerRef, n *snapshot.Node, c *cachedNode) int64 {
	if scorer.slot < 0 {
		c = nil
	}
	if c != nil && c.scores[scorer.slot] != 0 {
		return int64(c.scores[scorer.slot]) - 1 + policy.NoOpinion
	}
	score := scorer.score.Score(n)
	if c != nil && score >= policy.NoOpinion && score <= policy.MaxScore {
		c.scores[scorer.slot] = uint8(score - policy.NoOpinion + 1)
	}
	return score
}
