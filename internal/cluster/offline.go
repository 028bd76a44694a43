package cluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
)

// Offline is a Cluster without client, clock or goroutine, for tests that play every order of events: what the watches show, and what the API
// server responds about pods, comes as calls of these methods, and is in the next View at once.
type Offline struct {
	Cluster
	confirming *corev1.Pod // as BeginConfirm found it
}

// NewOffline returns an Offline that is empty.
func NewOffline() *Offline {
	o := new(Offline)
	o.state = newState()
	return o
}

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

// BeginConfirm begins to read the pod, which is in Unconfirmed.
func (o *Offline) BeginConfirm(uid types.UID) { o.confirming = o.state.assumed[uid].Pod }

// Confirming reports whether Confirm would change how the pod counts: it counts as it did when BeginConfirm was called.
func (o *Offline) Confirming() bool { return o.state.assumed[o.confirming.UID].Pod == o.confirming }

// Confirm says how the API server has the pod of BeginConfirm; nil: it is gone.
func (o *Offline) Confirm(truth *corev1.Pod, now time.Time) {
	o.state.confirm(o.confirming, truth, now)
}
