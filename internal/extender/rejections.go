package extender

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// maxRejections bounds the pods that are kept.
const maxRejections = 1024

// rejections holds, for each nominated pod, the node of its nomination if a filter call has rejected it since the latest preempt call.
type rejections struct {
	mu   sync.Mutex
	node map[types.UID]string
}

// add records a rejection. If there are too many, it forgets another one: then the preempt call evaluates all candidates.
func (r *rejections) add(uid types.UID, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.node == nil {
		r.node = map[types.UID]string{}
	}
	for other := range r.node {
		if len(r.node) < maxRejections {
			break
		}
		delete(r.node, other)
	}
	r.node[uid] = node
}

// take returns the node that add has recorded for the pod since the last call, or "".
func (r *rejections) take(uid types.UID) (node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	node = r.node[uid]
	delete(r.node, uid)
	return node
}
