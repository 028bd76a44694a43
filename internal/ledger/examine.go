package ledger

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// cacheDelay is the minimum age of a claim before a sweep reads its pod from the API server if the cache lacks it: usually the
// cache has it a moment later.
const cacheDelay = 2 * time.Second

// examination decides whether a claim is released. It is a value: next returns the following state, and a Keeper performs the request of
// each state. The cache, which may be stale, only saves requests: the API server decides. From each state the claim may also stay, because
// its pod needs it, or because the API server did not respond (keepClaim).
//
//	readCachedPod ── the pod is not in the cache, or does not need the claim ──► readPod
//	readPod       ── the pod never needs the claim again ──────────────────────► releaseClaim
//	readPod       ── the pod was not bound in time ────────────────────────────► touchPod
//	touchPod      ── the pod, which no earlier Binding can bind, is not bound ─► releaseClaim
//
// testdata/examination.txtar has a history of each.
type examination struct {
	ledger  *snapshot.Ledger
	claim   *snapshot.LedgerPod
	age     time.Duration // since the sweeper first saw the claim
	limit   time.Duration // the age from which the claim of a pod that may still be bound is released
	request podRequest
	reason  string // why the claim is released: a label value of the metric
	err     error  // of the request: why the claim stays although it may not be needed
}

// podRequest is what an examination needs next: the permission for it, if it is a request to the API server.
type podRequest string

const (
	readCachedPod podRequest = ""
	readPod       podRequest = "get pods"
	touchPod      podRequest = "patch pods/status"
	keepClaim     podRequest = "keep"                        // the end
	releaseClaim  podRequest = "update ledgers.outboard.dev" // the end: release makes the operation
)

// next returns the state after the response to the request: the pod, or nil if it does not exist.
func (e examination) next(pod *corev1.Pod, err error) examination {
	if e.err != nil || e.request == keepClaim || e.request == releaseClaim {
		panic("ledger: a response to an examination that has ended")
	}
	asked, n := e.request, needOf(pod, e.ledger, e.claim)
	expired := n == unbound && e.age >= e.limit
	e.request, e.err = keepClaim, err
	switch {
	case err != nil:
		e.request = asked
	case asked == readCachedPod && (expired || n == finishedWith && (pod != nil || e.age >= cacheDelay)):
		e.request = readPod
	case asked == readPod && n == finishedWith:
		e.request, e.reason = releaseClaim, finished
	case asked == readPod && expired:
		// Whoever made the claim may still send the Binding, for this version of the pod. After this, the API server rejects it.
		e.request = touchPod
	case asked == touchPod && n != needed:
		e.request, e.reason = releaseClaim, reclaimed
	}
	return e
}

// release is the operation that releases the claim.
func (e examination) release() operation {
	return operation{release: &releaseOperation{e.claim.UID, e.claim.Token, true}}
}

// need is whether a pod needs its claim.
type need int

const (
	needed       need = iota
	unbound           // the pod may still be bound
	finishedWith      // the pod will never need it again
)

// needOf reports whether the pod, nil if it does not exist, needs its claim.
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
