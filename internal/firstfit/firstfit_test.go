package firstfit_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/snapshot"
)

// world is a cluster in two forms: the objects of the API server, and a View.
type world struct {
	random  *rand.Rand
	nodes   []*corev1.Node
	slices  []*resourcev1.ResourceSlice // as kube-scheduler has them, with the taints of rules
	classes map[string]*resourcev1.DeviceClass
	claims  []*resourcev1.ResourceClaim // allocated
	builder snapshot.Builder
	made    int
}

func (w *world) Get(name string) (*resourcev1.DeviceClass, error) { return w.classes[name], nil }

func (w *world) List() ([]*resourcev1.DeviceClass, error) { return nil, nil }

func (w *world) name(prefix string) string {
	w.made++
	return fmt.Sprintf("%s-%d", prefix, w.made)
}

func pick[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }

// drivers are the drivers of the devices: each has a class of its name.
var drivers = []string{"gpu.example.com", "a.example.com", "mig.example.com"}

func newWorld(random *rand.Rand) *world {
	w := &world{random: random, classes: map[string]*resourcev1.DeviceClass{}}
	for _, driver := range drivers {
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: driver}}
		class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver)}}}
		w.classes[driver] = class
		w.builder.SetDeviceClass(class.DeepCopy())
	}
	for range random.IntN(3) + 1 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name("node")}}
		w.nodes = append(w.nodes, node)
		w.builder.SetNode(node)
		for _, driver := range drivers {
			for range random.IntN(3) {
				w.addPool(node.Name, driver)
			}
		}
	}
	return w
}

// addPool adds a pool, perhaps with an older generation, or with a slice missing.
func (w *world) addPool(node, driver string) {
	pool := resourcev1.ResourcePool{Name: w.name(pick(w.random, "pool-z", "pool-a")), Generation: 2, ResourceSliceCount: int64(w.random.IntN(2) + 1)}
	var added []*resourcev1.ResourceSlice
	for range pool.ResourceSliceCount {
		added = append(added, w.slice(node, driver, pool))
	}
	if driver == "mig.example.com" {
		added = w.partitions(node, driver, &pool)
	}
	var rules []*resourcev1.DeviceTaintRule
	ill := ""
	if devices := added[len(added)-1].Spec.Devices; w.random.IntN(4) == 0 {
		ill = pick(w.random, devices...).Name
		rules = append(rules, &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: w.name("rule")}, Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Pool: &pool.Name, Device: &ill}, Taint: resourcev1.DeviceTaint{Key: "ill", Effect: resourcev1.DeviceTaintEffectNoSchedule}}})
		w.builder.SetDeviceTaintRule(rules[0])
	}
	switch w.random.IntN(10) {
	case 0:
		added = added[:len(added)-1]
	case 1:
		old := pool
		old.Generation, old.ResourceSliceCount = 1, 1
		added = append(added, w.slice(node, driver, old))
	}
	for _, s := range added {
		own := s.DeepCopy()
		if !snapshot.TrimResourceSlice(own) {
			panic("the slice is too large")
		}
		w.builder.SetResourceSlice(own)
		for i := range s.Spec.Devices {
			for _, r := range rules {
				if s.Spec.Devices[i].Name == ill {
					s.Spec.Devices[i].Taints = append(s.Spec.Devices[i].Taints, r.Spec.Taint)
				}
			}
		}
	}
	w.slices = append(w.slices, added...)
}

func (w *world) slice(node, driver string, pool resourcev1.ResourcePool) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: w.name(pick(w.random, "x", "y")), UID: types.UID(w.name("uid"))}}
	s.Spec = resourcev1.ResourceSliceSpec{Driver: driver, Pool: pool, NodeName: &node}
	for range w.random.IntN(4) + 1 {
		model := pick(w.random, "A100", "T4")
		shared := w.random.IntN(2) == 0
		d := resourcev1.Device{
			Name:       w.name(pick(w.random, "d", "e")),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}},
			Capacity:   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(pick(w.random, "40Gi", "16Gi"))}},
		}
		if shared {
			d.AllowMultipleAllocations = &shared
		}
		if shared && w.random.IntN(3) == 0 {
			step, least := resource.MustParse("4Gi"), resource.MustParse("4Gi")
			c := d.Capacity["memory"]
			c.RequestPolicy = &resourcev1.CapacityRequestPolicy{Default: &least, ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: &least, Step: &step}}
			d.Capacity["memory"] = c
		}
		if w.random.IntN(10) == 0 {
			d.Taints = []resourcev1.DeviceTaint{{Key: "ill", Effect: pick(w.random, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)}}
		}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	return s
}

