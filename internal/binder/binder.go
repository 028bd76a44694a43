package binder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// Cluster is the part of a cluster that a Binder uses.
type Cluster interface {
	Views
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

// Binding is the binding of a pod to a node. All fields except ResourceVersion and Annotations are
// required.
type Binding struct {
	Namespace, Name string
	UID             types.UID
	Node            string
	// ResourceVersion, if not "", is the only version of the pod to bind.
	ResourceVersion string
	// Annotations are merged into the pod's in the same transaction that sets its nodeName.
	Annotations map[string]string
}

var (
	// ErrPodChanged means that a Binding was rejected because the pod has another resourceVersion
	// than the Binding.
	ErrPodChanged = errors.New("the pod has changed")
	// ErrOutcomeUnknown means that the pod may or may not be bound to the node, now or later.
	ErrOutcomeUnknown = errors.New("it is not known whether the pod was bound")
)

// Binder binds pods with their allocations. Its methods may be called concurrently.
type Binder struct {
	Engine  *engine.Engine
	Cluster Cluster
	Ledgers engine.Ledgers // nil if no policy of the engine allocates resources
	Awaited *Awaited
	// Why returns the summary of the decisions about the pod, for its annotation
	// [decision.Annotation]; "": none.
	Why func(pod *corev1.Pod, node string) string
	// StallTimeout is how long a pod waits for pods that this process binds to the node before it,
	// if none of them gets bound: then it is not bound either, and kube-scheduler retries it. 0: 2
	// s, which is below the usual httpTimeout, so that a caller of the extender learns the cause.
	StallTimeout time.Duration
}

// Target is where a pod is to be bound.
type Target struct {
	// View is the view in which the pod was found to fit.
	View *snapshot.View
	// Node is the node with its nominated pods, so that the pod does not get what they need.
	Node *snapshot.Node
}

// OfScheduler returns why the profile does not bind the pod, if the pod is of another scheduler
// than those with these names, or nil. With no names, the profile binds the pods of any scheduler.
func OfScheduler(pod *corev1.Pod, profile string, schedulerNames []string) error {
	name := cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName)
	if len(schedulerNames) == 0 || slices.Contains(schedulerNames, name) {
		return nil
	}
	return fmt.Errorf("pod %s has schedulerName %q, which is not among the schedulerNames of profile %s: %s",
		pod.Namespace+"/"+pod.Name, name, profile, strings.Join(schedulerNames, ", "))
}

// AlreadyBound reports whether the pod is bound to the node, and returns an error if it cannot be
// bound there any more. pod is its latest known state; nil: it is gone.
func AlreadyBound(namespace, name string, uid types.UID, node string, pod *corev1.Pod) (bound bool, err error) {
	switch {
	case pod == nil || pod.UID != uid:
		return false, fmt.Errorf("pod %s/%s with UID %s does not exist", namespace, name, uid)
	case pod.Spec.NodeName == node:
		return true, nil
	case pod.Spec.NodeName != "":
		return false, fmt.Errorf("pod %s/%s is already bound to node %q", namespace, name, pod.Spec.NodeName)
	case pod.DeletionTimestamp != nil:
		return false, fmt.Errorf("pod %s/%s is being deleted", namespace, name)
	}
	return false, nil
}

// Resolve ends an earlier decision to bind the pod to another node, whose Binding may be on its
// way: it changes the pod, so that the API server rejects that Binding if it has allocations. It
// returns the current pod, and an error if the pod is bound or gone, or the API server does not
// respond in time. Call it before the pod is assumed on the node.
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
	_, err = AlreadyBound(pod.Namespace, pod.Name, pod.UID, node, touched)
	return touched, err
}

const (
	// touchTimeout bounds changing a pod, so that few calls wait for an unreachable API server.
	touchTimeout = 2 * time.Second
	// removeTimeout bounds the release or revocation of an allocation.
	removeTimeout = 5 * time.Second
)

// Bind binds the pod, which is trimmed, to the target, and returns the allocations with which it is
// bound. It retries if the pod has changed, or holds an allocation that must be withdrawn first.
// What undoes an earlier step does not stop when ctx ends.
func (b *Binder) Bind(ctx context.Context, pod *corev1.Pod, target Target) (engine.Reservation, error) {
	ctx, err := b.Cluster.Throttle(ctx) // before anything is allocated
	if err != nil {
		return engine.Reservation{}, err
	}
	defer b.Awaited.bind(pod.UID)()
	p, next := Begin(b.Engine, target, pod)
	for next.Action != Done {
		p, next = p.Step(b.do(ctx, p, next))
	}
	if next.Err != nil {
		return engine.Reservation{}, next.Err
	}
	return p.held, nil
}

// Reserve makes the allocations of the pod on the target in ledgers that are not in the API server,
// and does not bind the pod.
func (b *Binder) Reserve(ctx context.Context, pod *corev1.Pod, target Target) (engine.Reservation, error) {
	p, next := Begin(b.Engine, target, pod)
	for next.Action == Allocation || next.Action == Release {
		p, next = p.Step(b.do(ctx, p, next))
	}
	if p.cause != nil {
		return engine.Reservation{}, p.cause
	}
	return p.held, next.Err
}

func (b *Binder) do(ctx context.Context, p Protocol, t Task) Result {
	namespace, name, uid := p.pod.Namespace, p.pod.Name, p.pod.UID
	switch limit := touchTimeout; t.Action {
	case Release, Revoke:
		limit = removeTimeout
		fallthrough
	case Touch:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
	}
	var r Result
	switch t.Action {
	case Allocation:
		r.Held, r.Err = t.Allocation.Make(ctx, b.Ledgers)
	case Await:
		r.Err = b.awaitEarlier(ctx, p.target.Node.Name, t.After)
	case Bind:
		annotations := map[string]string{}
		if why := b.Why(p.pod, p.target.Node.Name); why != "" {
			annotations[decision.Annotation] = why
		}
		maps.Copy(annotations, t.Binding.Annotations)
		t.Binding.Annotations = annotations
		r.Err = b.Cluster.Bind(ctx, t.Binding)
	case Read:
		r.Pod, r.Err = b.Cluster.LivePod(ctx, namespace, name, uid)
	case Touch:
		r.Pod, r.Err = b.Cluster.TouchPod(ctx, namespace, name, uid)
	case Release, Revoke:
		r.Err = t.Held.Undo(ctx, b.Ledgers, t.Action == Revoke)
	}
	return r
}
