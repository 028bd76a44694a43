package resourceclaims

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/internal/placement/strategy"
	"outboard.dev/outboard/snapshot"
)

// free describes the node for the strategy: what is free of its processors and memory, and of the
// driver's devices. Devices that are not alike are not described.
func (p *resourceClaims) free(n *snapshot.Node) placement.Node {
	free := strategy.FreeOn(n, func(pod *corev1.Pod) bool { return len(pod.Spec.ResourceClaims) > 0 })
	if d := p.describe(hardwareOf(p.poolsOf(n))); d != nil {
		free.Model, free.GPUs, free.Parts = d.model, d.gpus, d.parts
	}
	free.FirstFit = true
	return free
}

// poolsOf returns the node's pools of the driver.
func (p *resourceClaims) poolsOf(n *snapshot.Node) (own []snapshot.DevicePool) {
	for _, pool := range n.DevicePools() {
		if pool.Driver == p.config.ScoringStrategy.Driver {
			own = append(own, pool)
		}
	}
	return own
}

// described are the driver's devices of a node. Invariant: it has either gpus or parts, and place
// has every device.
type described struct {
	model string
	gpus  []placement.GPU
	parts *placement.Partitioned
	place map[id]placement.Device // without a Partition in gpus
}

// describe describes the devices with what is free of them; nil if there are none, or if they are
// not alike: of one model, all with counters or none, all shared or none.
func (p *resourceClaims) describe(h *hardware) *described {
	if len(h.devices) == 0 {
		return nil
	}
	first := h.devices[0]
	d := &described{model: p.modelOf(first), place: map[id]placement.Device{}}
	parts := len(first.ConsumesCounters) > 0
	for _, other := range h.devices {
		if p.modelOf(other) != d.model || other.shared() != first.shared() || len(other.ConsumesCounters) > 0 != parts {
			return nil
		}
	}
	// Nodes of the model with other devices are of another kind.
	switch {
	case parts && first.shared(), !parts && len(h.devices) > placement.MaxGPUs:
		return nil
	case parts:
		if !d.describeParts(h.devices, p.layouts) {
			return nil
		}
		return d
	case first.shared():
		d.model += ", shared"
	}
	for i, device := range h.devices {
		size, used := device.units[0].memory()
		gpu := placement.GPU{Free: max(0, size-used), Size: size}
		if device.tainted() {
			gpu.Free = 0
		}
		d.gpus = append(d.gpus, gpu)
		d.place[device.id] = placement.Device{GPU: i}
	}
	return d
}

// modelOf returns the model of the device, or the driver if the device does not name one.
func (p *resourceClaims) modelOf(d *device) string {
	s := &p.config.ScoringStrategy
	for _, name := range []string{s.ModelAttribute, s.Driver + "/" + s.ModelAttribute} {
		if a, ok := d.Attributes[resourcev1.QualifiedName(name)]; ok && a.StringValue != nil {
			return *a.StringValue
		}
	}
	return s.Driver
}

// consumed returns how much memory the result consumes; 0 means the whole device.
func consumed(r *resourcev1.DeviceRequestAllocationResult) int64 {
	if r.ShareID == nil {
		return 0
	}
	amount, _ := memoryIn(r.ConsumedCapacity, r.Driver)
	return max(0, amount.Value())
}
