package extender

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/extender/wire"
	"outboard.dev/outboard/snapshot"
)

// preemptTime is how long after the beginning of a call no further candidates are judged if there is one to answer with. It is
// half of the httpTimeout in deploy/, and leaves time to judge the last one and for the answer.
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
	req := engine.Request{Pod: pod, View: view, Nominations: h.InFlight.preempted.now(view, c.started)}
	kept := given
	if h.manages(pod) {
		kept, err = h.Engine.Preempt(ctx, engine.PreemptRequest{
			Request: req, Candidates: given,
			Enough: func() bool { return time.Since(c.started) > preemptTime },
		}, &c.result)
	} else {
		unmanaged(req, &c.result)
	}
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

// victimWeight is what judging and answering takes for each victim.
const victimWeight = 384

// candidates are the nodes of either form of the request, in order of name. Up to Kubernetes 1.37 each has victims. Since 1.38
// kube-scheduler also names nodes on which it would evict nobody, so that an extender in whose way pods are can name them.
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
