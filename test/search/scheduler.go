package search

import corev1 "k8s.io/api/core/v1"

// requeue has kube-scheduler retry the rejected pods that fit in the replica's view, if that may have more freed than the last one.
func (w *World) requeue(i int) {
	r := &w.replicas[i]
	freed := r.cluster.View().FreedGeneration()
	for p, by := range w.rejected {
		if by != i+1 {
			continue
		}
		switch pod := r.cluster.PodByUID(w.scope.uid(p)); {
		case pod == nil && r.unseen(p) != nil: // it is evaluated once the watch shows it
		case pod == nil, pod.Spec.NodeName != "", freed != r.freed && len(w.fitting(r, p)) > 0:
			w.rejected[p] = 0
		}
	}
	r.freed = freed
}

// fitting returns the nodes on which the pod fits, in the view of the replica or as kube-scheduler sees the node.
func (w *World) fitting(r *replica, p int) []int {
	return w.fittingAs(r, w.queued(r, p))
}

// fittingAs is like fitting, of the pod as kube-scheduler has it.
func (w *World) fittingAs(r *replica, pod *corev1.Pod) []int {
	p, nodes := w.scope.index(pod.UID), []int(nil)
	for n := range w.scope.nodes {
		if w.scope.fits(r.look(w.scope).others[p], pod, n) || w.vacant(r, p, n) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// vacant reports whether kube-scheduler sees that all other pods on the node are gone, and those that have allocations in the view of the replica. The
// plugin evaluates nodes with the pods that kube-scheduler has there.
func (w *World) vacant(r *replica, p, n int) bool {
	if !w.scope.Ahead {
		return false
	}
	for q, pod := range w.pods {
		holds := podOn(r.look(w.scope).view, w.scope, n, q) != nil
		for l := range r.ledgers {
			holds = holds || r.allocations(w.scope, q, l)
		}
		if q != p && pod != nil && holds {
			return false
		}
	}
	return true
}

// queued returns the pod as a kube-scheduler has it that calls the replica: as the watch of the replica shows it or, if that does not show it
// yet, as it was created; nil if it is gone.
func (w *World) queued(r *replica, p int) *corev1.Pod {
	if pod := r.cluster.PodByUID(w.scope.uid(p)); pod != nil {
		return pod
	}
	return r.unseen(p)
}

// rejectedAs returns the pod, which the replica has rejected on all nodes, as kube-scheduler has it in that call and in the preempt call that
// follows: as the API server has it, if the replica rejects that, too.
func (w *World) rejectedAs(r *replica, p int) *corev1.Pod {
	if pod := w.pods[p]; pod != nil && pod.Spec.NodeName == "" && len(w.fittingAs(r, pod)) == 0 {
		return pod
	}
	return w.queued(r, p)
}
