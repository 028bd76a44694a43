// Package explain explains why a pod is on its node, or pending: it returns the latest decisions
// about the pod, and the results of every policy now for every node that kube-scheduler does not
// rule out itself. The service provides explanations under /explain on its admin address
// ([Handler]); the command `outboard explain` reads them ([Fetch]) and prints the [Document] as
// text or JSON.
package explain

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/internal/pending"
	"outboard.dev/outboard/internal/respond"
	"outboard.dev/outboard/internal/whatif"
	"outboard.dev/outboard/snapshot"
)

// Path is the path of explanations on the admin address.
const Path = "/explain"

const (
	// DefaultDecisions is the default number of decisions.
	DefaultDecisions = 6
	// DefaultNodes is the default number of nodes.
	DefaultNodes = 20
	// MaxLimit is the largest number of decisions or nodes that a request can ask for.
	MaxLimit = 10000
	// maxExamples is how many of the nodes that kube-scheduler excludes for one reason are listed.
	maxExamples = 3
	// skew is by how much the clocks of the API server and of a replica may differ. It serves no
	// calls while it starts.
	skew = time.Minute
)

// Document is an explanation.
type Document struct {
	// Pod is the pod, as namespace/name.
	Pod string `json:"pod"`
	// Tried is true if the pod does not exist: see [TryHandler].
	Tried bool `json:"tried,omitempty"`
	// Kind is that of the object with the template of the pod, if the pod does not exist.
	Kind string `json:"kind,omitempty"`
	// Known is true if Outboard knows the pod.
	Known bool `json:"known"`
	// Node is the node of the pod; "" if it is not bound, or unknown.
	Node string `json:"node,omitempty"`
	// Holds is what the pod holds, by the ledgers.
	Holds []decision.Allocation `json:"holds,omitempty"`
	// Annotation is the value of the pod's [decision.Annotation]; "" if it has none.
	Annotation string `json:"annotation,omitempty"`
	// Created and Bound are when the pod was created, and when it was bound to its node; zero if
	// unknown.
	Created time.Time `json:"created,omitzero"`
	Bound   time.Time `json:"bound,omitzero"`
	// Reason is why the pod waits, or what is wrong with its binding; nil if nothing is, or the pod
	// is unknown.
	Reason *pending.Reason `json:"reason,omitempty"`
	// Uncalled says so, and what to do, if the replica has all records since before the pod was
	// bound, and none is about it.
	Uncalled string `json:"uncalled,omitempty"`
	// Verdict is all that in one sentence.
	Verdict string `json:"verdict"`
	// Hints are mistakes in what the pod requests.
	Hints []string `json:"hints,omitempty"`
	// Fits is on which nodes the pod fits now, by all profiles together; nil if none was asked.
	Fits *Fits `json:"fits,omitempty"`
	// Remedies are changes with which the pod would fit, if it fits on no node; see [whatif.Find].
	Remedies []whatif.Remedy `json:"remedies,omitempty"`
	// Unschedulable is what kube-scheduler has last said of the pod in its condition PodScheduled,
	// with the reasons of its own plugins and of all extenders; "" if the pod is bound or gated, or
	// has not been tried.
	Unschedulable string `json:"unschedulable,omitempty"`
	// Decisions are the latest decisions about the pod, latest first.
	Decisions []*decision.Record `json:"decisions"`
	// Now is what each profile would decide about the pod now; nil if the pod is bound or unknown,
	// or there is no profile.
	Now []Profile `json:"now,omitempty"`
	// Change is the first of Remedies in words, or why there is none.
	Change string `json:"change,omitempty"`
	// Signals are the current signals, by name.
	Signals []Signal `json:"signals,omitempty"`
	// Replicas are the replicas whose explanations are merged in this one; nil if one service was
	// asked.
	Replicas []string `json:"replicas,omitempty"`
	// Error says that the requested node does not exist; "" if it does, or none is requested.
	Error string `json:"error,omitempty"`
}

// Signal is the current state of one signal.
type Signal struct {
	Name string `json:"name"`
	// Values is how many numbers the signal has, and Stale how many of them are stale.
	Values int `json:"values"`
	Stale  int `json:"stale"`
	// Newest is the time of the newest number; zero if there is none.
	Newest time.Time `json:"newest,omitzero"`
	// Error is why the last read failed; "" if it did not.
	Error string `json:"error,omitempty"`
}

