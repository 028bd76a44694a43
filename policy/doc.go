// Package policy is the contract between Outboard and a placement policy.
//
// A policy is one folder of plain Go that decides which nodes a pod may run on ([Filter]), which of
// them are better ([Score]) and, if it allocates countable resources, which units the pod gets
// ([Reserver]). The same code answers kube-scheduler's calls to a scheduler extender, and decides
// in simulations. Names have the meaning that they have in the scheduling framework.
//
// # One request
//
//	Prepare(pod, view) ──► Cycle ──► Filter(node) for each node asked
//	     once                   └──► Score(node) for each node that fits, then NormalizeScore once
//
// Prepare does everything that depends on the pod alone: it reads the pod's requests and
// annotations, builds selectors, and returns a Cycle with the result. A nil Cycle means that the
// policy does not apply to this pod: it neither rejects nor scores any node. Filter and Score do
// the rest for each node, usually by reading a [snapshot.Fact].
//
// # What a policy implements
//
// A policy must implement [Policy], and its Cycle [Filter], [Score] or both. All else is optional.
// Inputs are the fields of what [InputReader] returns:
//
//	to                                        Cycle           Policy          Inputs
//	reject nodes                              Filter
//	score nodes                               Score
//	either, by the pods on a node                                             CountsPods
//	 … by comparing them with each other      NormalizeScore
//	 … by the whole View, all nodes at once   ScoreRows
//	only filter, or only score                                                FilterOnly, ScoreOnly
//	reuse results for similar pods            Signature
//	explain verdicts and scores               Explainer
//	allocate a resource                                       Reserver        Resources
//	 … for pods that do not name one                                          AnyPod
//	 … that no node reports                                                   Unreported
//	 … which authors of pods could take                                       AdmissionPolicy
//	 … whose units can fail, or in order                      AllocationValidator
//	 … counted by fields of the configuration                                 AllocationFields
//	 … and show its units to people                           UnitLister
//	read signals, ConfigMaps, DRA, history                    InputReader     Signals, ConfigMaps,
//	                                                                          Devices, History
//	keep results that many requests share                     Precomputer
//	warn of a likely mistake                                  Warner, UnreadRequester
//	show its state to people and tools                        Inspector
//
// # Scores
//
// The engine calls Score for the nodes of one request, then NormalizeScore if the Cycle implements
// it. Then it replaces each remaining [NoOpinion] with the mean of the policy's other scores in the
// request, rounded down, or with MaxScore/2 if there are no others. So a policy without current
// data about a node returns NoOpinion, and needs no NormalizeScore for that. A NormalizeScore gets
// NoOpinion among the scores. It may leave it, or replace it with a score; it must not return it in
// the place of another score.
//
// # Rules
//
// Everything that a policy decides depends only on its configuration, the pod, and the Node passed
// to it:
//
//   - Filter and Score are pure. They do no I/O, read no clock, write to no shared memory, and
//     allocate nothing. They return the same result every time, in any order, and when several
//     goroutines call them concurrently. (A policy that evaluates expressions of users cannot avoid
//     allocations; its tests state how many there may be.)
//   - They evaluate the Node passed to them and do not look it up in the View: preemption passes a
//     Node without some of its pods, and a cluster autoscaler one that does not exist. Such nodes
//     may have nil maps, no pods and an empty status.
//   - Pods, Nodes and the View are read-only and shared.
//   - Data from outside the cluster are signals in the View. Policies make no calls.
//   - An error is a verdict about the pod: no node fits. Or, with failurePolicy: Ignore,
//     excludes the policy from the request. If the data of one node are invalid, such as a label
//     that is not a number, return a Verdict with a Reason for that, not an error.
//
// The package policytest checks all of this for any policy.
//
// # Allocating resources
//
// A [Reserver] names the ledgers in which a pod must have an allocation before it is bound, and
// chooses what to allocate, as a pure function of the [ReserveRequest]. The caller writes the
// ledger, calls again if another replica was faster, adds the allocation's annotations to the
// Binding, and releases allocations that no pod needs. The ledgers that Filter sees
// ([snapshot.Node.Ledger], [snapshot.View.Ledger]) may be slightly outdated; Reserve gets the
// ledger to which the allocation is written. A pod that holds an allocation fits, unless an
// [AllocationValidator] rejects the allocation. Package allocations counts which pods hold which
// units of a node, from the ledger and from pods without allocations.
//
// # Reasons
//
// A [Reason] is a package-level variable, or is created with the policy from its configuration. Its
// text is constant: kube-scheduler groups identical texts into "12 no single GPU has enough free
// memory". Numbers belong in [Verdict.Have] and [Verdict.Want]; the decision record shows from them
// how far each node was from fitting.
package policy
