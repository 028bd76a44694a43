package engine

import (
	"cmp"
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// Planned returns the pod with the annotations that it would get on the node at this time. claims
// is false if it needs no claim. If it cannot get what it needs, its claims fail later.
func (e *Engine) Planned(view *snapshot.View, pod *corev1.Pod, node *snapshot.Node, at time.Time) (planned *corev1.Pod, claims bool) {
	r, err := e.dryRun(&dryRun{view: view, node: node, at: at}, pod)
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

// Holdings returns what the pod would get on the node at this time, which is not later than any
// claim in the view; nil if it needs no claim, or cannot get what it needs.
func (e *Engine) Holdings(view *snapshot.View, pod *corev1.Pod, node *snapshot.Node, at time.Time) []Holding {
	d := &dryRun{view: view, node: node, at: at}
	if _, err := e.dryRun(d, pod); err != nil || d.rejected {
		return nil
	}
	return d.gets
}

// HeldBy returns what the pod holds by the ledgers of the view: of units of its node, and of pools.
// The node may be nil.
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

// plannedOn returns the pod with the annotations for what the policies would allocate to it from
// the node's own ledgers. fits is false if a policy rejects the pod. The result depends on the pod
// and the node alone, and not on the View, which changes more often.
func (e *Engine) plannedOn(node *snapshot.Node, pod *corev1.Pod) (planned *corev1.Pod, fits bool) {
	d := &dryRun{node: node, at: time.Unix(0, 0)}
	r, err := e.dryRun(d, pod)
	if err != nil {
		return pod, false
	}
	return WithAnnotations(pod, r.Annotations), !d.rejected
}

var noView = new(snapshot.View)

// dryRun makes the claims of the pod in ledgers that change nothing.
func (e *Engine) dryRun(d *dryRun, pod *corev1.Pod) (r Reservation, err error) {
	claims, err := e.Claims(cmp.Or(d.view, noView), pod, d.node)
	for i := 0; i < len(claims) && err == nil; i++ {
		var held HeldClaim
		if held, err = claims[i].Make(context.Background(), d); err == nil {
			r, err = r.With(held)
		}
	}
	return r, err
}

// dryRun implements Ledgers with the ledgers of a View, or of one node, and changes nothing. Its
// claims do not fail.
type dryRun struct {
	view     *snapshot.View // nil: the ledgers of the node alone
	node     *snapshot.Node
	at       time.Time
	rejected bool
	gets     []Holding // by the claims so far, without those that exist
}

// Claim implements Ledgers.
func (d *dryRun) Claim(_ context.Context, key snapshot.LedgerKey, pod *corev1.Pod, _ string, choose Choose) (snapshot.LedgerPod, error) {
	var l *snapshot.Ledger
	switch {
	case d.view != nil:
		l = d.view.Ledger(key)
	case key.Node == d.node.Name:
		l = d.node.Ledger(key.Resource)
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
	claim, err := choose(l, d.at)
	d.rejected = d.rejected || err != nil
	for _, a := range claim.Amounts {
		d.gets = append(d.gets, Holding{key.Resource, a.Unit, a.Amount})
	}
	return snapshot.LedgerPod{Annotations: claim.Annotations}, nil
}

// Release implements Ledgers.
func (*dryRun) Release(context.Context, snapshot.LedgerKey, snapshot.LedgerPod) error { return nil }

// Revoke implements Ledgers.
func (*dryRun) Revoke(context.Context, snapshot.LedgerKey, snapshot.LedgerPod) error { return nil }

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
