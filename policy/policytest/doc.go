// Package policytest checks that a policy keeps the contract of package policy.
//
// [Run] is the conformance suite: it is given a way to build the policy, and the
// pods and nodes that exercise it, and adds hostile ones of its own. [RunScenarios]
// compares what a policy decides with tables in files that a reviewer can read.
// [Benchmark] measures what a policy costs. [Build], [View], [Prepare] and [Says] are for
// tests of one's own.
//
//	func TestConformance(t *testing.T) {
//		policytest.Run(t, policytest.Options{
//			New:      policytest.FromYAML(podlimit.Type(), `{max: 2, selector: {matchLabels: {app: web}}}`),
//			Pods:     policytest.Pods(`- metadata: {name: new, labels: {app: web}}`),
//			Nodes:    policytest.Nodes(`[{metadata: {name: a}}, {metadata: {name: b}}]`),
//			Assigned: policytest.Pods(`- {metadata: {name: old, labels: {app: web}}, spec: {nodeName: a}}`),
//		})
//	}
//
// # Rules
//
// Each failure names the rule that was broken:
//
//   - builds: New returns a policy.
//   - exercised: at least one of the given pods concerns the policy.
//   - survives: nothing panics, whatever is missing or nonsense: nil maps, pods
//     without containers, nodes without status, nodes that only the request
//     knows, an empty View.
//   - cycle: a Cycle that is not nil implements Filter or Score, NormalizeScore
//     only beside Score, and is not a nil pointer.
//   - verdict: only a Verdict with a Reason is Unresolvable.
//   - reasons: a Reason has a CamelCase Code and a constant one-line Text without
//     numbers; one Code belongs to one Reason.
//   - repeatable: asked again, in another order, over a View built anew, or by
//     another policy of the same configuration, the answer is the same.
//   - read-only: pods, nodes and the View are not written to.
//   - allocations: Filter and Score allocate nothing once a node's Facts are
//     computed, or no more than Options.Allocates says.
//   - score: scores are within 0..100, after NormalizeScore if there is one, or
//     NoOpinion, if Score returned that.
//   - cancelled: with a cancelled context Prepare returns soon, an error or the
//     same Cycle as ever.
//   - trimmed: answers do not depend on what snapshot.TrimPod and TrimNode remove.
//   - stranger: a node of the View and an equal one of snapshot.NewNode are judged
//     alike.
//   - without: Node.Without is judged by the pods it has left, not by those that
//     the View holds under the node's name.
//   - claims: a pod that holds what Reserve chose for it fits on the node, and can use
//     it; one whose claim is of units that are gone fits unless ValidateClaim and
//     Reserve both refuse.
//   - signature: Cycles with the same Signature say the same about a node, whatever the pod and the View they were prepared for.
//   - concurrent: eight goroutines at once get the same answers. Data races are
//     found when the test runs with -race. This comes last, and is not asked of a
//     policy that breaks another rule.
package policytest
