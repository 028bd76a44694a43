// Package policy is the contract between Outboard and a placement policy.
//
// A policy is one folder of plain Go that says which nodes a pod may run on
// ([Filter]), which of them are better ([Score]) and, if it hands out something
// countable, what exactly the pod gets ([Reserver]). The same code answers
// kube-scheduler's calls as a scheduler extender, and decides in simulations; names
// and meanings are those of the scheduling framework.
//
// # One request
//
//	Prepare(pod, view) ──► Cycle ──► Filter(node) for each node asked
//	     once                   └──► Score(node) for each node that fits, then NormalizeScore once
//
// Prepare does everything that depends on the pod alone: it reads the pod's
// requests and annotations, builds selectors, and returns a Cycle with the
// result. Returning a nil Cycle says that the policy does not concern this pod:
// it then neither rejects nor scores any node. Filter and Score do the little
// that is left for each node, usually by asking a [snapshot.Fact].
//
// # What a policy implements
//
// [Policy] alone must be implemented, and by its Cycle [Filter], [Score] or both. The rest is
// for policies that need it:
//
//   - [NormalizeScore], by a Cycle: scores that mean something only beside each other.
//   - [Explainer], by a Cycle: the numbers behind a verdict and a score, in words.
//   - [InputReader]: what the View must hold beside nodes, pods and ledgers: signals,
//     ConfigMaps, the history of pods.
//   - [Reserver]: something countable is claimed for a pod before it is bound.
//   - [ClaimValidator], beside Reserver: units can fail, or pods must be bound in order.
//
// Two more interfaces are those of whoever calls them: Precomputer of package engine, for what
// takes long and serves many requests, and Inspector of package app, for what tools read.
//
// # Scores
//
// The engine asks Score about the nodes of one request, then NormalizeScore if the Cycle has
// it, and then replaces each [NoOpinion] that is left with the mean of the policy's other
// scores in the request, rounded down, or with MaxScore/2 if there are no others. So a policy
// that knows nothing current about a node returns NoOpinion, and needs no NormalizeScore for
// that. One that has a NormalizeScore finds NoOpinion among the scores. It may leave it, or
// decide on a score for the node; it must not make it of any other score.
//
// # What must hold
//
// Everything a policy decides follows from its configuration, the pod, and the
// Node it is handed:
//
//   - Filter and Score are pure. They do no I/O, read no clock, write to nothing
//     that is shared, and allocate nothing. Asked twice, in any order, by several
//     goroutines at once, they say the same. (A policy that evaluates what people
//     write cannot promise to allocate nothing; its tests say how often it may.)
//   - They judge the Node in the argument and do not look it up in the View:
//     preemption asks about a Node without some of its pods, and a cluster
//     autoscaler about one that does not exist. Such nodes may have nil maps, no
//     pods and an empty status.
//   - Pods, Nodes and the View are read-only and shared.
//   - Facts from outside the cluster are signals in the View, never calls.
//   - An error is never an answer about a node. It fails the request, or, with
//     failurePolicy: Ignore, leaves the policy out of it. What a policy cannot make out
//     from the node alone, such as a label that is no number, is no error but a
//     Verdict with a Reason of its own.
//
// The package policytest checks all of this for any policy.
//
// # Handing something out
//
// A [Reserver] says in which ledgers a pod must have a claim before it is bound, and
// chooses what to claim, as a pure function of the [ReserveRequest]. Whoever runs the policy
// writes the ledger, asks again when somebody else was faster, puts the claim's
// annotations into the Binding, and takes back what nobody needs. What Filter sees of
// a ledger ([snapshot.Node.Ledger], [snapshot.View.Ledger]) may be a moment old; what
// Reserve is given is what the claim is written to. A pod that has a claim fits, unless
// a [ClaimValidator] says that the claim cannot be used any more. Package claims counts who
// has what of a node, by the ledger and by what pods without claims say themselves.
//
// # Reasons
//
// A [Reason] is a package-level variable, or comes from the policy's configuration and
// is made with the policy, and has a constant text: kube-scheduler
// groups identical texts into "12 no single GPU has enough free memory". Numbers
// belong into [Verdict.Have] and [Verdict.Want], from which the decision record
// tells how far each node was from fitting.
package policy
