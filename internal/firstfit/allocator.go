package firstfit

// Only this file uses the types of kube-scheduler's allocator, which change with minor versions of
// Kubernetes.

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"

	"outboard.dev/outboard/snapshot"
)

// features are those of kube-scheduler 1.37 by default.
var features = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true, FractionalCapacityRange: true,
	PartitionableDevices: true, PrioritizedList: true,
}

// nodeState is what the allocator needs to know of a node.
type nodeState struct {
	slices    []*resourcev1.ResourceSlice
	allocated structured.AllocatedState
}

// stateOf returns the state with what is allocated of the pools, or without.
func stateOf(pools []snapshot.DevicePool, used bool) *nodeState {
	s := &nodeState{allocated: structured.AllocatedState{
		AllocatedDevices: sets.Set[structured.DeviceID]{}, AllocatedSharedDeviceIDs: sets.Set[structured.SharedDeviceID]{}, AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}}
	for _, pool := range pools {
		s.slices = append(s.slices, pool.Slices...)
		if !used {
			continue
		}
		for _, a := range pool.Allocated {
			device := structured.MakeDeviceID(a.Result.Driver, a.Result.Pool, a.Result.Device)
			switch {
			case a.Result.AdminAccess != nil && *a.Result.AdminAccess: // uses nothing up
			case a.Result.ShareID == nil:
				s.allocated.AllocatedDevices.Insert(device)
			default:
				s.allocated.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(device, a.Result.ShareID))
				if a.Result.ConsumedCapacity != nil {
					s.allocated.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(device, a.Result.ConsumedCapacity))
				}
			}
		}
	}
	return s
}

// appendAllocated appends what is allocated of the device.
func (s *nodeState) appendAllocated(to []byte, driver, pool, device string) []byte {
	id := structured.MakeDeviceID(driver, pool, device)
	if !structured.IsDeviceAllocated(id, &s.allocated) {
		return to
	}
	consumed := s.allocated.AggregatedCapacity[id]
	to = fmt.Appendf(to, "%t %d;", s.allocated.AllocatedDevices.Has(id), len(consumed))
	for _, name := range slices.Sorted(maps.Keys(consumed)) {
		to = fmt.Appendf(to, "%q %s;", name, consumed[name])
	}
	return to
}

// selectable returns the device as selectors read it.
func selectable(driver string, d *resourcev1.Device) cel.Device {
	return cel.Device{
		Driver: driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
	}
}

// Get implements structured.DeviceClassLister.
func (r *Request) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := r.classes[name]; class != nil {
		return class, nil
	}
	return nil, apierrors.NewNotFound(resourcev1.Resource("deviceclasses"), name)
}

// List implements structured.DeviceClassLister. The allocator does not call it.
func (r *Request) List() ([]*resourcev1.DeviceClass, error) { return nil, nil }

func (p *Predictor) allocate(r *Request, node *corev1.Node, state *nodeState) ([]resourcev1.AllocationResult, error) {
	if len(state.slices) == 0 {
		return nil, nil
	}
	ctx := klog.NewContext(context.Background(), klog.Logger{}) // it logs each step
	allocator, err := structured.NewAllocator(ctx, features, state.allocated, r, state.slices, p.compiled)
	if err != nil {
		return nil, err
	}
	return allocator.Allocate(&budget{ctx, r.steps, r.steps}, node, r.claims)
}
