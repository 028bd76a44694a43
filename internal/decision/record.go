// Package decision holds the record of one decision: the request, the response, and the reasons.
// Records are plain data and self-contained; [Record.Text] shows them as text and encoding/json as
// JSON.
package decision

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TopNodes is how many of the best nodes a Record lists with their scores.
const TopNodes = 10

// NearestMisses is how many rejected nodes a Record lists for each reason: those that were closest
// to fitting.
const NearestMisses = 3

// Record describes what was decided about one pod in one call, and why. A Record is immutable once
// it is in a [Log].
type Record struct {
	// Time is when the call arrived, and Duration how long it took, including decoding and
	// encoding.
	Time     time.Time     `json:"time"`
	Duration time.Duration `json:"durationNanoseconds"`
	// Replica is the replica that decided; "" if it is known, because only one was asked.
	Replica string `json:"replica,omitempty"`
	// Verb is the verb of the call.
	Verb Verb `json:"verb"`
	// Profile is the path of the profile.
	Profile string `json:"profile"`
	Pod     Pod    `json:"pod"`
	// Generation is that of the View; 0 if there is no cluster.
	Generation uint64 `json:"generation"`

	// Unmanaged is true if the pod requests none of the profile's managedResources, so that no
	// policy evaluated it: all nodes fit, and all scores are equal.
	Unmanaged bool `json:"unmanaged,omitempty"`
	// Bypassed is true if no policy evaluated the pod, because the configuration has bypass: true.
	Bypassed bool `json:"bypassed,omitempty"`

	// UnknownClaims are the ResourceClaims of the pod that Outboard's watch had not shown, so that
	// no score counts them.
	UnknownClaims []string `json:"unknownClaims,omitempty"`

	// Nodes is the number of nodes in the call, Fit how many of them passed every filter, and
	// Returned how many the response contained; Returned is less than Fit only with a shortlist.
	Nodes    int `json:"nodes"`
	Fit      int `json:"fit"`
	Returned int `json:"returned"`

	// Policies are the profile's policies in order.
	Policies []Policy `json:"policies,omitempty"`
	// Rejections are the reasons for which nodes were rejected, most frequent
	// first.
	Rejections []Rejection `json:"rejections,omitempty"`
	// Top are the best nodes, best first, at most TopNodes of them; nil when the
	// call did not score.
	Top []ScoredNode `json:"top,omitempty"`
	// Ties is how many nodes have the largest total; 0 if the call did not score.
	Ties int `json:"ties,omitempty"`
	// Chosen is the node that kube-scheduler chose, whether it is among the best or not; nil if
	// unknown.
	Chosen *ChosenNode `json:"chosen,omitempty"`
	// MaxTotal is the largest total that a node could have for the pod.
	MaxTotal int64 `json:"maxTotal,omitempty"`

	// Preemptions are the candidate nodes of a preempt call, and PreemptionsLeftOut how many more
	// there were.
	Preemptions        []Preemption `json:"preemptions,omitempty"`
	PreemptionsLeftOut int          `json:"preemptionsLeftOut,omitempty"`
	// Bound is the node of a bind call.
	Bound string `json:"bound,omitempty"`
	// Allocations are those with which a bind call bound the pod, and Summary is why it is on the
	// node, as in its annotation [Annotation]. A call about a pod that is already bound has
	// neither.
	Allocations []Allocation `json:"allocations,omitempty"`
	Summary     string       `json:"summary,omitempty"`

	// Error is why the call failed; "" if it did not.
	Error string `json:"error,omitempty"`
}

// Pod identifies the pod of the call.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	// SchedulerName is that of the pod; "" if the pod is not known.
	SchedulerName string `json:"schedulerName,omitempty"`
}

// PodOf identifies the pod.
func PodOf(pod *corev1.Pod) Pod {
	return Pod{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID),
		SchedulerName: cut(pod.Spec.SchedulerName),
	}
}

// Policy is the part of one policy in a decision.
type Policy struct {
	Name   string `json:"name"`
	Weight int64  `json:"weight"`
	// Skipped is true if the policy does not apply to the pod.
	Skipped bool `json:"skipped,omitempty"`
	// IgnoredError is the error of a policy that failed and was ignored (failurePolicy: Ignore).
	IgnoredError string `json:"ignoredError,omitempty"`
	// Duration is the time the policy took; 0 if it was not measured.
	Duration time.Duration `json:"durationNanoseconds,omitempty"`
}