// partitions returns slices of two devices that are divided in partitions of one, two or four of four parts.
func (w *world) partitions(node, driver string, pool *resourcev1.ResourcePool) []*resourcev1.ResourceSlice {
	pool.ResourceSliceCount = 2
	counters, devices := w.slice(node, driver, *pool), w.slice(node, driver, *pool)
	counters.Spec.Devices, devices.Spec.Devices = nil, nil
	one := resourcev1.Counter{Value: resource.MustParse("1")}
	for set := range 2 {
		name := fmt.Sprintf("gpu-%d", set)
		all := map[string]resourcev1.Counter{}
		for i := range 4 {
			all[fmt.Sprintf("part-%d", i)] = one
		}
		counters.Spec.SharedCounters = append(counters.Spec.SharedCounters, resourcev1.CounterSet{Name: name, Counters: all})
		for _, size := range []int{1, 2, 4} {
			for start := 0; start < 4; start += size {
				profile := fmt.Sprintf("%dg", size)
				d := resourcev1.Device{Name: fmt.Sprintf("%s-%s-%d", name, profile, start), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &profile}}}
				takes := map[string]resourcev1.Counter{}
				for i := range size {
					takes[fmt.Sprintf("part-%d", start+i)] = one
				}
				d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: name, Counters: takes}}
				devices.Spec.Devices = append(devices.Spec.Devices, d)
			}
		}
	}
	w.random.Shuffle(len(devices.Spec.Devices), func(i, j int) {
		devices.Spec.Devices[i], devices.Spec.Devices[j] = devices.Spec.Devices[j], devices.Spec.Devices[i]
	})
	return []*resourcev1.ResourceSlice{counters, devices}
}

// claim returns a claim that is not allocated.
func (w *world) claim() *resourcev1.ResourceClaim {
	name := w.name("claim")
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	for i := range w.random.IntN(2) + 1 {
		r := resourcev1.DeviceRequest{Name: fmt.Sprintf("r%d", i)}
		if w.random.IntN(4) > 0 {
			exact := w.exactly()
			r.Exactly = &exact
		} else {
			for j := range 2 {
				e := w.exactly()
				r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{Name: fmt.Sprintf("s%d", j), DeviceClassName: e.DeviceClassName, Selectors: e.Selectors, AllocationMode: e.AllocationMode, Count: e.Count, Tolerations: e.Tolerations, Capacity: e.Capacity})
			}
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, r)
	}
	if w.random.IntN(8) == 0 {
		attribute := resourcev1.FullyQualifiedName(pick(w.random, drivers...) + "/model")
		c.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: &attribute}}
	}
	return c
}

func (w *world) exactly() resourcev1.ExactDeviceRequest {
	e := resourcev1.ExactDeviceRequest{DeviceClassName: pick(w.random, drivers...), AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: int64(pick(w.random, 1, 1, 1, 2, 3))}
	if w.random.IntN(12) == 0 {
		e.AllocationMode, e.Count = resourcev1.DeviceAllocationModeAll, 0
	}
	if w.random.IntN(3) == 0 {
		model := pick(w.random, "A100", "T4")
		if e.DeviceClassName == "mig.example.com" {
			model = pick(w.random, "1g", "2g", "4g")
		}
		e.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.attributes[%q].model == %q", e.DeviceClassName, model)}}}
	}
	if w.random.IntN(2) == 0 && e.DeviceClassName != "mig.example.com" {
		e.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(pick(w.random, "3Gi", "10Gi", "40Gi"))}}
	}
	if w.random.IntN(5) == 0 {
		e.Tolerations = []resourcev1.DeviceToleration{{Key: "ill", Operator: resourcev1.DeviceTolerationOpExists}}
	}
	return e
}

// reference is what kube-scheduler allocates, with everything that the cluster has.
func (w *world) reference(node *corev1.Node, claims []*resourcev1.ResourceClaim) ([]resourcev1.AllocationResult, error) {
	state := structured.AllocatedState{AllocatedDevices: sets.Set[structured.DeviceID]{}, AllocatedSharedDeviceIDs: sets.Set[structured.SharedDeviceID]{}, AggregatedCapacity: structured.NewConsumedCapacityCollection()}
	for _, c := range w.claims {
		for _, r := range c.Status.Allocation.Devices.Results {
			id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
			if r.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
			state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
		}
	}
	all := slices.Clone(w.slices)
	w.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	features := structured.Features{AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true, FractionalCapacityRange: true, PartitionableDevices: true, PrioritizedList: true}
	allocator, err := structured.NewAllocator(context.Background(), features, state, w, all, selectors)
	if err != nil {
		return nil, err
	}
	return allocator.Allocate(&patience{Context: context.Background()}, node, claims)
}

