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

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender/wire"
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
	given, dropped := h.withVictimsOfOneNode(given)
	kept, err := h.evaluate(ctx, c, engine.Request{Pod: pod, View: view}, given)
	c.record = c.result.Record
	if err != nil {
		return err
	}
	c.record.Preemptions = append(c.record.Preemptions, dropped...)
	if err := h.Cluster.Nominate(ctx, pod, chosenFrom(kept)); err != nil {
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

// withVictimsOfOneNode drops the candidates with a victim on another node. kube-scheduler evicts the pods of a PodGroup with the disruption
// mode "all" together, wherever they run, and sends them as victims of one node. Up to Kubernetes 1.37 it reads such a response as an error
// (convertPodUIDToPod in pkg/scheduler/extender.go), and evicts no pod on any node.
func (h *Handler) withVictimsOfOneNode(given []engine.Candidate) (kept []engine.Candidate, dropped []decision.Preemption) {
	for _, c := range given {
		var other *corev1.Pod
		for _, uid := range c.Victims {
			if pod := h.Cluster.PodByUID(uid); pod != nil && pod.Spec.NodeName != "" && pod.Spec.NodeName != c.Name {
				other = pod
				break
			}
		}
		if other == nil {
			kept = append(kept, c)
			continue
		}
		dropped = append(dropped, decision.Preemption{Node: c.Name, Given: len(c.Victims), Dropped: fmt.Sprintf(
			"kube-scheduler would also evict pod %s/%s on node %q, and accepts no pods of other nodes from an extender", other.Namespace, other.Name, other.Spec.NodeName)})
	}
	return kept, dropped
}

// evaluate returns the candidates to keep.
func (h *Handler) evaluate(ctx context.Context, c *call, req engine.Request, given []engine.Candidate) ([]engine.Candidate, error) {
	if !h.manages(req.Pod) {
		unmanaged(req, &c.result)
		return given, nil
	}
	why, err := h.needsNoEviction(ctx, c, req)
	if err != nil {
		return nil, err
	}
	if why == "" {
		return h.Engine.Preempt(ctx, engine.PreemptRequest{
			Request: req, Candidates: given,
			Enough: func() bool { return time.Since(c.started) > preemptTime },
		}, &c.result)
	}
	record := c.result.Record
	record.Nodes, record.Fit, record.Returned = 0, 0, 0
	for _, candidate := range given {
		record.Preemptions = append(record.Preemptions, decision.Preemption{Node: candidate.Name, Given: len(candidate.Victims), Dropped: why})
	}
	return nil, nil
}

// needsNoEviction returns why the pod needs no eviction: it fits on the node to which it is nominated. It returns "" if the pod
// does not fit there.
// kube-scheduler retries a nominated pod as soon as its own cache shows that the evicted pods are gone. If our view
// shows them for a moment longer, the filter call rejects the node, and the preempt call that follows would evict more
// pods on other nodes. So needsNoEviction reads from the API server which of these pods are gone, and which of those that
// terminate for another reason. Those about which the API server has not responded when preemptTime ends count as gone: a
// pod that waits for its retry does less harm than an eviction that was not necessary, and kube-scheduler can neither evict
// nor bind without the API server. If no filter call has rejected the node, kube-scheduler rejects it for a reason of its own.
func (h *Handler) needsNoEviction(ctx context.Context, c *call, req engine.Request) (why string, err error) {
	name := h.InFlight.rejected.take(req.Pod.UID)
	node := req.View.Node(name)
	if node == nil {
		return "", nil
	}
	nominated := snapshot.NominatedNode{}
	if n := nominationOf(req.Pod.UID, req.View); n != nil {
		nominated, _ = n.Node(name)
	}
	gone := map[types.UID]bool{}
	fits := func() bool {
		req.Nodes = []*snapshot.Node{node.Without(func(pod *corev1.Pod) bool { return gone[pod.UID] })}
		return h.Engine.Filter(ctx, req, &c.result) == nil && len(c.result.Kept) > 0 // after an error, Preempt returns the same one
	}
	why = fmt.Sprintf("needs no eviction: the pod fits on node %q, to which it is nominated", name)
	if fits() {
		return why, nil
	}
	var leaving []*corev1.Pod
	for _, pod := range node.Pods {
		if pod.DeletionTimestamp != nil || slices.Contains(nominated.Victims, pod.UID) {
			leaving = append(leaving, pod)
			gone[pod.UID] = true
		}
	}
	if !fits() {
		return "", nil
	}
	inTime, err := h.askWhichAreGone(ctx, c, leaving, gone)
	if err != nil {
		return "", err
	}
	if !inTime {
		why = fmt.Sprintf("may need no eviction: the pod is nominated to node %q, and the API server has not responded in time whether all pods that leave it are gone", name)
	}
	if !fits() {
		return "", nil
	}
	return why, nil
}

// askWhichAreGone corrects gone for the pods, which leave one node. It returns false if the API server has not responded about all of
// them when preemptTime ends.
func (h *Handler) askWhichAreGone(ctx context.Context, c *call, leaving []*corev1.Pod, gone map[types.UID]bool) (inTime bool, err error) {
	asking, cancel := context.WithDeadline(ctx, c.started.Add(preemptTime))
	defer cancel()
	for _, pod := range leaving {
		live, err := h.Cluster.LivePod(asking, pod.Namespace, pod.Name, pod.UID)
		if errors.Is(err, context.DeadlineExceeded) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("asking whether pod %s/%s is gone, which leaves node %q: %w", pod.Namespace, pod.Name, pod.Spec.NodeName, err)
		}
		gone[pod.UID] = live == nil || snapshot.Ended(live)
	}
	return true, nil
}

// nominationOf returns the nomination of the pod, or nil.
func nominationOf(uid types.UID, view *snapshot.View) *snapshot.Nomination {
	for _, n := range view.Nominated() {
		if n.Pod.UID == uid {
			return n
		}
	}
	return nil
}

// maxLikeliest bounds the nodes on which a pod counts that will be nominated to one of them.
const maxLikeliest = 16

// chosenFrom returns the nodes to one of which kube-scheduler will nominate a pod that gets these candidates, with their pods to evict. It
// keeps nothing of the request.
func chosenFrom(kept []engine.Candidate) []snapshot.NominatedNode {
	likeliest := engine.Likeliest(kept)
	var nodes []snapshot.NominatedNode
	for _, c := range likeliest[:min(len(likeliest), maxLikeliest)] {
		n := snapshot.NominatedNode{Name: c.Node.Name}
		for _, pod := range c.Node.Pods {
			if slices.Contains(c.Victims, pod.UID) {
				n.Victims = append(n.Victims, pod.UID)
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// victimWeight is the memory for evaluating and responding, in bytes for each victim.
const victimWeight = 384

// candidates returns the nodes of either form of the request, in order of name. Up to Kubernetes 1.37 each has victims.
// After kubernetes/kubernetes pull request 135486, kube-scheduler also sends nodes on which it would evict no pod, so that an
// extender can choose victims there: no release with it has been tested.
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
