package resourceclaims

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// maxListed is how many devices of a node are listed for one request, and maxHolders how many
// claims for a device.
const maxListed, maxHolders = 16, 4

func (c *cycle) Explain(n *snapshot.Node) []string {
	switch {
	case n == nil && c.unknown != nil:
		return []string{fmt.Sprintf("scores: unknown (%v)", c.unknown)}
	case n == nil && c.policy.ranker != nil:
		return []string{"scores: BinPack (LeastWaste does not describe the claims)"}
	case n == nil || c.unknown != nil:
		return nil
	}
	return c.policy.explain(c.request, n)
}

func (r *ranking) Explain(n *snapshot.Node) []string {
	rated, _ := r.Ranking.Explain(n)
	if n == nil || r.request == nil {
		return rated
	}
	return append(r.policy.explain(r.request, n), rated...)
}

// explain says which devices of the node the request would get, or what each device lacks.
func (p *resourceClaims) explain(request *firstfit.Request, n *snapshot.Node) []string {
	results, err := p.predictor.Allocate(request, n)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("the claims: unknown (%v)", err)}
	case results == nil:
		return explainMisses(request, n)
	}
	var lines []string
	for i, claim := range request.Claims() {
		var devices []string
		for j := range results[i].Devices.Results {
			devices = append(devices, describe(&results[i].Devices.Results[j]))
		}
		lines = append(lines, fmt.Sprintf("claim %s: would get %s", claim.Name, policy.Join(devices, maxListed)))
	}
	if used, capacity := usageWith(n, devicesOf(results)); capacity > 0 {
		lines = append(lines, fmt.Sprintf("devices of the node: %d.%d of %d used then", used/whole, used%whole*10/whole, capacity/whole))
	}
	return lines
}

// describe names the device that a request gets, and how much of it.
func describe(r *resourcev1.DeviceRequestAllocationResult) string {
	if len(r.ConsumedCapacity) == 0 {
		return r.Device
	}
	var amounts []string
	for _, name := range slices.Sorted(maps.Keys(r.ConsumedCapacity)) {
		amount := r.ConsumedCapacity[name]
		amounts = append(amounts, fmt.Sprintf("%s of its %s", amount.String(), name))
	}
	return fmt.Sprintf("%s (%s)", r.Device, strings.Join(amounts, ", "))
}

// explainMisses says for each request of the pod which devices of the node there are, and why each
// of them cannot serve the preferred alternative.
func explainMisses(of *firstfit.Request, n *snapshot.Node) []string {
	if len(n.DevicePools()) == 0 {
		return []string{"the node: has no devices of its own (scores do not count devices that several nodes share)"}
	}
	var lines []string
	h := hardwareOf(n.DevicePools())
	for _, claim := range of.Claims() {
		for i := range claim.Spec.Devices.Requests {
			request := &claim.Spec.Devices.Requests[i]
			devices, err := h.misses(of, firstfit.Preferred(request))
			what := fmt.Sprintf("claim %s, request %s", claim.Name, request.Name)
			switch {
			case err != nil:
				lines = append(lines, fmt.Sprintf("%s: unknown (%v)", what, err))
			case len(devices) == 0:
				lines = append(lines, what+": no device of the node is of the class")
			default:
				lines = append(lines, fmt.Sprintf("%s: %s", what, policy.Join(devices, maxListed)))
			}
		}
	}
	return lines
}

// misses names the devices of the class, each with why it alone cannot serve what is wanted.
func (h *hardware) misses(of *firstfit.Request, want *resourcev1.ExactDeviceRequest) (devices []string, err error) {
	for _, d := range h.devices {
		class, selected, err := of.Selects(want, d.driver, d.Device)
		if err != nil {
			return nil, err
		}
		reason := "not selected"
		if selected {
			reason = d.miss(want)
		}
		if class {
			devices = append(devices, fmt.Sprintf("%s (%s)", d.Name, reason))
		}
	}
	return devices, nil
}

// miss returns why the selected device alone cannot serve what is wanted.
func (d *device) miss(want *resourcev1.ExactDeviceRequest) string {
	for _, taint := range d.Taints {
		tolerates := func(t resourcev1.DeviceToleration) bool { return resourceclaim.ToleratesTaint(t, taint) }
		if taint.Effect != resourcev1.DeviceTaintEffectNone && !slices.ContainsFunc(want.Tolerations, tolerates) {
			return "tainted: " + taint.Key
		}
	}
	others := func(a snapshot.DeviceAllocation) bool { return a.Result.Device != d.Name }
	held := slices.DeleteFunc(slices.Clone(d.units[0].held), others)
	if len(held) > 0 && held[0].Result.ShareID == nil {
		return "allocated to " + holders(held, "")
	}
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		capacity, free := d.Capacity[name], d.Capacity[name].Value.DeepCopy()
		for _, a := range held {
			free.Sub(a.Result.ConsumedCapacity[name])
		}
		if d.shared() && free.Cmp(amountWanted(want, name, capacity)) < 0 {
			return fmt.Sprintf("%s: %s", name, short(free, capacity.Value, held, name))
		}
	}
	for i := range d.ConsumesCounters {
		consumes := &d.ConsumesCounters[i]
		for _, name := range slices.Sorted(maps.Keys(consumes.Counters)) {
			wanted := consumes.Counters[name].Value
			if free := d.units[i].free(name); !d.cut && free.Cmp(wanted) < 0 {
				return fmt.Sprintf("counter %s of %s: %s", name, consumes.CounterSet, short(free, wanted, d.units[i].held, ""))
			}
		}
	}
	return "can serve it alone"
}

// amountWanted returns how much is wanted of the capacity. A request that names no amount takes the
// default, or all.
func amountWanted(
	want *resourcev1.ExactDeviceRequest, name resourcev1.QualifiedName, of resourcev1.DeviceCapacity,
) resource.Quantity {
	if want.Capacity != nil {
		if amount, ok := want.Capacity.Requests[name]; ok {
			return amount
		}
	}
	if of.RequestPolicy != nil && of.RequestPolicy.Default != nil {
		return *of.RequestPolicy.Default
	}
	return of.Value
}

// short says how much is free, and which claims hold the rest.
func short(free, of resource.Quantity, held []snapshot.DeviceAllocation, capacity resourcev1.QualifiedName) string {
	text := fmt.Sprintf("%s of %s free", free.String(), of.String())
	if len(held) > 0 {
		text += "; held by " + holders(held, capacity)
	}
	return text
}

// holders lists the claims, each with what it has of the capacity, if that is named.
func holders(of []snapshot.DeviceAllocation, capacity resourcev1.QualifiedName) string {
	var texts []string
	for _, a := range of {
		text := a.Claim.Namespace + "/" + a.Claim.Name
		if amount, ok := a.Result.ConsumedCapacity[capacity]; ok {
			text += " (" + amount.String() + ")"
		}
		texts = append(texts, text)
	}
	return policy.Join(texts, maxHolders)
}