// patience is a context that ends after twice as many steps as a prediction may take, instead of kube-scheduler's timeout of 10 s.
type patience struct {
	context.Context
	steps int
}

var errImpatient = errors.New("too many steps")

func (p *patience) Err() error {
	if p.steps++; p.steps > 2000 {
		return errImpatient
	}
	return nil
}

var selectors = cel.NewCache(100, cel.Features{EnableConsumableCapacity: true})

// said is what an allocation gives, without the random identifiers of shares.
func said(results []resourcev1.AllocationResult, err error) string {
	if err != nil {
		return "error"
	}
	var text strings.Builder
	for i, a := range results {
		for _, r := range a.Devices.Results {
			memory := r.ConsumedCapacity["memory"]
			fmt.Fprintf(&text, "%d: %s gets %s/%s/%s %s\n", i, r.Request, r.Driver, r.Pool, r.Device, memory.String())
		}
	}
	return text.String()
}

// podOf returns a pod with the claims.
func podOf(claims ...*resourcev1.ResourceClaim) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	for _, c := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: c.Name, ResourceClaimName: &c.Name})
	}
	return pod
}

// The full run, with 10,200 predictions, is part of make prove.
var seeds = flag.Uint64("seeds", 60, "how many clusters to draw, each for 20 predictions")

// counts are what came of the predictions for a cluster.
type counts struct{ Cases, Allocated, Invalid, Endless, GivenUp, Missed int }

func (c *counts) add(o counts) {
	c.Cases, c.Allocated, c.Invalid = c.Cases+o.Cases, c.Allocated+o.Allocated, c.Invalid+o.Invalid
	c.Endless, c.GivenUp, c.Missed = c.Endless+o.Endless, c.GivenUp+o.GivenUp, c.Missed+o.Missed
}

// Predictions are what kube-scheduler's allocator gives when it knows the whole cluster.
func TestPredictionsAreAllocations(t *testing.T) {
	predictor := firstfit.New()
	var all counts
	for seed := range *seeds {
		all.add(predict(t, predictor, seed))
	}
	t.Logf("%d predictions, %d of them with devices; %d of invalid claims; %d endless; %d given up, for %d of which there are devices",
		all.Cases, all.Allocated, all.Invalid, all.Endless, all.GivenUp, all.Missed)
	if all.Allocated < all.Cases/5 || all.Missed > 1+all.Cases/1000 {
		t.Error("the cases are too few, or too many of them are given up")
	}
}

// predict compares 20 predictions for the cluster.
func predict(t *testing.T, predictor *firstfit.Predictor, seed uint64) (c counts) {
	w := newWorld(rand.New(rand.NewPCG(seed, 0)))
	for range 20 {
		claims := []*resourcev1.ResourceClaim{w.claim()}
		if w.random.IntN(4) == 0 {
			claims = append(claims, w.claim())
		}
		for _, c := range claims {
			own := c.DeepCopy()
			snapshot.TrimResourceClaim(own)
			w.builder.SetResourceClaim(own)
		}
		view := w.builder.View()
		node := pick(w.random, w.nodes...)
		request, err := predictor.Request(podOf(claims...), view)
		if err != nil {
			t.Fatal(err)
		}
		got, gotErr := predictor.Allocate(request, view.Node(node.Name))
		want, wantErr := w.reference(node, claims)
		if c.Cases++; len(want) > 0 {
			c.Allocated++
		}
		if errors.Is(wantErr, errImpatient) {
			c.Endless++
		} else if wantErr != nil {
			c.Invalid++ // kube-scheduler does not place the pod at all, say, because it wants all devices and a pool is incomplete
		} else if errors.Is(gotErr, firstfit.ErrTooManySteps) {
			if c.GivenUp++; len(want) > 0 {
				c.Missed++
			}
		} else if diff := gocmp.Diff(said(want, wantErr), said(got, gotErr)); diff != "" {
			t.Fatalf("seed %d: the prediction differs (-want +got):\n%s%v, %v", seed, diff, wantErr, gotErr)
		}
		for i, c := range claims {
			if len(want) == 0 || w.random.IntN(4) == 0 {
				w.builder.DeleteResourceClaim(c)
				continue
			}
			c.Status.Allocation = &want[i]
			w.claims = append(w.claims, c)
			own := c.DeepCopy()
			snapshot.TrimResourceClaim(own)
			w.builder.SetResourceClaim(own)
		}
	}
	return c
}

