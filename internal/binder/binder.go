package binder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// Cluster is the part of a cluster that a Binder uses.
type Cluster interface {
	// View returns the latest view. It is never nil.
	View() *snapshot.View
	// Superseded returns a channel that is closed once View returns another View than this one.
	Superseded(view *snapshot.View) <-chan struct{}
	// PodByUID returns the trimmed pod in its latest known state, or nil. It may not show a Binding
	// of Bind yet.
	PodByUID(uid types.UID) *corev1.Pod
	// Assumed returns the node on which the pod counts before it is bound; "" if there is none.
	Assumed(uid types.UID) (node string)
	// LivePod reads the pod from the API server; nil if it is gone.
	LivePod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error)
	// TouchPod changes the resourceVersion of the pod, and returns the changed pod; nil if it is
	// gone. The API server then rejects Bindings with an earlier resourceVersion.
	TouchPod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error)
	// Throttle waits until a Binding may be sent, and returns the context for Bind. It returns an
	// error if that would take long.
	Throttle(ctx context.Context) (context.Context, error)
	// Bind binds the pod. Nil means that the pod is bound to the node, by this call or an earlier
	// one. An error that is [ErrOutcomeUnknown] means that the pod may be bound. Any other
	// error means that this call has not bound the pod and will not; it is [ErrPodChanged]
	// if the resourceVersion of the pod has changed.
	Bind(ctx context.Context, b Binding) error
}

// Binder binds pods with their claims. Its methods may be called concurrently.
type Binder struct {
	Engine  *engine.Engine
	Cluster Cluster
	Ledgers engine.Ledgers // nil if no policy of the engine allocates resources
	Earlier *Earlier
	// Why returns the summary of the decisions about the pod, for its annotation [decision.Annotation]; "": none.
	Why func(pod *corev1.Pod, node string) string
}

// Target is where a pod is to be bound.
type Target struct {
	// View is the view in which the pod was found to fit.
	View *snapshot.View
	// Node is the node with its nominated pods, so that the pod does not get what they need.
	Node *snapshot.Node
}

// Settled reports whether the pod need not be bound to the node any more, and returns an error if it cannot be bound. pod is its
// latest known state, or nil.
func Settled(namespace, name string, uid types.UID, node string, pod *corev1.Pod) (done bool, err error) {
	switch {
	case pod == nil || pod.UID != uid:
		return false, fmt.Errorf("pod %s/%s with UID %s does not exist", namespace, name, uid)
	case pod.Spec.NodeName == node:
		return true, nil
	case pod.Spec.NodeName != "":
		return false, fmt.Errorf("pod %s/%s is already bound to node %q", namespace, name, pod.Spec.NodeName)
	}
	return false, nil
}

// Resolve ends an earlier decision to bind the pod to another node, whose Binding may be on its way: it changes the pod, so that the API
// server rejects that Binding if it has claims. It returns the current pod, and an error if the pod is bound or gone, or the API server
// does not respond in time. Call it before the pod is assumed on the node.
func (b *Binder) Resolve(ctx context.Context, pod *corev1.Pod, node string) (*corev1.Pod, error) {
	former := b.Cluster.Assumed(pod.UID)
	if former == "" || former == node {
		return pod, nil
	}
	ctx, cancel := context.WithTimeout(ctx, touchTimeout)
	defer cancel()
	touched, err := b.Cluster.TouchPod(ctx, pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s is being bound to node %q, and that cannot be ended now: %w", pod.Namespace, pod.Name, former, err)
	}
	_, err = Settled(pod.Namespace, pod.Name, pod.UID, node, touched)
	return touched, err
}

// releaseTimeout bounds the release of the claims of a pod that was not bound. The caller does not wait for it.
const releaseTimeout = 10 * time.Second

// bindAttempts is how often Bind tries to bind a pod that changes meanwhile.
const bindAttempts = 4

