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
	"outboard.dev/outboard/snapshot"
)

// preemptTime is how long after the beginning of a call no further candidates are judged if there is one to answer with. It is
// half of the httpTimeout in deploy/, and leaves time to judge the last one and for the answer.
const preemptTime = 1500 * time.Millisecond

func (h *Handler) preempt(ctx context.Context, c *call) error {
	var args extenderv1.ExtenderPreemptionArgs
	if err := decodeObjects(c.body, &args); err != nil {
		return fmt.Errorf("decoding the request: %w", err)
	}
	switch {
	case args.Pod == nil:
		return errors.New("the request holds no Pod")
	case args.NodeNameToMetaVictims == nil && args.NodeNameToVictims == nil:
		return errors.New("the request holds neither NodeNameToMetaVictims nor NodeNameToVictims")
	case h.Cluster == nil:
		return errors.New("preempt needs to know the pods on the nodes, and Outboard runs without a cluster")
	}
	snapshot.TrimPod(args.Pod)
	view, err := h.view()
	if err != nil {
		return err
	}
	given, err := candidates(&args, view)
	if err != nil {
		return err
	}
	kept, err := h.Engine.Preempt(ctx, engine.PreemptRequest{
		Request:    engine.Request{Pod: args.Pod, View: view, Nominations: h.preempted.now(view, c.started)},
		Candidates: given,
		Enough:     func() bool { return time.Since(c.started) > preemptTime },
	}, &c.result)
	c.record = c.result.Record
	if err != nil {
		return err
	}
	h.preempted.answer(args.Pod, kept, view, time.Now())
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

// candidates are the nodes of either form of the request, in order of name. Up to Kubernetes 1.37 each has victims. Since 1.38
// kube-scheduler also names nodes on which it would evict nobody, so that an extender in whose way pods are can name them.
func candidates(args *extenderv1.ExtenderPreemptionArgs, view *snapshot.View) ([]engine.Candidate, error) {
	found := make([]engine.Candidate, 0, len(args.NodeNameToMetaVictims)+len(args.NodeNameToVictims))
	add := func(name string, violations int64, victims []types.UID) error {
		if slices.Contains(victims, "") {
			return fmt.Errorf("a victim on node %q has no UID", name)
		}
		found = append(found, engine.Candidate{Name: name, Node: view.Node(name), Victims: victims, PDBViolations: violations})
		return nil
	}
	if args.NodeNameToMetaVictims != nil {
		for name, victims := range args.NodeNameToMetaVictims {
			if victims == nil {
				victims = new(extenderv1.MetaVictims)
			}
			var uids []types.UID
			for _, p := range victims.Pods {
				if p != nil {
					uids = append(uids, types.UID(p.UID))
				}
			}
			if err := add(name, victims.NumPDBViolations, uids); err != nil {
				return nil, err
			}
		}
	} else {
		for name, victims := range args.NodeNameToVictims {
			if victims == nil {
				victims = new(extenderv1.Victims)
			}
			var uids []types.UID
			for _, p := range victims.Pods {
				if p != nil {
					uids = append(uids, p.UID)
				}
			}
			if err := add(name, victims.NumPDBViolations, uids); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(found, func(a, b engine.Candidate) int { return cmp.Compare(a.Name, b.Name) })
	return found, nil
}
