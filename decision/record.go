// Package decision holds the record of one decision: what was asked, what was
// answered, and why. Records are plain data, complete in themselves, and are
// shown as text by [Record.Text] and as JSON by encoding/json.
package decision

import (
	"slices"
	"strings"
	"time"
)

// TopNodes is how many of the best nodes a Record lists with their scores.
const TopNodes = 10

// NearestMisses is how many rejected nodes a Record names for each reason: those
// that came closest to fitting.
const NearestMisses = 3

// Record says what was decided about one pod in one call and why. A Record does
// not change once it is in a [Log].
type Record struct {
	// Time is when the call arrived and Duration how long deciding took, decoding
	// and encoding included.
	Time     time.Time     `json:"time"`
	Duration time.Duration `json:"durationNanoseconds"`
	// Verb is the call that was decided.
	Verb Verb `json:"verb"`
	// Profile is the path of the profile that decided.
	Profile string `json:"profile"`
	Pod     Pod    `json:"pod"`
	// Generation identifies the View that was judged; 0 is a request judged
	// without a cluster.
	Generation uint64 `json:"generation"`
	// Cached says that the pod and the view were unchanged since an earlier
	// call, whose verdicts were used again.
	Cached bool `json:"cached,omitempty"`

	// Unmanaged says that the pod asks for none of the profile's managedResources, so that
	// no policy was asked: all nodes fit, and none is better.
	Unmanaged bool `json:"unmanaged,omitempty"`

	// Asked is the number of nodes in the call, Fit how many of them passed every
	// filter, and Returned how many the answer held; Returned is less than Fit
	// only with a shortlist.
	Asked    int `json:"asked"`
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
	// Ties is how many nodes have the largest total among them; 0 when the call did
	// not score.
	Ties int `json:"ties,omitempty"`
	// Chosen is the node that kube-scheduler has chosen, whether it is among the best or
	// not; nil if that is not known.
	Chosen *ChosenNode `json:"chosen,omitempty"`
	// MaxTotal is the largest total a node could have for the pod.
	MaxTotal int64 `json:"maxTotal,omitempty"`

	// Preemptions are the candidate nodes of a preempt call, and PreemptionsLeftOut
	// how many more there were (see Bounded).
	Preemptions        []Preemption `json:"preemptions,omitempty"`
	PreemptionsLeftOut int          `json:"preemptionsLeftOut,omitempty"`
	// Bound is the node a bind call was about.
	Bound string `json:"bound,omitempty"`

	// Error is why the call failed as a whole; "" if it did not.
	Error string `json:"error,omitempty"`
}

// Pod identifies the pod decided about.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// Policy says what part one policy had in a decision.
type Policy struct {
	Name   string `json:"name"`
	Weight int64  `json:"weight"`
	// Unconcerned says that the policy had nothing to say about this pod.
	Unconcerned bool `json:"unconcerned,omitempty"`
	// IgnoredError is the error for which the policy was left out (failurePolicy: Ignore).
	IgnoredError string `json:"ignoredError,omitempty"`
	// Duration is the time the policy took; 0 if it was not measured.
	Duration time.Duration `json:"durationNanoseconds,omitempty"`
}

// Rejection is one reason and how many nodes it rejected.
type Rejection struct {
	// Policy is the policy's name; "" is Outboard itself.
	Policy       string `json:"policy,omitempty"`
	Code         string `json:"code"`
	Text         string `json:"text"`
	Unit         string `json:"unit,omitempty"`
	Unresolvable bool   `json:"unresolvable,omitempty"`
	Nodes        int    `json:"nodes"`
	// Nearest are the nodes that came closest, nearest first.
	Nearest []Miss `json:"nearest,omitempty"`
}

// Miss is one rejected node with the numbers behind its rejection, in the
// rejection's unit.
type Miss struct {
	Node string `json:"node"`
	Have int64  `json:"have"`
	Want int64  `json:"want"`
}

// ScoredNode is a node and how its total came about.
type ScoredNode struct {
	Node string `json:"node"`
	// Total is the sum of Weight × Score over the policies, unless HoldsClaim is true.
	Total int64 `json:"total"`
	// HoldsClaim says that an earlier attempt to bind the pod has left it a claim on
	// the node, which is why Total is the largest there is.
	HoldsClaim bool    `json:"holdsClaim,omitempty"`
	Scores     []Score `json:"scores,omitempty"`
}

// ChosenNode is a node, and how its total compares with those of the others scored.
type ChosenNode struct {
	ScoredNode
	// Better is how many nodes have a larger total, and Equal how many others the same.
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

// Preemption is what was decided about one candidate node of a preempt call.
type Preemption struct {
	Node string `json:"node"`
	// Given is how many victims kube-scheduler proposed.
	Given int `json:"given"`
	// Added are the pods added to the victims, as namespace/name.
	Added []string `json:"added,omitempty"`
	// Dropped is why the node is no candidate any more; "" if it is kept.
	Dropped string `json:"dropped,omitempty"`
}

// What a Record in a Log holds at most.
const (
	maxPreemptions = 100
	maxAdded       = 20
	maxRejections  = 100
	maxText        = 1024
)

// Bounded returns the record with its lists and texts cut to what is worth
// keeping, so that a [Log] takes a bounded amount of memory, whatever was asked.
// The receiver is not changed, and shares with the result what has not been cut.
func (r *Record) Bounded() *Record {
	if r.isBounded() {
		return r
	}
	b := *r
	b.Error = cut(b.Error)
	if len(b.Policies) > 0 {
		b.Policies = slices.Clone(b.Policies)
		for i := range b.Policies {
			b.Policies[i].IgnoredError = cut(b.Policies[i].IgnoredError)
		}
	}
	b.Rejections = slices.Clone(b.Rejections[:min(len(b.Rejections), maxRejections)])
	for i := range b.Rejections {
		b.Rejections[i].Text = cut(b.Rejections[i].Text)
	}
	if more := len(b.Preemptions) - maxPreemptions; more > 0 {
		b.PreemptionsLeftOut += more
		b.Preemptions = b.Preemptions[:maxPreemptions]
	}
	b.Preemptions = slices.Clone(b.Preemptions)
	for i := range b.Preemptions {
		p := &b.Preemptions[i]
		if len(p.Added) > maxAdded {
			p.Added = append(slices.Clone(p.Added[:maxAdded]), "…")
		}
	}
	return &b
}

func (r *Record) isBounded() bool {
	return len(r.Error) <= maxText && len(r.Rejections) <= maxRejections && len(r.Preemptions) <= maxPreemptions &&
		!slices.ContainsFunc(r.Policies, func(p Policy) bool { return len(p.IgnoredError) > maxText }) &&
		!slices.ContainsFunc(r.Rejections, func(j Rejection) bool { return len(j.Text) > maxText }) &&
		!slices.ContainsFunc(r.Preemptions, func(p Preemption) bool { return len(p.Added) > maxAdded })
}

// cut returns a text that is not too long, and shares no memory with one that is.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}
