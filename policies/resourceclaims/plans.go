package resourceclaims

import (
	"maps"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/snapshot"
)

// maxPlanBytes is about how many bytes of plans are kept. A plan takes planBytes, and more for its amounts.
const maxPlanBytes, planBytes = 8 << 20, 128

// plan is which devices of a node type each part of a request can get: see [firstfit.Request.Parts].
type plan [][]alternative

// alternative is one way in which a part can be served: so many devices of a subset.
type alternative struct {
	count    int
	eligible deviceSet // those that can be allocated if as much of them is free
	counted  bool      // some of them use counters
	amounts  []int64   // that it consumes, as in nodeDevices
}

// plans are those of one request, for each node type. They are safe for concurrent use.
type plans struct {
	policy *resourceClaims
	set    *attributeSet
	parts  [][]firstfit.Alternative

	mu    sync.Mutex
	alone map[string][][]single // by kind
	known atomic.Pointer[map[*nodeType]plan]
}

// single is what a part gets of a device that is not allocated.
type single struct {
	known, ok bool
	amounts   []int64 // nil: it is whole
}

// planCache keeps plans. It is safe for concurrent use.
type planCache struct {
	mu    sync.Mutex
	known map[firstfit.Key]*plans
	bytes int64
}

// plansOf returns the plans of the request, or nil if only the allocator can predict it.
func (p *resourceClaims) plansOf(r *firstfit.Request) *plans {
	c := &p.plans
	c.mu.Lock()
	ps, ok := c.known[r.Key()]
	c.mu.Unlock()
	if ok {
		return ps
	}
	size := int64(planBytes)
	for _, claim := range r.Claims() {
		size += snapshot.SizeOf(claim)
	}
	ps = p.newPlans(r)
	c.grow(size)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[r.Key()] = ps
	return ps
}

// newPlans returns the plans of the request, none of which is made yet, or nil.
func (p *resourceClaims) newPlans(r *firstfit.Request) *plans {
	parts, ok := r.Parts()
	if !ok {
		return nil
	}
	names, ok := r.Reads()
	if !ok {
		return nil
	}
	ps := &plans{policy: p, set: p.sets.of(names), parts: parts, alone: map[string][][]single{}}
	ps.known.Store(&map[*nodeType]plan{})
	return ps
}

// grow makes room for more bytes of plans.
func (c *planCache) grow(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes += bytes; c.known == nil || c.bytes > maxPlanBytes {
		c.known, c.bytes = map[firstfit.Key]*plans{}, bytes
	}
}

// of returns the plan for nodes with the devices, or nil.
func (ps *plans) of(nt *nodeType) plan {
	if known, ok := (*ps.known.Load())[nt]; ok {
		return known
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	last := *ps.known.Load()
	if known, ok := last[nt]; ok {
		return known
	}
	next := maps.Clone(last)
	next[nt] = ps.planFor(*nt)
	ps.policy.plans.grow(next[nt].size())
	ps.known.Store(&next)
	return next[nt]
}

// planFor makes the plan for nodes with the devices; nil if only the allocator can predict them.
func (ps *plans) planFor(nt nodeType) plan {
	p := make(plan, len(ps.parts))
	for i, part := range ps.parts {
		p[i] = make([]alternative, len(part))
		for j := range part {
			p[i][j].count = part[j].Count
		}
	}
	for at, k := range nt {
		of, ok := ps.alone[k.key]
		if !ok {
			of = ps.policy.singles(k, ps.parts)
			ps.alone[k.key] = of
			ps.policy.plans.grow(planBytes + int64(len(k.key)) + snapshot.SizeOf(k.device))
		}
		for i, part := range p {
			for j := range part {
				s, a := &of[i][j], &part[j]
				if !s.known {
					return nil
				}
				if s.ok {
					a.eligible.add(at)
					a.counted = a.counted || k.counted
				}
				if k.counted {
					continue
				}
				a.amounts = append(a.amounts, make([]int64, len(k.device.Capacity))...)
				copy(a.amounts[len(a.amounts)-len(k.device.Capacity):], s.amounts)
			}
		}
	}
	return p
}

// size returns about how many bytes the plan takes.
func (p plan) size() int64 {
	sum := int64(planBytes)
	for _, part := range p {
		for i := range part {
			sum += planBytes + 8*int64(len(part[i].amounts))
		}
	}
	return sum
}

// singles returns what the allocator gives to each part if a node has one device of the kind, and nothing else.
func (p *resourceClaims) singles(k *kind, parts [][]firstfit.Alternative) [][]single {
	name := "n"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec = resourcev1.ResourceSliceSpec{Driver: k.driver, NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, ResourceSliceCount: 1}, Devices: []resourcev1.Device{*k.device}}
	pools := []snapshot.DevicePool{{Driver: k.driver, Name: name, Slices: []*resourcev1.ResourceSlice{s}}}
	all := make([][]single, len(parts))
	for i, part := range parts {
		for _, a := range part {
			results, err := p.predictor.AllocateEmpty(a.Alone, node, pools)
			of := single{known: err == nil, ok: len(results) > 0}
			if of.ok {
				of.amounts, of.known = consumedAmounts(k.device, &results[0].Devices.Results[0])
			}
			all[i] = append(all[i], of)
		}
	}
	return all
}

// consumedAmounts returns what the result consumes of each capacity of the device.
func consumedAmounts(d *resourcev1.Device, r *resourcev1.DeviceRequestAllocationResult) (amounts []int64, ok bool) {
	if r.ShareID == nil {
		return nil, true
	}
	for _, name := range sortedNames(d.Capacity) {
		consumed := r.ConsumedCapacity[name]
		value, ok := consumed.AsInt64()
		if !ok || value < 0 { // it is at most the capacity, which addPool has checked
			return nil, false
		}
		amounts = append(amounts, value)
	}
	return amounts, true
}
