package remedy

import (
	"slices"

	"outboard.dev/outboard/internal/engine"
)

// policies returns the policy that alone rejects the most nodes, which have enough for kube-scheduler.
func (s *search) policies() ([]Remedy, error) {
	var best *Remedy
	complete := true
	for _, p := range s.Engine.Policies() {
		found, enough, err := s.without(p.Name)
		if err != nil {
			return nil, err
		}
		if complete = complete && enough; found != nil && (best == nil || found.Nodes > best.Nodes) {
			best = found
		}
	}
	if best == nil {
		return nil, nil
	}
	best.Smallest = complete
	return []Remedy{*best}, nil
}

// without returns the nodes on which the pod fits without the policy, or nil if there are none.
func (s *search) without(name string) (found *Remedy, complete bool, err error) {
	alone := func(b *blocked) bool { return b.lacks == "" && len(b.rejecting) == 1 && b.rejecting[0].Policy == name }
	if !slices.ContainsFunc(s.blocked, func(b blocked) bool { return alone(&b) }) {
		return nil, true, nil
	}
	others := slices.DeleteFunc(s.Engine.Policies(), func(p engine.WeightedPolicy) bool { return p.Name == name })
	e, err := engine.New(engine.Options{Policies: others})
	if err != nil {
		return nil, false, err
	}
	if !s.spend(prepareCost) {
		return nil, false, nil
	}
	t, err := s.try(e, s.pod, s.View)
	if err != nil {
		return nil, false, err
	}
	for i := range s.blocked {
		b, n := &s.blocked[i], s.selected[i]
		if !alone(b) {
			continue
		}
		if !s.spend(1) {
			return found, false, nil
		}
		fits, err := t.fits(n)
		if err != nil {
			return nil, false, err
		}
		if !fits {
			continue
		}
		rejection := &b.rejecting[0]
		if found == nil {
			found = &Remedy{Kind: Policy, Node: n.Name, Rejection: rejection}
		} else if distance(rejection) < distance(found.Rejection) {
			found.Node, found.Rejection = n.Name, rejection
		}
		found.Nodes++
	}
	return found, true, nil
}
