package extender

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// What is remembered of nodes that came with requests, and what one request may add,
// takes at most so many bytes: with a cluster, which has yet to hear of some of them, or
// of 5,000 when it is created anew; and without one, where they are all there is. Past it, or past maxRequestNodes,
// everything is forgotten and learned anew.
const (
	maxNewNodes     = 88 << 20
	maxAllNodes     = 128 << 20
	maxRequestNodes = 20000
	// fewNodes is what a request may add while others do.
	fewNodes = 2 << 20
)

// requestNodes decodes nodes that exist only in requests. kube-scheduler sends
// the same bytes for a node until it changes, so they are decoded once; the node
// then also keeps its Facts from request to request. The zero value is ready but
// for limit and many.
type requestNodes struct {
	limit int64
	many  chan struct{} // capacity 1: a request adds more than fewNodes

	mu    sync.RWMutex
	known map[string]requestNode
	bytes int64
}

type requestNode struct {
	raw  []byte
	node *snapshot.Node
	size int64 // of both
}

// begin waits until no other request adds many nodes. end must be called afterwards. A request that has begun waits for no other
// memory any more, so that nobody waits in a circle.
func (r *requestNodes) begin(ctx context.Context) error {
	select {
	case r.many <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting to decode the nodes of the request: %w", context.Cause(ctx))
	}
}

func (r *requestNodes) end() { <-r.many }

// decode returns the node, and how much memory it takes if it was not known.
func (r *requestNodes) decode(name string, raw []byte) (node *snapshot.Node, added int64, err error) {
	r.mu.RLock()
	known := r.known[name]
	r.mu.RUnlock()
	if known.node != nil && bytes.Equal(known.raw, raw) {
		return known.node, 0, nil
	}
	object := new(corev1.Node)
	if _, err = weightOf(raw); err == nil {
		err = decodeObject(raw, object)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("decoding node %q: %w", name, err)
	}
	if object.Name != name {
		return nil, 0, fmt.Errorf("decoding node %q: its metadata.name reads %q", name, object.Name)
	}
	snapshot.TrimNode(object)
	decoded := requestNode{node: snapshot.NewNode(object), size: sizeOf(object) + int64(len(raw))}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= maxRequestNodes || r.bytes+decoded.size > r.limit {
		r.known, r.bytes = map[string]requestNode{}, 0
	}
	if decoded.size <= r.limit {
		decoded.raw = bytes.Clone(raw)
		r.bytes += decoded.size - r.known[name].size
		r.known[name] = decoded
	}
	return decoded.node, decoded.size - int64(len(raw)), nil
}
