package search

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Check returns which promise is broken; nil if none is:
//
//   - the pods that are bound to a node, and the claims in its ledger, are never above its capacity;
//   - each pod that is bound has the annotations of its claim, and the ledger has the claim;
//   - if nobody tries a pod any more, sweeps release each claim of which no pod is bound; if the scope says Prompt, bind calls have released
//     it;
//   - in the end, the views of each replica have each pod where it is;
//   - a pod that a replica has rejected is retried if it fits in the end.
func (w *World) Check() error {
	holders := map[string]string{}
	for p, pod := range w.pods {
		if pod == nil || pod.Spec.NodeName == "" {
			continue
		}
		unit, annotated := pod.Annotations[annotation]
		if !annotated {
			return fmt.Errorf("pod %s is bound without the annotation of its claim", w.scope.pod(p))
		}
		place := pod.Spec.NodeName + " device " + unit
		if other := holders[place]; other != "" {
			return fmt.Errorf("pods %s and %s both have %s", other, pod.Name, place)
		}
		holders[place] = pod.Name
		held := w.claimOf(pod)
		if held == nil {
			return fmt.Errorf("pod %s is bound to %s, and the ledger has no claim of it", pod.Name, pod.Spec.NodeName)
		}
		if held[annotation] != unit {
			return fmt.Errorf("pod %s is bound with device %q, and its claim is of %q", pod.Name, unit, held[annotation])
		}
	}
	for l, o := range w.ledgers {
		if o == nil {
			continue
		}
		for i := range o.Spec.Units {
			if u := &o.Spec.Units[i]; u.Used() > u.Capacity {
				return fmt.Errorf("the ledger of %s has claims of %d of device %s, which has %d", w.scope.ledger(l), u.Used(), u.Name, u.Capacity)
			}
		}
	}
	if !w.quiet() {
		return nil
	}
	return w.checkEnd()
}

// claimOf returns the annotations of the claim of a bound pod; nil if it has none.
func (w *World) claimOf(pod *corev1.Pod) map[string]string {
	if o := w.ledgers[w.scope.node(pod.Spec.NodeName)]; o != nil {
		if held := o.Spec.Pod(pod.UID); held != nil {
			return held.Annotations
		}
	}
	return nil
}

// quiet reports whether no replica has anything to do that has begun.
func (w *World) quiet() bool {
	for i := range w.replicas {
		r := &w.replicas[i]
		if len(r.calls) > 0 || r.sweep != nil {
			return false
		}
		for l := range r.writers {
			if r.writers[l].writing || r.writers[l].queue.Pending() > 0 {
				return false
			}
		}
	}
	return true
}

// checkEnd checks what holds in the end, after sweeps of a quiet World. What may still arrive late does not arrive.
func (w *World) checkEnd() error {
	scope := *w.scope
	scope.Calls, scope.Faults, scope.Crashes, scope.Deletions, scope.Expiries = 0, 0, 0, 0, 1<<30
	if scope.Prompt {
		scope.Expiries = 0
	}
	end := w.clone()
	end.scope, end.late = &scope, nil
	for {
		moves := end.Moves()
		if len(moves) == 0 {
			break
		}
		end = end.After(moves[0])
	}
	for l, o := range end.ledgers {
		if o == nil {
			continue
		}
		for _, held := range o.Spec.Pods {
			if pod := end.pods[w.scope.podNamed(held.Name)]; pod == nil || pod.Spec.NodeName != held.Node {
				return fmt.Errorf("in the end the ledger of %s has a claim of pod %s, which is not bound there", w.scope.ledger(l), held.Name)
			}
		}
	}
	for i := range end.replicas {
		for p, c := range end.replicas[i].counted {
			if want := asWatched(end.pods[p]); c.node != want.node {
				return fmt.Errorf("in the end the views of replica %d have pod %s on node %q, and it is on %q", i, w.scope.pod(p), c.node, want.node)
			}
		}
	}
	truth := end.started()
	for p, by := range end.rejected {
		if by == 0 || end.pods[p] == nil || end.pods[p].Spec.NodeName != "" {
			continue
		}
		if nodes := end.fitting(&truth, p); len(nodes) > 0 {
			return fmt.Errorf("replica %d has rejected pod %s, which fits on %s in the end, and is not retried", by-1, w.scope.pod(p), w.scope.nodes[nodes[0]].Name)
		}
	}
	return nil
}
