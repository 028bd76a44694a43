package extender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/binding"
	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/extender/wire"
)

// releaseTimeout bounds the release of claims of a pod that was not bound. The caller does not wait
// for it.
const releaseTimeout = 10 * time.Second

// bindingArgs decodes the request, and starts its record.
func (c *call) bindingArgs() (args extenderv1.ExtenderBindingArgs, err error) {
	if len(c.body) > maxBind {
		return args, fmt.Errorf("the request has %d bytes, the limit for a bind call is %d", len(c.body), maxBind)
	}
	if err := json.Unmarshal(c.body, &args); err != nil {
		return args, fmt.Errorf("decoding the request: %w", err)
	}
	for _, field := range []struct {
		name, value string
		limit       int
	}{
		{"PodName", args.PodName, wire.MaxName}, {"PodNamespace", args.PodNamespace, wire.MaxNamespace},
		{"PodUID", string(args.PodUID), wire.MaxUID}, {"Node", args.Node, wire.MaxName},
	} {
		if len(field.value) > field.limit {
			return args, fmt.Errorf("%s has %d bytes, the limit is %d", field.name, len(field.value), field.limit)
		}
	}
	if args.PodName == "" || args.PodNamespace == "" || args.PodUID == "" || args.Node == "" {
		return args, errors.New("the request must have PodName, PodNamespace, PodUID and Node")
	}
	c.record = &decision.Record{
		Pod:   decision.Pod{Namespace: args.PodNamespace, Name: args.PodName, UID: string(args.PodUID)},
		Bound: args.Node,
	}
	return args, nil
}

// maxBind is several times the longest bind call that Kubernetes' limits allow.
const maxBind = 16 << 10

func (h *Handler) bind(ctx context.Context, c *call) error {
	args, err := c.bindingArgs()
	if err != nil {
		return err
	}
	if h.Cluster == nil {
		return errors.New("binding needs the API server, and Outboard runs without a cluster")
	}
	if err := h.Cluster.Synced(); err != nil {
		return err
	}
	pod := h.Cluster.PodByName(args.PodNamespace, args.PodName)
	if pod == nil || pod.UID != args.PodUID { // the pod may be newer than what the watch has shown
		if pod, err = h.Cluster.LivePod(ctx, args.PodNamespace, args.PodName, args.PodUID); err != nil {
			return err
		}
	}
	if done, err := c.settled(args, pod); done || err != nil {
		return err
	}
	target, err := h.admit(ctx, c, pod, args.Node)
	if err != nil {
		return err
	}
	defer target.leave()
	if ctx, err = h.Cluster.Throttle(ctx); err != nil {
		return err
	}
	return h.bindPod(ctx, c, args, pod, target)
}

// bindAttempts is how often a bind call tries to bind a pod that changes meanwhile.
const bindAttempts = 4

// bindPod binds the pod. It retries if the pod has changed, or holds a claim that must be withdrawn first.
func (h *Handler) bindPod(ctx context.Context, c *call, args extenderv1.ExtenderBindingArgs, pod *corev1.Pod, target *admitted) error {
	for attempt := 1; ; attempt++ {
		if done, err := c.settled(args, pod); done || err != nil {
			return err
		}
		err := h.reserveAndBind(ctx, pod, target)
		unusable := (*engine.UnusableClaimError)(nil)
		switch {
		case err == nil:
			c.answer.Text = append(c.answer.Text, bound...)
			return nil
		case attempt == bindAttempts:
			return err
		case errors.Is(err, binding.ErrPodChanged):
			pod, err = h.Cluster.LivePod(ctx, args.PodNamespace, args.PodName, args.PodUID)
		case errors.As(err, &unusable):
			if pod, err = h.withdraw(ctx, pod, unusable.Revoke); err != nil {
				err = fmt.Errorf("node %s: %w: %w", args.Node, unusable, err)
			}
		default:
			return err
		}
		if err != nil {
			return err
		}
	}
}

