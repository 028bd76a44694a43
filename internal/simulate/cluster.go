package simulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// cluster is the simulated cluster. It belongs to one goroutine.
type cluster struct {
	builder   snapshot.Builder
	nodes     []*node // in order of name
	byName    map[string]*node
	resources map[corev1.ResourceName]int // index in node.free
	ignored   []corev1.ResourceName       // not counted
	ledgers   map[snapshot.LedgerKey]snapshot.Ledger
	bound     map[types.UID]*placed
	devices   devices
	now       time.Time
}

// node is the state of a node in kube-scheduler.
type node struct {
	object   *corev1.Node
	free     []int64 // by resource; CPU in thousandths, all else in whole units
	capacity []int64 // allocatable
	scored   scored  // what NodeResourcesFit counts as used
}

// placed is a pod on a node.
type placed struct {
	node   *node
	needs  []need
	scored scored
	keys   []snapshot.LedgerKey
}

// need is what a pod requests of one resource.
type need struct {
	resource int
	amount   int64
}

// The first resources of every cluster.
const (
	cpuResource = iota
	memoryResource
	podsResource
)

// newCluster returns a cluster with the nodes, their devices, and those of the pods that are bound.
// Claims of these pods that are not allocated yet get devices, if there are any.
func newCluster(nodes []*corev1.Node, pods []*corev1.Pod, devices *Devices, ignored []corev1.ResourceName, start time.Time) *cluster {
	c := &cluster{
		byName:    map[string]*node{},
		resources: map[corev1.ResourceName]int{corev1.ResourceCPU: cpuResource, corev1.ResourceMemory: memoryResource, corev1.ResourcePods: podsResource},
		ledgers:   map[snapshot.LedgerKey]snapshot.Ledger{},
		bound:     map[types.UID]*placed{},
		ignored:   ignored,
		now:       start,
	}
	for _, object := range nodes {
		n := &node{object: object}
		for name, quantity := range object.Status.Allocatable {
			n.capacity = set(n.capacity, c.resource(name), amount(name, quantity.MilliValue(), quantity.Value()))
		}
		n.free = slices.Clone(n.capacity)
		c.nodes = append(c.nodes, n)
		c.byName[object.Name] = n
		c.builder.SetNode(object)
	}
	slices.SortFunc(c.nodes, func(a, b *node) int { return cmp.Compare(a.object.Name, b.object.Name) })
	c.setDevices(devices)
	for _, pod := range pods {
		if n := c.byName[pod.Spec.NodeName]; n != nil {
			if len(pod.Spec.ResourceClaims) > 0 {
				pod = new(*pod) // shallow: fields are replaced, not changed
				c.createClaims(pod)
				_ = c.allocate(pod, n) // the pod runs, whether the files have all that it uses or not
			}
			c.place(pod, n, c.needs(pod), nil)
		}
	}
	return c
}

func amount(name corev1.ResourceName, milli, whole int64) int64 {
	if name == corev1.ResourceCPU {
		return milli
	}
	return whole
}

func set(values []int64, i int, value int64) []int64 {
	for len(values) <= i {
		values = append(values, 0)
	}
	values[i] = value
	return values
}

func (c *cluster) resource(name corev1.ResourceName) int {
	i, known := c.resources[name]
	if !known {
		i = len(c.resources)
		c.resources[name] = i
	}
	return i
}

// needs returns what kube-scheduler counts for the pod.
func (c *cluster) needs(pod *corev1.Pod) []need {
	needs := []need{{podsResource, 1}}
	requests := snapshot.PodRequests(pod)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		quantity := requests[name]
		if a := amount(name, quantity.MilliValue(), quantity.Value()); a > 0 && !slices.Contains(c.ignored, name) {
			needs = append(needs, need{c.resource(name), a})
		}
	}
	return needs
}

// fits reports whether the node has enough left.
func (n *node) fits(needs []need) bool {
	for _, want := range needs {
		if want.resource >= len(n.free) || n.free[want.resource] < want.amount {
			return false
		}
	}
	return true
}

