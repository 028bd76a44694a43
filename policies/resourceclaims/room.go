package resourceclaims

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/internal/placement/strategy"
	"outboard.dev/outboard/snapshot"
)

// room describes the node for the strategy: what is free of its processors and memory, and of the
// driver's devices. Devices that are not alike are not described.
func (p *resourceClaims) room(n *snapshot.Node) placement.Node {
	room := strategy.Room(n)
	if d := p.describe(n.DevicePools(), true); d != nil {
		room.Model, room.GPUs, room.Parts = d.model, d.gpus, d.parts
	}
	room.FirstFit = true
	return room
}

// described are the driver's devices of a node: either gpus or parts.
type described struct {
	model string
	gpus  []placement.GPU
	parts *placement.Partitioned
	index map[deviceID]int              // in gpus
	part  map[deviceID]placement.Device // of parts
}

// describe returns the driver's devices in the order in which kube-scheduler tries them, without
// what is allocated unless used is true; nil if there are none, or if they are not alike: of one
// model, all with counters or none, all shared or none.
func (p *resourceClaims) describe(pools []snapshot.DevicePool, used bool) *described {
	var devices []ownDevice
	for i := range pools {
		if pools[i].Driver != p.config.ScoringStrategy.Driver {
			continue
		}
		for _, s := range pools[i].Slices {
			for j := range s.Spec.Devices {
				devices = append(devices, ownDevice{&s.Spec.Devices[j], &pools[i]})
			}
		}
	}
	if len(devices) == 0 {
		return nil
	}
	d := &described{model: p.modelOf(devices[0].Device), index: map[deviceID]int{}, part: map[deviceID]placement.Device{}}
	shared, parts := isShared(devices[0].Device), len(devices[0].ConsumesCounters) > 0
	for _, other := range devices {
		if p.modelOf(other.Device) != d.model || isShared(other.Device) != shared || len(other.ConsumesCounters) > 0 != parts {
			return nil
		}
	}
	ok := false
	switch {
	case parts && shared:
	case parts:
		ok = d.describeParts(devices, &p.layouts)
	default:
		ok = d.describeGPUs(devices)
	}
	if !ok {
		return nil
	}
	if used {
		for i := range pools {
			if pools[i].Driver == p.config.ScoringStrategy.Driver && !d.take(&pools[i]) {
				return nil
			}
		}
	}
	return d
}

// ownDevice is a device of the driver, with its pool.
type ownDevice struct {
	*resourcev1.Device
	pool *snapshot.DevicePool
}

func (d ownDevice) id() deviceID { return deviceID{d.pool.Driver, d.pool.Name, d.Name} }

// tainted reports whether usual claims, which tolerate no taint, cannot have the device.
func (d ownDevice) tainted() bool {
	return slices.ContainsFunc(d.Taints, func(t resourcev1.DeviceTaint) bool { return t.Effect != resourcev1.DeviceTaintEffectNone })
}

// modelOf returns the model of the device, or the driver if the device does not name one.
func (p *resourceClaims) modelOf(d *resourcev1.Device) string {
	s := &p.config.ScoringStrategy
	for _, name := range []string{s.ModelAttribute, s.Driver + "/" + s.ModelAttribute} {
		if a, ok := d.Attributes[resourcev1.QualifiedName(name)]; ok && a.StringValue != nil {
			return *a.StringValue
		}
	}
	return s.Driver
}

// amountOf returns what the device has of its memory, or 1 if it has none: then it can only be
// allocated as a whole.
func amountOf(d ownDevice) int64 {
	if c, ok := memoryIn(d.Capacity, d.pool.Driver); ok {
		return c.Value.Value()
	}
	return 1
}

// consumed returns how much memory the result consumes; 0 means the whole device.
func consumed(r *resourcev1.DeviceRequestAllocationResult) int64 {
	if r.ShareID == nil {
		return 0
	}
	amount, _ := memoryIn(r.ConsumedCapacity, r.Driver)
	return max(0, amount.Value())
}

// describeGPUs describes devices that are allocated as a whole or by their memory. ok is false if
// there are too many, or one has a memory of 0.
func (d *described) describeGPUs(devices []ownDevice) (ok bool) {
	if len(devices) > placement.MaxGPUs {
		return false
	}
	for i, device := range devices {
		size := amountOf(device)
		if size <= 0 {
			return false
		}
		gpu := placement.GPU{Free: size, Size: size}
		if device.tainted() {
			gpu.Free = 0
		}
		d.gpus = append(d.gpus, gpu)
		d.index[device.id()] = i
	}
	if isShared(devices[0].Device) {
		d.model += ", shared" // nodes of the model with other devices are of another kind
	}
	return true
}

// take takes what is allocated of the pool; ok is false if that is not possible: hardware has
// changed.
func (d *described) take(pool *snapshot.DevicePool) (ok bool) {
	for _, a := range pool.Allocated {
		id := deviceID{a.Result.Driver, a.Result.Pool, a.Result.Device}
		if isAdmin(a.Result) {
			continue
		}
		if part, known := d.part[id]; known {
			state, fits := d.parts.Layout.Take(d.parts.GPUs[part.GPU], part.Partition)
			if !fits {
				return false
			}
			d.parts.GPUs[part.GPU] = state
		}
		if i, known := d.index[id]; known {
			gpu := &d.gpus[i]
			if amount := consumed(a.Result); amount > 0 {
				gpu.Free = max(0, gpu.Free-amount)
			} else {
				gpu.Free = 0
			}
		}
	}
	return true
}
