package extender

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

const (
	// nominationTimeout is how long after the response to a preempt call the nomination may take to show in the view. It usually
	// takes milliseconds, and seconds on a loaded control plane. A pod gets no nomination only if kube-scheduler has stopped, or
	// another extender allows no node.
	nominationTimeout = 30 * time.Second
	// maxPreempted and maxLikeliest bound the pods that are kept, and the nodes of each.
	maxPreempted = 1024
	maxLikeliest = 16
)

// preempted holds the pods for which the response to a preempt call evicts others. kube-scheduler counts such a pod on
// its node from the response on, and calls for the next pod before the view can show the nomination. Only the response
// names the evicted pods: the view shows them when they have a deletionTimestamp.
type preempted struct {
	mu      sync.Mutex
	pods    map[types.UID]*preemptedPod
	exists  func(uid types.UID) bool           // in the API server, as far as this process knows
	current atomic.Pointer[settledNominations] // nil: none
}

// preemptedPod is one of these pods. kube-scheduler nominates it to one of its nodes.
type preemptedPod struct {
	pod      *corev1.Pod
	nodes    []engine.Candidate
	answered time.Time
	seen     bool // the view has shown the nomination
	// rejectedOn is the node of the nomination if a filter call has rejected it since the latest preempt call; ""
	// otherwise.
	rejectedOn string
}

// settledNominations are the nominations beside a view, valid until a time.
type settledNominations struct {
	view        *snapshot.View
	until       time.Time
	nominations *engine.Nominations
}

// answer adds the response to a preempt call for a pod that the cluster knows. It keeps nothing of the request.
func (p *preempted) answer(cluster Cluster, pod *corev1.Pod, kept []engine.Candidate, view *snapshot.View, now time.Time) {
	nodes := engine.Likeliest(kept)
	nodes = nodes[:min(len(nodes), maxLikeliest)]
	for i, c := range nodes {
		nodes[i] = engine.Candidate{Name: c.Node.Name}
		for _, victim := range c.Node.Pods {
			if slices.Contains(c.Victims, victim.UID) {
				nodes[i].Victims = append(nodes[i].Victims, victim.UID)
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exists = func(uid types.UID) bool { return cluster.PodByUID(uid) != nil }
	if len(nodes) == 0 || len(p.pods) >= maxPreempted && p.pods[pod.UID] == nil {
		return
	}
	if p.pods == nil {
		p.pods = map[types.UID]*preemptedPod{}
	}
	p.pods[pod.UID] = &preemptedPod{pod: pod, nodes: nodes, answered: now}
	p.settle(view, now)
}

// rejected records that a filter call has rejected the pod on the node to which it is nominated. It ignores a
// nomination that the view does not show: such a nomination does not come from a preemption.
func (p *preempted) rejected(pod *corev1.Pod, node string, view *snapshot.View, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods[pod.UID] == nil { // another replica has answered the preempt call
		known := &preemptedPod{pod: pod, nodes: []engine.Candidate{{Name: node}}, answered: now}
		if len(p.pods) >= maxPreempted || !known.settle(view, pod.UID) {
			return
		}
		if p.pods == nil {
			p.pods = map[types.UID]*preemptedPod{}
		}
		p.pods[pod.UID] = known
		p.settle(view, now)
	}
	p.pods[pod.UID].rejectedOn = node
}

// takeRejected returns the node that rejected has recorded since the last call for the pod, or "", and the pods to
// evict there.
func (p *preempted) takeRejected(uid types.UID) (node string, victims []types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.pods[uid]
	if known == nil {
		return "", nil
	}
	node, known.rejectedOn = known.rejectedOn, ""
	for _, c := range known.nodes {
		if c.Name == node {
			victims = c.Victims
		}
	}
	return node, victims
}

// now returns the nominations that the view does not show, or does not show completely.
func (p *preempted) now(view *snapshot.View, now time.Time) *engine.Nominations {
	s := p.current.Load()
	if s == nil {
		return nil
	}
	if s.view != view && s.view.Generation() < view.Generation() || now.After(s.until) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.settle(view, now)
		if s = p.current.Load(); s == nil {
			return nil
		}
	}
	return s.nominations
}

// settle compares the pods with the view. mu must be held.
func (p *preempted) settle(view *snapshot.View, now time.Time) {
	if s := p.current.Load(); s != nil && s.view.Generation() > view.Generation() {
		view = s.view
	}
	next := &settledNominations{view: view, until: now.Add(time.Hour)}
	var all []engine.Nomination
	for uid, pod := range p.pods {
		expires := pod.answered.Add(nominationTimeout)
		deleted := p.exists != nil && !p.exists(uid)
		if !pod.settle(view, uid) && (pod.seen || deleted || now.After(expires)) {
			delete(p.pods, uid)
			continue
		}
		if !pod.seen && expires.Before(next.until) {
			next.until = expires
		}
		for _, c := range pod.nodes {
			all = append(all, engine.Nomination{Pod: pod.pod, Node: c.Name, Victims: c.Victims, Uncertain: len(pod.nodes) > 1})
		}
	}
	if len(p.pods) == 0 {
		p.current.Store(nil)
		return
	}
	next.nominations = engine.NewNominations(all)
	p.current.Store(next)
}

// settle reports whether the view shows the pod as nominated to one of its nodes, and keeps only that node then.
func (p *preemptedPod) settle(view *snapshot.View, uid types.UID) bool {
	for i, c := range p.nodes {
		if slices.ContainsFunc(view.Nominated()[c.Name], func(pod *corev1.Pod) bool { return pod.UID == uid }) {
			p.nodes, p.seen = p.nodes[i:i+1], true
			return true
		}
	}
	return false
}
