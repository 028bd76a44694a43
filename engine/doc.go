// Package engine runs the policies of one profile over a view: filter, score,
// preempt and reserve. It is pure but for [Engine.Reserve]: no I/O, no
// goroutines, and no clock but the one it may be given to time policies by. What
// it decides follows from its options and the request alone; what it remembers
// between requests changes how much is computed, never what is answered. A
// request whose context ends is given up within a few nodes.
//
// # Filter
//
// A node fits when every policy's Filter lets it pass; the first that does not
// gives the reason, as in kube-scheduler. A node that is not known (nil in
// [Request.Nodes]) is rejected with [NodeUnknown].
//
// # Score
//
// The total of a node is Σ weight × score over the policies, each score in
// 0..100. No rounding happens here. The largest total, MaxTotal, is the one that a
// node can have for this pod: 100 × the weights of the policies that score it.
// Policies that it does not concern, whose Cycle does not score, or that are left
// out after an error, do not count; if no policy scores it, all do. A policy that
// normalizes sees all known nodes of the request, as in kube-scheduler, and no
// others. A score that is [policy.NoOpinion] after that counts as the mean of the policy's scores
// for the other known nodes of the request.
//
// A node on which the pod holds a claim of an earlier attempt to bind it has MaxTotal,
// and all others less, so that a pod that is tried again does not come to hold claims on
// several nodes. Without weights there are no totals, and this has no effect.
//
// kube-scheduler takes whole numbers from 0 to 10. [ScaleScores] converts totals to these:
// ⌊10 × total ÷ MaxTotal⌋, with one exception: the best node is never put on a
// level with a worse one. If rounding would do that, the best node (or the nodes
// that tie for it) moves up one level, which is always possible, as only a node
// with all of MaxTotal is on level 10 already. Order is kept in any case: a
// better node never gets a lower level than a worse one. Among the nodes that
// are not the best, differences smaller than a level are lost; where that
// matters, use a shortlist or scoreRange: Total, which sends totals as they are.
//
// # Shortlist
//
// With Options.Shortlist = K, Filter also scores, and keeps the K best of the
// nodes that fit; ties go to the node asked first. The scheduler's own scoring
// then chooses among K nodes only: our ranking comes before its own.
//
// A prioritize call that follows scores those K nodes for themselves: the totals
// are those of the shortlist, unless a policy normalizes, or has no opinion of some.
//
// # Preempt
//
// kube-scheduler proposes victims; when the pod does not fit by our policies
// without them, more are added, chosen among the pods of lower priority:
//
//  1. Pods whose eviction breaks a disruption budget are spared as long as
//     evicting all others would do. (The budget is counted from the least
//     important pod up.)
//  2. Then pods are spared in order of importance, as kube-scheduler does:
//     higher priority first, then the one that has run longer. What remains
//     cannot spare any of its pods.
//  3. If several remain, smaller sets are tried, of pods with no higher priority
//     than the highest among them and none more that breaks a budget, so that
//     one pod is evicted rather than two that free as much. Of sets of the same
//     size the one whose most important pod is the least important is taken,
//     then the second most important, and so on. The search is bounded: about
//     1,000 sets for a node, fewer with more than 20 nodes. When it ends without
//     result, the set of step 2 stands.
//
// As in kube-scheduler, all this takes for granted that fewer pods on a node
// never make a pod fit less.
//
// A candidate without victims, on which kube-scheduler would evict nobody, is
// judged the same way. If no pod need be added to its victims, it is dropped.
//
// Candidates are judged in the order in which kube-scheduler chooses among them:
// fewest violations of disruption budgets, then the lowest priority of the most
// important victim, then the least sum of priorities. Step 3 begins when steps 1
// and 2 are done for all of them. [PreemptRequest.Enough] may end the work
// earlier, as soon as one candidate is found: those not judged by then are
// dropped, and the others keep the victims found so far.
//
// # Nominated pods
//
// A pod for which kube-scheduler evicts others is nominated to their node, and its
// own filters count it there for every pod that is not more important, until it is
// bound. So does the engine, in all it is asked: a node fits when it does with the
// nominated pods and also without them. Which units of the node a nominated pod will
// get nobody knows yet. The policies are asked what they would give to it if the
// pods evicted for it, and all that are being deleted, were gone; if the View does
// not tell yet which pods are evicted, and it would get nothing, then as if all less
// important pods were. The View holds the nominations ([snapshot.View.Nominated]),
// and Request.Nominations those that it cannot show yet.
//
// # Errors
//
// A policy that fails or panics fails the request, or (failurePolicy: Ignore) is left
// out, and the request is decided anew without it. A request whose context has
// ended fails with its cause, whatever the policies say.
//
// # What is cached
//
// Evaluations: kube-scheduler asks about the same pod twice, filter and then
// prioritize. While neither the pod (by UID and resourceVersion) nor the View has
// changed, Prepare is not called again.
//
// Nodes: most pods are copies of others. A policy whose cycle has a
// [policy.Signature] is not asked again about a node that it has let pass, or
// scored, for another pod with the same signature, for as long as the node is the
// same. After a pod was bound, this is every node but one. Only the latest
// signatures are cached, and only for requests about several nodes. Rejections are
// not cached, because the record tells the numbers behind them, nor scores that a
// policy normalizes.
package engine
