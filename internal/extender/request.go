package extender

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender/wire"
	"outboard.dev/outboard/snapshot"
)

var emptyView = new(snapshot.View)

// decode returns the engine's request for a filter or prioritize body.
func (h *Handler) decode(ctx context.Context, c *call) (engine.Request, error) {
	if err := c.request.Decode(c.body); err != nil {
		const sends = `kube-scheduler sends {"Pod": {…}, "NodeNames": ["…"]} or {"Pod": {…}, "Nodes": {"items": [{"metadata": {"name": "…"}}]}}`
		return engine.Request{}, fmt.Errorf("%w; "+sends, err)
	}
	uid, version := c.request.PodVersion()
	pod, err := h.pod(ctx, c, c.request.Pod(), uid, version, int64(c.request.Len())*nodeWeight)
	if err != nil {
		return engine.Request{}, err
	}
	h.awaitClaims(ctx, pod)
	view, err := h.begin(ctx, c, pod)
	if err != nil {
		return engine.Request{}, err
	}
	if err := h.findNodes(c, view); err != nil {
		return engine.Request{}, err
	}
	return engine.Request{Pod: pod, View: view, Nodes: c.nodes, Rows: c.rows}, nil
}

const (
	// nodeWeight is the memory for evaluating and responding, in bytes for each requested node;
	// unknown nodes take the most.
	nodeWeight = 384
	// maxUnknown bounds the unknown nodes passed to Filtered.
	maxUnknown = 64
)

// begin sets c.cycle, unless the profile does not manage the pod, and returns its view. If a policy
// of a filter call counts pods, begin first waits until the view counts those that earlier filter
// calls have let pass.
func (h *Handler) begin(ctx context.Context, c *call, pod *corev1.Pod) (*snapshot.View, error) {
	view, err := h.view(pod.UID)
	if err != nil || !h.manages(pod) {
		return view, err
	}
	c.cycle, _ = h.Engine.Begin(ctx, pod, view) // its methods return the error
	c.counted = c.verb == decision.Filter && h.Cluster != nil && c.cycle.CountsPods()
	if !c.counted {
		return view, nil
	}
	h.awaitUnseen(ctx, pod)
	latest, err := h.view(pod.UID)
	if err == nil && latest != view {
		c.cycle, _ = h.Engine.Begin(ctx, pod, latest)
	}
	return latest, err
}

// view returns the latest view of the cluster for the evaluation of the pod, or one with signals
// only if there is no cluster.
func (h *Handler) view(pod types.UID) (*snapshot.View, error) {
	if h.Cluster == nil {
		if h.View != nil {
			return h.View(), nil
		}
		return emptyView, nil
	}
	if err := h.Cluster.Synced(); err != nil {
		return nil, err
	}
	return h.Cluster.ViewFor(pod), nil
}

// awaitClaims waits for the ResourceClaims of the pod, if a policy reads them and the cluster does
// not show them yet.
func (h *Handler) awaitClaims(ctx context.Context, pod *corev1.Pod) {
	if h.Cluster == nil || !h.Engine.ReadsDevices() || h.Cluster.Synced() != nil || !h.manages(pod) || len(h.Cluster.View().UnknownClaims(pod)) == 0 {
		return
	}
	h.InFlight.awaited.Claims(ctx, h.Cluster, pod)
}

// pod returns the pod of the request: the view's copy if that has the same version, and else the
// decoded raw. bytes are the memory for the rest of the body.
func (h *Handler) pod(ctx context.Context, c *call, raw, uid, version []byte, bytes int64) (*corev1.Pod, error) {
	if h.Cluster != nil && len(uid) > 0 && len(version) > 0 {
		if pod := h.Cluster.Pod(types.UID(uid), string(version)); pod != nil {
			return pod, h.weigh(ctx, c, bytes, 0)
		}
	}
	weight, err := weightOf(raw)
	if err != nil {
		return nil, podError{err}
	}
	if err := h.weigh(ctx, c, bytes, weight); err != nil {
		return nil, err
	}
	pod := new(corev1.Pod)
	if err := decodeObject(raw, pod); err != nil {
		return nil, podError{err}
	}
	snapshot.TrimPod(pod)
	return pod, nil
}

// podError is an error about the pod of a request.
type podError struct{ err error }

func (e podError) Error() string { return fmt.Sprintf("decoding the pod: %v", e.err) }
func (e podError) Unwrap() error { return e.err }

// causedByPod reports whether the call fails because of what the pod declares: a policy, or the
// decoder, returns an error about it.
func causedByPod(err error) bool {
	policy, pod := (*engine.PolicyError)(nil), podError{}
	return errors.As(err, &policy) || errors.As(err, &pod)
}

// findNodes sets c.nodes to the requested nodes, in order.
func (h *Handler) findNodes(c *call, view *snapshot.View) error {
	if h.Cluster == nil && c.request.Mode() == wire.Names {
		return errors.New("the request has only node names, and Outboard runs without a cluster: set nodeCacheCapable: false in the scheduler's configuration, or configure a cluster")
	}
	n := c.request.Len()
	c.rows, c.nodes = slices.Grow(c.rows[:0], n)[:n], slices.Grow(c.nodes[:0], n)[:n]
	view.Find(c.rows, c.request.Name)
	c.hypothetical = h.hypothetical(c)
	words := (view.Rows() + 63) / 64
	c.seen = slices.Grow(c.seen[:0], words)[:words]
	clear(c.seen)
	var foreign map[string]bool // names that are not in the view
	var added int64             // memory of decoded nodes
	for i, row := range c.rows {
		if row >= 0 {
			word, bit := &c.seen[row/64], uint64(1)<<(row%64)
			if *word&bit != 0 {
				return fmt.Errorf("node %q is in the request twice", c.request.Name(i))
			}
			*word |= bit
			c.nodes[i] = view.At(int(row))
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
		if c.nodes[i], err = h.requestNode(c, i, name, &added); err != nil {
			return err
		}
	}
	c.known = foreign == nil
	return nil
}

// hypothetical reports whether the call is about nodes that do not exist: it has whole Node
// objects, and none of them is in the view. A cluster autoscaler makes such calls to learn whether
// a pod would fit on a node that it could add. They get a response, and change nothing: no record,
// no pending pod, and no cached node. kube-scheduler makes such a call only if it has
// nodeCacheCapable: false and knows none but the newest nodes.
func (h *Handler) hypothetical(c *call) bool {
	return h.Cluster != nil && c.request.Mode() == wire.Nodes && !slices.ContainsFunc(c.rows, func(row int32) bool { return row >= 0 })
}

// requestNode returns a node that is not in the view: nil, or the decoded node of the request.
// added counts the memory that the request has taken so far.
func (h *Handler) requestNode(c *call, i int, name string, added *int64) (*snapshot.Node, error) {
	if c.request.Mode() != wire.Nodes {
		return nil, nil
	}
	n, size, err := h.nodes.decode(name, c.request.Node(i), !c.hypothetical)
	if err != nil {
		return nil, err
	}
	if *added += size; *added > fewNodes && !c.decodesNodes {
		h.nodes.many.Lock()
		c.decodesNodes = true
	}
	if *added > h.nodes.limit {
		return nil, fmt.Errorf("the unknown nodes of the request take more than %d bytes of memory", h.nodes.limit)
	}
	return n, nil
}
