// Package engine runs the policies of one profile over a view: filter, score, preempt and reserve.
// A [Cycle] has the policies, each prepared once for a pod; the methods of an Engine with a
// [Request] begin one. None does I/O, starts a goroutine, or reads a clock other than the optional
// one that measures policies. A request ends within a few nodes after its context ends.
//
// # Filter
//
// A column is what one policy says about the nodes that all policies before it let pass. The first
// policy that rejects a node gives the reason, as in kube-scheduler. An unknown node (nil in
// [Request.Nodes]) is rejected with [NodeUnknown], and a node for which a policy would allocate
// something from a ledger that can hold no further pod with [LedgerFull].
//
// # Score
//
// The total of a node is Σ weight × score over the policies, each score in 0..100. The largest
// total that a node can have for the pod, MaxTotal, is 100 × the weights of the policies that score
// the pod, or of all policies if none does. A policy that normalizes gets all known nodes of the
// request, and no others. A score that is [policy.NoOpinion] after that counts as the mean of the
// policy's scores for the other known nodes.
//
// A node on which the pod holds an allocation of an earlier attempt to bind it has MaxTotal, and
// all others have less, so that a pod that is retried does not hold allocations on several nodes.
// Without weights there are no totals, and allocations have no effect.
//
// kube-scheduler expects whole numbers from 0 to 10. [ScaleScores] converts totals to these: ⌊10 ×
// total ÷ MaxTotal⌋, except that the best nodes get the next higher level if they would share
// theirs with a worse one. That level is always free, because only a total of MaxTotal is on level
// 10. A better node never gets a lower level; differences smaller than a level are lost among the
// others.
//
// With Options.Shortlist = K, Filter also scores, and keeps only the K best of the nodes that fit;
// of equal ones, those that come first in the request. The prioritize call that follows scores
// these on their own: their totals are the same, unless a policy normalizes or has no opinion on
// some of them.
//
// # Preempt
//
// kube-scheduler proposes victims, and does not say for what: all of them are kept. If a policy
// rejects the pod even without them, the engine adds more, chosen from the pods of lower priority:
//
//  1. Pods whose eviction violates a disruption budget are spared if the pod fits after evicting
//     all others. (Evictions count against a budget from the least important pod up.)
//  2. Then pods are spared in order of importance: higher priority first, then the one that has run
//     longer. None of the remaining pods can be spared.
//  3. If several pods remain, smaller sets are tried: of pods with no higher priority than the
//     highest among the remaining ones and with no more violations of budgets. Of sets of the same
//     size, the engine takes the one whose most important pod is the least important, then compares
//     the second most important pods, and so on. It tries about 1,000 sets for a node, fewer with
//     more than 20 nodes. If it finds none, the result of step 2 is used.
//
// As in kube-scheduler, this assumes that removing pods from a node never makes another pod fit
// less. A candidate that needs no victims for the policies is kept unchanged.
//
// Candidates are evaluated in the order of kube-scheduler's preference: fewest violations of
// budgets, then the lowest priority of the most important victim, then the lowest sum of
// priorities. Step 3 starts when steps 1 and 2 are done for all. [PreemptRequest.Enough] can end
// the evaluation as soon as one candidate with victims is found: those not evaluated by then are
// dropped.
//
// If no node fits, [Cycle.MarkUnresolvable] says on which nodes preemption cannot help.
//
// # Nominated pods
//
// kube-scheduler nominates the pod for which it evicts others to their node. Until that pod is
// bound, it counts there for every pod that is not more important, for every verb: a node fits if
// it fits both with and without the nominated pods. The engine asks the policies what a nominated
// pod would get if all pods with a deletionTimestamp were gone or, if it would get nothing then,
// all less important pods.
//
// # Errors
//
// If a policy fails or panics, the request fails, or (failurePolicy: Ignore) its column does not
// count: the nodes that were left before it are left again, and from then on the Cycle ignores the
// policy. Its columns that were complete before count. A request whose context has ended fails with
// the cause of the context, whatever the policies return.
//
// # Caches
//
// Decisions depend on the options and the request alone. What an Engine keeps saves work and
// changes no decision: what policies said about nodes to pods that are alike (nodeCaches), the
// zones of nodes (zones), which pods are on nodes or in ledgers (holders), and the nodes with their
// nominated pods (nominations). Each is for the latest View, or identifies nodes by
// [snapshot.View.Version].
//
// Most pods are copies of others. A policy whose cycle has a [policy.Signature] is not called again
// for a node that it has let pass, or scored, for another pod with the same signature, while the
// node is the same. This applies to requests with several nodes, and after [Cycle.TakeNodeCache].
// Records have the numbers of rejected nodes, so that the policies are called again about these;
// only [Cycle.Best], whose record has none, takes rejections from the cache as well, if all filters
// have a signature.
package engine
