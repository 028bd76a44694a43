package whatif

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/snapshot"
)

// Kind is a kind of change. Changes of different kinds cannot be compared.
type Kind string

const (
	// Request is less of one resource in the one container that requests it, or of what an
	// annotation requests.
	Request Kind = "Request"
	// End is the end of pods on one node, other than those of DaemonSets and static pods.
	End Kind = "End"
	// Nodes is one toleration or selector of the pod, or the end of a cordon: what lets the pod run on
	// the most nodes.
	Nodes Kind = "Nodes"
)

// Remedy is one change with which the pod fits.
type Remedy struct {
	Kind Kind `json:"kind"`
	// Node is a node on which the pod fits then, and Nodes is on how many it does if that was
	// counted: for Nodes.
	Node  string `json:"node"`
	Nodes int    `json:"nodes,omitempty"`

	// Resource is requested by Container, or by the pod with the key Annotation; the pod fits with To
	// of it instead of From, and does not fit with Next, the next larger amount if it was evaluated.
	Resource   corev1.ResourceName `json:"resource,omitempty"`
	Container  string              `json:"container,omitempty"`
	Annotation string              `json:"annotation,omitempty"`
	From       *resource.Quantity  `json:"from,omitempty"`
	To         *resource.Quantity  `json:"to,omitempty"`
	Next       *resource.Quantity  `json:"next,omitempty"`
	// Unit is what From, To and Next count if a policy says so, such as GiB.
	Unit string `json:"unit,omitempty"`

	// End are the pods that end.
	End        []Holder   `json:"end,omitempty"`
	Preemption Preemption `json:"preemption,omitempty"`

	// Change is what changes, for Nodes.
	Change *Change `json:"change,omitempty"`
}

// Holder is a pod that ends.
type Holder struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Priority  int32  `json:"priority"`
	// TerminatingUntil is when the grace period of the pod ends, if it is terminating already; nil
	// otherwise.
	TerminatingUntil *metav1.Time `json:"terminatingUntil,omitempty"`
}

// Preemption says whether preemption can evict the pods that end.
type Preemption string

const (
	// Possible means that kube-scheduler may evict them for the pod.
	Possible Preemption = "Possible"
	// Unnecessary means that all of them are ending already.
	Unnecessary Preemption = "Unnecessary"
	// PriorityNotLower means that the priority of some of them is not lower than that of the pod.
	PriorityNotLower Preemption = "PriorityNotLower"
	// NeverPreempts means that the pod has preemptionPolicy: Never.
	NeverPreempts Preemption = "NeverPreempts"
	// ViolatesBudget means that kube-scheduler would violate a PodDisruptionBudget, which it does
	// only if nothing else helps.
	ViolatesBudget Preemption = "ViolatesBudget"
	// NotConsidered means that kube-scheduler does not consider the node, because a policy says
	// that preemption would not help there, or that the policies do not keep these pods as victims.
	NotConsidered Preemption = "NotConsidered"
	// LacksNothing means that kube-scheduler 1.37 and earlier evicts no pod on the node, because it
	// finds enough there of all resources that it counts, which are those without
	// ignoredByScheduler. Only policies reject the node.
	LacksNothing Preemption = "LacksNothing"
)

// DefaultBudget permits as many evaluations as need about 10 ms for each kind.
const DefaultBudget = 120000

// Cluster is what a pod is evaluated with.
type Cluster struct {
	Engine *engine.Engine
	View   *snapshot.View
	// Ignored are the resources with ignoredByScheduler.
	Ignored []corev1.ResourceName
	// Budget is how many nodes may be evaluated for each kind; 0 is DefaultBudget.
	Budget int
}

// What takes longer than to evaluate a node of the View counts as several evaluations.
const (
	// prepareCost is that of a small pod or View that is prepared. Each preparedBytes of a pod cost
	// one more, and each matchedBytes of what is compared with nodes cost one more for each node.
	prepareCost, preparedBytes, matchedBytes = 50, 8, 128
	// changedCost is that of a node with other pods than in the View, of which policies compute
	// anew what they need to know.
	changedCost = 80
)

