package resourceclaims

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// maxListed is how many devices of a node are listed for one request.
const maxListed = 16

// Explain implements policy.Explainer.
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

// Explain implements policy.Explainer.
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
	if u := usageWith(n, devicesOf(results)); u.capacity > 0 {
		lines = append(lines, fmt.Sprintf("devices of the node: %d.%d of %d used then", u.used/whole, u.used%whole*10/whole, u.capacity/whole))
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

// explainMisses says for each request of the pod which devices of the node there are, and why each of them cannot serve it.
func explainMisses(of *firstfit.Request, n *snapshot.Node) []string {
	if len(n.DevicePools()) == 0 {
		return []string{"the node: has no devices of its own (scores do not count devices that several nodes share)"}
	}
	var lines []string
	for _, claim := range of.Claims() {
		for i := range claim.Spec.Devices.Requests {
			request := &claim.Spec.Devices.Requests[i]
			misses, err := of.Misses(request, n)
			what := fmt.Sprintf("claim %s, request %s", claim.Name, request.Name)
			if err != nil {
				lines = append(lines, fmt.Sprintf("%s: unknown (%v)", what, err))
				continue
			}
			var devices []string
			for _, m := range misses {
				if m.Reason == "" {
					m.Reason = "can serve it alone"
				}
				devices = append(devices, fmt.Sprintf("%s (%s)", m.Device, m.Reason))
			}
			if len(devices) == 0 {
				devices = []string{"no device of the node is of the class"}
			}
			lines = append(lines, fmt.Sprintf("%s: %s", what, policy.Join(devices, maxListed)))
		}
	}
	return lines
}
