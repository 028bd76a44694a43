// Package equality holds tests that the same policies decide the same wherever they run:
// behind the extender's wire, called by kube-scheduler's own HTTPExtender; in the engine as
// package simulate runs it; and inside kube-scheduler, in its own scheduling framework. Each
// case is a random cluster, a pod and a valid configuration of random policies.
//
// # What is equal
//
//   - Verdicts: the nodes on which the pod fits, and for each other node the text of the
//     reason and whether evicting pods could help.
//   - Scores: the order of the nodes, and which of them are best.
//   - Allocations: the annotations of the Binding, and what every ledger holds afterwards; or the error, if another replica has just
//     allocated the units.
//
// # What a process changes
//
// A plugin reads the API server itself, so that its allocations have times and tokens of their own.
// It is not compared with LeastWaste, which learns from the pods that a process has seen come: a
// plugin may decide before it has seen the latest of them. Its filter passes all nodes that fit,
// whatever the shortlist, and its scores are from 0 to 100.
//
// # What the wire changes
//
// Nothing else may differ:
//
//   - Levels: kube-scheduler takes scores of 0..10 from an extender, so nodes that differ
//     may get the same score. The best nodes stay the best.
//   - Left-out scores: an extender subtracts the least score from all of them.
//   - Sampling: kube-scheduler asks about some of the nodes only. A verdict does not depend
//     on the other nodes of the question; a score may.
//   - Shortlist: filter returns only the best nodes, and then no reasons.
//   - Decision: a Binding of the extender also has the annotation with the decision.
//   - Unknown nodes: a node whose name is all that is known is rejected as unknown, and one
//     that exists in the request alone is evaluated by its object.
//
// The flag -rapid.checks draws more clusters, with 1500 also rare events, and -rapid.seed draws the
// same again.
package equality