// settled answers if the pod need not be bound any more, and returns an error if it cannot be bound. The pod may be
// nil.
func (c *call) settled(args extenderv1.ExtenderBindingArgs, pod *corev1.Pod) (done bool, err error) {
	switch {
	case pod == nil || pod.UID != args.PodUID:
		return false, fmt.Errorf("pod %s/%s with UID %s does not exist", args.PodNamespace, args.PodName, args.PodUID)
	case pod.Spec.NodeName == args.Node:
		c.answer.Text = append(c.answer.Text, bound...) // the response to an earlier call was lost
		return true, nil
	case pod.Spec.NodeName != "":
		return false, fmt.Errorf("pod %s/%s is already bound to node %q", args.PodNamespace, args.PodName, pod.Spec.NodeName)
	}
	return false, nil
}

// reserveAndBind makes the pod's claims, and binds it.
//
// Claims that no bind attempt relies on any more are released after a while, and this process may
// be stopped between the two steps for any time. Therefore the pod is changed before a claim is
// released, and the Binding of a pod with claims has the resourceVersion that was read before the
// claim was made: either the Binding comes first and the claim stays, or the API server rejects the
// Binding, and the bind call starts over. This function does the same if the outcome of the Binding
// is unknown.
func (h *Handler) reserveAndBind(ctx context.Context, pod *corev1.Pod, target *admitted) error {
	node := target.node
	reservation, err := h.Engine.Reserve(ctx, h.Ledgers, target.view, pod, node)
	if err != nil {
		return err
	}
	h.awaitEarlier(ctx, node.Name, reservation.After)
	b := binding.Binding{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Node: node.Name, Annotations: map[string]string{}}
	if why := h.why(pod, node.Name); why != "" {
		b.Annotations[decision.Annotation] = why
	}
	maps.Copy(b.Annotations, reservation.Annotations)
	if !reservation.Empty() {
		b.ResourceVersion = pod.ResourceVersion
	}
	err = h.Cluster.Bind(ctx, b)
	switch {
	case err == nil, reservation.Empty():
		return err
	case errors.Is(err, binding.ErrOutcomeUnknown):
		touched, withdrawErr := h.withdraw(ctx, pod, reservation.Revoke)
		switch {
		case withdrawErr != nil:
			return fmt.Errorf("%w; its claims stay for now: %w", err, withdrawErr)
		case touched == nil || touched.Spec.NodeName == "":
			return fmt.Errorf("the Binding was withdrawn, and the claims of the pod were released: %w", err)
		case touched.Spec.NodeName == node.Name:
			return nil
		}
		err = fmt.Errorf("pod %s/%s is already bound to node %q", pod.Namespace, pod.Name, touched.Spec.NodeName)
	}
	// Release the claims even if the caller is gone already.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	return errors.Join(err, reservation.Release(ctx))
}

// touchTimeout bounds changing a pod, so that few calls wait for an unreachable API server.
const touchTimeout = 2 * time.Second

// withdraw changes the pod, so that the API server rejects all Bindings sent before, which have an earlier
// resourceVersion. If the pod is not bound then, withdraw revokes its claims. It returns the current pod, or nil if it
// is gone. It does not stop when the caller of the extender is gone.
func (h *Handler) withdraw(ctx context.Context, pod *corev1.Pod, revoke func(context.Context) error) (*corev1.Pod, error) {
	touching, cancel := context.WithTimeout(context.WithoutCancel(ctx), touchTimeout)
	defer cancel()
	touched, err := h.Cluster.TouchPod(touching, pod.Namespace, pod.Name, pod.UID)
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

const bound = `{"Error":""}`

// why summarizes the latest decisions about the pod, for its annotation.
func (h *Handler) why(pod *corev1.Pod, node string) string {
	records := h.Log.Settle(decision.Query{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Profile: h.Profile, Node: node, Limit: 8,
	})
	return decision.Summary(slices.DeleteFunc(records, func(r *decision.Record) bool {
		return r.Error != "" || r.Verb != decision.Filter && r.Verb != decision.Prioritize
	}), node)
}
