package engine

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"sync"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

const (
	// maxNodeCaches and maxNodeCacheBytes limit what an Engine caches about nodes: with 5,000
	// nodes, the memory suffices for about 200 signatures.
	maxNodeCaches     = 256
	maxNodeCacheBytes = 16 << 20
	// minCachedNodes is how many nodes a request must have to use the cache.
	minCachedNodes = 8
	// maxSignature is the length in bytes of the longest signature that is cached.
	maxSignature = 16 << 10
)

// nodeCaches holds the caches for the latest signatures, each once and the latest one last, within
// the limits. One Cycle at a time owns a nodeCache, which is in nodeCaches only while none does.
type nodeCaches struct {
	mu     sync.Mutex
	latest []*nodeCache
}

// nodeCache holds the results of the policies with a signature, for all pods for which these
// signatures are the same. It has no pointers to nodes, so that it keeps none in memory.
//
// What it has for a row is about the node with the version there, and about no other: who reads a
// row makes sure first that this is the version of the node, and otherwise replaces all of the row
// (refresh). A policy that is ignored changes no row.
type nodeCache struct {
	signature string
	versions  []uint64
	outcomes  []uint8
	scores    [][]int32 // by slot: as Score returned them, or unknownScore
	// rejections are the outcomes after firstRejection, without nodes. There are any only if all
	// filters have a signature: otherwise the node may be rejected for an earlier reason.
	rejections tally
	// preemptible are the outcomes of nodes without all pods whose priority is lower than this.
	preemptible []uint8
	priority    int32
}

// The outcomes of a node by the filters with a signature.
const (
	unknownOutcome uint8 = iota
	passes
	firstRejection // and those after it: an index into rejections
)

const unknownScore = math.MinInt32

// TakeNodeCache gives the Cycle the cache for its signature, with all rows of its View. Until
// ReturnNodeCache, no other Cycle uses it. It does nothing if the results are those of this pod
// alone: for a pod without a signature, or for which a node has something already, by an allocation
// or because the pod is there.
func (c *Cycle) TakeNodeCache() {
	alike := len(c.signature) > 0 && len(c.signature) <= maxSignature && c.pod.Spec.NodeName == "" && !c.holds()
	if alike {
		c.cache = c.engine.caches.take(c.signature, c.view.Rows(), c.slots)
	}
}

// ReturnNodeCache lets other Cycles use the cache that TakeNodeCache took; without it, it does
// nothing.
func (c *Cycle) ReturnNodeCache() {
	if c.cache != nil {
		c.engine.caches.put(c.cache)
		c.cache = nil
	}
}

// cacheRow returns the row of the node in the cache. It is -1 if nothing is cached, and if the node
// is another one than that of the View.
func (c *Cycle) cacheRow(n *snapshot.Node) int32 {
	if c.cache == nil || n == nil {
		return -1
	}
	row := n.Row()
	if c.view.At(row) != n {
		return -1
	}
	c.cache.refresh(row, c.view.Version(row))
	return int32(row)
}

// cacheRows returns the rows of c.nodes in the cache, in scratch memory. rows are as in a Request,
// or nil.
func (c *Cycle) cacheRows(rows []int32, s *scratch) []int32 {
	s.rows = slices.Grow(s.rows[:0], len(c.nodes))[:len(c.nodes)]
	for i, n := range c.nodes {
		switch {
		case rows == nil:
			s.rows[i] = c.cacheRow(n)
		case rows[i] >= 0 && n == c.plain[i]:
			s.rows[i] = rows[i]
			c.cache.refresh(int(rows[i]), c.view.Version(int(rows[i])))
		default:
			s.rows[i] = -1
		}
	}
	return s.rows
}

// nameOf returns the name of the node with this index in the call. It does not load the node if it
// need not.
func (c *Cycle) nameOf(index int32) string {
	if c.cache == nil || c.rows[index] < 0 {
		return c.nodes[index].Name
	}
	return c.view.NodeIndex().Name(int(c.rows[index]))
}

// appendSignature appends the signature of a member's cycle. It returns false if the cycle has
// none.
func appendSignature(to []byte, member int, cycle policy.Cycle) ([]byte, bool) {
	s, ok := cycle.(policy.Signature)
	if !ok {
		return to, false
	}
	_, filters := cycle.(policy.Filter)
	_, scores := cycle.(policy.Score)
	_, normalizes := cycle.(policy.NormalizeScore)
	_, together := cycle.(policy.ScoreRows)
	to = binary.AppendUvarint(to, uint64(member))
	for _, has := range [...]bool{filters, scores, normalizes, together} {
		to = strconv.AppendBool(to, has)
	}
	text := s.Signature()
	return append(binary.AppendUvarint(to, uint64(len(text))), text...), true
}

// take removes the cache for the signature from the caches, or makes one, and returns it with this
// many rows and slots.
func (cs *nodeCaches) take(signature []byte, rows, slots int) *nodeCache {
	c := cs.remove(signature)
	if c == nil {
		c = &nodeCache{signature: string(signature), scores: make([][]int32, slots)}
	}
	c.versions = grown(c.versions, rows)
	c.outcomes = grown(c.outcomes, rows)
	c.preemptible = grown(c.preemptible, rows)
	for i := range c.scores {
		c.scores[i] = grown(c.scores[i], rows)
	}
	return c
}

// grown returns the values, and zeros after them up to this many.
func grown[T any](values []T, many int) []T {
	return append(values, make([]T, max(0, many-len(values)))...)
}

// remove removes the cache for the signature from the caches, and returns it; nil: there is none.
func (cs *nodeCaches) remove(signature []byte) *nodeCache {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for i, c := range slices.Backward(cs.latest) {
		if c.signature == string(signature) {
			cs.latest = slices.Delete(cs.latest, i, i+1)
			return c
		}
	}
	return nil
}

// put returns a cache to the caches. It replaces one for the same signature, which a concurrent
// request returned.
func (cs *nodeCaches) put(c *nodeCache) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	same := func(other *nodeCache) bool { return other.signature == c.signature }
	cs.latest = append(slices.DeleteFunc(cs.latest, same), c)
	bytes := 0
	for i, c := range slices.Backward(cs.latest) {
		if bytes += c.bytes(); bytes > maxNodeCacheBytes || len(cs.latest)-i > maxNodeCaches {
			cs.latest = slices.Delete(cs.latest, 0, i+1)
			break
		}
	}
}

func (c *nodeCache) bytes() int {
	return len(c.signature) + len(c.versions)*8 + len(c.outcomes) + len(c.preemptible) + len(c.versions)*4*len(c.scores)
}

// refresh makes the row be about the node with the version.
func (c *nodeCache) refresh(row int, version uint64) {
	if c.versions[row] == version {
		return
	}
	c.versions[row], c.outcomes[row], c.preemptible[row] = version, unknownOutcome, unknownOutcome
	for _, scores := range c.scores {
		scores[row] = unknownScore
	}
}
