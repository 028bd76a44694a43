package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/snapshot"
)

// allocations are what kube-scheduler allocated, and how much of it was predicted.
type allocations struct {
	claims, predicted int
	different         []string
	used, capacity    int64    // memory of the GPUs
	exceeded          []string // devices of which more is allocated than they have
}

// allocations reads the claims from the API server and predicts each of them, with what kube-scheduler had allocated before, on the node that
// it chose. It places pods in the order of their creation, and those that it rejected at first after the others; it writes their
// claims in another order, because it decides about the next pods while it writes.
func (p *play) allocations(ctx context.Context) (*allocations, error) {
	list, err := p.Client.ResourceV1().ResourceClaims(p.pods[0].Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	claims := slices.DeleteFunc(list.Items, func(c resourcev1.ResourceClaim) bool { return c.Status.Allocation == nil })
	slices.SortFunc(claims, func(a, b resourcev1.ResourceClaim) int {
		return cmp.Compare(p.tally.turn(a.Name), p.tally.turn(b.Name))
	})
	r, err := p.newReplay(ctx)
	if err != nil {
		return nil, err
	}
	for i := range claims {
		if err := r.add(&claims[i]); err != nil {
			return nil, fmt.Errorf("predicting claim %s: %w", claims[i].Name, err)
		}
	}
	return &r.allocations, nil
}

// claimReplay is the cluster while its claims are added again.
type claimReplay struct {
	allocations
	builder   snapshot.Builder
	predictor *firstfit.Predictor
	nodes     map[string]string // by pool
	used      map[string]int64  // by pool and device
	recent    []*resourcev1.ResourceClaim
}

func (p *play) newReplay(ctx context.Context) (*claimReplay, error) {
	published, err := p.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	nodes, err := p.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	r := &claimReplay{predictor: firstfit.New(), nodes: map[string]string{}, used: map[string]int64{}}
	for i := range nodes.Items {
		r.builder.SetNode(&nodes.Items[i])
	}
	for i := range published.Items {
		s := &published.Items[i]
		r.builder.SetResourceSlice(s)
		r.nodes[s.Spec.Pool.Name] = *s.Spec.NodeName
		for j := range s.Spec.Devices {
			size := s.Spec.Devices[j].Capacity["memory"].Value
			r.capacity += size.Value()
		}
	}
	for _, class := range p.devices.Classes {
		r.builder.SetDeviceClass(class)
	}
	return r, nil
}

// add predicts the claim, compares it, and allocates what it has.
func (r *claimReplay) add(claim *resourcev1.ResourceClaim) error {
	results := claim.Status.Allocation.Devices.Results
	want, err := r.predict(claim)
	if err != nil {
		return err
	}
	r.claims++
	if got := describeDevices(results); got == want {
		r.predicted++
	} else {
		why, err := r.countedTwice(claim)
		if err != nil {
			return err
		}
		r.different = append(r.different, fmt.Sprintf("claim %s has %s; predicted: %s%s", claim.Name, got, want, why))
	}
	for _, result := range results {
		amount, device := result.ConsumedCapacity["memory"], result.Pool+"/"+result.Device
		r.allocations.used += amount.Value()
		if r.used[device] += amount.Value(); r.used[device] > gpuUnits*unit {
			r.exceeded = append(r.exceeded, fmt.Sprintf("device %s has too little for claim %s", device, claim.Name))
		}
	}
	r.builder.SetResourceClaim(claim)
	r.recent = append([]*resourcev1.ResourceClaim{claim}, r.recent[:min(len(r.recent), inFlight-1)]...)
	return nil
}

// predict describes what the claim gets on the node that it has.
func (r *claimReplay) predict(claim *resourcev1.ResourceClaim) (string, error) {
	view := r.builder.View()
	request, err := r.predictor.RequestOf([]*resourcev1.ResourceClaimSpec{&claim.Spec}, view, view.Devices())
	if err != nil {
		return "", err
	}
	predicted, err := r.predictor.Allocate(request, view.Node(r.nodes[claim.Status.Allocation.Devices.Results[0].Pool]))
	if err != nil || len(predicted) == 0 {
		return "nothing", err
	}
	return describeDevices(predicted[0].Devices.Results), nil
}

// inFlight is about how many claims kube-scheduler writes at a time.
const inFlight = 20

// countedTwice names the claim before this one that explains the allocation if kube-scheduler counted it twice.
func (r *claimReplay) countedTwice(claim *resourcev1.ResourceClaim) (string, error) {
	for _, before := range r.recent {
		again := before.DeepCopy()
		again.Name, again.UID = again.Name+"-again", again.UID+"-again"
		r.builder.SetResourceClaim(again)
		got, err := r.predict(claim)
		r.builder.DeleteResourceClaim(again)
		if err != nil || got == describeDevices(claim.Status.Allocation.Devices.Results) {
			return fmt.Sprintf(", and if claim %s counts twice, what it has", before.Name), err
		}
	}
	return "", nil
}

// describeDevices names the devices, and what is consumed of each.
func describeDevices(results []resourcev1.DeviceRequestAllocationResult) string {
	text := ""
	for _, r := range results {
		amount := r.ConsumedCapacity["memory"]
		text += fmt.Sprintf(" %s/%s/%s(%s)", r.Driver, r.Pool, r.Device, amount.String())
	}
	return text[min(1, len(text)):]
}
