package policy

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// MaxScore is the best score a node can get from a policy; the worst is 0.
const MaxScore int64 = 100

// Policy judges nodes for pods. A Policy is built once from its configuration
// and used by any number of goroutines at once.
type Policy interface {
	// Prepare does all that depends on the pod alone, once per request. pod is
	// never nil, but may be empty; it and view are read-only and may be kept as
	// long as the Cycle.
	//
	// A nil Cycle with a nil error says that the policy does not concern this
	// pod. An error says that the policy cannot judge it (say, an annotation
	// that does not parse): the text reaches the pod's events, so it should tell
	// the pod's owner what to change.
	//
	// The answer depends on the pod, the view and the policy's configuration
	// alone. Prepare should return ctx.Err() early when it does long work.
	Prepare(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (Cycle, error)
}

// Cycle is a Policy prepared for one pod. It implements [Filter], [Score] or
// both, and optionally [NormalizeScore] beside Score, and [Signature]. It may be kept and asked
// again while neither the pod nor the view has changed.
type Cycle any

// Filter says whether the pod may run on a node.
type Filter interface {
	// Filter is pure, allocates nothing, and is called by several goroutines at
	// once. node is never nil; it may be one that no View holds.
	Filter(node *snapshot.Node) Verdict
}

// Score says how good a node is for the pod.
type Score interface {
	// Score returns 0 (worst) to [MaxScore] (best), [NoOpinion], or any value if the
	// Cycle is also a [NormalizeScore]. It is pure, allocates nothing, and is called by
	// several goroutines at once, also for nodes that Filter would reject.
	Score(node *snapshot.Node) int64
}

// NormalizeScore is for scores that mean something only beside each other.
type NormalizeScore interface {
	// NormalizeScore replaces, in place, the scores of all nodes asked in one
	// request with values in 0..[MaxScore]. There is at least one score. It may leave
	// [NoOpinion] where Score returned it, and nowhere else.
	NormalizeScore(scores []int64)
}

// Explainer is implemented by a Cycle that can tell people more than a Verdict and a
// score: the numbers behind them and their age, who holds what, what a choice
// protects.
type Explainer interface {
	// Explain returns short sentences about the node, or, when it is nil, about the
	// pod as a whole; none if there is nothing to add. It is pure, and may allocate.
	Explain(node *snapshot.Node) []string
}

// Signature is implemented by a Cycle that says the same about a node for every pod with the same signature: what [Filter] and
// [Score] return then follows from the Node and the signature alone, and not from the View. The engine does not ask such a Cycle
// again about a node that has not changed.
type Signature interface {
	// Signature returns the same string for pods for which every Verdict and every score, before NormalizeScore, is the same.
	// The policy's configuration need not be in it. It is called once for each Prepare.
	Signature() string
}

// Verdict is a Filter's answer about one node. The zero Verdict says that the
// pod fits.
type Verdict struct {
	// Reason is why the node does not fit; nil means that it fits.
	Reason *Reason
	// Unresolvable says that removing pods from the node would not help
	// (UnschedulableAndUnresolvable), so preemption need not consider it.
	Unresolvable bool
	// Have and Want are the numbers behind the reason, in Reason.Unit, for the
	// decision record: what the node has left and what the pod needs.
	Have, Want int64
}

// Fits says whether the verdict lets the pod run on the node.
func (v Verdict) Fits() bool { return v.Reason == nil }

// Reason is a cause of rejection. Reasons are package-level variables of the
// policy, or made with it, and distinguished by their Code; they are never built in a
// request.
type Reason struct {
	// Code names the reason in metrics, in CamelCase, unique in its policy.
	Code string
	// Text is what the pod's events say. It is constant: no names, no numbers.
	Text string
	// Unit is what Have and Want count ("MiB", "pods"); "" if they say nothing.
	Unit string
}

// Reserver is implemented by a Policy that hands out something countable: memory
// of a node's devices, seats of a pool. It says what to write into which ledger
// when a pod is bound; whoever runs the policy writes it, and keeps, repeats and
// takes back claims as a ledger requires. Its methods are pure and are called by
// several goroutines at once.
type Reserver interface {
	// Ledgers names the ledgers in which the pod must have a claim before it is
	// bound to the node, in the order in which to claim; none if it needs
	// nothing.
	Ledgers(pod *corev1.Pod, node *snapshot.Node) ([]snapshot.LedgerKey, error)
	// Reserve chooses what the pod gets from one of these ledgers. It is called
	// again, with the ledger as it is then, when somebody else was faster, and
	// not at all when the ledger holds a claim of the pod already: see
	// [ClaimValidator]. A Verdict that
	// does not fit means that there is not enough left. It is also called when
	// nothing is claimed yet, to tell with which annotations a pod on its way
	// counts; the Node then has the pods that were on their way before.
	Reserve(ReserveRequest) (Claim, Verdict)
}

// ClaimValidator is implemented by a Reserver whose units can fail, or whose pods have to
// be bound in order. Without it, a claim that a pod holds can always be used.
type ClaimValidator interface {
	// ValidateClaim is called when the pod is to be bound with the claim of an earlier
	// attempt. ReserveRequest.Ledger holds this claim, made at ReserveRequest.At. after is as in
	// [Claim]. A Verdict that does not fit says that the claim cannot be used any more,
	// because a unit is unhealthy or gone: it is taken back, and Reserve chooses anew.
	// Filter must agree: a pod fits on a node where it holds a claim that can be used,
	// and elsewhere if Reserve would find enough without it. ValidateClaim is pure.
	ValidateClaim(ReserveRequest) (after []types.UID, verdict Verdict)
}

// ReserveRequest is what a Reserver is asked.
type ReserveRequest struct {
	Pod *corev1.Pod
	// Node is where the pod is to be bound, as in the View. Its own ledgers may
	// be older than Ledger.
	Node *snapshot.Node
	// Ledger is the ledger to claim from, as it is now; empty, but never nil,
	// when nothing was claimed from it before.
	Ledger *snapshot.Ledger
	// View is what is known about the cluster, and from outside; it may be older
	// than Ledger.
	View *snapshot.View
	// At is the time of the claim, later than that of every other claim in the
	// ledger that was made before.
	At time.Time
}

// WhenStale is what it means to a policy that an outside fact is missing or stale.
type WhenStale string

const (
	// Neutral says that the fact speaks neither for nor against the node: a Filter
	// lets it pass, and its score is [NoOpinion].
	Neutral WhenStale = "Neutral"
	// Reject says that the node does not fit until the fact is known again.
	Reject WhenStale = "Reject"
)

// NoOpinion is what Score returns about a node of which it knows nothing current: the
// node is then neither better nor worse than the rest. The engine replaces it, after
// NormalizeScore if there is one, with the mean of the policy's scores for the other nodes
// of the request, rounded down, or with MaxScore/2 if there are no others. NormalizeScore
// is given it like any other score, and either leaves it or decides on a score itself.
const NoOpinion int64 = -1

// InputReader is implemented by a Policy that judges by more than nodes, pods and ledgers, or
// that must be asked about every pod with certain resources.
type InputReader interface {
	// Inputs says what the policy needs as it is configured: always the same.
	Inputs() Inputs
}

// Inputs are what a View holds only if a policy reads it, and what the policy must be asked
// about.
type Inputs struct {
	// Resources are the extended resources that the policy allocates to pods. A profile with
	// managedResources must list them: kube-scheduler asks about pods with those only.
	Resources []corev1.ResourceName
	// Signals are those the policy reads: see [snapshot.View.Signal].
	Signals []Signal
	// ConfigMaps are the families of ConfigMaps by which it judges nodes: see
	// [snapshot.Node.ConfigMap].
	ConfigMaps []snapshot.ConfigMapSource
	// History says that it learns from which pods have come and gone: see
	// [snapshot.View.History].
	History bool
}

// Signal is a use of a signal.
type Signal struct {
	// Field is where the policy's configuration names it, such as "cpu.signal".
	Field string
	// Name is the name of the signal.
	Name string
	// About says what its numbers must be about; "" if it does not matter.
	About SignalAbout
}

// SignalAbout is what the keys of a signal's numbers are.
type SignalAbout string

const (
	// AboutNodes says that the keys are names of nodes.
	AboutNodes SignalAbout = "nodes"
	// AboutKeys says that they are anything else, or "" for a number that stands
	// alone.
	AboutKeys SignalAbout = "keys"
)

// Claim is what a pod is to get.
type Claim struct {
	// Units are all units of the ledger, whether something is claimed of them or
	// not. Units of the ledger that are not among them are gone: what is claimed
	// of them stays, and their capacity is 0.
	Units []Capacity
	// Amounts is what the pod gets, of each unit at most once. At least one.
	Amounts []Amount
	// Annotations are written to the pod in the same transaction that binds it.
	Annotations map[string]string
	// After are pods with earlier claims in the ledger whose Bindings should come
	// before this one, if they come soon: for those who tell pods apart by order.
	After []types.UID
	// NotBefore is the earliest time that the claim may bear, for those who compare the
	// times of claims with those of signals. Zero: any.
	NotBefore time.Time
}

// Capacity is how much there is of a unit, 0 or more, in the resource's unit.
type Capacity struct {
	Unit     string
	Capacity int64
}

// Amount is a part of a unit, 1 or more, in the resource's unit.
type Amount struct {
	Unit   string
	Amount int64
}

// Type is one kind of policy as a configuration file knows it.
type Type struct {
	// Name is the policy's name in configuration files, in CamelCase.
	Name string
	// New builds a Policy from its configuration. decode fills in into, a
	// pointer to a struct with json tags that holds the defaults, strictly, and
	// is called at most once. Errors of decode are returned as they are. Errors
	// about values are field.Error values
	// (k8s.io/apimachinery/pkg/util/validation/field) with paths relative to the
	// policy's configuration, all of them at once: ErrorList.ToAggregate. New does no I/O
	// and changes nothing: it is also called with many configurations, valid or not, to
	// find the schema of configuration files.
	New func(decode func(into any) error) (Policy, error)
}

// TypeOf returns the Type of the policies that build makes of a configuration, whose
// defaults are what defaults returns.
func TypeOf[C any](name string, defaults func() C, build func(C) (Policy, error)) Type {
	return Type{Name: name, New: func(decode func(any) error) (Policy, error) {
		config := defaults()
		if err := decode(&config); err != nil {
			return nil, err
		}
		return build(config)
	}}
}
