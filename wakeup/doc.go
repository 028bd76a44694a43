// Package wakeup makes kube-scheduler try again the pods that wait because of us, when they need not wait any more.
//
// kube-scheduler tries a pod that an extender rejected again when something happens in the cluster, and otherwise after up to
// five minutes. A licence that is given back, a claim that is taken back, a number from outside and a card that is well again
// are nothing that happens in the cluster. And often kube-scheduler hears of an event before we do: then the attempt that it
// causes is in vain, and the next may be minutes away.
//
//	filter: no node fits ──► waiting ──► new View: fits on a node? ──► annotation on the pod ──► one more attempt
//
// # Which pods, and when
//
// A pod waits when every node it was asked about was rejected here, until a node fits, or it is bound or gone. A pod with
// scheduling gates does not wait because of us, and no annotation makes kube-scheduler try it. When a new View
// is published, pods that wait are judged again, on the nodes kube-scheduler asked about last: of the others it knows itself
// why they do not fit, and what would change that is an event. Pods of higher priority come first, then those that were not
// woken in vain, then the oldest.
//
// One pod is woken at a time. Before the next is, it must be known what became of it (it is bound or gone, or rejected
// again), or a second must pass; and each is judged by the newest View right before. So one place that becomes free wakes one
// pod, however many wait for it. A pod that is woken is not woken again for a second, then two, and so on up to five minutes,
// until it has not been for twice as long.
//
// # Cost
//
// A filter call that finds a node takes a look at a number more, or, while pods wait, a lock and a map; one that does not, a
// bit for each row of the View. Judging happens in one goroutine that rests four times as long as it has worked.
package wakeup
