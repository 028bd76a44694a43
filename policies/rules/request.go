package rules

import (
	"context"
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// request returns the variables that do not depend on a node.
func (p *rules) request(pod *corev1.Pod, view *snapshot.View) *activation {
	keyed := map[string]ref.Val{}
	for _, name := range p.keyed {
		keyed[name] = keyedSignal{view.Signal(name), p.schema}
	}
	return &activation{
		pod:         p.schema.valueOf(reflect.ValueOf(pod)),
		podRequests: p.schema.NativeToValue(podRequests(pod)),
		keyed:       p.schema.NativeToValue(keyed),
	}
}

// podRequests returns what kube-scheduler counts for the pod in total, and 0 for the resources that
// every node has and the pod does not request.
func podRequests(pod *corev1.Pod) corev1.ResourceList {
	requests := snapshot.PodRequests(pod)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if _, ok := requests[name]; !ok {
			requests[name] = resource.Quantity{}
		}
	}
	return requests
}

// begin evaluates what depends on the request alone, and returns the rules that apply to the pod and whose results may
// differ between nodes.
func (c *cycle) begin(ctx context.Context, rules []*rule, vars *activation) ([]planned, error) {
	apply := make([]planned, 0, len(rules))
	for _, r := range rules {
		applies, exceeded, err := c.applies(ctx, r, vars)
		if err != nil {
			return nil, err
		}
		if !applies {
			continue
		}
		if err := c.compute(ctx, r.expression, vars); err != nil {
			return nil, err
		}
		if r := (planned{rule: r, exceeded: exceeded}); !c.passes(r) {
			apply = append(apply, r)
		}
	}
	return apply, nil
}

// applies reports whether the rule applies to the pod: as in Kubernetes, one condition that is false decides, whether or not
// others fail. If a condition costs too much, the rule applies, and exceeds its limit.
func (c *cycle) applies(ctx context.Context, r *rule, vars *activation) (applies, exceeded bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, false, err
	}
	var failed error
	name := "" // of the first condition that fails
	for _, m := range r.conditions {
		if err := c.compute(ctx, m.expression, vars); err != nil {
			return false, false, err
		}
		v, err := c.eval(m.expression, 0, nil)
		switch {
		case err != nil && failed == nil:
			failed, name = err, m.name
		case err == nil && v != types.True:
			c.silent = append(c.silent, fmt.Sprintf("rule %s: does not apply (match condition %s is false)", r.name, m.name))
			return false, false, nil
		}
	}
	switch {
	case failed == nil:
		return true, false, nil
	case r.failurePolicy == policy.Ignore:
		c.silent = append(c.silent, fmt.Sprintf("rule %s: ignored (match condition %s: %v)", r.name, name, failed))
		return false, false, nil
	case exceeds(failed):
		return true, true, nil
	}
	return false, false, fmt.Errorf("rule %s: its match condition %s cannot be evaluated: %w", r.name, name, failed)
}

// passes reports whether all nodes are known to satisfy the rule. Scores never do.
func (c *cycle) passes(r planned) bool {
	whole := r.expression.whole
	if whole == nil || whole.class > ofRequest {
		return false
	}
	v, err := c.result(&r, nil)
	if err != nil || v != types.True {
		return false
	}
	c.silent = append(c.silent, fmt.Sprintf("rule %s: true on all nodes", r.name))
	return true
}