// Profile holds the current results of the policies of one profile.
type Profile struct {
	Profile string `json:"profile"`
	// Unmanaged is true if the pod requests none of the profile's managedResources, so that
	// kube-scheduler does not call the profile for it. Then all other fields are zero.
	Unmanaged bool `json:"unmanaged,omitempty"`
	// Nodes is for how many nodes kube-scheduler would call, and Fit how many of them fit.
	Fit   int `json:"fit"`
	Nodes int `json:"nodes"`
	// Excluded are the other nodes, grouped by reason, the most frequent reason first.
	Excluded []Exclusion `json:"excluded,omitempty"`
	// MaxTotal is the largest total that a node can have for the pod.
	MaxTotal int64 `json:"maxTotal"`
	// Explanations are about the best nodes, best first; those that do not fit
	// come last.
	Explanations []engine.Explanation `json:"explanations"`
	// Notes are the notes of policies about the pod as a whole.
	Notes []engine.PolicyNotes `json:"notes,omitempty"`
	// Refused is why a bind call of the profile would refuse the pod on any node; "" if it would
	// not.
	Refused string `json:"refused,omitempty"`
	// Meant is true if Refused is because of a mistake in the schedulerName of the pod.
	Meant bool `json:"-"`
	// Error is why the policies cannot evaluate the pod on any node.
	Error string `json:"error,omitempty"`
}

// Exclusion is one reason for which kube-scheduler rules nodes out itself.
type Exclusion struct {
	// Reason is kube-scheduler's text, and whether that is sure.
	Reason string `json:"reason"`
	Nodes  int    `json:"nodes"`
	// Examples are the names of some of the nodes; the requested node comes first.
	Examples []string `json:"examples"`
	// Text is all of that in words.
	Text string `json:"text"`
}

// String is the number of nodes, the reason, and the examples.
func (x *Exclusion) String() string {
	return fmt.Sprintf("%d %s (%s)", x.Nodes, x.Reason, examples(x.Examples, x.Nodes))
}

// examples lists the names of some of all nodes.
func examples(names []string, all int) string {
	list := strings.Join(names, ", ")
	if all > len(names) {
		list += ", …"
	}
	return list
}

