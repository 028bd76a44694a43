package firstfit

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

// Whoever may create claims determines how long an allocation takes: by selectors, which may cost a
// million units of CEL for each device, and by constraints, which may make the allocator try all
// combinations of devices. A prediction that costs more than these limits is given up. All count
// work and not time, so that the same view gives the same prediction.
const (
	// maxSelectorCost is the maximum estimated cost of all selectors of a request for one device. A
	// usual selector costs about 10.
	maxSelectorCost = 2000
	// maxSteps is the maximum number of steps of the allocator for one node: it usually takes one
	// for each device that it allocates.
	maxSteps = 1000
	// maxWork bounds the work on all nodes together: a step looks at each device of the node, in
	// about a microsecond.
	maxWork = 1 << 21
	// minSteps is enough for usual claims, whatever the number of devices: these look at each
	// device only once.
	minSteps = 16
	// stepCost is the cost of selectors that take as long as a step takes for one device.
	stepCost = 32
)

// ErrTooManySteps is in the error of Allocate if a node has too many possible allocations.
var ErrTooManySteps = errors.New("too many combinations of devices to try")

// budget is a context that ends when it was asked often enough whether it has ended: the allocator
// asks in each step.
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
// many devices in all. They count by their power of two, so that the key of a request seldom
// changes.
func (r *Request) setSteps(devices int) error {
	steps, cost := max(minSteps, maxWork>>bits.Len(uint(devices))), int(r.cost/stepCost)
	if cost >= steps {
		return fmt.Errorf("the selectors of the ResourceClaims cost too much for %d devices", devices)
	}
	r.steps = min(max(minSteps, steps-cost), maxSteps)
	return nil
}

// readSelectors sets what the request costs and reads, or returns an error if it costs too much.
func (r *Request) readSelectors() error {
	for _, class := range r.classes {
		r.addSelectors(class.Spec.Selectors)
	}
	for _, claim := range r.claims {
		for i := range claim.Spec.Devices.Requests {
			for _, alternative := range alternatives(&claim.Spec.Devices.Requests[i]) {
				r.addSelectors(alternative.Selectors)
			}
		}
		for _, c := range claim.Spec.Devices.Constraints {
			for _, name := range []*resourcev1.FullyQualifiedName{c.MatchAttribute, c.DistinctAttribute} {
				if name != nil {
					r.reads = append(r.reads, localName(string(*name)))
				}
			}
		}
	}
	if r.cost > maxSelectorCost {
		return fmt.Errorf("the selectors of the ResourceClaims may cost more than %d units of CEL for each device", maxSelectorCost)
	}
	return nil
}

func (r *Request) addSelectors(all []resourcev1.DeviceSelector) {
	for _, s := range all {
		if s.CEL != nil {
			of := r.predictor.selector(s.CEL.Expression)
			r.cost += min(of.cost, maxSelectorCost+1)
			r.reads, r.readsAll = append(r.reads, of.reads...), r.readsAll || of.readsAll
		}
	}
}

// selector is what selectors cost and read.
type selector struct {
	cost     uint64   // estimated, for one device
	reads    []string // the local names of attributes
	readsAll bool     // it may read any attribute
}

func (p *Predictor) selector(expression string) *selector {
	if known, ok := p.selectors.Get(expression); ok {
		return known.(*selector)
	}
	found := &selector{cost: cel.GetCompiler(celFeatures).CompileCELExpression(expression, cel.Options{}).MaxCost}
	found.reads, found.readsAll = readsOf(expression)
	p.selectors.Add(expression, found)
	return found
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
