package firstfit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"outboard.dev/outboard/snapshot"
)

// Miss is why one device alone cannot serve a request.
type Miss struct {
	Pool, Device string
	// Reason is "" if the device can serve the request.
	Reason string
}

// Misses returns why each device of the node that the class of the request selects cannot serve the request of the claim; none if there
// is no such device. It describes the preferred alternative. A request may also fail because of the others of the pod.
func (r *Request) Misses(request *resourcev1.DeviceRequest, n *snapshot.Node) (misses []Miss, err error) {
	all := alternatives(request)
	if len(all) == 0 {
		return nil, nil
	}
	want := &all[0]
	for _, pool := range n.DevicePools() {
		counters := countersOf(&pool)
		for _, s := range pool.Slices {
			for i := range s.Spec.Devices {
				device := &s.Spec.Devices[i]
				is, err := r.selectors.match(r.classes[want.DeviceClassName].Spec.Selectors, pool.Driver, device)
				if err != nil {
					return nil, err
				}
				if !is {
					continue
				}
				reason, err := r.selectors.miss(want, &pool, device, counters)
				if err != nil {
					return nil, err
				}
				misses = append(misses, Miss{pool.Name, device.Name, reason})
			}
		}
	}
	return misses, nil
}

// match reports whether all selectors select the device.
func (c *selectors) match(all []resourcev1.DeviceSelector, driver string, d *resourcev1.Device) (bool, error) {
	for _, s := range all {
		if s.CEL == nil {
			return false, nil
		}
		compiled := c.compiled.GetOrCompile(s.CEL.Expression)
		if compiled.Error != nil {
			return false, compiled.Error
		}
		is, _, err := compiled.DeviceMatches(context.Background(), cel.Device{Driver: driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity})
		if !is || err != nil {
			return false, err
		}
	}
	return true, nil
}

// miss returns why the device cannot serve the request, or "".
func (c *selectors) miss(want *resourcev1.ExactDeviceRequest, pool *snapshot.DevicePool, d *resourcev1.Device, counters map[string]map[string]*counter) (string, error) {
	is, err := c.match(want.Selectors, pool.Driver, d)
	switch taint := untolerated(want, d); {
	case err != nil:
		return "", err
	case !is:
		return "not selected", nil
	case taint != "":
		return "tainted: " + taint, nil
	}
	var whole, shares []snapshot.DeviceAllocation
	for _, a := range pool.Allocated {
		if a.Result.Device != d.Name || a.Result.AdminAccess != nil && *a.Result.AdminAccess {
			continue
		}
		if a.Result.ShareID == nil {
			whole = append(whole, a)
		} else {
			shares = append(shares, a)
		}
	}
	if len(whole) > 0 {
		return "allocated to " + holders(whole, ""), nil
	}
	if d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations {
		for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
			if short := shortOf(want, name, d.Capacity[name], shares); short != "" {
				return short, nil
			}
		}
	}
	if len(shares) > 0 {
		return "", nil // its counters are consumed already
	}
	return shortOfCounters(d, counters), nil
}

func untolerated(want *resourcev1.ExactDeviceRequest, d *resourcev1.Device) string {
	for _, taint := range d.Taints {
		prevents := taint.Effect == resourcev1.DeviceTaintEffectNoSchedule || taint.Effect == resourcev1.DeviceTaintEffectNoExecute
		if prevents && !slices.ContainsFunc(want.Tolerations, func(t resourcev1.DeviceToleration) bool { return resourceclaim.ToleratesTaint(t, taint) }) {
			return taint.Key
		}
	}
	return ""
}

// shortOf returns that less of the capacity is free than is requested, or "". A request that names no amount takes the default, or all.
func shortOf(want *resourcev1.ExactDeviceRequest, name resourcev1.QualifiedName, capacity resourcev1.DeviceCapacity, shares []snapshot.DeviceAllocation) string {
	amount := capacity.Value
	if capacity.RequestPolicy != nil && capacity.RequestPolicy.Default != nil {
		amount = *capacity.RequestPolicy.Default
	}
	if want.Capacity != nil {
		if named, ok := want.Capacity.Requests[name]; ok {
			amount = named
		}
	}
	free := capacity.Value.DeepCopy()
	for _, a := range shares {
		free.Sub(a.Result.ConsumedCapacity[name])
	}
	if free.Cmp(amount) >= 0 {
		return ""
	}
	text := fmt.Sprintf("%s: %s of %s free", name, free.String(), capacity.Value.String())
	if len(shares) > 0 {
		text += "; held by " + holders(shares, name)
	}
	return text
}

// counter is what is free of a counter, and which claims hold the rest.
type counter struct {
	free resource.Quantity
	held []snapshot.DeviceAllocation
}

// countersOf returns the counters of the pool, by set and name.
func countersOf(pool *snapshot.DevicePool) map[string]map[string]*counter {
	sets := map[string]map[string]*counter{}
	devices := map[string]*resourcev1.Device{}
	for _, s := range pool.Slices {
		for _, set := range s.Spec.SharedCounters {
			sets[set.Name] = map[string]*counter{}
			for name, c := range set.Counters {
				sets[set.Name][name] = &counter{free: c.Value.DeepCopy()}
			}
		}
		for i := range s.Spec.Devices {
			devices[s.Spec.Devices[i].Name] = &s.Spec.Devices[i]
		}
	}
	seen := map[string]bool{}
	for _, a := range pool.Allocated {
		d := devices[a.Result.Device]
		if d == nil || seen[d.Name] {
			continue
		}
		seen[d.Name] = true
		for _, consumed := range d.ConsumesCounters {
			for name, c := range consumed.Counters {
				if of := sets[consumed.CounterSet][name]; of != nil {
					of.free.Sub(c.Value)
					of.held = append(of.held, a)
				}
			}
		}
	}
	return sets
}

func shortOfCounters(d *resourcev1.Device, counters map[string]map[string]*counter) string {
	for _, consumed := range d.ConsumesCounters {
		for _, name := range slices.Sorted(maps.Keys(consumed.Counters)) {
			of := counters[consumed.CounterSet][name]
			if wanted := consumed.Counters[name].Value; of != nil && of.free.Cmp(wanted) < 0 {
				return fmt.Sprintf("counter %s of %s: %s of %s free; held by %s", name, consumed.CounterSet, of.free.String(), wanted.String(), holders(of.held, ""))
			}
		}
	}
	return ""
}

// holders lists the claims, each with what it has of the capacity, if that is named.
func holders(of []snapshot.DeviceAllocation, capacity resourcev1.QualifiedName) string {
	const most = 4
	var texts []string
	for i, a := range of {
		if i == most {
			texts = append(texts, fmt.Sprintf("%d more", len(of)-most))
			break
		}
		text := a.Claim.Namespace + "/" + a.Claim.Name
		if amount, ok := a.Result.ConsumedCapacity[capacity]; ok {
			text += " (" + amount.String() + ")"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}
