package extender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/extender/wire"
	"outboard.dev/outboard/snapshot"
)

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
	if pod == nil || pod.UID != args.PodUID || snapshot.IsReduced(pod) && pod.Spec.NodeName == "" { // the pod may be newer than what the watch has shown
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
		Engine: h.Engine, Cluster: h.Cluster, Ledgers: h.Ledgers, Awaited: &h.Shared.awaited,
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
	c.record.Claims = held.Record()
	c.response.Text = append(c.response.Text, bound...)
	return nil
}

const bound = `{"Error":""}`
