package search

import "fmt"

// Text describes the move, which comes next in the World.
func (w *World) Text(m Move) string {
	r := &w.replicas[m.replica]
	at := fmt.Sprintf("replica %d: ", m.replica)
	sender := func() string {
		request := r.request(m.a, m.b)
		what := [...]string{"bind call", "write", "sweep", "unconfirmed pod"}[m.a]
		if m.a == ofCall {
			what += " of " + w.scope.pod(r.calls[m.b].pod)
		}
		return at + what + ": " + request.text(w.scope)
	}
	switch m.kind {
	case try:
		if m.b < 0 {
			return at + "rejects pod " + w.scope.pod(int(m.a))
		}
		if w.scope.Plugin {
			return at + fmt.Sprintf("plugin: reserves %s for pod %s", w.scope.nodes[m.b].Name, w.scope.pod(int(m.a)))
		}
		return at + fmt.Sprintf("begins to bind pod %s to %s", w.scope.pod(int(m.a)), w.scope.nodes[m.b].Name)
	case work:
		return at + "begins to write the ledger of " + w.scope.ledger(int(m.a))
	case arrive:
		if m.c == 1 {
			next := w.clone()
			next.serve(*r.request(m.a, m.b))
			return sender() + ": twice: " + next.serve(*r.request(m.a, m.b)).outcome()
		}
		return sender() + ": " + w.clone().serve(*r.request(m.a, m.b)).outcome()
	case respond:
		return sender() + ": response"
	case lose:
		switch request := r.request(m.a, m.b); {
		case request.arrived:
			return sender() + ": the response is lost"
		case m.c == 1:
			return sender() + ": gives up, and no time is left"
		case m.c == 2:
			return sender() + ": is not sent"
		}
		return sender() + ": gives up before it arrives"
	case giveUp:
		return at + "bind call of " + w.scope.pod(r.calls[m.a].pod) + ": gives up waiting for the ledger"
	case arriveLate:
		return "arrives late: " + w.late[m.a].text(w.scope) + ": " + w.clone().serve(*w.late[m.a]).outcome()
	case showPod:
		return at + "the watch shows a change of pod " + w.scope.pod(r.podEvents[0].index)
	case showLedger:
		return at + "the watch shows a change of the ledger of " + w.scope.ledger(r.ledgerEvents[0].index)
	case sweepAllocation:
		what := ""
		if m.c == 1 {
			what = ", whose time has ended"
		}
		return at + "sweeps the allocation of " + r.ledger(w.scope, int(m.a)).Spec.Pods[m.b].Name + what
	case crash:
		return at + "is killed, and starts again"
	case showNode:
		return at + "the watch shows a change of " + r.nodeEvents[0].now.Name
	case replaceDevice:
		return "the device of " + w.nodes[m.a].Name + " is replaced"
	case confirmPod:
		return at + "reads pod " + r.unconfirmed()[m.a].Name + ", which the watch does not show on its node"
	case proceed:
		return at + "plugin: binds pod " + w.scope.pod(r.calls[m.a].pod)
	case unreserve:
		return at + "plugin: does not bind pod " + w.scope.pod(r.calls[m.a].pod)
	case createPod:
		return "pod " + w.scope.pod(w.scope.Pods-w.scope.Creations+w.created) + " is created"
	case endPod:
		return "pod " + w.scope.pod(int(m.a)) + " has ended"
	case changePod:
		return "pod " + w.scope.pod(int(m.a)) + " is changed by somebody else"
	case preempt, evict, nominate, restartScheduler, terminate:
		return w.preemptText(m)
	}
	return "pod " + w.scope.pod(int(m.a)) + " is deleted"
}

// preemptText describes such a move.
func (w *World) preemptText(m Move) string {
	pod, k := w.scope.pod(int(m.a)), &w.preemptions[m.a]
	switch m.kind {
	case preempt:
		text := fmt.Sprintf("replica %d: is asked for the pods to evict for pod %s", m.replica, pod)
		if m.c == 1 {
			text += ", by a kube-scheduler that does not know which pods are gone"
		}
		return text
	case evict:
		return fmt.Sprintf("kube-scheduler evicts pod %s for pod %s", w.scope.pod(k.evicts[m.b]), pod)
	case nominate:
		return fmt.Sprintf("kube-scheduler nominates pod %s to %q", pod, k.node)
	case restartScheduler:
		return "kube-scheduler is killed, and starts again"
	}
	return "pod " + pod + " has terminated and is gone"
}
