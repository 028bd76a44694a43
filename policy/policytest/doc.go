// Package policytest checks that a policy keeps the contract of package policy.
//
// [Run] is the conformance suite. It takes a function that builds the policy, and pods and nodes
// that exercise it, and adds hostile ones of its own. [RunScenarios] compares decisions of a policy
// with tables in files that a reviewer can read. [Benchmark] measures the cost of a policy.
// [Build], [View], [Prepare] and [Says] are for a policy's own tests.
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
// Each failure begins with the violated rule:
//
//   - builds: New returns a policy.
//   - exercised: the policy applies to at least one of the given pods.
//   - survives: nothing panics, whatever is missing or invalid: nil maps, pods without containers,
//     nodes without status, nodes that exist only in the request, an empty View. No
//     call goes on for 5 seconds.
//   - methods: a method with the name of one of an optional interface, such as Score or Reserve, is
//     that method: it would never be called otherwise.
//   - cycle: a Cycle that is not nil implements Filter or Score, NormalizeScore only with Score, and
//     is not a nil pointer. It implements Filter only without Inputs.ScoreOnly, and Score only
//     without Inputs.FilterOnly.
//   - verdict: only a Verdict with a Reason is Unresolvable.
//   - reasons: a Reason has a Code in CamelCase, or that is a name in the configuration, and a
//     constant one-line Text without numbers; one Code belongs to one Reason.
//   - explanation: each line of an Explainer has the form "<what>: <value>" (see policy.Explainer),
//     without a full stop.
//   - repeatable: the result is the same when the policy is called again, in another order, for a
//     View built anew, and for another policy with the same configuration. With a canceled context,
//     Prepare may return an error.
//   - read-only: the policy does not change pods, nodes or the View.
//   - allocations: Filter and Score of a new Cycle allocate nothing once a node's Facts are
//     computed, or no more than Options.Allocates says.
//   - score: scores are within 0..100, after NormalizeScore if there is one, or NoOpinion if Score
//     returned that.
//   - counts: Inputs.CountsPods is true if the results for a node depend on the pods on it, unless
//     the policy is a Reserver, or reads signals, which are as old.
//   - without: a node of the View gets the same results as an equal one of snapshot.NewNode, and
//     those for Node.Without do not depend on the pods that the View has for the node's name.
//   - allocations: where a pod fits, Reserve chooses for it, the same for the same request, never
//     more than the ledger of the request has left, even if the View is older, and no more units and
//     annotations than a ledger can hold, nor a smaller capacity of a unit with allocations. A pod
//     that holds what Reserve chose for it fits, and can use it. A pod that holds units that are
//     gone fits, unless ValidateAllocation and Reserve both reject it.
//   - rows: ScoreRows returns the same scores as Score for the nodes of the View.
//   - signature: Cycles with the same Signature return the same results for a node, for any pod and
//     View, except for a pod that is on the node or has allocations in its ledgers.
//   - concurrent: eight goroutines get the same results concurrently. Run the test with -race to
//     find data races. This rule is not checked for a policy that violates another.
package policytest