// Find returns a small change of each kind that makes the pod fit, in the order of the kinds, or nil
// if it fits already. There may be several of the kind Request, one for each resource or
// annotation, and none of any kind. The error is as for [engine.Engine.Filter]; with an error there are no changes.
func Find(ctx context.Context, c Cluster, pod *corev1.Pod) ([]Remedy, error) {
	s, err := newSearch(ctx, c, pod)
	if err != nil || s.fitsNow {
		return nil, err
	}
	var all []Remedy
	for _, find := range []func() ([]Remedy, error){s.requests, s.ends, s.excluded} {
		s.left = c.Budget
		if c.Budget == 0 {
			s.left = DefaultBudget
		}
		found, err := find()
		if err = cmp.Or(err, context.Cause(ctx)); err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// search is one call of Find.
type search struct {
	Cluster
	ctx      context.Context
	pod      *corev1.Pod
	trial    *trial           // of the pod as it is
	selected []*snapshot.Node // which kube-scheduler does not exclude, whatever pods are there
	others   []*snapshot.Node
	blocked  []blocked // of selected, in the same order
	fitsNow  bool
	left     int // of the budget, for this kind

	prepare, each int // the cost of a copy of the pod that is prepared, and of a node that is evaluated for it
}

// blocked is why the pod does not fit on a node now.
type blocked struct {
	lacks     string // of kube-scheduler's resources
	rejecting []engine.PolicyOpinion
}

func newSearch(ctx context.Context, c Cluster, pod *corev1.Pod) (*search, error) {
	s := &search{Cluster: c, ctx: ctx, pod: pod}
	matched := corev1.PodSpec{NodeSelector: pod.Spec.NodeSelector, Affinity: pod.Spec.Affinity, Tolerations: pod.Spec.Tolerations}
	s.prepare = prepareCost + pod.Spec.Size()/preparedBytes + len(pod.Labels) + len(pod.Annotations)
	s.each = 1 + matched.Size()/matchedBytes
	var err error
	if s.trial, err = s.try(c.Engine, pod, c.View); err != nil {
		return nil, err
	}
	for n := range c.View.All() {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if s.trial.filters.Excludes(n.Object) != "" {
			s.others = append(s.others, n)
			continue
		}
		s.selected = append(s.selected, n)
		b, err := s.trial.blocked(n)
		if err != nil {
			return nil, err
		}
		s.blocked = append(s.blocked, b)
		s.fitsNow = s.fitsNow || b.lacks == "" && len(b.rejecting) == 0
	}
	return s, nil
}

// spend takes n evaluations from the budget, and reports whether it had as many, and the context
// has not ended. Each step of each loop spends before it begins, because whoever creates pods
// determines how many there are.
func (s *search) spend(n int) bool {
	s.left -= n
	return s.left >= 0 && s.ctx.Err() == nil
}

// trial evaluates nodes for one pod.
type trial struct {
	ctx     context.Context
	filters *kubescheduler.Filters
	cycle   *engine.Cycle
}

// try returns a trial of a pod, which may be changed, in a View, which may be changed.
func (s *search) try(e *engine.Engine, pod *corev1.Pod, view *snapshot.View) (*trial, error) {
	cycle, err := e.Begin(s.ctx, pod, view)
	if err != nil {
		return nil, err
	}
	return &trial{s.ctx, kubescheduler.For(pod, s.Ignored...).In(view), cycle}, nil
}

// fits reports whether the pod fits on the node, with and without the pods nominated to it, unless
// kube-scheduler excludes the node whatever pods are there.
func (t *trial) fits(n *snapshot.Node) (bool, error) {
	if t.ctx.Err() != nil {
		return false, context.Cause(t.ctx)
	}
	counting := t.cycle.CountNominated(n)
	for _, n := range []*snapshot.Node{counting, n} {
		if t.filters.Lacks(n) != "" {
			return false, nil
		}
		if verdict, err := t.cycle.Verdict(n); err != nil || !verdict.Fits() {
			return false, err
		}
		if counting == n {
			break
		}
	}
	return true, nil
}

// blocked returns why the pod does not fit on the node: with the pods nominated to it or, if it
// fits then, without.
func (t *trial) blocked(n *snapshot.Node) (blocked, error) {
	counting := t.cycle.CountNominated(n)
	b := blocked{lacks: t.filters.Lacks(counting)}
	var err error
	if b.rejecting, err = t.cycle.Rejecting(counting); err != nil || counting == n || b.lacks != "" || len(b.rejecting) > 0 {
		return b, err
	}
	b.rejecting, err = t.cycle.Rejecting(n)
	return b, err
}

// fitsAny returns the first of the nodes on which the pod fits, or nil. complete is false if the
// budget ended before.
func (s *search) fitsAny(t *trial, nodes []*snapshot.Node) (first *snapshot.Node, complete bool, err error) {
	for _, n := range nodes {
		if !s.spend(s.each) {
			return nil, false, nil
		}
		switch fits, err := t.fits(n); {
		case err != nil:
			return nil, false, err
		case fits:
			return n, true, nil
		}
	}
	return nil, true, nil
}
