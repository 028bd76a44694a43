package simulate

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/snapshot"
)

// ResourceScore is the scoring strategy of NodeResourcesFit.
type ResourceScore string

const (
	// LeastAllocated prefers the nodes with the most left, as kube-scheduler does.
	LeastAllocated ResourceScore = "LeastAllocated"
	// MostAllocated prefers those with the least left.
	MostAllocated ResourceScore = "MostAllocated"
)

// Scheduler configures kube-scheduler's part.
type Scheduler struct {
	// PercentageOfNodesToScore is kube-scheduler's field, 0..100; 0 is its adaptive default.
	PercentageOfNodesToScore int
	// ResourceScore is LeastAllocated or MostAllocated.
	ResourceScore ResourceScore
	// FirstOfEqual chooses the first of several equal nodes, in order of name, instead of a random
	// one.
	FirstOfEqual bool
	// Ties changes the choice among equal nodes for the same seed, while the same pods come.
	Ties uint64
	// Ignored are the resources with ignoredByScheduler.
	Ignored []corev1.ResourceName
	// NoPrioritize makes no prioritize calls.
	NoPrioritize bool
}

const (
	maxNodeScore = 100
	levels       = 10 // an extender's highest score
)

// Extender is an extender that kube-scheduler calls.
type Extender struct {
	Engine *engine.Engine
	// Verb is the only verb of the extender; "": it has all.
	Verb decision.Verb
	// Weight is the weight of its scores, 1 or more if it scores.
	Weight int64
	// Managed are the managedResources of the extender; none: it is called for every pod.
	Managed []corev1.ResourceName
}

func (x *Extender) has(v decision.Verb) bool { return x.Verb == "" || x.Verb == v }

// ErrNowhere means that the pod fits on no node.
var ErrNowhere = errors.New("the pod fits on no node")

// run schedules pods one after the other.
type Run struct {
	*cluster
	scheduler Scheduler
	extenders []Extender
	onBound   func(*corev1.Pod) // World.Bound; may be nil
	random    *rand.Rand
	next      int // index of the node at which the next search starts
	result    engine.Result
	found     []*node
	excluded  []*node              // by kube-scheduler's own filters, for the latest pod
	rejected  []decision.Rejection // by the policies, for the latest pod
	viewNodes []*snapshot.Node
	scores    []int64
}

// Schedule finds a node for the pod and binds it there; the error is ErrNowhere if there is none.
func (r *Run) Schedule(ctx context.Context, pod *corev1.Pod) error {
	if ctx.Err() != nil { // without a configuration, no policy looks at the context
		return context.Cause(ctx)
	}
	needs := r.needs(pod)
	n, err := r.choose(ctx, pod, needs)
	if err != nil {
		return err
	}
	if err := r.bind(ctx, r.interested(pod), pod, n, needs); err != nil || r.onBound == nil {
		return err
	}
	r.onBound(r.builder.Pod(pod.UID))
	return nil
}

// interested returns the extenders that kube-scheduler calls for the pod.
func (r *Run) interested(pod *corev1.Pod) (all []Extender) {
	requested := func(name corev1.ResourceName) bool { return snapshot.NamesResource(pod, name) }
	for _, x := range r.extenders {
		if len(x.Managed) == 0 || slices.ContainsFunc(x.Managed, requested) {
			all = append(all, x)
		}
	}
	return all
}

// choose returns the node to which to bind the pod.
func (r *Run) choose(ctx context.Context, pod *corev1.Pod, needs []need) (*node, error) {
	r.filter(pod, needs)
	r.rejected = nil
	extenders := r.interested(pod)
	for i := range extenders {
		if x := &extenders[i]; x.has(decision.Filter) && len(r.found) > 0 {
			if err := r.callFilter(ctx, x, pod); err != nil {
				return nil, err
			}
		}
	}
	switch len(r.found) {
	case 0:
		return nil, ErrNowhere
	case 1:
		return r.found[0], nil
	}
	r.score(pod, needs)
	for i := range extenders {
		if x := &extenders[i]; x.has(decision.Prioritize) && !r.scheduler.NoPrioritize && x.Engine.MaxTotal() > 0 {
			if err := r.callPrioritize(ctx, x, pod); err != nil {
				return nil, err
			}
		}
	}
	best := slices.Max(r.scores)
	equal := r.found[:0]
	for i, n := range r.found {
		if r.scores[i] == best {
			equal = append(equal, n)
		}
	}
	if r.scheduler.FirstOfEqual {
		return slices.MinFunc(equal, func(a, b *node) int { return cmp.Compare(a.object.Name, b.object.Name) }), nil
	}
	return equal[r.random.IntN(len(equal))], nil
}