// Bind binds the pod, which is trimmed, to the target. It retries if the pod has changed, or holds a claim that must be withdrawn first.
func (b *Binder) Bind(ctx context.Context, pod *corev1.Pod, target Target) error {
	ctx, err := b.Cluster.Throttle(ctx) // before anything is claimed
	if err != nil {
		return err
	}
	namespace, name, uid := pod.Namespace, pod.Name, pod.UID
	for attempt := 1; ; attempt++ {
		if done, err := Settled(namespace, name, uid, target.Node.Name, pod); done || err != nil {
			return err
		}
		err := b.reserveAndBind(ctx, pod, target)
		unusable := (*engine.UnusableClaimError)(nil)
		switch {
		case err == nil:
			return nil
		case attempt == bindAttempts:
			return err
		case errors.Is(err, ErrPodChanged):
			pod, err = b.Cluster.LivePod(ctx, namespace, name, uid)
		case errors.As(err, &unusable):
			if pod, err = b.withdraw(ctx, pod, unusable.Revoke); err != nil {
				err = fmt.Errorf("node %s: %w: %w", target.Node.Name, unusable, err)
			}
		default:
			return err
		}
		if err != nil {
			return err
		}
	}
}

// reserveAndBind makes the pod's claims, and binds it.
//
// Claims that no bind attempt relies on any more are released after a while, and this process may
// be stopped between the two steps for any time. Therefore the pod is changed before a claim is
// released, and the Binding of a pod with claims has the resourceVersion that was read before the
// claim was made: either the Binding comes first and the claim stays, or the API server rejects the
// Binding, and Bind starts over. This function does the same if the outcome of the Binding
// is unknown.
func (b *Binder) reserveAndBind(ctx context.Context, pod *corev1.Pod, target Target) error {
	node := target.Node
	reservation, err := b.Engine.Reserve(ctx, b.Ledgers, target.View, pod, node)
	if err != nil {
		return err
	}
	if err := b.awaitEarlier(ctx, node.Name, reservation.After); err != nil {
		return release(ctx, reservation, err)
	}
	to := Binding{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Node: node.Name, Annotations: map[string]string{}}
	if why := b.Why(pod, node.Name); why != "" {
		to.Annotations[decision.Annotation] = why
	}
	maps.Copy(to.Annotations, reservation.Annotations)
	if !reservation.Empty() {
		to.ResourceVersion = pod.ResourceVersion
	}
	err = b.Cluster.Bind(ctx, to)
	switch {
	case err == nil, reservation.Empty():
		return err
	case errors.Is(err, ErrOutcomeUnknown):
		touched, withdrawErr := b.withdraw(ctx, pod, reservation.Revoke)
		switch {
		case withdrawErr != nil:
			return fmt.Errorf("%w; its claims stay for now: %w", err, withdrawErr)
		case touched == nil || touched.Spec.NodeName == "":
			return fmt.Errorf("the Binding was withdrawn, and the claims of the pod were released: %w", err)
		}
		var bound bool
		if bound, err = Settled(pod.Namespace, pod.Name, pod.UID, node.Name, touched); bound {
			return nil
		}
	}
	return release(ctx, reservation, err)
}

// release releases the claims of a pod that was not bound, even if the caller is gone already, and returns the cause.
func release(ctx context.Context, reservation *engine.Reservation, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	return errors.Join(cause, reservation.Release(ctx))
}

// touchTimeout bounds changing a pod, so that few calls wait for an unreachable API server.
const touchTimeout = 2 * time.Second

// withdraw changes the pod, so that the API server rejects all Bindings sent before, which have an earlier
// resourceVersion. If the pod is not bound then, withdraw revokes its claims. It returns the current pod, or nil if it
// is gone. It does not stop when ctx ends.
func (b *Binder) withdraw(ctx context.Context, pod *corev1.Pod, revoke func(context.Context) error) (*corev1.Pod, error) {
	touching, cancel := context.WithTimeout(context.WithoutCancel(ctx), touchTimeout)
	defer cancel()
	touched, err := b.Cluster.TouchPod(touching, pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		return nil, fmt.Errorf("changing pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if touched != nil && touched.Spec.NodeName != "" {
		return touched, nil
	}
	revoking, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	return touched, revoke(revoking)
}
