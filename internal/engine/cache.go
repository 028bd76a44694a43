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

// TakeNodeCache gives the Cycle the cache for its signature, with all rows of its View. Until ReturnNodeCache, no other Cycle uses it. It
// does nothing if the results are those of this pod alone: for a pod without a signature, or for which a node has something already, by a
// claim or because the pod is there.
func (c *Cycle) TakeNodeCache() {
	alike := len(c.signature) > 0 && len(c.signature) <= maxSignature && c.pod.Spec.NodeName == "" &&
		(c.engine.claimants == nil || !c.engine.holders.has(c.view, c.pod.UID))
	if alike {
		c.cache = c.engine.caches.take(c.signature, c.view.Rows())
	}
}

// ReturnNodeCache lets other Cycles use the cache that TakeNodeCache took; without it, it does nothing.
func (c *Cycle) ReturnNodeCache() {
	if c.cache != nil {
		c.engine.caches.put(c.cache)
		c.cache = nil
	}
}

// cachedNode returns the entry for the node with this index in the call. The entry is empty if the node has changed.
// It is nil if the node is not in the view.
func (c *Cycle) cachedNode(index int) *cachedNode {
	if c.cache == nil {
		return nil
	}
	return c.cachedAt(c.nodes[index], int(c.rows[index]))
}

// cachedAt is cachedNode for a node with this row.
func (c *Cycle) cachedAt(n *snapshot.Node, row int) *cachedNode {
	if c.cache == nil || c.view.At(row) != n {
		return nil
	}
	cached := &c.cache.nodes[row]
	if version := c.view.Version(row); cached.version != version {
		*cached = cachedNode{version: version}
	}
	return cached
}

// nameOf returns the name of the node with this index in the call. It does not load the node if it need not.
func (c *Cycle) nameOf(index int) string {
	if n := c.nodes[index]; c.cache == nil || c.view.At(int(c.rows[index])) != n {
		return n.Name
	}
	return c.view.NodeIndex().Name(int(c.rows[index]))
}

// appendSignature appends the signature of a member's cycle. It returns false if the cycle has none.
func appendSignature(to []byte, member int, cycle policy.Cycle) ([]byte, bool) {
	s, ok := cycle.(policy.Signature)
	if !ok {
		return to, false
	}
	text := s.Signature()
	_, filters := cycle.(policy.Filter)
	_, scores := cycle.(policy.Score)
	_, normalizes := cycle.(policy.NormalizeScore)
	_, together := cycle.(policy.ScoreRows)
	to = binary.AppendUvarint(to, uint64(member))
	for _, does := range []bool{filters, scores, normalizes, together} {
		if does {
			to = append(to, 1)
		} else {
			to = append(to, 0)
		}
	}
	to = binary.AppendUvarint(to, uint64(len(text)))
	return append(to, text...), true
}

// take removes the cache for the signature from the caches, or makes one, and returns it with this many rows.
func (cs *nodeCaches) take(signature []byte, rows int) *nodeCache {
	c, found := cs.find(signature, rows)
	if !found {
		clear(c.nodes)
		c.index.position, c.index.columns = 0, nil
	}
	if rows > len(c.nodes) {
		c.nodes = append(make([]cachedNode, 0, rows), c.nodes...)[:rows]
	}
	return c
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

// put returns a cache to the caches. It replaces one for the same signature, which a concurrent request returned.
func (cs *nodeCaches) put(c *nodeCache) {
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
