// Package engine runs the policies of one profile over a view: filter, score, preempt and reserve.
// A [Cycle] has the policies, each prepared once for a pod; the methods of an Engine with a [Request]
// begin one. All are pure: they do no I/O, start no goroutines, and read no clock other than the
// optional one that measures policies. Decisions depend on the options and the request alone. Caches
// reduce the work of later requests and never change a decision. A request ends within a few nodes
// after its context ends.
//
// # Columns
//
// A column is what one policy says about nodes. Filter goes column by column: a policy gets the nodes
// that all policies before it let pass. Score adds one column of scores after the other. A call about
// one node, as kube-scheduler's framework makes, consists of columns of length one.
//
// # Filter
//
// A node fits when every policy's Filter lets it pass. The first policy that rejects it gives the
// reason, as in kube-scheduler. An unknown node (nil in [Request.Nodes]) is rejected with
// [NodeUnknown].
//
// A node does not fit either, with the reason [LedgerFull], if a policy would claim something for the pod
// from a ledger that can hold no further pod.
//
// # Score
//
// The total of a node is Σ weight × score over the policies, each score in 0..100. The engine does
// not round. The largest total that a node can have for this pod, MaxTotal, is 100 × the weights of
// the policies that score the pod. A policy does not count if it is not concerned with the pod, if
// its Cycle does not score, or if it failed and is ignored. If no policy scores the pod, all
// policies count. A policy that normalizes gets all known nodes of the request, as in
// kube-scheduler, and no others. A score that is [policy.NoOpinion] after that counts as the mean
// of the policy's scores for the other known nodes of the request.
//
// A node on which the pod holds a claim of an earlier attempt to bind it has MaxTotal, and all
// others have less, so that a pod that is retried does not hold claims on several nodes. Without
// weights there are no totals, and claims have no effect.
//
// kube-scheduler expects whole numbers from 0 to 10. [ScaleScores] converts totals to these: ⌊10 ×
// total ÷ MaxTotal⌋, with one exception: the best node never shares a level with a worse one. If
// rounding would cause that, the best node (and nodes with the same total) gets the next higher
// level. This is always possible, because only a total of MaxTotal is on level 10 already. The
// order is preserved: a better node never gets a lower level than a worse one. Differences smaller
// than a level are lost among the nodes that are not the best. To keep them, use a shortlist.
//
// # Shortlist
//
// With Options.Shortlist = K, Filter also scores, and keeps only the K best of the nodes that fit;
// of nodes with the same total, the earlier one in the request is kept. kube-scheduler's own
// scoring then chooses among K nodes, so Outboard's ranking comes first.
//
// The prioritize call that follows scores these K nodes on their own. Their totals are those of the
// shortlist, unless a policy normalizes or has no opinion on some of them.
//
// # Preempt
//
// kube-scheduler proposes victims, and does not say for what: all of them are kept, even if fewer would
// suffice for the policies. If a policy rejects the pod even without these victims, the
// engine adds more, chosen from the pods of lower priority:
//
//  1. Pods whose eviction violates a disruption budget are spared if the pod fits after evicting
//     all others. (Evictions count against a budget from the least important pod up.)
//  2. Then pods are spared in order of importance, as in kube-scheduler: higher priority first,
//     then the one that has run longer. None of the remaining pods can be spared.
//  3. If several pods remain, smaller sets are tried: sets of pods with no higher priority than the
//     highest among the remaining ones and with no more violations of budgets, so that one pod is
//     evicted instead of two that free as much. Of sets of the same size, the engine takes the one
//     whose most important pod is the least important, then compares the second most important
//     pods, and so on. The search is bounded: about 1,000 sets for a node, fewer with more than 20
//     nodes. If it finds no set, the result of step 2 is used.
//
// As in kube-scheduler, this assumes that removing pods from a node never makes another pod fit
// less.
//
// A candidate without victims, on which kube-scheduler would evict no pod, is evaluated in the same
// way. It is kept unchanged if it needs no victims, for the extenders that are called next.
//
// Candidates are evaluated in the order of kube-scheduler's preference: fewest violations of
// disruption budgets, then the lowest priority of the most important victim, then the lowest sum of
// priorities. Step 3 starts when steps 1 and 2 are done for all candidates. [PreemptRequest.Enough]
// can end the evaluation early, as soon as one candidate is found: candidates not evaluated by then
// are dropped, and the others keep the victims found so far.
//
// # Nominated pods
//
// kube-scheduler nominates the pod for which it evicts others to their node. Until that pod is
// bound, kube-scheduler's filters count it on that node for every pod that is not more important.
// So does the engine, for every verb: a node fits if it fits both with and without the nominated
// pods. Of several pods that are nominated to one node, those that come first in
// [snapshot.View.Nominated] count for the others. The units that a nominated pod will get are not
// known yet. The engine asks the policies what the pod would get if all pods with a
// deletionTimestamp were gone. If it would get nothing then, because the View does not show yet which
// pods are evicted, the engine assumes that all less important pods are gone.
//
// # Errors
//
// If a policy fails or panics, the request fails, or (failurePolicy: Ignore) its column does not count: the
// nodes that were left before it are left again. From then on, the Cycle ignores the policy; its columns
// that were complete before count. A request whose context has ended fails with the cause of the context,
// whatever the policies return.
//
// # Caches
//
// Most pods are copies of others. A policy whose cycle has a [policy.Signature] is not called again for
// a node that it has let pass, or scored, for another pod with the same signature, while the node is
// the same. After a pod was bound, this applies to every node but one. The cache is used only for
// requests with several nodes, and after [Cycle.TakeNodeCache]. It keeps the latest signatures, as many
// as fit in 16 MiB for each Engine: one takes 9 bytes for each row of the View and 4 for each score, so
// that with 5,000 nodes there are about 200. It identifies nodes by [snapshot.View.Version] and keeps
// none in memory. Scores are cached as Score returns them, and normalized for each request; those of a
// [policy.ScoreRows] are computed for all nodes of the request together, if it uses the cache. A pod
// that is on a node of the View, or in the ledger of one, never uses this cache: a policy may say
// something else about that node for this pod alone.
//
// [Cycle.Best] evaluates all nodes for each pod. Its record counts the rejections of each reason, and
// has no numbers of nodes: so rejections come from the cache as well, if all policies that concern the
// pod have a signature. All other records have numbers, so that the policies are called again.
package engine
