package whatif

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/snapshot"
)

// predictor is what kube-scheduler allocates. It keeps compiled selectors, and what it needs to
// know of each node.
var predictor = firstfit.New()

// allocateCost is that of a prediction for one node.
const allocateCost = 50

// FindClaims returns, for each capacity in each request of the pod's ResourceClaims, the largest
// amount with which kube-scheduler can allocate all of them on a node where the pod fits otherwise.
// It returns nil if they can be allocated as they are, and if that is not known. The error is as
// for [Find].
func FindClaims(ctx context.Context, c Cluster, pod *corev1.Pod) ([]Remedy, error) {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil, nil
	}
	r, err := predictor.Request(pod, c.View)
	if r == nil || err != nil {
		return nil, nil //nolint:nilerr // explanations of the policy have the reason
	}
	s, err := newSearch(ctx, c, pod)
	if err != nil {
		return nil, err
	}
	var nodes []*snapshot.Node
	for i, n := range s.selected {
		if b := &s.blocked[i]; b.lacks == "" && len(b.rejecting) == 0 && len(n.DevicePools()) > 0 {
			nodes = append(nodes, n)
		}
	}
	if s.left = c.Budget; c.Budget == 0 {
		s.left = DefaultBudget
	}
	if node, complete := s.allocates(r, nodes); node != "" || !complete {
		return nil, context.Cause(ctx)
	}
	var all []Remedy
	for i, claim := range r.Claims() {
		for j := range claim.Spec.Devices.Requests {
			exactly := claim.Spec.Devices.Requests[j].Exactly
			if exactly == nil || exactly.Capacity == nil {
				continue
			}
			for name := range exactly.Capacity.Requests {
				found, err := s.lessOf(amountOf{r, i, j, name}, nodes)
				if err != nil {
					return nil, err
				}
				if found != nil {
					all = append(all, *found)
				}
			}
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	slices.SortFunc(all, func(a, b Remedy) int {
		return slices.Compare([]string{a.Claim, a.Request, a.Capacity}, []string{b.Claim, b.Request, b.Capacity})
	})
	return all, nil
}

// amountOf is the amount of one capacity in one request of a claim.
type amountOf struct {
	of             *firstfit.Request
	claim, request int // indexes
	capacity       resourcev1.QualifiedName
}

func (a *amountOf) exactly(claim *resourcev1.ResourceClaim) *resourcev1.ExactDeviceRequest {
	return claim.Spec.Devices.Requests[a.request].Exactly
}

// with returns the request with this amount.
func (a *amountOf) with(amount resource.Quantity) (*firstfit.Request, error) {
	claim := a.of.Claims()[a.claim].DeepCopy()
	a.exactly(claim).Capacity.Requests[a.capacity] = amount
	return a.of.WithClaim(a.claim, claim)
}

// lessOf tries what is free of the capacity on some device, the largest amount first: with any
// amount between two of them, the same devices have enough.
func (s *search) lessOf(a amountOf, nodes []*snapshot.Node) (*Remedy, error) {
	claim := a.of.Claims()[a.claim]
	exactly := a.exactly(claim)
	from := exactly.Capacity.Requests[a.capacity]
	free := map[*snapshot.Node][]resource.Quantity{}
	var amounts []resource.Quantity
	for _, n := range nodes {
		if !s.spend(1) {
			return nil, nil
		}
		for _, amount := range freeOf(n, a.capacity) {
			free[n] = append(free[n], amount)
			if amount.Sign() > 0 && amount.Cmp(from) < 0 {
				amounts = append(amounts, amount)
			}
		}
	}
	slices.SortFunc(amounts, func(a, b resource.Quantity) int { return b.Cmp(a) })
	amounts = slices.CompactFunc(amounts, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
	for _, amount := range amounts {
		if !s.spend(s.prepare + len(nodes)) {
			return nil, nil
		}
		less, err := a.with(amount)
		if err != nil {
			return nil, err
		}
		enough := slices.DeleteFunc(slices.Clone(nodes), func(n *snapshot.Node) bool {
			devices := slices.DeleteFunc(slices.Clone(free[n]), func(q resource.Quantity) bool { return q.Cmp(amount) < 0 })
			return len(devices) == 0 || int64(len(devices)) < exactly.Count
		})
		node, all := s.allocates(less, enough)
		if node != "" {
			return &Remedy{
				Kind: Claim, Node: node, Claim: claim.Name, Request: claim.Spec.Devices.Requests[a.request].Name, Capacity: string(a.capacity),
				From: &from, To: &amount,
			}, nil
		}
		if !all {
			return nil, nil
		}
	}
	return nil, nil
}

// allocates returns the first of the nodes on which the request can be allocated, or "". complete
// is false if the budget ended before.
func (s *search) allocates(r *firstfit.Request, nodes []*snapshot.Node) (node string, complete bool) {
	for _, n := range nodes {
		if !s.spend(allocateCost) {
			return "", false
		}
		if results, err := predictor.Allocate(r, n); err == nil && results != nil {
			return n.Name, true
		}
	}
	return "", true
}

// freeOf returns how much of the capacity each device of the node has that is not allocated as a
// whole.
func freeOf(n *snapshot.Node, name resourcev1.QualifiedName) (free []resource.Quantity) {
	for _, pool := range n.DevicePools() {
		for _, s := range pool.Slices {
			for i := range s.Spec.Devices {
				device := &s.Spec.Devices[i]
				capacity, ok := device.Capacity[name]
				if !ok {
					continue
				}
				amount, whole := capacity.Value.DeepCopy(), false
				for _, a := range pool.Allocated {
					if a.Result.Device == device.Name && (a.Result.AdminAccess == nil || !*a.Result.AdminAccess) {
						whole = whole || a.Result.ShareID == nil
						amount.Sub(a.Result.ConsumedCapacity[name])
					}
				}
				if !whole {
					free = append(free, amount)
				}
			}
		}
	}
	return free
}
