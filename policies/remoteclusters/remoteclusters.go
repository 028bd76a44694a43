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

// What a node stands for, beside the index of a cluster.
const (
	home    = -1
	unknown = -2
)

// remoteClusters is the policy.
type remoteClusters struct {
	config   Config
	largest  int32 // of all weights
	places   *snapshot.ObjectFact[int]
	arrivals *snapshot.Fact[arrivals]
	abroad   atomic.Pointer[abroad] // of the latest View
}

// abroad are the rows of the nodes that represent clusters, which follow from the Node objects.
type abroad struct {
	objects *snapshot.NodeObjects
	rows    []int
}

func newRemoteClusters(config Config) *remoteClusters {
	p := &remoteClusters{config: config, arrivals: snapshot.NewFact(arrivalsOf)}
	index := map[string]int{}
	for i := range config.Clusters {
		index[config.Clusters[i].Name] = i
		p.largest = max(p.largest, config.Clusters[i].weight())
	}
	p.places = snapshot.NewObjectFact(func(n *corev1.Node) int {
		name, ok := n.Labels[config.ClusterLabel]
		if !ok {
			return home
		}
		if i, ok := index[name]; ok {
			return i
		}
		return unknown
	})
	return p
}

// Inputs implements policy.InputReader.
func (p *remoteClusters) Inputs() policy.Inputs {
	var signals []policy.Signal
	for i, c := range p.config.Clusters {
		signals = append(signals, policy.Signal{Field: fmt.Sprintf("clusters[%d].signal", i), Name: c.Signal, About: policy.AboutKeys})
	}
	return policy.Inputs{Signals: signals}
}

// Prepare implements policy.Policy. It looks at every node that represents a cluster, because pods on any of them count.
func (p *remoteClusters) Prepare(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	c := &cycle{policy: p, asked: amountsOf(pod), offers: make([]offer, len(p.config.Clusters))}
	for i := range c.offers {
		c.offers[i] = p.read(view.Signal(p.config.Clusters[i].Signal), c.asked)
	}
	for _, row := range p.rows(view) {
		n := view.At(row)
		if o := &c.offers[*p.places.Of(n)]; o.known {
			o.take(p.arrivals.Of(n), c.asked)
		}
	}
	return c, nil
}

// rows are those of the nodes that represent a cluster which is configured.
func (p *remoteClusters) rows(view *snapshot.View) []int {
	if last := p.abroad.Load(); last != nil && last.objects == view.NodeObjects() {
		return last.rows
	}
	found := &abroad{objects: view.NodeObjects()}
	for n := range view.All() {
		if *p.places.Of(n) >= 0 {
			found.rows = append(found.rows, n.Row())
		}
	}
	p.abroad.Store(found)
	return found.rows
}

// offer is what a cluster has of what the pod requests.
type offer struct {
	known  bool
	at     time.Time // when it was so: of the oldest number, known or not
	since  time.Time // pods bound then or later are not in it
	stocks []stock   // by resource requested
	pods   int       // bound since to nodes of the view
}

// stock is what a cluster has of one resource, as amounts are counted.
type stock struct {
	free    int64 // by the signal
	total   int64 // 0: unknown
	largest int64 // on one node; -1: unknown
	taken   int64 // by pods bound since to nodes of the view
}

func (s *stock) left() int64 { return s.free - s.taken }

// read is what the signal says. Every cluster has room for so many pods: nothing is known of
// one that does not say so. Of another resource that it does not name it has none.
func (p *remoteClusters) read(column *snapshot.Signal, asked []amount) offer {
	o := offer{known: true, stocks: make([]stock, len(asked))}
	for j, a := range asked {
		free, total, largest := column.Get(a.free), column.Get(a.total), column.Get(a.largest)
		if free.Stale || free.At.IsZero() && a.resource == corev1.ResourcePods {
			o.known = false
		}
		if !free.At.IsZero() && (o.at.IsZero() || free.At.Before(o.at)) {
			o.at = free.At
		}
		s := stock{free: count(a.resource, free.Number), largest: -1}
		if total.Current() {
			s.total = max(0, count(a.resource, total.Number))
		}
		if largest.Current() {
			s.largest = max(0, count(a.resource, largest.Number))
		}
		o.stocks[j] = s
	}
	o.since = o.at.Add(-p.config.MetricDelay.Duration)
	return o
}

// take counts the pods that were bound since.
func (o *offer) take(arrived *arrivals, asked []amount) {
	pods := arrived.Since(o.since)
	o.pods += pods
	for j, a := range asked {
		o.stocks[j].taken = add(o.stocks[j].taken, arrived.sum(pods, a.resource))
	}
}

// cycle is the policy prepared for one pod. What a cluster has left is the same for all nodes
// that stand for it, whatever pods each has: removing some of them makes room in the cluster
// too late for this pod.
type cycle struct {
	policy *remoteClusters
	asked  []amount
	offers []offer // by cluster
}

// Filter implements policy.Filter.
func (c *cycle) Filter(n *snapshot.Node) policy.Verdict {
	place := *c.policy.places.Of(n)
	switch {
	case place == home:
		return policy.Verdict{}
	case place == unknown:
		return c.inDoubt(unknownCluster)
	case !c.offers[place].known:
		return c.inDoubt(signalStale)
	}
	for j, a := range c.asked {
		switch s := &c.offers[place].stocks[j]; {
		case s.left() < a.n:
			return short(a.resource, s.left(), a.n)
		case s.largest >= 0 && s.largest < a.n:
			return scattered(a.resource, s.largest, a.n)
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

// Score implements policy.Score.
func (c *cycle) Score(n *snapshot.Node) int64 {
	place := *c.policy.places.Of(n)
	if place == home {
		return int64(c.policy.config.ScoringStrategy.LocalScore)
	}
	if place == unknown || !c.offers[place].known {
		return policy.NoOpinion
	}
	rest, _, ok := c.rest(place)
	if !ok {
		return policy.NoOpinion
	}
	if c.policy.config.ScoringStrategy.Type == BinPack {
		rest = 1 - rest
	}
	weight := float64(c.policy.config.Clusters[place].weight()) / float64(c.policy.largest)
	const rounding = 1e-9
	return int64(math.Floor(float64(policy.MaxScore)*rest*weight + rounding))
}

// rest is which part of the cluster, 0..1, is left with the pod there: of that resource, of
// those requested, of which least is left. It is not ok if the signal tells no totals.
func (c *cycle) rest(place int) (rest float64, of corev1.ResourceName, ok bool) {
	rest = 1
	for j, a := range c.asked {
		s := &c.offers[place].stocks[j]
		if s.total == 0 {
			continue
		}
		part := min(1, float64(s.left()-a.n)/float64(s.total))
		if part <= rest {
			rest, of, ok = part, a.resource, true
		}
	}
	return max(0, rest), of, ok
}
