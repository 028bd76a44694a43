package extender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender/wire"
	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/snapshot"
)

const (
	// maxBind is several times the longest bind call that Kubernetes' limits allow.
	maxBind = 16 << 10
	// bound is the response if the pod is bound.
	bound = `{"Error":""}`
)

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
	pod := h.Cluster.LatestPod(args.PodUID)
	// The pod may be newer than what the watch has shown.
	if pod == nil || pod.Namespace != args.PodNamespace || pod.Name != args.PodName || snapshot.IsReduced(pod) && pod.Spec.NodeName == "" {
		if pod, err = h.Cluster.LivePod(ctx, args.PodNamespace, args.PodName, args.PodUID); err != nil {
			return fmt.Errorf("reading pod %s/%s from the API server: %w", args.PodNamespace, args.PodName, err)
		}
	}
	done, err := binder.AlreadyBound(args.PodNamespace, args.PodName, args.PodUID, args.Node, pod)
	if err != nil {
		return err
	}
	c.record.Pod = decision.PodOf(pod)
	if done { // the response to an earlier call was lost
		c.response.Text = append(c.response.Text, bound...)
		return nil
	}
	b := binder.Binder{
		Engine: h.Engine, Cluster: h.Cluster, Ledgers: h.Ledgers, Awaited: &h.InFlight.awaited,
		Why: func(pod *corev1.Pod, node string) string {
			c.record.Summary = h.Log.Why(pod, h.Profile, node)
			return c.record.Summary
		},
	}
	if pod, err = b.Resolve(ctx, pod, args.Node); err != nil {
		return err
	}
	target, forget, err := h.admit(ctx, c, pod, args.Node)
	if err != nil {
		return err
	}
	defer forget()
	held, err := b.Bind(ctx, pod, target)
	if err != nil {
		return err
	}
	c.record.Allocations = held.Record()
	c.response.Text = append(c.response.Text, bound...)
	return nil
}

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

// admit filters the node again, and assumes the pod on it, with the annotations that it will
// probably get: until its allocations are made, they show which units of the node it takes. It
// admits one pod at a time, so that two pods do not get the same units. forget must be called once
// the pod is bound, or will not be.
func (h *Handler) admit(ctx context.Context, c *call, pod *corev1.Pod, name string) (target binder.Target, forget func(), err error) {
	select {
	case h.InFlight.admission <- struct{}{}:
		defer func() { <-h.InFlight.admission }()
	case <-ctx.Done():
		return target, nil, fmt.Errorf("waiting for other pods to be admitted: %w", context.Cause(ctx))
	}
	view, err := h.view(pod.UID)
	if err != nil {
		return target, nil, err
	}
	c.record.Generation = view.Generation()
	node := view.Node(name)
	if node == nil {
		return target, nil, engine.UnknownNodeError(name)
	}
	if err := h.allowed(pod, node); err != nil {
		return target, nil, err
	}
	err = h.Engine.Filter(ctx, engine.Request{Pod: pod, View: view, Nodes: []*snapshot.Node{node}}, &c.result)
	c.record.Policies, c.record.Rejections = c.result.Record.Policies, c.result.Record.Rejections
	if err != nil {
		return target, nil, err
	}
	if len(c.result.Rejected) > 0 {
		return target, nil, fmt.Errorf("node %q does not fit any more: %s", name, c.result.Rejected[0].Reason.Text)
	}
	target = binder.Target{View: view, Node: h.Engine.CountNominated(view, pod, node)}
	planned, _ := h.Engine.Planned(view, pod, target.Node, time.Now())
	return target, h.Cluster.Assume(planned, name), nil
}

// allowed returns why a bind call must not bind the pod to the node, or nil. A caller of bind uses
// Outboard's permissions, which are those of a scheduler. So bind does only what the caller's
// kube-scheduler would request: it binds pods of the profile, to nodes on which they may run
// regardless of what is free there.
func (h *Handler) allowed(pod *corev1.Pod, node *snapshot.Node) error {
	name := pod.Namespace + "/" + pod.Name
	if !h.manages(pod) {
		return fmt.Errorf("pod %s requests none of the managedResources of profile %s: %s",
			name, h.Profile, strings.Join(h.ManagedResources, ", "))
	}
	if err := binder.OfScheduler(pod, h.Profile, h.SchedulerNames); err != nil {
		return err
	}
	if len(pod.Spec.SchedulingGates) > 0 {
		return fmt.Errorf("pod %s has scheduling gates", name)
	}
	if why := kubescheduler.For(pod).Excludes(node.Object); why != "" {
		return fmt.Errorf("pod %s cannot run on node %q: %s", name, node.Name, why)
	}
	return nil
}