// Rejection is one reason, with the number of nodes rejected for it.
type Rejection struct {
	// Policy is the policy's name; "" means Outboard itself.
	Policy       string `json:"policy,omitempty"`
	Code         string `json:"code"`
	Text         string `json:"text"`
	Unit         string `json:"unit,omitempty"`
	Unresolvable bool   `json:"unresolvable,omitempty"`
	Nodes        int    `json:"nodes"`
	// Nearest are the nodes that came closest, nearest first.
	Nearest []Miss `json:"nearest,omitempty"`
}

// Brief returns a copy of bounded size that shares nothing with the record: the text is cut, and of
// the nearest nodes only the first is left.
func (r Rejection) Brief() Rejection {
	r.Text = cut(r.Text)
	r.Nearest = slices.Clone(r.Nearest[:min(1, len(r.Nearest))])
	return r
}

// Miss is one rejected node with the numbers behind its rejection, in the
// rejection's unit.
type Miss struct {
	Node string `json:"node"`
	Have int64  `json:"have"`
	Want int64  `json:"want"`
}

// ScoredNode is a node with its total and the scores behind it.
type ScoredNode struct {
	Node string `json:"node"`
	// Total is the sum of Weight × Score over the policies, unless HoldsAllocation is true.
	Total int64 `json:"total"`
	// HoldsAllocation is true if the pod holds an allocation on the node from an earlier attempt to
	// bind it; then Total is MaxTotal.
	HoldsAllocation bool    `json:"holdsAllocation,omitempty"`
	Scores          []Score `json:"scores,omitempty"`
}

// ChosenNode is the chosen node, and how its total compares with those of the other scored nodes.
type ChosenNode struct {
	ScoredNode
	// Better is how many nodes have a larger total, and Equal how many others have the same.
	Better int `json:"better"`
	Equal  int `json:"equal"`
}

// Score is one policy's score for one node.
type Score struct {
	Policy string `json:"policy"`
	// Score is in 0..100, after NormalizeScore, and Weight the policy's weight.
	Score  int64 `json:"score"`
	Weight int64 `json:"weight"`
}

// Allocation is what the pod holds of one unit, such as a GPU, in the resource's unit.
type Allocation struct {
	Resource string `json:"resource"`
	Unit     string `json:"unit"`
	Amount   int64  `json:"amount"`
}

// Preemption is the decision about one candidate node of a preempt call.
type Preemption struct {
	Node string `json:"node"`
	// Given is how many victims kube-scheduler proposed.
	Given int `json:"given"`
	// Added are the pods added to the victims, as namespace/name.
	Added []string `json:"added,omitempty"`
	// Dropped is why the candidate was dropped; "" if it was kept.
	Dropped string `json:"dropped,omitempty"`
}

// The limits of a Record in a Log.
const (
	maxPreemptions = 100
	maxAdded       = 20
	maxAllocations = 100
	maxRejections  = 100
	maxUnknown     = 20
	maxText        = 1024
)

// bound cuts long lists and texts, so that a [Log] takes a bounded amount of memory for any call.
func (r *Record) bound() {
	r.Error = cut(r.Error)
	r.Summary = cut(r.Summary)
	r.Allocations = first(r.Allocations, maxAllocations)
	r.UnknownClaims = first(r.UnknownClaims, maxUnknown)
	for i := range r.UnknownClaims {
		r.UnknownClaims[i] = cut(r.UnknownClaims[i])
	}
	for i := range r.Policies {
		r.Policies[i].IgnoredError = cut(r.Policies[i].IgnoredError)
	}
	r.Rejections = first(r.Rejections, maxRejections)
	for i := range r.Rejections {
		r.Rejections[i].Text = cut(r.Rejections[i].Text)
	}
	r.PreemptionsLeftOut += max(0, len(r.Preemptions)-maxPreemptions)
	r.Preemptions = first(r.Preemptions, maxPreemptions)
	for i := range r.Preemptions {
		if p := &r.Preemptions[i]; len(p.Added) > maxAdded {
			p.Added = append(first(p.Added, maxAdded), "…")
		}
	}
}

// first returns at most n of the elements, without the memory of the others.
func first[T any](list []T, n int) []T {
	if len(list) <= n {
		return list
	}
	return slices.Clone(list[:n])
}

// cut returns the text, cut if it is too long. A cut text shares no memory with the original.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}
