package extender

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/extender/wire"
	"outboard.dev/outboard/snapshot"
)

var emptyView = new(snapshot.View)

// decode makes the engine's request of a filter or prioritize body.
func (h *Handler) decode(ctx context.Context, c *call) (engine.Request, error) {
	if err := c.request.Decode(c.body); err != nil {
		return engine.Request{}, err
	}
	_, _, uid, version := c.request.PodMeta()
	pod, err := h.pod(ctx, c, c.request.Pod(), uid, version, int64(c.request.Len())*nodeWeight)
	if err != nil {
		return engine.Request{}, err
	}
	view, err := h.view(pod.UID)
	if err != nil {
		return engine.Request{}, err
	}
	if err := h.resolve(ctx, c, view); err != nil {
		return engine.Request{}, err
	}
	return engine.Request{Pod: pod, View: view, Nodes: c.asked, Rows: c.rows, Nominations: h.InFlight.preempted.now(view, c.started)}, nil
}

const (
	// nodeWeight is what judging and answering takes for each node asked, for one that is
	// unknown at most.
	nodeWeight = 384
	// maxCachedPod is the weight up to which the engine may remember a pod that came
	// with a request.
	maxCachedPod = 512 << 10
	// maxUnknown bounds the unknown nodes that are passed to Filtered.
	maxUnknown = 64
)

// view returns what is true now, with the pods that are being bound but for the one that is asked about.
func (h *Handler) view(asking types.UID) (*snapshot.View, error) {
	pods := h.InFlight.now()
	view, err := h.clusterView()
	if err != nil {
		return nil, err
	}
	return h.InFlight.complete(view, pods, asking), nil
}

// clusterView returns what the cluster shows: without one, signals at most.
func (h *Handler) clusterView() (*snapshot.View, error) {
	if h.Cluster == nil {
		if h.View != nil {
			return h.View(), nil
		}
		return emptyView, nil
	}
	if err := h.Cluster.Synced(); err != nil {
		return nil, err
	}
	return h.Cluster.View(), nil
}

// pod returns the pod asked about: our own copy if it is the same version, else
// what raw is decoded to. bytes are for what else is made of the body.
func (h *Handler) pod(ctx context.Context, c *call, raw, uid, version []byte, bytes int64) (*corev1.Pod, error) {
	if h.Cluster != nil && len(uid) > 0 && len(version) > 0 {
		if pod := h.Cluster.Pod(types.UID(uid), string(version)); pod != nil {
			return pod, h.weigh(ctx, c, bytes)
		}
	}
	var err error
	if c.podWeight, err = weightOf(raw); err != nil {
		return nil, fmt.Errorf("decoding the pod: %w", err)
	}
	if err := h.weigh(ctx, c, bytes); err != nil {
		return nil, err
	}
	pod := new(corev1.Pod)
	if err := decodeObject(raw, pod); err != nil {
		return nil, fmt.Errorf("decoding the pod: %w", err)
	}
	snapshot.TrimPod(pod)
	if c.podWeight > maxCachedPod {
		pod.ResourceVersion = "" // without it the engine remembers nothing
	}
	return pod, nil
}

// resolve sets c.asked to the nodes asked, in order.
func (h *Handler) resolve(ctx context.Context, c *call, view *snapshot.View) error {
	if h.Cluster == nil && c.request.Mode() == wire.Names {
		return errors.New("the request holds node names only, and Outboard runs without a cluster: set nodeCacheCapable: false in the scheduler's configuration, or configure a cluster")
	}
	n := c.request.Len()
	c.rows, c.asked = slices.Grow(c.rows[:0], n)[:n], slices.Grow(c.asked[:0], n)[:n]
	view.Find(c.rows, c.request.Name)
	words := (view.Rows() + 63) / 64
	c.seen = slices.Grow(c.seen[:0], words)[:words]
	clear(c.seen)
	var foreign map[string]bool // names that are not in the view
	var added int64             // for nodes that are decoded
	for i, row := range c.rows {
		if row >= 0 {
			word, bit := &c.seen[row/64], uint64(1)<<(row%64)
			if *word&bit != 0 {
				return fmt.Errorf("node %q is in the request twice", c.request.Name(i))
			}
			*word |= bit
			c.asked[i] = view.At(int(row))
			continue
		}
		name := string(c.request.Name(i))
		if foreign[name] {
			return fmt.Errorf("node %q is in the request twice", name)
		}
		if foreign == nil {
			foreign = map[string]bool{}
		}
		foreign[name] = true
		var err error
		if c.asked[i], err = h.requestNode(ctx, c, i, name, &added); err != nil {
			return err
		}
	}
	c.known = foreign == nil
	return nil
}

// requestNode returns a node that is not in the view: nil, or what the request holds of it. added
// counts the memory that the request takes so far.
func (h *Handler) requestNode(ctx context.Context, c *call, i int, name string, added *int64) (*snapshot.Node, error) {
	if c.request.Mode() != wire.Nodes {
		return nil, nil
	}
	n, size, err := h.nodes.decode(name, c.request.Node(i))
	if err != nil {
		return nil, err
	}
	if *added += size; *added > fewNodes && !c.decodesNodes {
		if err := h.nodes.begin(ctx); err != nil {
			return nil, err
		}
		c.decodesNodes = true
	}
	if *added > h.nodes.limit {
		return nil, fmt.Errorf("the nodes of the request that are not known take more than %d bytes of memory", h.nodes.limit)
	}
	return n, nil
}