// filter sets r.found to nodes on which the pod fits, up to the number that kube-scheduler looks
// for.
func (r *Run) filter(pod *corev1.Pod, needs []need) {
	filters, claims := kubescheduler.For(pod), r.claimFilter(pod)
	view := r.builder.View()
	r.found, r.excluded = r.found[:0], r.excluded[:0]
	limit := kubescheduler.NodesToFind(len(r.nodes), r.scheduler.PercentageOfNodesToScore)
	looked := 0
	for ; looked < len(r.nodes) && len(r.found) < limit; looked++ {
		n := r.nodes[(r.next+looked)%len(r.nodes)]
		if n.fits(needs) && filters.Excludes(n.object) == "" && claims.excludes(view, n.object.Name) == "" {
			r.found = append(r.found, n)
		} else {
			r.excluded = append(r.excluded, n)
		}
	}
	if len(r.nodes) > 0 {
		r.next = (r.next + looked) % len(r.nodes)
	}
}

// request returns the engine's request for the nodes found.
func (r *Run) request(pod *corev1.Pod) engine.Request {
	view := r.builder.View()
	r.viewNodes = r.viewNodes[:0]
	for _, n := range r.found {
		r.viewNodes = append(r.viewNodes, view.Node(n.object.Name))
	}
	return engine.Request{Pod: pod, View: view, Nodes: r.viewNodes}
}

func (r *Run) callFilter(ctx context.Context, x *Extender, pod *corev1.Pod) error {
	if err := x.Engine.Filter(ctx, r.request(pod), &r.result); err != nil {
		return err
	}
	for at, i := range r.result.Kept { // i ≥ at
		r.found[at] = r.found[i]
	}
	r.found, r.rejected = r.found[:len(r.result.Kept)], append(r.rejected, r.result.Record.Rejections...)
	return nil
}

// Reason is why nodes were rejected for a pod: the text in the pod's events.
type Reason struct {
	Text  string `json:"text"`
	Nodes int    `json:"nodes"`
}

// reasons returns why the pod, which was the latest to be scheduled, fits on no node, most frequent
// first.
func (r *Run) reasons(pod *corev1.Pod) []Reason {
	nodes := map[string]int{}
	filters, claims, view := kubescheduler.For(pod, r.ignored...), r.claimFilter(pod), r.builder.View()
	for _, n := range r.excluded {
		nodes[cmp.Or(filters.Excludes(n.object), filters.Lacks(view.Node(n.object.Name)), claims.excludes(view, n.object.Name))]++
	}
	for _, rejection := range r.rejected {
		nodes[rejection.Text] += rejection.Nodes
	}
	var reasons []Reason
	for text, count := range nodes {
		reasons = append(reasons, Reason{text, count})
	}
	slices.SortFunc(reasons, func(a, b Reason) int { return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Text, b.Text)) })
	return reasons
}

func (r *Run) callPrioritize(ctx context.Context, x *Extender, pod *corev1.Pod) error {
	if err := x.Engine.Score(ctx, r.request(pod), &r.result); err != nil {
		return err
	}
	engine.ScaleScores(r.result.Totals, r.result.Record.MaxTotal, engine.MaxExtenderScore)
	for i, total := range r.result.Totals {
		r.scores[i] += total * x.Weight * (maxNodeScore / levels)
	}
	return nil
}

// score sets r.scores to the scores of kube-scheduler's own plugins for the nodes found.
func (r *Run) score(pod *corev1.Pod, needs []need) {
	var requested [podsResource]int64
	for _, want := range needs {
		if want.resource < podsResource {
			requested[want.resource] = want.amount
		}
	}
	more := scoredOf(pod)
	r.scores = r.scores[:0]
	for _, n := range r.found {
		score := n.fit(more, r.scheduler.ResourceScore)
		if requested != [podsResource]int64{} { // otherwise the other plugin has no opinion
			// Since v1.36 this scores the change by the pod, not the result.
			score += maxNodeScore/2 + (maxNodeScore/2+n.balance(&requested)-n.balance(new([podsResource]int64)))/2
		}
		r.scores = append(r.scores, score)
	}
}

// fit returns NodeResourcesFit's score of the node with more added.
func (n *node) fit(more scored, kind ResourceScore) int64 {
	more.add(n.scored, 1)
	sum, resources := int64(0), int64(0)
	for i, used := range more {
		capacity := n.capacity[i]
		if capacity == 0 {
			continue
		}
		resources++
		used = min(used, capacity)
		if kind != MostAllocated {
			used = capacity - used
		}
		sum += used * maxNodeScore / capacity
	}
	return sum / max(1, resources)
}

// balance returns how balanced the use of CPU and memory would be with more added, up to
// maxNodeScore: NodeResourcesBalancedAllocation's balancedResourceScore.
func (n *node) balance(more *[podsResource]int64) int64 {
	var fraction [podsResource]float64
	for i, capacity := range n.capacity[:podsResource] {
		if capacity == 0 {
			return maxNodeScore // one resource alone is always balanced
		}
		fraction[i] = math.Min(1, float64(capacity-n.free[i]+more[i])/float64(capacity))
	}
	return int64((1 - math.Abs(fraction[0]-fraction[1])/2) * maxNodeScore)
}
