package main

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// tally counts the pods by their state in the API server. It may be used concurrently.
type tally struct {
	capacity  int64
	index     map[string]int // by name: the place in the order in which they come
	requested []int64        // by place

	mu        sync.Mutex
	created   int
	rejected  []bool // by place: kube-scheduler has reported at least once that it fits on no node
	bound     []bool
	onNodes   int
	allocated int64
	late      int64 // allocated to pods that were rejected before
	untried   int   // neither bound, nor rejected so far
}

func newTally(pods []*corev1.Pod, capacity int64) *tally {
	t := &tally{
		capacity: capacity, index: make(map[string]int, len(pods)), untried: len(pods),
		rejected: make([]bool, len(pods)), bound: make([]bool, len(pods)),
	}
	for i, p := range pods {
		t.index[p.Name] = i
		t.requested = append(t.requested, demand(p))
	}
	return t
}

// see records the state of the pod.
func (t *tally) see(pod *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, known := t.index[pod.Name]
	if !known || t.bound[i] {
		return
	}
	switch {
	case pod.Spec.NodeName != "":
		t.bound[i] = true
		t.onNodes++
		t.allocated += t.requested[i]
		if t.rejected[i] {
			t.late += t.requested[i]
		} else {
			t.untried--
		}
	case unschedulable(pod) && !t.rejected[i]:
		t.rejected[i] = true
		t.untried--
	}
}

// end records that the pod at the place has been deleted.
func (t *tally) end(place int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.allocated -= t.requested[place]
}

// unschedulable reports whether kube-scheduler has tried the pod and found no node. An attempt that
// ended in an error has another reason.
func unschedulable(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}

func (t *tally) create() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.created++
}

// progress is how many pods are on nodes, and how many have not been tried.
func (t *tally) progress() (onNodes, untried int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.onNodes, t.untried
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%5d created, %5d bound, %4d rejected, %5.2f %% of the GPUs allocated",
		t.created, t.onNodes, len(t.requested)-t.untried-t.onNodes, t.percent(t.allocated))
}

func (t *tally) percent(units int64) float64 { return 100 * float64(units) / float64(t.capacity) }

// lateShare is the allocation, in percent, of pods that were rejected before they were bound.
func (t *tally) lateShare() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.percent(t.late)
}

// turn returns the place of the pod in the order in which kube-scheduler placed pods.
func (t *tally) turn(pod string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.index[pod]
	if t.rejected[i] {
		return i + len(t.requested)
	}
	return i
}

// loads are sums of requests at which the allocation is reported, relative to the capacity.
var loads = [...]float64{0.8, 0.9, 0.95, 1, 1.1, 1.2, 1.3}

// curve is the allocation, in percent, of the pods that request each of loads.
func (t *tally) curve() (allocated [len(loads)]float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	arrived, sum, at := int64(0), int64(0), 0
	for i, requested := range t.requested {
		if arrived += requested; t.bound[i] {
			sum += requested
		}
		for at < len(loads) && float64(arrived) >= loads[at]*float64(t.capacity) {
			allocated[at] = t.percent(sum)
			at++
		}
	}
	return allocated
}

// first is the sum of requests, in percent, up to the first of the pods that request
// GPUs that was ever rejected; false if none was.
func (t *tally) first() (float64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	arrived := int64(0)
	for i, requested := range t.requested {
		arrived += requested
		if t.rejected[i] && requested > 0 {
			return t.percent(arrived), true
		}
	}
	return 0, false
}
