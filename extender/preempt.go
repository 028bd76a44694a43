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

	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/extender/wire"
	"outboard.dev/outboard/snapshot"
)

// preemptTime is how long after the start of a call it stops evaluating candidates if it has found one. It is half of
// the httpTimeout in deploy/, and leaves time to finish the current candidate and to respond.
const preemptTime = 1500 * time.Millisecond

func (h *Handler) preempt(ctx context.Context, c *call) error {
	var request wire.Preemption
	if err := request.Decode(c.body); err != nil {
		return err
	}
	if h.Cluster == nil {
		return errors.New("preempt needs to know the pods on the nodes, and Outboard runs without a cluster")
	}
	if err := checkQuantities(c.body); err != nil {
		return fmt.Errorf("decoding the request: %w", err)
	}
	uid, version := request.PodVersion()
	pod, err := h.pod(ctx, c, request.Pod(), uid, version, int64(request.Count)*victimWeight)
	if err != nil {
		return err
	}
	view, err := h.view(pod.UID)
	if err != nil {
		return err
	}
	given, err := candidates(&request, view)
	if err != nil {
		return err
	}
	kept, err := h.evaluate(ctx, c, engine.Request{Pod: pod, View: view, Nominations: h.InFlight.preempted.now(view, c.started)}, given)
	c.record = c.result.Record
	if err != nil {
		return err
	}
	if known := h.Cluster.PodByUID(pod.UID); known != nil && known.Spec.NodeName == "" {
		h.InFlight.preempted.answer(known, kept, view, time.Now())
	}
	answer := extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: make(map[string]*extenderv1.MetaVictims, len(kept))}
	for _, candidate := range kept {
		victims := &extenderv1.MetaVictims{NumPDBViolations: candidate.PDBViolations}
		for _, uid := range candidate.Victims {
			victims.Pods = append(victims.Pods, &extenderv1.MetaPod{UID: string(uid)})
		}
		answer.NodeNameToMetaVictims[candidate.Name] = victims
	}
	c.answer.Text, err = json.Marshal(answer)
	return err
}

// evaluate returns the candidates to keep.
func (h *Handler) evaluate(ctx context.Context, c *call, req engine.Request, given []engine.Candidate) ([]engine.Candidate, error) {
	if !h.manages(req.Pod) {
		unmanaged(req, &c.result)
		return given, nil
	}
	node, err := h.fitsWhereNominated(ctx, c, req)
	if err != nil {
		return nil, err
	}
	if node == "" {
		return h.Engine.Preempt(ctx, engine.PreemptRequest{
			Request: req, Candidates: given,
			Enough: func() bool { return time.Since(c.started) > preemptTime },
		}, &c.result)
	}
	record := c.result.Record
	record.Asked, record.Fit, record.Returned = 0, 0, 0
	for _, candidate := range given {
		record.Preemptions = append(record.Preemptions, decision.Preemption{
			Node: candidate.Name, Given: len(candidate.Victims),
			Dropped: fmt.Sprintf("needs no eviction: the pod fits on node %q, to which it is nominated", node),
		})
	}
	return nil, nil
}

// fitsWhereNominated returns the node to which the pod is nominated, if the pod fits there now, and "" otherwise.
// kube-scheduler retries a nominated pod as soon as its own cache shows that the evicted pods are gone. If our view
// shows them for a moment longer, the filter call rejects the node, and the preempt call that follows would evict more
// pods on other nodes. So fitsWhereNominated reads from the API server which of these pods are gone. If no filter call has
// rejected the node, kube-scheduler rejects it for a reason of its own.
func (h *Handler) fitsWhereNominated(ctx context.Context, c *call, req engine.Request) (string, error) {
	name, victims := h.InFlight.preempted.takeRejected(req.Pod.UID)
	node := req.View.Node(name)
	if node == nil {
		return "", nil
	}
	fits := func(node *snapshot.Node) bool {
		req.Nodes = []*snapshot.Node{node}
		return h.Engine.Filter(ctx, req, &c.result) == nil && len(c.result.Kept) > 0 // after an error, Preempt returns the same one
	}
	if fits(node) {
		return name, nil
	}
	gone := map[types.UID]bool{}
	for _, pod := range node.Pods {
		if snapshot.Priority(pod) >= snapshot.Priority(req.Pod) || pod.DeletionTimestamp == nil && !slices.Contains(victims, pod.UID) {
			continue
		}
		live, err := h.Cluster.LivePod(ctx, pod.Namespace, pod.Name, pod.UID)
		if err != nil {
			return "", fmt.Errorf("asking whether pod %s/%s is gone, which was evicted from node %q: %w", pod.Namespace, pod.Name, name, err)
		}
		gone[pod.UID] = live == nil
	}
	if !fits(node.Without(func(pod *corev1.Pod) bool { return gone[pod.UID] })) {
		return "", nil
	}
	return name, nil
}

// victimWeight is the memory for evaluating and responding, in bytes for each victim.
const victimWeight = 384

// candidates returns the nodes of either form of the request, in order of name. Up to Kubernetes 1.37 each has victims.
// Since 1.38 kube-scheduler also sends nodes on which it would evict no pod, so that an extender can choose victims
// there.
func candidates(request *wire.Preemption, view *snapshot.View) ([]engine.Candidate, error) {
	found := make([]engine.Candidate, 0, len(request.Victims))
	for name, victims := range request.Victims {
		if victims == nil {
			victims = new(wire.Victims)
		}
		uids := make([]types.UID, 0, len(victims.UIDs))
		for _, uid := range victims.UIDs {
			if uid == "" {
				return nil, fmt.Errorf("a victim on node %q has no UID", name)
			}
			uids = append(uids, types.UID(uid))
		}
		found = append(found, engine.Candidate{Name: name, Node: view.Node(name), Victims: uids, PDBViolations: victims.PDBViolations})
	}
	slices.SortFunc(found, func(a, b engine.Candidate) int { return cmp.Compare(a.Name, b.Name) })
	return found, nil
}
