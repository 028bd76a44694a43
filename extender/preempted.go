package extender

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/snapshot"
)

const (
	// nominationTimeout is how long after the answer to a preempt call kube-scheduler may take to nominate the pod, and we to
	// see it. It takes milliseconds, and on a control plane under load seconds. Only a kube-scheduler that has stopped, or
	// another extender that allows no node, leaves a pod without a nomination.
	nominationTimeout = 30 * time.Second
	// maxPreempted and maxLikeliest bound the pods that are remembered, and the nodes of each.
	maxPreempted = 1024
	maxLikeliest = 16
)

// preempted are the pods for which others are evicted as a preempt call was answered. kube-scheduler counts such a pod on its
// node from the answer on, and asks about the next pod before the view can show the nomination. And only the answer says
// which pods are evicted: until they are being deleted, the view does not.
type preempted struct {
	mu      sync.Mutex
	pods    map[types.UID]*preemptedPod
	current atomic.Pointer[settledNominations] // nil: none
}

// preemptedPod is one of them. Its nodes are those of which kube-scheduler takes one.
type preemptedPod struct {
	pod      *corev1.Pod
	nodes    []engine.Candidate
	answered time.Time
	seen     bool // the view has shown the nomination
	// rejectedOn is the node of the nomination, if a filter call since the latest preempt call has rejected it; else "".
	rejectedOn string
}

// settledNominations are the nominations as they are with a view, until a time.
type settledNominations struct {
	view        *snapshot.View
	until       time.Time
	nominations *engine.Nominations
}

// answer remembers the answer to a preempt call about a pod. Nothing of the request is kept.
func (p *preempted) answer(pod *corev1.Pod, kept []engine.Candidate, view *snapshot.View, now time.Time) {
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
	if len(nodes) == 0 || len(p.pods) >= maxPreempted && p.pods[pod.UID] == nil {
		return
	}
	if p.pods == nil {
		p.pods = map[types.UID]*preemptedPod{}
	}
	p.pods[pod.UID] = &preemptedPod{pod: pod, nodes: nodes, answered: now}
	p.settle(view, now)
}

// rejected remembers that a filter call has rejected the pod on the node to which it is nominated. Nominations that the view does
// not show are made by nobody who evicts pods, and are not remembered.
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

// takeRejected returns the node that rejected has remembered since it was last called for the pod, or "", and the pods that were
// to be evicted there.
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

// now returns the nominations that the view does not tell, or not all of.
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

// settle compares what is remembered with what the view says. mu is held.
func (p *preempted) settle(view *snapshot.View, now time.Time) {
	if s := p.current.Load(); s != nil && s.view.Generation() > view.Generation() {
		view = s.view
	}
	next := &settledNominations{view: view, until: now.Add(time.Hour)}
	var all []engine.Nomination
	for uid, pod := range p.pods {
		expires := pod.answered.Add(nominationTimeout)
		if !pod.settle(view, uid) && (pod.seen || now.After(expires)) {
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

// settle says whether the view shows the pod nominated to one of the nodes. Then that is the one.
func (p *preemptedPod) settle(view *snapshot.View, uid types.UID) bool {
	for i, c := range p.nodes {
		if slices.ContainsFunc(view.Nominated()[c.Name], func(pod *corev1.Pod) bool { return pod.UID == uid }) {
			p.nodes, p.seen = p.nodes[i:i+1], true
			return true
		}
	}
	return false
}