func (n *node) take(needs []need, sign int64) {
	for _, want := range needs {
		if want.resource < len(n.free) {
			n.free[want.resource] -= sign * want.amount
		}
	}
}

// arrive adds a pod that has been created, and its claims.
func (c *cluster) arrive(pod *corev1.Pod) {
	c.createClaims(pod)
	c.builder.SetPod(pod)
}

// leave removes a pod that is on no node, and its claims.
func (c *cluster) leave(pod *corev1.Pod) {
	c.release(pod)
	c.builder.DeletePod(pod.UID)
}

// place adds the pod to the node.
func (c *cluster) place(pod *corev1.Pod, n *node, needs []need, keys []snapshot.LedgerKey) {
	p := &placed{n, needs, scoredOf(pod), keys}
	n.take(needs, 1)
	n.scored.add(p.scored, 1)
	c.bound[pod.UID] = p
	c.builder.SetPod(pod)
}

// bind allocates devices to the pod, makes its allocations on the node, as a bind call does, and
// adds the pod to the node.
func (c *cluster) bind(ctx context.Context, extenders []Extender, pod *corev1.Pod, n *node, needs []need) error {
	if err := c.allocate(pod, n); err != nil {
		return err
	}
	allocations := &allocations{cluster: c}
	for _, x := range extenders { // at most one of them allocates
		if !x.has(decision.Bind) {
			continue
		}
		view := c.builder.View()
		// What the pod is given must not be what filter leaves for pods that are nominated to the
		// node.
		b := binder.Binder{Engine: x.Engine, Ledgers: allocations}
		reservation, err := b.Reserve(ctx, pod, binder.Target{View: view, Node: x.Engine.CountNominated(view, pod, view.Node(n.object.Name))})
		if err != nil {
			return err
		}
		pod = engine.WithAnnotations(pod, reservation.Annotations)
	}
	bound := *pod // shallow: fields are replaced, not changed
	bound.Spec.NodeName, bound.Status.Phase = n.object.Name, corev1.PodRunning
	c.place(&bound, n, needs, allocations.keys)
	return nil
}

// remove removes the pod and its claims.
func (c *cluster) remove(uid types.UID) {
	p := c.bound[uid]
	if p == nil {
		return
	}
	delete(c.bound, uid)
	p.node.take(p.needs, -1)
	p.node.scored.add(p.scored, -1)
	c.leave(c.builder.Pod(uid))
	for _, key := range p.keys {
		l := c.ledgers[key]
		c.setLedger(*l.Without(func(other types.UID) bool { return other == uid }))
	}
}

func (c *cluster) setLedger(l snapshot.Ledger) {
	c.ledgers[l.Key()] = l
	c.builder.SetLedger(&l)
}

// allocations makes allocations in memory, one after the other.
type allocations struct {
	cluster *cluster
	keys    []snapshot.LedgerKey
}

// Allocate implements engine.Ledgers.
func (c *allocations) Allocate(_ context.Context, key snapshot.LedgerKey, pod *corev1.Pod, node string, choose engine.Choose) (snapshot.LedgerPod, error) {
	l, known := c.cluster.ledgers[key]
	if !known {
		l = snapshot.Ledger{Resource: key.Resource, Node: key.Node}
	}
	entry := snapshot.LedgerPod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: node, Token: "simulated"}
	next, held, err := ledger.Allocate(l, entry, choose, c.cluster.now)
	if err != nil {
		return held, err
	}
	c.cluster.setLedger(next)
	c.keys = append(c.keys, key)
	return held, nil
}

// Release implements engine.Ledgers.
func (c *allocations) Release(_ context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	l, known := c.cluster.ledgers[key]
	if !known {
		return fmt.Errorf("there is no ledger for %s on node %q", key.Resource, key.Node)
	}
	c.cluster.setLedger(*l.Without(func(uid types.UID) bool { return uid == held.UID }))
	return nil
}

// Revoke implements engine.Ledgers.
func (c *allocations) Revoke(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	return c.Release(ctx, key, held)
}
