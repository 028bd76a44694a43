package firstfit

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

// Whoever may create claims determines how long an allocation takes: by selectors, which may cost a million units of CEL for each device,
// and by constraints, which may make the allocator try all combinations of devices. A prediction that costs more than these limits is
// given up. All count work and not time, so that the same view gives the same prediction.
const (
	// maxSelectorCost is the maximum estimated cost of all selectors of a request for one device. A usual selector costs about 10.
	maxSelectorCost = 2000
	// maxSteps is the maximum number of steps of the allocator for one node: it usually takes one for each device that it allocates.
	maxSteps = 1000
	// maxWork bounds the work on all nodes together: a step looks at each device of the node, in about
	// a microsecond.
	maxWork = 1 << 21
	// stepCost is the cost of selectors that take as long as a step takes for one device.
	stepCost = 32
)

// ErrTooManySteps is in the error of Allocate if a node has too many possible allocations.
var ErrTooManySteps = errors.New("too many combinations of devices to try")

// budget is a context that ends when it was asked often enough whether it has ended: the allocator asks in each step.
type budget struct {
	context.Context
	left, limit int
}

// Err implements context.Context.
func (b *budget) Err() error {
	if b.left--; b.left < 0 {
		return fmt.Errorf("%w: more than %d steps", ErrTooManySteps, b.limit)
	}
	return nil
}

// setSteps sets how many steps the allocator may take on a node, if it is called for nodes with so
// many devices in all. They count by their power of two, so that the key of a request seldom changes.
func (r *Request) setSteps(devices int) error {
	steps := maxWork>>bits.Len(uint(devices)) - int(r.cost/stepCost)
	if steps <= 0 {
		return fmt.Errorf("the selectors of the ResourceClaims cost too much for %d devices", devices)
	}
	r.steps = min(steps, maxSteps)
	return nil
}

// affordable returns an error if the selectors of the request cost too much.
func (r *Request) affordable() error {
	sum := uint64(0)
	add := func(all []resourcev1.DeviceSelector) {
		for _, s := range all {
			if s.CEL != nil {
				sum += min(r.selectors.costOf(s.CEL.Expression), maxSelectorCost+1)
			}
		}
	}
	for _, class := range r.classes {
		add(class.Spec.Selectors)
	}
	for _, claim := range r.claims {
		for _, request := range claim.Spec.Devices.Requests {
			for _, sub := range alternatives(&request) {
				add(sub.Selectors)
			}
		}
	}
	r.cost = sum
	if sum > maxSelectorCost {
		return fmt.Errorf("the selectors of the ResourceClaims may cost more than %d units of CEL for each device", maxSelectorCost)
	}
	return nil
}

// costOf returns the estimated cost of a selector.
func (s *selectors) costOf(expression string) uint64 {
	if known, ok := s.costs.Get(expression); ok {
		return known.(uint64)
	}
	compiled := cel.GetCompiler(celFeatures).CompileCELExpression(expression, cel.Options{})
	s.costs.Add(expression, compiled.MaxCost)
	return compiled.MaxCost
}

// alternatives returns what the request asks for, the preferred alternative first, in one form.
func alternatives(r *resourcev1.DeviceRequest) []resourcev1.ExactDeviceRequest {
	if r.Exactly != nil {
		return []resourcev1.ExactDeviceRequest{*r.Exactly}
	}
	all := make([]resourcev1.ExactDeviceRequest, len(r.FirstAvailable))
	for i, sub := range r.FirstAvailable {
		all[i] = resourcev1.ExactDeviceRequest{
			DeviceClassName: sub.DeviceClassName, Selectors: sub.Selectors, AllocationMode: sub.AllocationMode, Count: sub.Count,
			Tolerations: sub.Tolerations, Capacity: sub.Capacity, DerivedAttributes: sub.DerivedAttributes,
		}
	}
	return all
}
