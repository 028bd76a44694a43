package engine

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Probe answers what the policies would say about a pod: the pod, the nodes and the View may be changed copies. Unlike the methods that
// serve calls, it writes no record, and neither reads nor changes what the Engine keeps between calls. It is not safe for concurrent use.
//
// After a policy with failurePolicy: Ignore has panicked, the probe ignores it.
type Probe struct {
	ev          *evaluation
	nominations *nominations
}

// NewProbe prepares the policies for a pod. The error is as for Filter.
func (e *Engine) NewProbe(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (*Probe, error) {
	p := &Probe{ev: e.newEvaluation(pod, view), nominations: e.nominationsAfter(e.nominated.Load(), view)}
	if err := p.ev.run(ctx, func() {}, func(*evaluation) error { return nil }); err != nil {
		return nil, err
	}
	return p, nil
}

// CountNominated returns the node with the pods that are nominated to it and count for the pod. A pod fits on a node if it fits both
// with and without them. On a changed node, these pods may get something else than on the node of the View.
func (p *Probe) CountNominated(n *snapshot.Node) *snapshot.Node {
	return p.nominations.counting(n, p.ev.pod, false)
}

// Passes reports whether every policy lets the node pass. It counts no nominated pods. The error is a *PolicyError.
func (p *Probe) Passes(n *snapshot.Node) (bool, error) {
	for {
		verdict, member, err := p.ev.rejection(p.ev.filters, n, false)
		if err == nil {
			return verdict.Fits(), nil
		}
		if err = p.ignore(member, err); err != nil {
			return false, err
		}
	}
}

// Rejecting returns the opinions of all policies that reject the node, in the order of the profile. It counts no nominated pods. The
// error is a *PolicyError.
func (p *Probe) Rejecting(n *snapshot.Node) ([]PolicyOpinion, error) {
	if v := p.ev.tooLarge; !v.Fits() {
		return []PolicyOpinion{PolicyOpinion{Policy: itself}.with(v)}, nil
	}
	var all []PolicyOpinion
	for _, f := range slices.Clone(p.ev.filters) {
		m := p.ev.members[f.member]
		verdict, _, err := p.ev.rejection([]filterRef{f}, n, false)
		if err != nil {
			if err = p.ignore(f.member, err); err != nil {
				return nil, err
			}
			continue
		}
		if !verdict.Fits() {
			all = append(all, PolicyOpinion{Policy: m.Name, Weight: m.Weight}.with(verdict))
		}
	}
	return all, nil
}

// ignore leaves out the failed member, or returns the error if it may not be ignored.
func (p *Probe) ignore(member int, err error) error {
	failure := (*PolicyError)(nil)
	if !errors.As(err, &failure) || p.ev.members[member].FailurePolicy != policy.Ignore {
		return err
	}
	p.ev.state[member].ignored = err
	p.ev.filters = slices.DeleteFunc(p.ev.filters, func(f filterRef) bool { return f.member == member })
	return nil
}

// Policies returns a copy of the policies of the Engine, for an Engine that differs in some of them.
func (e *Engine) Policies() []WeightedPolicy { return slices.Clone(e.members) }