// Source is the data behind a Handler.
type Source struct {
	Log *decision.Log
	// Engines returns the engines by profile path.
	Engines func() map[string]*engine.Engine
	// View returns the View in which policies would evaluate the pod. View and Pod are nil when
	// Outboard runs without a cluster.
	View func(pod types.UID) *snapshot.View
	// Pod returns the pod in its latest known state, or nil if there is no such pod. With an error,
	// it returns only a part of the pod, which policies cannot evaluate.
	Pod func(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Manages reports whether the profile manages the pod. Nil: every profile manages every pod.
	Manages func(profile string, pod *corev1.Pod) bool
	// Reason returns why the pod waits, or what is wrong with its binding; ok is false if nothing
	// is. Nil: that is not known.
	Reason func(view *snapshot.View, pod *corev1.Pod) (reason pending.Reason, ok bool)
	// Uncalled returns the end of the verdict about a bound pod of which no call is recorded, or
	// "". Nil: that is not known.
	Uncalled func(pod *corev1.Pod) string
	// Refuses returns why a bind call of the profile would refuse the pod on any node, or nil. Nil:
	// it refuses no pod.
	Refuses func(profile string, pod *corev1.Pod) error
	// Ignored returns the resources with ignoredByScheduler; nil: none.
	Ignored func() []corev1.ResourceName
	// Signals returns the state of the signals; nil if there are none.
	Signals func() []Signal
}

// Handler serves GET requests with the query parameters namespace, pod (required), node, decisions
// and nodes. The response has an ETag.
func Handler(s Source) http.Handler {
	evaluator := newEvaluator(s)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		namespace, name := cmp.Or(q.Get("namespace"), "default"), q.Get("pod")
		if name == "" {
			http.Error(w, "the query must name a pod: ?namespace=NAMESPACE&pod=NAME", http.StatusBadRequest)
			return
		}
		decisions, err := limit(q.Get("decisions"), DefaultDecisions)
		if err != nil {
			http.Error(w, "decisions: "+err.Error(), http.StatusBadRequest)
			return
		}
		nodes, err := limit(q.Get("nodes"), DefaultNodes)
		if err != nil {
			http.Error(w, "nodes: "+err.Error(), http.StatusBadRequest)
			return
		}
		doc := Document{Pod: namespace + "/" + name}
		var uid string // "": a former pod is not another one
		if s.View != nil {
			if node := q.Get("node"); node != "" && s.View("").Node(node) == nil {
				doc.Error = fmt.Sprintf("node %q not found", node)
			}
			pod, err := s.Pod(r.Context(), namespace, name)
			if pod != nil {
				uid = string(pod.UID)
				doc.Known, doc.Node, doc.Annotation = true, pod.Spec.NodeName, pod.Annotations[decision.Annotation]
				doc.scheduled(pod)
			}
			switch {
			case err != nil:
				doc.Error = fmt.Sprintf("the policies cannot be asked about pod %s now: %v", doc.Pod, err)
			case pod != nil:
				view := s.View("")
				if s.Reason != nil {
					if r, ok := s.Reason(view, pod); ok {
						doc.Reason = &r
					}
				}
				all := decision.Query{Namespace: namespace, Name: name, UID: uid, Limit: 1}
				if s.Uncalled != nil && doc.Reason == nil && doc.Bound.After(s.Log.Since().Add(skew)) && len(s.Log.Find(all)) == 0 {
					doc.Uncalled = s.Uncalled(pod)
				}
				doc.Holds = engine.HeldBy(view, pod.UID, view.Node(doc.Node))
				if err := evaluator.add(r.Context(), &doc, pod, question{q.Get("node"), nodes}); err != nil {
					http.Error(w, "the request has ended: "+err.Error(), http.StatusServiceUnavailable)
					return
				}
			}
		}
		doc.Decisions = s.Log.Find(decision.Query{Namespace: namespace, Name: name, UID: uid, Node: doc.Node, Limit: decisions})
		if s.Signals != nil {
			doc.Signals = s.Signals()
		}
		doc.Verdict = doc.verdict()
		respond.JSON(w, r, doc, nil)
	})
}

// scheduled sets what the pod itself says about how it was scheduled.
func (d *Document) scheduled(pod *corev1.Pod) {
	d.Created = pod.CreationTimestamp.Time
	for i := range pod.Status.Conditions {
		switch c := &pod.Status.Conditions[i]; {
		case c.Type != corev1.PodScheduled:
		case c.Status == corev1.ConditionTrue:
			d.Bound = c.LastTransitionTime.Time
		case d.Node == "" && len(pod.Spec.SchedulingGates) == 0:
			d.Unschedulable = c.Message
		}
	}
}

// now sets what the profiles say about the pod now, each by itself and together.
func (s Source) now(ctx context.Context, e *evaluation, view *snapshot.View, q question) {
	node, pod := q.node, e.pod
	nodes, excluded := s.callNodes(view, pod, node)
	says := map[string][]engine.Explanation{}
	var profiles []Profile
	var reason pending.Reason
	if s.Reason != nil {
		reason, _ = s.Reason(view, pod)
	}
	for path, asked := range e.engines {
		if s.Manages != nil && !s.Manages(path, pod) {
			profiles = append(profiles, Profile{Profile: path, Unmanaged: true})
			continue
		}
		p := Profile{Profile: path, Nodes: len(nodes), Excluded: excluded, Meant: path == reason.Unserved}
		if s.Refuses != nil {
			if why := s.Refuses(path, pod); why != nil {
				p.Refused = why.Error()
			}
		}
		all, err := asked.Explain(ctx, engine.Request{Pod: pod, View: view, Nodes: nodes})
		switch {
		case err != nil:
			p.Error = err.Error()
		case view.Len() == 0:
			p.Error = "the cluster has no nodes"
		}
		explanations := all.Nodes
		says[path] = slices.Clone(explanations)
		p.Notes, p.MaxTotal = all.Pod, all.MaxTotal
		for _, x := range explanations {
			if x.Fits {
				p.Fit++
			}
		}
		slices.SortStableFunc(explanations, better)
		if node != "" {
			explanations = slices.DeleteFunc(explanations, func(x engine.Explanation) bool { return x.Node != node })
		}
		p.Explanations = explanations[:min(q.nodes, len(explanations))]
		for i := range p.Explanations {
			if x := &p.Explanations[i]; x.Fits {
				x.Gets = asked.Holdings(view, pod, view.Node(x.Node), time.Now())
			}
		}
		profiles = append(profiles, p)
	}
	slices.SortFunc(profiles, func(a, b Profile) int { // those that prevent it first
		return cmp.Or(cmp.Compare(len(a.Refused), len(b.Refused)), cmp.Compare(a.Fit, b.Fit), cmp.Compare(a.Profile, b.Profile))
	})
	e.now, e.fits = profiles, together(profiles, says, len(nodes), view.Len())
}

