// Package search explores every interleaving of the protocols between Outboard's replicas, kube-schedulers and the API server, within
// bounds.
//
// The search runs the shipped steps: bind calls ([binder.Protocol]), their Bindings ([cluster.Sending]), writes of ledgers ([ledger.Queue],
// [ledger.Writing]) and sweeps ([ledger.Examination]), with allocations of the policies Devices and Licenses, and for each replica the shipped
// state of the cluster with its Views ([cluster.State]). A [World] holds their values, an API server, and what is between both. A [Move]
// is one thing that can happen next:
//
//   - a kube-scheduler tries a pod at a replica, whose bind call begins if the pod fits;
//   - a replica begins to write the operations that wait for a ledger, or sweeps an allocation;
//   - a request arrives at the API server, and later its response at the replica: other moves come in between, so both are delayed, and
//     what was read is stale;
//   - a request arrives twice;
//   - the sender gives up: the response is lost, or the request, which may still arrive at any later time, also after the sender was
//     killed;
//   - the watch shows a replica the next change of a pod or a ledger, and until then its cache is stale;
//   - with the plugin, a reserved pod is bound, or not;
//   - a replica reads a pod that it counts as bound and that its watch does not show there;
//   - a kube-scheduler calls preempt of a replica, whose shipped Handler responds, and later evicts the pods and writes the nomination, or is
//     killed before; an evicted pod terminates; a replica ends its expectation of a nomination that its watch does not show;
//   - a pod is created, which kube-schedulers see before the watch shows it to a replica;
//   - a replica is killed and starts again, a pod ends, is changed or deleted, a device of a node is replaced.
//
// [Explore] visits every state that can be reached, in order of the number of moves, and checks the promises in each, also those about what
// readers of a replica see: [World.Check]. So the history that it returns for a broken promise is one of the shortest.
//
// Not explored: failures of the watch, nodes that come or go, deleted ledgers, PodDisruptionBudgets, Views that are published after some
// time, and the time for which a bind call waits for earlier pods.
package search
