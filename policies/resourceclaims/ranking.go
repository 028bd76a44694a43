package resourceclaims

import (
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/lru"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/internal/placement/strategy"
	"outboard.dev/outboard/snapshot"
)

// This file describes pods for the strategy LeastWaste: a shape is what kube-scheduler would
// allocate on an empty node of each kind, so that selectors, classes, defaults and rounding count
// as they do there. free.go describes nodes.

// ranking is the Cycle of a pod for which nodes are ranked.
type ranking struct {
	strategy.Ranking
	policy  *resourceClaims
	request *firstfit.Request // nil for a pod without claims
}

// Signature implements policy.Signature. It need not cover the scores, which ScoreRows computes for
// each View.
func (r *ranking) Signature() string { return "LeastWaste" }

// shapes are what claims request, in terms of the devices of the driver. They are immutable, except
// that they keep what was computed.
type shapes struct {
	policy  *resourceClaims
	classes *snapshot.View   // with the classes alone
	samples []*snapshot.Node // the first node of each kind
	devices int              // of all samples
	known   *lru.Cache       // from firstfit.Key to *placement.Shape; nil: no shape describes it
}

// maxShapes is how many shapes are kept, and describedAtOnce for how many of them the work is
// bounded.
const maxShapes, describedAtOnce = 1024, 16

// shapesOf implements Shapes of strategy.Options.
func (p *resourceClaims) shapesOf(
	last strategy.Shapes, view *snapshot.View, first []*snapshot.Node,
) strategy.Shapes {
	l, ok := last.(*shapes)
	if ok && l.classes.SameDeviceClasses(view) && slices.EqualFunc(l.samples, first, alike) {
		return l
	}
	s := &shapes{
		policy: p, classes: view.DeviceClassesOnly(), samples: first, known: lru.New(maxShapes),
	}
	for _, n := range first {
		for _, pool := range n.DevicePools() {
			for _, published := range pool.Slices {
				s.devices += len(published.Spec.Devices)
			}
		}
	}
	return s
}

// alike reports whether the same is allocated for any request on both nodes, if they are empty.
func alike(a, b *snapshot.Node) bool {
	sameSlice := func(a, b *resourcev1.ResourceSlice) bool {
		return a == b || equality.Semantic.DeepEqual(&a.Spec, &b.Spec) // rules add taints to a copy
	}
	samePool := func(a, b snapshot.DevicePool) bool {
		return a.Driver == b.Driver && a.Name == b.Name && slices.EqualFunc(a.Slices, b.Slices, sameSlice)
	}
	return a.Name == b.Name && maps.Equal(a.Object.Labels, b.Object.Labels) &&
		slices.EqualFunc(a.DevicePools(), b.DevicePools(), samePool)
}

func (s *shapes) Of(e snapshot.PodEvent) (placement.Shape, bool) {
	own := strategy.ShapeOf(e.Pod)
	if len(e.Claims) == 0 {
		return own, len(e.Pod.Spec.ResourceClaims) == 0 // claims that are not known have no shape
	}
	request, err := s.policy.predictor.RequestOf(e.Claims, s.classes, describedAtOnce*s.devices)
	if err != nil {
		return own, false
	}
	known, ok := s.known.Get(request.Key())
	if !ok {
		known = s.describe(request)
		s.known.Add(request.Key(), known)
	}
	of := known.(*placement.Shape)
	if of == nil {
		return own, false
	}
	shape := *of
	shape.CPU, shape.Memory = own.CPU, own.Memory
	return shape, true
}

// describe returns what the claims determine of the shape, or nil: what they get must be the same
// on each kind of node where they get anything, and what the arithmetic takes there.
func (s *shapes) describe(request *firstfit.Request) (of *placement.Shape) {
	var models, excluded []string
	var without []*described // the kinds on which nothing is allocated
	allWhole, sameShare := true, true
	for _, n := range s.samples {
		d := s.policy.describe(emptyHardware(s.policy.poolsOf(n)))
		if d == nil {
			continue // it has no devices of the driver, or they are not alike
		}
		results, err := s.policy.predictor.AllocateEmpty(request, n)
		if err != nil {
			return nil
		}
		if results == nil {
			without = append(without, d)
			continue
		}
		on, whole, ok := d.shape(devicesOf(results))
		if !ok || of != nil && (on.GPUs != of.GPUs || on.Profile != of.Profile) {
			return nil
		}
		allWhole, sameShare = allWhole && whole, sameShare && (of == nil || on.Share == of.Share)
		of = &on
		models = append(models, d.model)
	}
	switch {
	case of == nil:
		return nil
	case allWhole: // of devices of several sizes, perhaps
		of.Share = 0
	case !sameShare || of.Share == 0:
		return nil
	}
	for _, d := range without {
		// A model with less than is requested is excluded by its size, and not by the claims.
		if d.free().Fits(*of) && !slices.Contains(models, d.model) {
			excluded = append(excluded, d.model)
		}
	}
	if len(excluded) > 0 || of.Profile != "" {
		of.Models = placement.NewModels(models...)
	}
	return of
}

// free returns a node with the devices, and any number of processors.
func (d *described) free() *placement.Node {
	return &placement.Node{Model: d.model, GPUs: d.gpus, Parts: d.parts, FirstFit: true}
}

// shape returns the shape of what is allocated of the empty devices: one partition, or shares of
// GPUs, each of which is whole or not. These must be those that a pod with the shape gets.
func (d *described) shape(results []*resourcev1.DeviceRequestAllocationResult) (s placement.Shape, whole, ok bool) {
	var places []placement.Device
	whole = true
	for _, r := range results {
		at, ok := d.place[id{r.Driver, r.Pool, r.Device}]
		share := consumed(r)
		switch {
		case isAdmin(r):
			return s, false, false
		case !ok: // of another driver
			continue
		case slices.Contains(places, at), len(places) > 0 && share != s.Share:
			return s, false, false
		case d.parts == nil:
			s.Share, whole = share, whole && (share == 0 || share >= d.gpus[at.GPU].Size)
		}
		places = append(places, at)
	}
	if d.parts != nil {
		if len(places) != 1 {
			return s, whole, false
		}
		profile := d.parts.Layout.Profile(places[0].Partition)
		first, _ := d.parts.First(profile)
		return placement.Shape{Profile: d.parts.Profiles[profile]}, true, first == places[0]
	}
	s.GPUs = len(places)
	left := s.GPUs // of the first ones with room
	for i, gpu := range d.gpus {
		if left > 0 && gpu.Fits(s) {
			if left--; !slices.Contains(places, placement.Device{GPU: i}) {
				return s, whole, false
			}
		}
	}
	return s, whole, s.GPUs > 0 && left == 0
}
