package cluster

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// Offline is a Cluster without client, clock or goroutine, for tests that play every order of events: what the watches show, and what the API
// server responds about pods, comes as calls of these methods, and is in the next View at once. Clone returns another one in the same state.
type Offline struct{ Cluster }

// NewOffline returns an Offline that is empty.
func NewOffline() *Offline { return offline(newState()) }

func offline(s *state) *Offline {
	o := new(Offline)
	o.state = s
	return o
}

// Clone returns a copy that shares only what is immutable.
func (o *Offline) Clone() *Offline { return offline(o.state.clone()) }

// SetComplete says that everything was read once.
func (o *Offline) SetComplete() { o.state.setComplete() }

// ShowNode is an event of the watch of nodes: the node has come or changed.
func (o *Offline) ShowNode(node *corev1.Node) {
	o.state.setNode(node)
	o.state.publish()
}

// ShowPod is an event of the watch of pods: the pod has come or changed.
func (o *Offline) ShowPod(pod *corev1.Pod) {
	o.state.setPod(pod)
	o.state.publish()
}

// ShowNoPod is an event of the watch of pods: the pod is gone.
func (o *Offline) ShowNoPod(pod *corev1.Pod) {
	o.state.removePod(pod)
	o.state.publish()
}

// ShowLedger is an event of the watch of Ledgers: the Ledger has come or changed.
func (o *Offline) ShowLedger(l *ledger.Object) {
	o.state.setLedger(l)
	o.state.publish()
}

// Forget is what Assume returns.
func (o *Offline) Forget(uid types.UID) { o.state.forget(uid) }

// Nominate is [Cluster.Nominate], and ends when the caller calls forget, with o or a clone of it; nil: there is nothing to end. live is the pod
// in the API server; nil if it is gone.
func (o *Offline) Nominate(pod, live *corev1.Pod, nodes []snapshot.NominatedNode) (forget func(*Offline)) {
	end := o.state.nominate(pod, live, nodes)
	if end == nil {
		return nil
	}
	return func(o *Offline) { end(o.state) }
}

// BeginRequest begins a request about the pod: Bind, for which the caller takes the steps of a [Sending], LivePod, or TouchPod. It returns
// its number.
func (o *Offline) BeginRequest(uid types.UID) (number int) { return o.state.beginRequest(uid) }

// EndRequest ends the request with that number. pod is [Sending.Pod] in the end, or what LivePod or TouchPod returns.
func (o *Offline) EndRequest(uid types.UID, number int, pod *corev1.Pod, now time.Time) {
	o.state.endRequest(uid, number, pod, now)
}

// FinishBindingAt is FinishBinding at that time.
func (o *Offline) FinishBindingAt(uid types.UID, now time.Time) {
	o.state.finishBinding(uid, now)
	o.state.publish()
}

// Unconfirmed returns the pods that count as bound, and that the watch does not show on a node, in no particular order.
func (o *Offline) Unconfirmed(before time.Time) []*corev1.Pod { return o.state.unconfirmed(before) }

// Confirm says how the API server has a pod that was in Unconfirmed; nil: it is gone.
func (o *Offline) Confirm(assumed, truth *corev1.Pod, now time.Time) {
	o.state.confirm(assumed, truth, now)
}

func (s *state) clone() *state {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &state{
		pods: maps.Clone(s.pods), unbound: maps.Clone(s.unbound), unboundVersion: s.unboundVersion, names: maps.Clone(s.names),
		assumed: maps.Clone(s.assumed), ledgers: maps.Clone(s.ledgers),
		changed: make(chan struct{}, 1), lacking: make(chan struct{}, 1),
		builder: s.builder.Clone(), complete: s.complete, claims: maps.Clone(s.claims), gone: maps.Clone(s.gone), expected: s.expected,
		reads: s.reads,
	}
	for _, index := range []map[types.UID][]string{c.claims, c.gone} {
		for uid, names := range index {
			index[uid] = slices.Clone(names)
		}
	}
	c.reads.selected = maps.Clone(s.reads.selected)
	current := s.published.Load()
	c.published.Store(&published{view: current.view, at: current.at, superseded: make(chan struct{})})
	return c
}
