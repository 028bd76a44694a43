// Package requeue makes kube-scheduler retry pending pods that Outboard rejected, as soon as they
// fit.
//
// kube-scheduler retries a pod that an extender rejected when an event in the cluster may help it,
// and otherwise after up to five minutes. A license that is returned, an allocation that is
// released, a new value of a signal and a GPU that becomes healthy are not events in the cluster.
// And kube-scheduler often sees an event before Outboard does: then its retry fails, and the next
// one may be minutes away.
//
//	filter: no node fits ──► pending ──► new View: fits on a node? ──► annotation on the pod ──► kube-scheduler retries it
//
// # Which pods, and when
//
// A pod is pending here from when Outboard rejects every node of a filter call for it until a node
// fits, or the pod is bound or deleted. A pod with scheduling gates is not: no annotation makes
// kube-scheduler try it. When a new View is published, the Requeuer evaluates the pending pods
// again, on the nodes that kube-scheduler last asked about: kube-scheduler itself knows why the
// other nodes do not fit, and which event changes that. But up to 1.37, it may lose the event that
// the last victim on the node to which a pod is nominated is gone, so this node counts, too. Pods
// of higher priority come first, then those whose retries failed the fewest times, then the oldest.
//
// # Samples
//
// kube-scheduler looks for a number of nodes that pass its filters, and asks about these. If it may
// have stopped before the last node ([kubescheduler.Sampled]), all nodes of the View count that
// pass the filters that package kubescheduler knows. To retry the pod would not do: the next
// attempt is about another sample. So the Requeuer nominates the pod to the best node on which it
// fits, which kube-scheduler tries first. That the pod is nominated also keeps the node for it.
//
// A node to which the pod was nominated, but not bound, was rejected by filters that Outboard does
// not know. Then the next one follows, as often as kube-scheduler needs samples for all nodes, with
// a backoff of a second. Until then a preempt call keeps no node (Elsewhere), and afterwards the pod
// is requeued as any other, and nominated to none of these nodes.
//
// # How often
//
// The Requeuer requeues one pod at a time. It waits until the outcome is known (the pod is bound,
// deleted, or rejected again), or for one second, before it requeues the next, and evaluates each
// pod by the newest View right before. So one GPU that becomes free requeues one pod, however many
// are pending. The backoff of a pod starts at one second and doubles with each requeue, up to five
// minutes; it starts again when the pod was not requeued for twice the last backoff.
//
// # Cost
//
// A filter call that finds a node costs a mutex and a map access; one that finds none, one bit for
// each row of the View. One goroutine evaluates pods, and pauses four times as long as it has
// worked.
package requeue
