package extender

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender/wire"
	"outboard.dev/outboard/snapshot"
)

const (
	// preemptTime is how long after the start of a call it stops evaluating candidates if it has
	// found one, and waiting for the API server. It is half of the httpTimeout in deploy/, and
	// leaves time to finish the current candidate and to respond.
	preemptTime = 1500 * time.Millisecond
	// victimWeight is the memory for evaluating and responding, in bytes for each victim.
	victimWeight = 384
)

// preempt responds with the candidates on which the pod fits after evictions, and remembers
// nothing: see [snapshot.View.Nominated] for what follows.
func (h *Handler) preempt(ctx context.Context, c *call) error {
	req, err := h.decodePreemption(ctx, c)
	if err != nil {
		return err
	}
	kept, err := h.evaluate(ctx, c, req)
	c.record = c.result.Record
	if err != nil {
		return err
	}
	response := extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: make(map[string]*extenderv1.MetaVictims, len(kept))}
	for _, candidate := range kept {
		victims := &extenderv1.MetaVictims{NumPDBViolations: candidate.PDBViolations}
		for _, uid := range candidate.Victims {
			victims.Pods = append(victims.Pods, &extenderv1.MetaPod{UID: string(uid)})
		}
		response.NodeNameToMetaVictims[candidate.Name] = victims
	}
	c.response.Text, err = json.Marshal(response)
	return err
}

func (h *Handler) decodePreemption(ctx context.Context, c *call) (req engine.PreemptRequest, err error) {
	var request wire.Preemption
	if err := request.Decode(c.body); err != nil {
		return req, err
	}
	if h.Cluster == nil {
		return req, errors.New("preempt needs to know the pods on the nodes, and Outboard runs without a cluster")
	}
	uid, version := request.PodVersion()
	if req.Pod, err = h.pod(ctx, c, request.Pod(), uid, version, int64(request.Count)*victimWeight); err != nil {
		return req, err
	}
	if req.View, err = h.view(req.Pod.UID); err != nil {
		return req, err
	}
	req.Candidates, err = h.candidates(&request, req.View)
	req.Enough = func() bool { return time.Since(c.started) > preemptTime }
	return req, err
}

// candidates returns the nodes of either form of the request, in order of name. Up to Kubernetes
// 1.37 each has victims. From 1.38 on, kube-scheduler also sends nodes on which it would evict no
// pod, so that an extender can choose victims there.
//
// It drops a candidate with a victim on another node. kube-scheduler evicts the pods of a PodGroup
// with the disruption mode "all" together, wherever they run, and sends them as victims of one
// node. Up to Kubernetes 1.37 it reads such a response as an error (convertPodUIDToPod in
// pkg/scheduler/extender.go), and evicts no pod on any node.
func (h *Handler) candidates(request *wire.Preemption, view *snapshot.View) ([]engine.Candidate, error) {
	found := make([]engine.Candidate, 0, len(request.Victims))
	for name, victims := range request.Victims {
		if victims == nil {
			victims = new(wire.Victims)
		}
		c := engine.Candidate{Name: name, Node: view.Node(name), PDBViolations: victims.PDBViolations}
		for _, uid := range victims.UIDs {
			if uid == "" {
				return nil, fmt.Errorf("a victim on node %q has no UID", name)
			}
			c.Victims = append(c.Victims, types.UID(uid))
			if pod := h.Cluster.PodByUID(types.UID(uid)); pod != nil && pod.Spec.NodeName != "" && pod.Spec.NodeName != name {
				c.Dropped = fmt.Sprintf("kube-scheduler would also evict pod %s/%s on node %q, and accepts no pods of other nodes from an extender", pod.Namespace, pod.Name, pod.Spec.NodeName)
			}
		}
		found = append(found, c)
	}
	slices.SortFunc(found, func(a, b engine.Candidate) int { return cmp.Compare(a.Name, b.Name) })
	return found, nil
}

// evaluate returns the candidates to keep.
func (h *Handler) evaluate(ctx context.Context, c *call, req engine.PreemptRequest) ([]engine.Candidate, error) {
	if !h.manages(req.Pod) {
		unmanaged(req.Request, &c.result)
		return slices.DeleteFunc(req.Candidates, func(c engine.Candidate) bool { return c.Dropped != "" }), nil
	}
	why := h.needsNoEviction(ctx, c, req.Request)
	if why == "" && h.Elsewhere != nil {
		if node := h.Elsewhere(ctx, req.Request); node != "" {
			why = fmt.Sprintf("needs no eviction: the pod fits on node %q, about which kube-scheduler did not ask", node)
		}
	}
	for i := range req.Candidates {
		req.Candidates[i].Dropped = cmp.Or(req.Candidates[i].Dropped, why)
	}
	return h.Engine.Preempt(ctx, req, &c.result)
}

// needsNoEviction returns why a nominated pod may need no eviction; "" if it needs one.
//
// kube-scheduler retries a nominated pod as soon as its own watch shows that the evicted pods are
// gone. If the view shows that later, filter rejects the node, and the preempt call that follows
// would evict pods on other nodes. So the API server says which of the pods that terminate on the
// node are gone. If it does not respond, no pod is evicted: that the pod waits for its retry does
// less harm. If the pod fits in the view already, kube-scheduler rules the node out for a reason of
// its own.
func (h *Handler) needsNoEviction(ctx context.Context, c *call, req engine.Request) string {
	node := req.View.Node(req.Pod.Status.NominatedNodeName)
	terminates := func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil }
	if node == nil || !slices.ContainsFunc(node.Pods, terminates) {
		return ""
	}
	req.Nodes = []*snapshot.Node{node}
	if fits, err := h.Engine.FitsAny(ctx, req); fits || err != nil { // Preempt returns the same error
		return ""
	}
	gone, failure := h.gone(ctx, c, node, terminates)
	if failure != nil {
		return fmt.Sprintf("may need no eviction: the pod is nominated to node %q, and %v", node.Name, failure)
	}
	req.Nodes[0] = node.Without(func(pod *corev1.Pod) bool { return gone[pod.UID] })
	if fits, err := h.Engine.FitsAny(ctx, req); !fits || err != nil {
		return ""
	}
	return fmt.Sprintf("needs no eviction: the pod fits on node %q, to which it is nominated", node.Name)
}

// gone returns which of these pods of the node are gone, according to the API server.
func (h *Handler) gone(ctx context.Context, c *call, node *snapshot.Node, these func(*corev1.Pod) bool) (map[types.UID]bool, error) {
	ctx, cancel := context.WithDeadline(ctx, c.started.Add(preemptTime))
	defer cancel()
	gone := map[types.UID]bool{}
	for _, pod := range node.Pods {
		if !these(pod) {
			continue
		}
		live, err := h.Cluster.LivePod(ctx, pod.Namespace, pod.Name, pod.UID)
		if err != nil {
			return nil, fmt.Errorf("asking whether pod %s/%s, which terminates there, is gone: %w", pod.Namespace, pod.Name, err)
		}
		gone[pod.UID] = live == nil || snapshot.Ended(live)
	}
	return gone, nil
}