// callNodes returns the nodes for which kube-scheduler would call, and why it excludes the others.
// first comes first among the examples of excluded nodes.
func (s Source) callNodes(view *snapshot.View, pod *corev1.Pod, first string) (nodes []*snapshot.Node, excluded []Exclusion) {
	ignored, _ := s.ignored(pod)
	filters := kubescheduler.For(pod, ignored...).In(view)
	unsure := map[string]bool{} // by reason
	for n := range view.All() {
		reason := cmp.Or(filters.Excludes(n.Object), filters.Lacks(n))
		if reason == "" {
			nodes = append(nodes, n)
			continue
		}
		if none := noneAllocatable(n.Object, reason); none != "" {
			reason += none
		} else if _, known := unsure[reason]; !known {
			unsure[reason] = kubescheduler.Unsure(reason, view)
		}
		at := slices.IndexFunc(excluded, func(x Exclusion) bool { return x.Reason == reason })
		if at < 0 {
			at = len(excluded)
			excluded = append(excluded, Exclusion{Reason: reason})
		}
		x := &excluded[at]
		if x.Nodes++; n.Name == first {
			x.Examples = slices.Insert(x.Examples, 0, first)
		} else if len(x.Examples) < maxExamples {
			x.Examples = append(x.Examples, n.Name)
		}
	}
	slices.SortStableFunc(excluded, func(a, b Exclusion) int { return cmp.Compare(b.Nodes, a.Nodes) })
	for i := range excluded {
		if unsure[excluded[i].Reason] {
			excluded[i].Reason += ", unless a DeviceClass serves it, which Outboard knows with ResourceClaims only"
		}
		excluded[i].Text = excluded[i].String()
	}
	return nodes, excluded
}

// noneAllocatable adds to a reason such as "Insufficient example.com/gpu" that nothing of what the
// node reports is allocatable, because its device plugin does not run.
func noneAllocatable(n *corev1.Node, reason string) string {
	name, _ := strings.CutPrefix(reason, "Insufficient ")
	capacity, allocatable := n.Status.Capacity[corev1.ResourceName(name)], n.Status.Allocatable[corev1.ResourceName(name)]
	if capacity.Sign() <= 0 || allocatable.Sign() > 0 {
		return ""
	}
	return fmt.Sprintf(": allocatable 0 of %d", capacity.Value())
}

// ignored returns the resources with ignoredByScheduler that kube-scheduler ignores, and those that
// it counts nevertheless, by what it has last said of the pod.
func (s Source) ignored(pod *corev1.Pod) (ignored, counted []corev1.ResourceName) {
	if s.Ignored == nil {
		return nil, nil
	}
	for _, name := range s.Ignored() {
		lacks := func(c corev1.PodCondition) bool {
			_, after, says := strings.Cut(c.Message, "Insufficient "+string(name))
			return c.Type == corev1.PodScheduled && says && (after == "" || after == "." || after[:1] == "," || strings.HasPrefix(after, ". "))
		}
		if slices.ContainsFunc(pod.Status.Conditions, lacks) {
			counted = append(counted, name)
		} else {
			ignored = append(ignored, name)
		}
	}
	return ignored, counted
}

func better(a, b engine.Explanation) int {
	switch {
	case a.Fits && !b.Fits:
		return -1
	case b.Fits && !a.Fits:
		return 1
	}
	return cmp.Compare(b.Total, a.Total)
}

func limit(text string, otherwise int) (int, error) {
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > MaxLimit {
		return 0, fmt.Errorf("%q: must be a number between 0 and %d", text, MaxLimit)
	}
	return n, nil
}
