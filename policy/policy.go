package policy

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/snapshot"
)

// MaxScore is the best score a node can get from a policy; the worst is 0.
const MaxScore int64 = 100

// Policy evaluates nodes for pods. A Policy is created once from its configuration, and is safe for
// concurrent use.
type Policy interface {
	// Prepare does all that depends on the pod alone, once for each request. pod is never nil, but
	// may be empty. pod and view are read-only, and may be kept as long as the Cycle.
	//
	// A nil Cycle with a nil error means that the policy does not apply to this pod. An error means
	// that the policy cannot evaluate the pod (say, because an annotation does not parse). Its text
	// becomes part of the pod's events, so it should tell the pod's owner what to change.
	//
	// The result depends on the pod, the view and the policy's configuration alone. Prepare should
	// return ctx.Err() early if it takes long.
	Prepare(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (Cycle, error)
}

// Cycle is a Policy prepared for one pod. It implements [Filter], [Score] or both, and optionally
// [NormalizeScore] and [ScoreRows] beside Score, and [Signature]. It may be kept and reused while
// neither the pod nor the view has changed.
type Cycle any

// Filter decides whether the pod may run on a node.
type Filter interface {
	// Filter is pure, allocates nothing, and is safe for concurrent use. node is never nil; it may
	// be one that is in no View.
	Filter(node *snapshot.Node) Verdict
}

// Score rates how good a node is for the pod.
type Score interface {
	// Score returns 0 (worst) to [MaxScore] (best), [NoOpinion], or any value if the Cycle is also
	// a [NormalizeScore]. It is pure, allocates nothing, and is safe for concurrent use. It may be
	// called for nodes that Filter would reject.
	Score(node *snapshot.Node) int64
}

// NormalizeScore is for scores that can only be compared with each other.
type NormalizeScore interface {
	// NormalizeScore replaces, in place, the scores of all nodes of one request with values in
	// 0..[MaxScore]. There is at least one score. It may leave [NoOpinion] where Score returned it,
	// and must not return it elsewhere.
	NormalizeScore(scores []int64)
}

// Explainer is implemented by a Cycle that can explain its verdicts and scores: the numbers behind
// them and their age, which pods hold what, what a choice protects.
type Explainer interface {
	// Explain returns lines about the node, or about the pod as a whole if node is nil; none if
	// there is nothing to add. It is pure, and may allocate. Every line has the form
	//
	//	<what>: <value>[; <value>]
	//
	// <what> is what the line is about, in a few words without a colon: the pod, the node, a rule,
	// a resource, a part of the score. The cause or source of a value follows the value in
	// parentheses. A line has no full stop at its end. A value that cannot be computed is unknown,
	// and [snapshot.Value.Missing] says so of a signal:
	//
	//	CPU: 95% used of 16 at 2026-01-01T12:00:00Z; scores 5
	//	rule hot: rejects (signal temperature was 91, above 85, at 2026-01-01T12:00:00Z)
	//	rule fan: unknown (signal fan has no value for the node)
	Explain(node *snapshot.Node) []string
}

// Signature is implemented by a Cycle whose results for a node are the same for every pod with the
// same signature: [Filter] and [Score] depend on the Node and the signature alone, and not on the
// View, and NormalizeScore on the scores and the signature. So the signature contains what the
// Cycle reads of the pod and of the View, such as the [snapshot.Signal.Version] of a signal. The
// engine does not call such a Cycle again for a node that has not changed.
//
// The results may differ for a pod that is on the Node or holds allocations there: the engine does
// not use the signature of a pod that is on any node of the View, or in the ledger of one.
type Signature interface {
	// Signature returns the same string for all pods with the same Verdicts and scores, before
	// NormalizeScore. It need not contain the policy's configuration. It is called once after each
	// Prepare.
	Signature() string
}

// ScoreRows is implemented by a Cycle with a [Score] that depends on the whole View, if it scores
// many nodes together much faster than one by one. A [Signature] of the Cycle does not cover its
// scores.
type ScoreRows interface {
	// ScoreRows sets scores[i] to what Score returns for the node at rows[i] of the View, which has
	// such a node. It is pure, and safe for concurrent use. It is only called for a pod that is on
	// no node of the View, nor in the ledger of one.
	ScoreRows(rows []int32, scores []int64)
}

// Verdict is the result of a Filter for one node. The zero Verdict means that the pod fits.
type Verdict struct {
	// Reason is why the node does not fit; nil means that it fits.
	Reason *Reason
	// Unresolvable is true if removing pods from the node would not help
	// (UnschedulableAndUnresolvable), so that preemption need not consider it.
	Unresolvable bool
	// Have and Want are the numbers behind the reason, in Reason.Unit, for the decision record:
	// what the node has left, and what the pod needs.
	Have, Want int64
}

// Fits reports whether the pod may run on the node.
func (v Verdict) Fits() bool { return v.Reason == nil }

// Reason is a cause of rejection, identified by its Code. Reasons are package-level variables of
// the policy, or created with it; a request never creates one.
type Reason struct {
	// Code names the reason in metrics, unique in its policy. It is in CamelCase, or a name that
	// the configuration gives, such as no-spot.
	Code string
	// Text is the text in the pod's events. It is constant: no names, no numbers.
	Text string
	// Unit is the unit of Have and Want ("MiB", "free places"); "" if they mean nothing.
	Unit string
}

// Reserver is implemented by a Policy that allocates countable resources: memory of a node's GPUs,
// seats of a license. It chooses what to allocate in which ledger when a pod is bound. Its caller
// writes the allocations, and keeps, repeats and releases them as a ledger requires. Its methods
// are pure and safe for concurrent use.
type Reserver interface {
	// Ledgers returns the ledgers in which the pod must have an allocation before it is bound to
	// the node, in the order of allocating; none if it needs nothing.
	Ledgers(pod *corev1.Pod, node *snapshot.Node) ([]snapshot.LedgerKey, error)
	// Reserve chooses what the pod gets from one of these ledgers. It is called again with the new
	// state of the ledger if another replica was faster. It is not called if the ledger already
	// holds an allocation of the pod: see [AllocationValidator]. A Verdict that does not fit means
	// that not enough is left. It is also called without allocating anything, to find the
	// annotations with which a pod that is being bound counts; then the Node has the pods whose
	// bind calls came before.
	Reserve(ReserveRequest) (Allocation, Verdict)
}

// AllocationValidator is implemented by a Reserver whose units can fail, or whose pods must be
// bound in order. Without it, every existing allocation can be used.
type AllocationValidator interface {
	// ValidateAllocation is called when a pod is to be bound with the allocation of an earlier
	// attempt. ReserveRequest.Ledger holds this allocation, made at ReserveRequest.At. after is as
	// in [Allocation]. A Verdict that does not fit means that the allocation cannot be used any
	// more, because a unit is unhealthy or gone: then the allocation is released, and Reserve
	// chooses again. Filter must be consistent with it: a pod fits on a node where it holds a
	// usable allocation, and on any other if Reserve would find enough without that allocation.
	// ValidateAllocation is pure.
	ValidateAllocation(ReserveRequest) (after []types.UID, verdict Verdict)
}

// ReserveRequest is the input of a Reserver.
type ReserveRequest struct {
	Pod *corev1.Pod
	// Node is the node to bind the pod to, as in the View. Its own ledgers may be older than
	// Ledger.
	Node *snapshot.Node
	// Ledger is the current state of the ledger to allocate from; empty, but never nil, if it has
	// no allocations.
	Ledger *snapshot.Ledger
	// View is the state of the cluster, with signals; it may be older than Ledger.
	View *snapshot.View
	// At is the time of the allocation. It is later than the times of all earlier allocations in
	// the ledger.
	At time.Time
}

// ScoringStrategyType says which of two nodes, or of two units of a node, is better.
type ScoringStrategyType string

const (
	// BinPack prefers those with less left.
	BinPack ScoringStrategyType = "BinPack"
	// Spread prefers those with more left.
	Spread ScoringStrategyType = "Spread"
)

// Score returns the score of a node that uses this much of its capacity. used is 0 to capacity, and
// capacity 1 to allocations.MaxCapacity: a hundred times that must not overflow.
func (p ScoringStrategyType) Score(used, capacity int64) int64 {
	if p == Spread {
		used = capacity - used
	}
	return MaxScore * used / capacity
}

// Compare returns less than 0 if what has this much left is better than what has the other amount
// left, more than 0 if it is worse, and 0 if both are equally good.
func (p ScoringStrategyType) Compare(left, other int64) int {
	if p == Spread {
		return cmp.Compare(other, left)
	}
	return cmp.Compare(left, other)
}

// UnknownAction is what a policy does about a node of which it does not know what it needs, because
// a signal is missing or stale, or nothing has the number.
type UnknownAction string

const (
	// Neutral lets the node pass Filter, and Score returns [NoOpinion].
	Neutral UnknownAction = "Neutral"
	// Reject rejects the node until what the policy needs is known.
	Reject UnknownAction = "Reject"
)

// NoOpinion is what Score returns for a node without current data: the node is then neither better
// nor worse than the rest. The engine replaces it, after NormalizeScore if there is one, with the
// mean of the policy's scores for the other nodes of the request, rounded down, or with MaxScore/2
// if there are no others. NormalizeScore gets it like any other score, and either leaves it or
// replaces it with a score.
const NoOpinion int64 = -1

// Precomputer is implemented by a Policy with expensive results that many requests share, such as a
// model learned from [snapshot.View.History].
type Precomputer interface {
	// Precompute computes and keeps what requests with this View, and the views after it, will
	// need. It makes them faster and never changes a decision. One goroutine at a time calls it,
	// from time to time with the latest View, concurrently with requests.
	Precompute(view *snapshot.View)
}

// Inspector is implemented by a Policy that shows its state to people and their tools.
type Inspector interface {
	// Inspect returns the value at a path below that of the profile, such as "inspect/node-1",
	// which is then encoded as JSON. found is false if the path does not exist. Inspect is pure.
	// The View has the pods that are being bound.
	Inspect(view *snapshot.View, path string) (value any, found bool)
}

// Warner is implemented by a Policy that can have a valid configuration that is probably a mistake.
type Warner interface {
	// Warnings returns what is probably a mistake. The paths begin at the configuration of the
	// policy, as those of errors of [Type.New] do.
	Warnings() field.ErrorList
}

// UnreadRequester is implemented by a Policy that reads, as configured, one of several kinds of
// requests.
type UnreadRequester interface {
	// UnreadRequest says what the pod requests in a way that the policy does not read, as the end of
	// a sentence about the pod; "" if there is nothing.
	UnreadRequest(pod *corev1.Pod) string
}

// InputReader is implemented by a Policy that reads more than nodes, pods and ledgers, that must be
// called for every pod with certain resources, or that only scores. The configuration of a policy
// may implement it as well: then errors about its signals and resources are reported together with
// errors for which there is no Policy.
type InputReader interface {
	// Inputs returns what the policy needs with its configuration. The result is always the same.
	Inputs() Inputs
}

// Inputs are the parts of a View that exist only if a policy reads them, and the resources that a
// policy allocates.
type Inputs struct {
	// Resources are the extended resources that the policy allocates to pods. Its profile manages
	// them: kube-scheduler calls only for pods that request one. A policy that reads their names
	// from its configuration checks them with fields.ExtendedResource.
	Resources []corev1.ResourceName
	// AnyPod is true if a pod can also request an allocation in another way, such as in an
	// annotation: the profile is then for every pod, unless its configuration lists
	// managedResources.
	AnyPod bool
	// AllocationFields are the fields of the policy's configuration by which it counts allocations
	// that pods already hold, such as "sizesFrom". A change of one of them is reported as a risk
	// while there are allocations.
	AllocationFields []string
	// AdmissionPolicy is the name of a ValidatingAdmissionPolicy; "" if none is required. Without its
	// binding, authors of pods can take what the policy allocates to others.
	AdmissionPolicy string
	// Unreported are those of Resources that the policy counts for the whole cluster: usually no
	// node reports them, and kube-scheduler must not count them.
	Unreported []corev1.ResourceName
	// Signals are those the policy reads: see [snapshot.View.Signal].
	Signals []Signal
	// ConfigMaps are the families of ConfigMaps that the policy reads: see
	// [snapshot.Node.ConfigMap].
	ConfigMaps []snapshot.ConfigMapSource
	// Devices is true if the policy reads what Dynamic Resource Allocation allocates: see
	// [snapshot.Node.DevicePools], [snapshot.View.ResourceClaim] and [snapshot.View.DeviceClass].
	Devices bool
	// CountsPods is true if a Filter or Score depends on which pods are on the node, and the policy
	// is no [Reserver]. Then a filter call waits up to half a second until the View counts the pods
	// that earlier calls have let pass, so that pods in quick succession exceed no limit, and are
	// not all scored by the same counts. ScoreOnly must be false: without filter, nothing waits.
	CountsPods bool
	// History is true if the policy learns from which pods have come and gone: see
	// [snapshot.View.History].
	History bool
	// ScoreOnly is true if no Cycle is a [Filter], whatever the pod: then kube-scheduler need not
	// call filter for the policy.
	ScoreOnly bool
	// FilterOnly is true if no Cycle is a [Score], whatever the pod: then its weight does not
	// count, and kube-scheduler need not call prioritize for the policy.
	FilterOnly bool
}

// Signal is a use of a signal.
type Signal struct {
	// Field is the field of the policy's configuration that names it, such as "cpu.signal".
	Field string
	// Name is the name of the signal.
	Name string
	// About is what the keys of its numbers must be; "" if it does not matter.
	About SignalAbout
}

// SignalAbout is the kind of keys of a signal's numbers.
type SignalAbout string

const (
	// AboutNodes means that the keys are names of nodes.
	AboutNodes SignalAbout = "Nodes"
	// AboutKeys means that the keys are anything else, or "" for a single number.
	AboutKeys SignalAbout = "Keys"
)

// Allocation is what a pod is to get.
type Allocation struct {
	// Units are all units of the ledger, whether the pod gets some of them or not, at most
	// [snapshot.MaxLedgerUnits]. Units of the ledger that are not listed are gone: their
	// allocations stay, and their capacity is 0. A policy need not count the pods with allocations:
	// for a ledger with [snapshot.MaxLedgerPods], the engine rejects the node.
	Units []Capacity
	// Amounts is what the pod gets, at least one amount, and at most one of each unit.
	Amounts []Amount
	// Annotations are written to the pod in the transaction that binds it: at most
	// [snapshot.MaxAllocationAnnotations], with values of at most
	// [snapshot.MaxAllocationAnnotation] bytes.
	Annotations map[string]string
	// After are pods with earlier allocations in the ledger whose Bindings should come before this
	// one, if they come soon. It is for device plugins that identify pods by their order.
	After []types.UID
	// NotBefore is the earliest permitted time of the allocation, for policies that compare the
	// times of allocations with those of signals. Zero: any time.
	NotBefore time.Time
}

// Capacity is the capacity of a unit, 0 or more, in the resource's unit.
type Capacity struct {
	Unit     string
	Capacity int64
}

// Amount is a part of a unit, 1 or more, in the resource's unit.
type Amount struct {
	Unit   string
	Amount int64
}

// Type is a type of policy in configuration files.
type Type struct {
	// Name is the policy's type in configuration files, in CamelCase.
	Name string
	// New creates a Policy from its configuration. decode strictly fills in into, a pointer to a
	// struct with json tags that holds the defaults, and is called at most once. New returns errors
	// of decode unchanged. Errors about values are field.Error values
	// (k8s.io/apimachinery/pkg/util/validation/field) with paths relative to the policy's
	// configuration, all errors together: ErrorList.ToAggregate. New does no I/O and has no side
	// effects: it is also called with many configurations, valid or not, to derive the schema of
	// configuration files.
	New func(decode func(into any) error) (Policy, error)
}

// TypeOf returns the Type with this name. defaults returns the default configuration, and build
// creates the policy from a configuration.
func TypeOf[C any](name string, defaults func() C, build func(C) (Policy, error)) Type {
	return Type{Name: name, New: func(decode func(any) error) (Policy, error) {
		config := defaults()
		if err := decode(&config); err != nil {
			return nil, err
		}
		return build(config)
	}}
}
