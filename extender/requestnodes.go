package extender

import (
	"bytes"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// maxRequestNodes and maxRequestNodeBytes bound what is remembered of nodes that
// came with requests; past either, everything is forgotten and learned anew.
const (
	maxRequestNodes     = 20000
	maxRequestNodeBytes = 256 << 20
)

// requestNodes decodes nodes that exist only in requests. kube-scheduler sends
// the same bytes for a node until it changes, so they are decoded once; the node
// then also keeps its Facts from request to request. The zero value is ready.
type requestNodes struct {
	mu    sync.RWMutex
	known map[string]requestNode
	bytes int
}

type requestNode struct {
	raw  []byte
	node *snapshot.Node
}

func (r *requestNodes) decode(name string, raw []byte) (*snapshot.Node, error) {
	r.mu.RLock()
	known := r.known[name]
	r.mu.RUnlock()
	if known.node != nil && bytes.Equal(known.raw, raw) {
		return known.node, nil
	}
	object := new(corev1.Node)
	if err := decodeObjects(raw, object); err != nil {
		return nil, fmt.Errorf("decoding node %q: %w", name, err)
	}
	if object.Name != name {
		return nil, fmt.Errorf("decoding node %q: its metadata.name reads %q", name, object.Name)
	}
	snapshot.TrimNode(object)
	node := snapshot.NewNode(object)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= maxRequestNodes || r.bytes+len(raw) > maxRequestNodeBytes {
		r.known, r.bytes = map[string]requestNode{}, 0
	}
	r.bytes += len(raw) - len(r.known[name].raw)
	r.known[name] = requestNode{bytes.Clone(raw), node}
	return node, nil
}
