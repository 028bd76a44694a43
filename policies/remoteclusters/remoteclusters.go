// Package remoteclusters is the policy RemoteClusters: nodes that represent other clusters.
// README.md in this folder is its documentation.
package remoteclusters

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// The cluster of a node, besides the indices of clusters.
const (
	local        = -1
	unconfigured = -2
)

// remoteClusters is the policy.
type remoteClusters struct {
	config    Config
	largest   int32 // of all weights
	cluster   *snapshot.ObjectFact[int]
	boundPods *snapshot.Fact[boundPods]
	remote    atomic.Pointer[remoteNodes] // of the latest View
}

// remoteNodes are the rows of the nodes that represent clusters. They depend on the Node objects
// alone.
type remoteNodes struct {
	objects *snapshot.NodeObjects
	rows    []int
}

func newRemoteClusters(config Config) *remoteClusters {
	p := &remoteClusters{config: config, boundPods: snapshot.NewFact(boundPodsOf), largest: 1} // 1 if all weights are 0
	index := map[string]int{}
	for i := range config.Clusters {
		index[config.Clusters[i].Name] = i
		p.largest = max(p.largest, config.Clusters[i].weight())
	}
	p.cluster = snapshot.NewObjectFact(func(n *corev1.Node) int {
		name, ok := n.Labels[config.ClusterLabel]
		if !ok {
			return local
		}
		if i, ok := index[name]; ok {
			return i
		}
		return unconfigured
	})
	return p
}

func (p *remoteClusters) Inputs() policy.Inputs { return p.config.Inputs() }

func (c *Config) Inputs() policy.Inputs {
	var signals []policy.Signal
	for i, cluster := range c.Clusters {
		signals = append(signals, policy.Signal{Field: fmt.Sprintf("clusters[%d].signal", i), Name: cluster.Signal, About: policy.AboutKeys})
	}
	return policy.Inputs{Signals: signals}
}

// Prepare implements policy.Policy. It reads every node that represents a cluster, because pods on
// any of them count.
func (p *remoteClusters) Prepare(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	c := &cycle{policy: p, requests: request(pod), states: make([]clusterState, len(p.config.Clusters))}
	for i := range c.states {
		c.states[i] = p.read(view.Signal(p.config.Clusters[i].Signal), c.requests)
	}
	for _, row := range p.rows(view) {
		n := view.At(row)
		if s := &c.states[*p.cluster.Of(n)]; s.known {
			s.subtract(p.boundPods.Of(n), c.requests)
		}
	}
	return c, nil
}

// rows returns the rows of the nodes that represent a configured cluster.
func (p *remoteClusters) rows(view *snapshot.View) []int {
	if last := p.remote.Load(); last != nil && last.objects == view.NodeObjects() {
		return last.rows
	}
	found := &remoteNodes{objects: view.NodeObjects()}
	for n := range view.All() {
		if *p.cluster.Of(n) >= 0 {
			found.rows = append(found.rows, n.Row())
		}
	}
	p.remote.Store(found)
	return found.rows
}

// clusterState is what a cluster has left of what the pod requests.
type clusterState struct {
	known      bool
	missing    snapshot.Value // the first number that is not current, unless known
	missingKey string
	at         time.Time       // time of the oldest number, current or not
	since      time.Time       // the numbers do not include pods bound at this time or later
	resources  []resourceState // by requested resource
	pods       int             // bound since then to nodes of the view
}

// resourceState is what a cluster has of one resource, in amounts.
type resourceState struct {
	free    int64 // as reported by the signal
	total   int64 // 0: unknown
	largest int64 // on one node; -1: unknown
	taken   int64 // by pods bound since then to nodes of the view
}

func (r *resourceState) left() int64 { return r.free - r.taken }

// read reads the signal. Every cluster can run a limited number of pods: if the signal does not
// report it, nothing is known of the cluster. If the signal does not report another resource, the
// cluster has none of it.
func (p *remoteClusters) read(signal *snapshot.Signal, requests []amount) clusterState {
	s := clusterState{known: true, resources: make([]resourceState, len(requests))}
	for j, a := range requests {
		free, total, largest := signal.Get(a.free), signal.Get(a.total), signal.Get(a.largest)
		if free.Stale || free.At.IsZero() && a.resource == corev1.ResourcePods {
			if s.known {
				s.missing, s.missingKey = free, a.free
			}
			s.known = false
		}
		if !free.At.IsZero() && (s.at.IsZero() || free.At.Before(s.at)) {
			s.at = free.At
		}
		r := resourceState{free: count(a.resource, free.Number), largest: -1}
		if total.Current() {
			r.total = max(0, count(a.resource, total.Number))
		}
		if largest.Current() {
			r.largest = max(0, count(a.resource, largest.Number))
		}
		s.resources[j] = r
	}
	s.since = s.at.Add(-p.config.MetricDelay.Duration)
	return s
}

// subtract subtracts the pods that were bound since then.
func (s *clusterState) subtract(bound *boundPods, requests []amount) {
	pods := bound.Since(s.since)
	s.pods += pods
	for j, a := range requests {
		s.resources[j].taken = add(s.resources[j].taken, bound.sum(pods, a.resource))
	}
}

// cycle is the policy prepared for one pod. What a cluster has left is the same for all nodes that
// represent it, whatever pods each has: removing pods makes room in the cluster too late for this
// pod.
type cycle struct {
	policy   *remoteClusters
	requests []amount
	states   []clusterState // by cluster
}

func (c *cycle) Filter(n *snapshot.Node) policy.Verdict {
	index := *c.policy.cluster.Of(n)
	switch {
	case index == local:
		return policy.Verdict{}
	case index == unconfigured:
		return c.inDoubt(unknownCluster)
	case !c.states[index].known:
		return c.inDoubt(signalStale)
	}
	for j, a := range c.requests {
		switch r := &c.states[index].resources[j]; {
		case r.left() < a.n:
			return short(a.resource, r.left(), a.n)
		case r.largest >= 0 && r.largest < a.n:
			return shortOnEveryNode(a.resource, r.largest, a.n)
		}
	}
	return policy.Verdict{}
}

func (c *cycle) inDoubt(reason *policy.Reason) policy.Verdict {
	if c.policy.config.WhenStale == policy.Reject {
		return policy.Verdict{Reason: reason, Unresolvable: true}
	}
	return policy.Verdict{}
}

func (c *cycle) Score(n *snapshot.Node) int64 {
	index := *c.policy.cluster.Of(n)
	if index == local {
		return policy.MaxScore
	}
	if index == unconfigured || !c.states[index].known {
		return policy.NoOpinion
	}
	rest, _, ok := c.rest(index)
	if !ok {
		return policy.NoOpinion
	}
	weight := float64(c.policy.config.Clusters[index].weight()) / float64(c.policy.largest)
	const rounding = 1e-9
	return int64(math.Floor(float64(policy.MaxScore)*rest*weight + rounding))
}

// rest returns the share of the cluster, 0..1, that is left with the pod there, and its resource:
// the requested one with the smallest share. ok is false if the signal has no totals.
func (c *cycle) rest(index int) (rest float64, of corev1.ResourceName, ok bool) {
	rest = 1
	for j, a := range c.requests {
		r := &c.states[index].resources[j]
		if r.total == 0 {
			continue
		}
		part := min(1, float64(r.left()-a.n)/float64(r.total))
		if part <= rest {
			rest, of, ok = part, a.resource, true
		}
	}
	return max(0, rest), of, ok
}