// A request has the claims that are not allocated, by the names in the status of the pod if they are made from templates.
func TestRequest(t *testing.T) {
	w := newWorld(rand.New(rand.NewPCG(1, 1)))
	wanted, done := w.claim(), w.claim()
	done.Status.Allocation = new(resourcev1.AllocationResult)
	w.builder.SetResourceClaim(wanted)
	w.builder.SetResourceClaim(done)
	view := w.builder.View()
	p := firstfit.New()
	pod := podOf(done)
	if r, err := p.Request(pod, view); r != nil || err != nil {
		t.Errorf("with an allocated claim: %v, %v", r, err)
	}
	template := "t"
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "made", ResourceClaimTemplateName: &template})
	if _, err := p.Request(pod, view); err == nil {
		t.Error("the claim is not created, and there is no error")
	}
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "made", ResourceClaimName: &wanted.Name}}
	r, err := p.Request(pod, view)
	if err != nil || len(r.Claims()) != 1 || r.Claims()[0].Name != wanted.Name {
		t.Fatalf("with a claim from a template: %v, %v", r, err)
	}
	pod.Status.ResourceClaimStatuses[0].ResourceClaimName = nil
	if r, err := p.Request(pod, view); r != nil || err != nil {
		t.Errorf("with a claim that is not needed: %v, %v", r, err)
	}
	other := podOf(wanted)
	if same, _ := p.Request(other, view); same.Key() != r.Key() {
		t.Error("equal requests have different keys")
	}
	for _, class := range w.classes {
		class = class.DeepCopy()
		class.Spec.Selectors = nil
		w.builder.SetDeviceClass(class)
	}
	if changed, _ := p.Request(other, w.builder.View()); changed.Key() == r.Key() {
		t.Error("the key does not depend on the class")
	}
}

// What a claim may cost is bounded.
func TestExpensiveClaims(t *testing.T) {
	w := newWorld(rand.New(rand.NewPCG(1, 1)))
	p := firstfit.New()
	c := w.claim()
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: drivers[0], Selectors: []resourcev1.DeviceSelector{
		{CEL: &resourcev1.CELDeviceSelector{Expression: `"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".matches("(a*)*(b*)*(c*)*(d*)*(e*)*") && [1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, a+b+c > 0)))`}}}}}}
	w.builder.SetResourceClaim(c)
	if _, err := p.Request(podOf(c), w.builder.View()); err == nil {
		t.Error("an expensive selector is evaluated")
	}

	// All pairs of 30 devices differ, so the allocator tries all ways to take 20.
	var b snapshot.Builder
	node := "n"
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{Driver: drivers[0], NodeName: &node, Pool: resourcev1.ResourcePool{Name: "p", ResourceSliceCount: 1}}}
	for i := range 30 {
		model := fmt.Sprint(i % 11)
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("d", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}}})
	}
	attribute := resourcev1.FullyQualifiedName(drivers[0] + "/model")
	hard := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hard"}}
	hard.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: drivers[0], AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 12}}}
	hard.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{DistinctAttribute: &attribute}}
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	b.SetResourceSlice(s)
	b.SetDeviceClass(w.classes[drivers[0]])
	b.SetResourceClaim(hard)
	r, err := p.Request(podOf(hard), b.View())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.Allocate(r, b.View().Node(node)); got != nil || !errors.Is(err, firstfit.ErrTooManySteps) {
		t.Errorf("an allocation that takes forever ends with %v, %v", got, err)
	}
}

// BenchmarkAllocate predicts one device of a node with eight.
func BenchmarkAllocate(b *testing.B) {
	w := newWorld(rand.New(rand.NewPCG(1, 1)))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	w.builder.SetNode(node)
	s := w.slice(node.Name, drivers[0], resourcev1.ResourcePool{Name: "n", ResourceSliceCount: 1})
	for len(s.Spec.Devices) < 8 {
		s.Spec.Devices = append(s.Spec.Devices, w.slice(node.Name, drivers[0], s.Spec.Pool).Spec.Devices...)
	}
	s.Spec.Devices = s.Spec.Devices[:8]
	w.builder.SetResourceSlice(s)
	c := w.claim()
	c.Spec.Devices = resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: drivers[0], AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}}}
	w.builder.SetResourceClaim(c)
	p, view := firstfit.New(), w.builder.View()
	r, err := p.Request(podOf(c), view)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := p.Allocate(r, view.Node(node.Name)); err != nil {
			b.Fatal(err)
		}
	}
}
