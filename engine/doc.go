// Package engine runs the policies of one profile over a view: filter, score,
// preempt and reserve. It is pure but for [Engine.Reserve]: no I/O, no clock, no
// goroutines. What it decides follows from its options and the request alone;
// what it remembers between requests changes how much is computed, never what
// is answered.
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
// 0..100, so 0..[Engine.MaxTotal]. No rounding happens here.
//
// kube-scheduler takes whole numbers from 0 to 10. [Levels] brings totals there:
// ⌊10 × total ÷ MaxTotal⌋, with one exception: the best node is never put on a
// level with a worse one. If rounding would do that, the best node (or the nodes
// that tie for it) moves up one level; only if that is impossible, because it is
// on level 10 already, the others move down to 9. Order is kept in any case: a
// better node never gets a lower level than a worse one. Among the nodes that
// are not the best, differences smaller than a level are lost; where that
// matters, use a shortlist or resolution: fine, which sends totals as they are.
//
// # Shortlist
//
// With Options.Shortlist = K, Filter also scores, and keeps the K best of the
// nodes that fit; ties go to the node asked first. The scheduler's own scoring
// then chooses among K nodes only: our ranking comes before its own.
//
// # Memory of earlier requests
//
// kube-scheduler asks about the same pod twice (filter, then prioritize), and
// again and again about a pod that does not fit. While neither the pod (by UID
// and resourceVersion) nor the View has changed, Prepare is not called again and
// no node is filtered twice.
package engine
