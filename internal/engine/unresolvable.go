package engine

import (
	"context"
	"math"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"outboard.dev/outboard/snapshot"
)

// maxPreemptible is how many nodes without pods a call evaluates at most, in addition to those whose
// outcome is cached for later calls. It takes several times as long as to evaluate a node of the
// View, for which policies keep facts.
const maxPreemptible = 1000

// lowestPriority is that of the pods on a node; math.MaxInt32 if there are none.
var lowestPriority = snapshot.NewFact(func(n *snapshot.Node) int32 {
	lowest := int32(math.MaxInt32)
	for _, pod := range n.Pods {
		lowest = min(lowest, corev1helpers.PodPriority(pod))
	}
	return lowest
})

// MarkUnresolvable makes the rejections unresolvable of those nodes on which the pod would not fit
// even without all pods of lower priority. kube-scheduler proposes only a part of the nodes with
// such pods for preemption, and these should be of use. nodes and rejected are those of Filter, if
// no node fits. The record keeps the verdicts of the policies.
//
// It leaves the node to which the pod is nominated: otherwise, kube-scheduler may evict more pods
// elsewhere while those on it terminate. It also leaves all that are left if ctx ends, a policy
// fails, or maxPreemptible is reached.
func (c *Cycle) MarkUnresolvable(ctx context.Context, nodes []*snapshot.Node, rejected []Rejected) {
	if p := c.pod.Spec.PreemptionPolicy; p != nil && *p == corev1.PreemptNever {
		return
	}
	c.TakeNodeCache()
	defer c.ReturnNodeCache()
	priority, evaluated := corev1helpers.PodPriority(c.pod), 0
	lower := func(pod *corev1.Pod) bool { return corev1helpers.PodPriority(pod) < priority }
	for i := range rejected {
		r, n := &rejected[i], nodes[rejected[i].Index]
		if r.Unresolvable || n == nil || n.Name == c.pod.Status.NominatedNodeName {
			continue
		}
		if *lowestPriority.Of(n) >= priority {
			r.Unresolvable = true
			continue
		}
		cached := c.preemptible(n, priority)
		if cached == nil {
			if evaluated++; evaluated > maxPreemptible {
				continue
			}
			cached = new(uint8)
		}
		if *cached == unknownOutcome {
			helps, err := c.helps(n, afterEvictions(n, lower))
			if err != nil || ctx.Err() != nil {
				return
			}
			*cached = firstRejection
			if helps {
				*cached = passes
			}
		}
		r.Unresolvable = *cached != passes
	}
}

// helps reports whether the pod fits on rest, which is the node without some of its pods. A policy
// that lets the node pass need not evaluate rest, for which no facts are kept, unless nominated
// pods may get something else there.
func (c *Cycle) helps(n, rest *snapshot.Node) (bool, error) {
	if c.nominations.on(n) != nil {
		return c.passesBeside(rest)
	}
	for m := range c.policies {
		v, err := c.columnOfOne(m, n)
		if err == nil && !v.Fits() {
			v, err = c.columnOfOne(m, rest)
		}
		if err != nil || !v.Fits() {
			return false, err
		}
	}
	return true, nil
}

// preemptible returns where to cache the outcome of the node without all pods of lower priority;
// nil if that depends on more than the node and the signature.
func (c *Cycle) preemptible(n *snapshot.Node, priority int32) *uint8 {
	row := c.cacheRow(n)
	if row < 0 || c.nominations.on(n) != nil || !c.signedFilters || c.failures.Load() > 0 {
		return nil
	}
	if c.cache.priority != priority {
		c.cache.priority = priority
		clear(c.cache.preemptible)
	}
	return &c.cache.preemptible[row]
}
