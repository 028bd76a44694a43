package search

import (
	"fmt"

	"outboard.dev/outboard/internal/cluster/assumption"
	"outboard.dev/outboard/snapshot"
)

// Check returns which promise is broken; nil if none is:
//
//   - the pods that are bound to a node, and the allocations in its ledger, are never above its capacity;
//   - each pod that is bound has the annotations of its allocation, and the ledger has the allocation;
//   - if nobody tries a pod any more, sweeps release each allocation of which no pod is bound; if the scope says Prompt, bind calls have released
//     it;
//   - whoever reads from a replica sees each pod where the watch has shown it, or where the replica has decided or learned meanwhile that it is,
//     and the room that is left, in every state, and in the end where the pod is;
//   - each pod is nominated to the node that the watch has shown, and to no other one;
//   - a preempt call lets no pods be evicted for a pod that fits on the node to which it is nominated, as [World.roomOn] says;
//   - a pod that a replica has rejected is retried if it fits in the end.
func (w *World) Check() error {
	if w.broken != nil {
		return w.broken
	}
	if err := w.checkPods(); err != nil {
		return err
	}
	for l, o := range w.ledgers {
		if o == nil {
			continue
		}
		used := int64(0)
		for i := range o.Spec.Units {
			u := &o.Spec.Units[i]
			if used += u.Used(); u.Used() > u.Capacity && w.replacements == 0 {
				return fmt.Errorf("the ledger of %s has allocations of %d of %s, which has %d", w.scope.ledger(l), u.Used(), u.Name, u.Capacity)
			}
		}
		if has := w.scope.capacity(l); used > has && w.replacements == 0 {
			return fmt.Errorf("the ledger of %s has allocations of %d, and there is %d", w.scope.ledger(l), used, has)
		}
	}
	for i := range w.replicas {
		if err := w.checkReader(i); err != nil {
			return err
		}
	}
	if !w.quiet() {
		return nil
	}
	return w.checkEnd()
}

// checkPods checks the pods that are bound.
func (w *World) checkPods() error {
	holders := map[string]string{}
	for p, pod := range w.pods {
		if !assumption.OnNode(pod) {
			continue
		}
		unit, annotated := pod.Annotations[annotation]
		if !annotated && w.scope.Request.devices() {
			return fmt.Errorf("pod %s is bound without the annotation of its allocation", w.scope.pod(p))
		}
		var places []string
		for l, o := range w.ledgers {
			key := w.scope.keys[l]
			if key.Node != "" && key.Node != pod.Spec.NodeName || !w.scope.asks(pod, l) {
				continue
			}
			switch {
			case key.Node != "":
				places = append(places, key.Node+" device "+unit)
			case w.scope.Request.seats() == 1:
				places = append(places, "the seat")
			}
			var held *snapshot.LedgerPod
			if o != nil {
				held = o.Spec.Pod(pod.UID)
			}
			if held == nil {
				return fmt.Errorf("pod %s is bound to %s, and the ledger has no allocation of it", pod.Name, pod.Spec.NodeName)
			}
			amount := int64(0)
			for i := range o.Spec.Units {
				amount += o.Spec.Units[i].Amount(pod.UID)
			}
			if amount != 1 {
				return fmt.Errorf("pod %s has an allocation of %d in the ledger of %s, and requests 1", pod.Name, amount, w.scope.ledger(l))
			}
			if key.Node != "" && held.Annotations[annotation] != unit {
				return fmt.Errorf("pod %s is bound with device %q, and its allocation is of %q", pod.Name, unit, held.Annotations[annotation])
			}
		}
		for _, place := range places {
			if other := holders[place]; other != "" {
				return fmt.Errorf("pods %s and %s both have %s", other, pod.Name, place)
			}
			holders[place] = pod.Name
		}
	}
	return nil
}

// quiet reports whether no replica has anything to do that has begun.
func (w *World) quiet() bool {
	for i := range w.replicas {
		r := &w.replicas[i]
		if len(r.calls) > 0 || r.sweep != nil || r.confirm != nil {
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

// maxEnd is many times what any World needs to come to its end.
const maxEnd = 1000

// checkEnd checks what holds in the end, after sweeps of a quiet World. What may still arrive late does not arrive.
func (w *World) checkEnd() error {
	scope := *w.scope
	scope.Calls, scope.Faults, scope.Duplicates, scope.Crashes, scope.Deletions, scope.Expiries = 0, 0, 0, 0, 0, 1<<30
	scope.Replacements, scope.Confirms, scope.Changes, scope.Endings = 0, 0, 0, 0
	if scope.Prompt {
		scope.Expiries = 0
	}
	end := w.clone()
	end.scope, end.late, end.preempted, end.created = &scope, nil, scope.Preemptions, scope.Creations
	for n := 0; ; n++ {
		moves := end.Moves()
		if len(moves) == 0 {
			break
		}
		if n == maxEnd {
			return fmt.Errorf("the end does not come: after %d moves, this is next: %s", n, end.Text(moves[0]))
		}
		end = end.After(moves[0])
	}
	for l, o := range end.ledgers {
		if o == nil {
			continue
		}
		for _, held := range o.Spec.Pods {
			if pod := end.pods[w.scope.index(held.UID)]; !assumption.OnNode(pod) || o.Spec.Node != "" && pod.Spec.NodeName != held.Node {
				return fmt.Errorf("in the end the ledger of %s has an allocation of pod %s, which is not bound there", w.scope.ledger(l), held.Name)
			}
		}
	}
	for i := range end.replicas {
		view := end.replicas[i].cluster.View()
		for p, pod := range end.pods {
			for n, node := range end.nodes {
				want := assumption.OnNode(pod) && pod.Spec.NodeName == node.Name
				if got := podOn(view, w.scope, n, p) != nil; got != want {
					return fmt.Errorf("in the end the view of replica %d has pod %s on %s: %t, want %t", i, w.scope.pod(p), node.Name, got, want)
				}
			}
		}
	}
	truth := end.started()
	for i := range end.replicas {
		if err := end.checkNominations(&truth, end.replicas[i].cluster.View()); err != nil {
			return fmt.Errorf("in the end, replica %d: %w", i, err)
		}
	}
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
