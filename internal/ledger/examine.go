package ledger

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// cacheDelay is the minimum age of an allocation before a sweep reads its pod from the API server
// if the cache lacks it: usually the cache has it a moment later.
const cacheDelay = 2 * time.Second

// Examination decides whether an allocation is released. It is a value: Next returns the following
// state, and a Keeper performs the request of each state. The cache, which may be stale, only saves
// requests: the API server decides. From each state the allocation may also stay, because its pod
// needs it, or because the API server did not respond (KeepAllocation).
//
//	ReadCachedPod ── the pod is not in the cache, or does not need the allocation ──► ReadPod
//	ReadPod       ── the pod never needs the allocation again ──────────────────────► ReleaseAllocation
//	ReadPod       ── the pod was not bound in time ────────────────────────────► TouchPod
//	TouchPod      ── the pod, which no earlier Binding can bind, is not bound ─► ReleaseAllocation
type Examination struct {
	Ledger     *snapshot.Ledger
	Allocation *snapshot.LedgerPod
	Age        time.Duration // since the sweeper first saw the allocation
	Limit      time.Duration // the age from which the allocation of a pod that may still be bound is released
	Request    PodRequest
	reason     string // why the allocation is released: a label value of the metric
	Err        error  // of the request: why the allocation stays although it may not be needed
}

// PodRequest is what an examination needs next: the permission for it, if it is a request to the
// API server.
type PodRequest string

const (
	ReadCachedPod     PodRequest = ""
	ReadPod           PodRequest = "get pods"
	TouchPod          PodRequest = "patch pods/status"
	KeepAllocation    PodRequest = "keep"                        // the end
	ReleaseAllocation PodRequest = "update ledgers.outboard.dev" // the end: Release makes the operation
)

// Next returns the state after the response to the request: the pod, or nil if it does not exist.
// The examination has not ended.
func (e Examination) Next(pod *corev1.Pod, err error) Examination {
	asked, n := e.Request, needOf(pod, e.Ledger, e.Allocation)
	expired := n == unbound && e.Age >= e.Limit
	e.Request, e.Err = KeepAllocation, err
	switch {
	case err != nil:
		e.Request = asked
	case asked == ReadCachedPod && (expired || n == finishedWith && (pod != nil || e.Age >= cacheDelay)):
		e.Request = ReadPod
	case asked == ReadPod && n == finishedWith:
		e.Request, e.reason = ReleaseAllocation, finished
	case asked == ReadPod && expired:
		// Whoever made the allocation may still send the Binding, for this version of the pod.
		// After this, the API server rejects it.
		e.Request = TouchPod
	case asked == TouchPod && n != needed:
		e.Request, e.reason = ReleaseAllocation, reclaimed
	}
	return e
}

// Release is the operation that releases the allocation.
func (e Examination) Release() Operation {
	return ReleaseOf(*e.Allocation, true)
}

// need is whether a pod needs its allocation.
type need int

const (
	needed       need = iota
	unbound           // the pod may still be bound
	finishedWith      // the pod will never need it again
)

// needOf reports whether the pod, nil if it does not exist, needs its allocation.
func needOf(pod *corev1.Pod, l *snapshot.Ledger, p *snapshot.LedgerPod) need {
	switch {
	case pod == nil, pod.UID != p.UID:
		return finishedWith
	case snapshot.Ended(pod):
		return finishedWith
	case pod.Spec.NodeName == "":
		return unbound
	case l.Node != "" && pod.Spec.NodeName != l.Node:
		return finishedWith
	}
	return needed
}
