package engine

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// Planned returns the pod with the annotations that it would get on the node at this time. claims is false if it needs no claim. If it
// cannot get what it needs, its claims fail later.
func (e *Engine) Planned(view *snapshot.View, pod *corev1.Pod, node *snapshot.Node, at time.Time) (planned *corev1.Pod, claims bool) {
	r, err := e.planWith(&plan{view: view, at: at}, view, pod, node)
	if err != nil {
		return pod, true
	}
	return WithAnnotations(pod, r.Annotations), len(r.Held) > 0
}

// Holding is what a pod holds, or would get, of one unit.
type Holding struct {
	Resource string `json:"resource"`
	Unit     string `json:"unit"`
	Amount   int64  `json:"amount"`
}

// Holdings returns what the pod would get on the node at this time, which is not later than any claim in the view; nil if it needs no claim, or
// cannot get what it needs.
func (e *Engine) Holdings(view *snapshot.View, pod *corev1.Pod, node *snapshot.Node, at time.Time) []Holding {
	p := &plan{view: view, at: at}
	if _, err := e.planWith(p, view, pod, node); err != nil || p.rejected {
		return nil
	}
	return p.gets
}

// HeldBy returns what the pod holds by the ledgers of the view: of units of its node, and of pools. The node may be nil.
func HeldBy(view *snapshot.View, pod types.UID, node *snapshot.Node) []Holding {
	var all []Holding
	add := func(l *snapshot.Ledger) {
		for i := range l.Units {
			if amount := l.Units[i].Amount(pod); amount > 0 {
				all = append(all, Holding{l.Resource, l.Units[i].Name, amount})
			}
		}
	}
	if node != nil {
		for _, l := range node.Ledgers {
			add(l)
		}
	}
	for l := range view.Pools() {
		add(l)
	}
	return all
}

// plannedOn returns the pod with the annotations for what the policies would allocate to it from the node's own ledgers. fits is
// false if a policy rejects the pod. The result depends on the pod and the node alone, and not on the View, which changes more often.
func (e *Engine) plannedOn(node *snapshot.Node, pod *corev1.Pod) (planned *corev1.Pod, fits bool) {
	p := &plan{node: node, at: time.Unix(0, 0)}
	r, err := e.planWith(p, noView, pod, node)
	if err != nil {
		return pod, false
	}
	return WithAnnotations(pod, r.Annotations), !p.rejected
}

// planWith makes the claims of the pod on the node in ledgers that change nothing.
func (e *Engine) planWith(p *plan, view *snapshot.View, pod *corev1.Pod, node *snapshot.Node) (r Reservation, err error) {
	claims, err := e.Claims(view, pod, node)
	for i := 0; i < len(claims) && err == nil; i++ {
		var held HeldClaim
		if held, err = claims[i].Make(context.Background(), p); err == nil {
			r, err = r.With(held)
		}
	}
	return r, err
}

var noView = new(snapshot.View)

// plan implements Ledgers with the ledgers of a View, or of one node, and changes nothing. Its claims do not fail.
type plan struct {
	view     *snapshot.View
	node     *snapshot.Node // if view is nil
	at       time.Time
	rejected bool
	gets     []Holding // by the claims so far, without those that exist
}

// Claim implements Ledgers.
func (p *plan) Claim(_ context.Context, key snapshot.LedgerKey, pod *corev1.Pod, _ string, choose Choose) (snapshot.LedgerPod, error) {
	var l *snapshot.Ledger
	switch {
	case p.view != nil:
		l = p.view.Ledger(key)
	case key.Node == p.node.Name:
		l = p.node.Ledger(key.Resource)
	default: // shared by nodes
		return snapshot.LedgerPod{}, nil
	}
	if l == nil {
		l = &snapshot.Ledger{Resource: key.Resource, Node: key.Node}
	}
	if held := l.Pod(pod.UID); held != nil {
		if _, err := choose(l, held.At); err == nil {
			return *held, nil
		}
		l = l.Without(func(uid types.UID) bool { return uid == pod.UID })
	}
	claim, err := choose(l, p.at)
	p.rejected = p.rejected || err != nil
	for _, a := range claim.Amounts {
		p.gets = append(p.gets, Holding{key.Resource, a.Unit, a.Amount})
	}
	return snapshot.LedgerPod{Annotations: claim.Annotations}, nil
}

// Release implements Ledgers.
func (*plan) Release(context.Context, snapshot.LedgerKey, snapshot.LedgerPod) error { return nil }

// Revoke implements Ledgers.
func (*plan) Revoke(context.Context, snapshot.LedgerKey, snapshot.LedgerPod) error { return nil }

// WithAnnotations returns a copy of the pod with the annotations added. It does not change the pod.
func WithAnnotations(pod *corev1.Pod, annotations map[string]string) *corev1.Pod {
	if len(annotations) == 0 {
		return pod
	}
	with := *pod // shallow: the annotations are replaced, not changed
	with.Annotations = maps.Clone(pod.Annotations)
	if with.Annotations == nil {
		with.Annotations = map[string]string{}
	}
	maps.Copy(with.Annotations, annotations)
	return &with
}
