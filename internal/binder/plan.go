package binder

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// WithPlannedClaims returns the pod with the annotations that it would get on the node now. claims is false if it needs no claim.
// If it cannot get what it needs, Reserve returns the error later.
func WithPlannedClaims(ctx context.Context, e *engine.Engine, view *snapshot.View, pod *corev1.Pod, node *snapshot.Node) (planned *corev1.Pod, claims bool) {
	b := Binder{Engine: e, Ledgers: plan{view}}
	reservation, err := b.Reserve(ctx, pod, Target{view, node})
	if err != nil {
		return pod, true
	}
	return engine.WithAnnotations(pod, reservation.Annotations), len(reservation.Held) > 0
}

// plan implements engine.Ledgers with the ledgers of the View, and changes nothing.
type plan struct{ view *snapshot.View }

// Claim implements engine.Ledgers.
func (p plan) Claim(_ context.Context, key snapshot.LedgerKey, pod *corev1.Pod, _ string, choose engine.Choose) (snapshot.LedgerPod, error) {
	l := p.view.Ledger(key)
	if l == nil {
		l = &snapshot.Ledger{Resource: key.Resource, Node: key.Node}
	}
	if held := l.Pod(pod.UID); held != nil {
		if _, err := choose(l, held.At); err == nil {
			return *held, nil
		}
		l = l.Without(func(uid types.UID) bool { return uid == pod.UID })
	}
	claim, err := choose(l, time.Now())
	return snapshot.LedgerPod{Annotations: claim.Annotations}, err
}

// Release implements engine.Ledgers.
func (plan) Release(context.Context, snapshot.LedgerKey, snapshot.LedgerPod) error { return nil }

// Revoke implements engine.Ledgers.
func (plan) Revoke(context.Context, snapshot.LedgerKey, snapshot.LedgerPod) error { return nil }
