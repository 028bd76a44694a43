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
	"outboard.dev/outboard/test/mig"
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
		w.addTwin(node.Name, "-twin", false)
		w.addTwin(node.Name, "-other", true)
	}
	return w
}

// addTwin adds a node with the same devices in the same order, under other names. With change, one
// device differs in what the allocator may read.
func (w *world) addTwin(of, twin string, change bool) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: of + twin}}
	w.nodes = append(w.nodes, node)
	w.builder.SetNode(node)
	var added []*resourcev1.ResourceSlice
	var devices []*resourcev1.Device
	for _, s := range w.slices {
		if *s.Spec.NodeName != of {
			continue
		}
		s = s.DeepCopy()
		s.Name, s.UID, s.Spec.NodeName, s.Spec.Pool.Name = s.Name+twin, s.UID+types.UID(twin), &node.Name, s.Spec.Pool.Name+twin
		for i := range s.Spec.Devices {
			d := &s.Spec.Devices[i]
			d.Name += twin
			d.Attributes["uuid"] = resourcev1.DeviceAttribute{StringValue: &d.Name}
			devices = append(devices, d)
		}
		added = append(added, s)
	}
	if change && len(devices) > 0 {
		at := w.random.IntN(len(devices))
		d, before := devices[at], devices[max(0, at-1)]
		switch w.random.IntN(10) {
		case 0, 1:
			d.Attributes["model"], before.Attributes["model"] = before.Attributes["model"], d.Attributes["model"]
		case 2:
			d.Attributes["driverVersion"] = resourcev1.DeviceAttribute{VersionValue: new("not a version")}
		case 3:
			d.Name = before.Name
		case 4:
			d.AllowMultipleAllocations, before.AllowMultipleAllocations = before.AllowMultipleAllocations, d.AllowMultipleAllocations
		case 5:
			d.Capacity, before.Capacity = before.Capacity, d.Capacity
		case 6:
			d.ConsumesCounters, before.ConsumesCounters = before.ConsumesCounters, d.ConsumesCounters
		case 7:
			s := added[w.random.IntN(len(added))]
			for i := range s.Spec.SharedCounters {
				delete(s.Spec.SharedCounters[i].Counters, "part-1")
			}
		case 8, 9:
			delete(before.Attributes, "odd")
			d.Attributes["odd"] = resourcev1.DeviceAttribute{BoolValue: new(true)}
		}
	}
	for _, s := range added {
		w.slices = append(w.slices, s)
		own := s.DeepCopy()
		snapshot.TrimResourceSlice(own)
		w.builder.SetResourceSlice(own)
	}
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
		snapshot.TrimResourceSlice(own)
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
		name := w.name(pick(w.random, "d", "e"))
		d := resourcev1.Device{
			Name:       name,
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}, "uuid": {StringValue: &name}},
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
		if w.random.IntN(2) == 0 {
			d.Attributes["odd"] = resourcev1.DeviceAttribute{BoolValue: new(true)}
		}
		switch w.random.IntN(60) {
		case 0:
			d.Attributes["driverVersion"] = resourcev1.DeviceAttribute{VersionValue: new("1.2.3")}
		case 1:
			d.Attributes["driverVersion"] = resourcev1.DeviceAttribute{VersionValue: new("not a version")}
		case 2:
			d.BindingConditions, d.BindingFailureConditions = []string{"attached"}, []string{"failed"}
		case 3:
			d.Name = "twice"
		}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	return s
}

// partitions returns slices of two devices that are divided in partitions of one, two or four of
// four parts.
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
		domain := fmt.Sprintf("device.attributes[%q]", e.DeviceClassName)
		e.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: pick(w.random,
			fmt.Sprintf("%s.model == %q", domain, model), fmt.Sprintf("%s[\"model\"] == %q", domain, model),
			`has(`+domain+`.driverVersion)`, `has(`+domain+`.odd)`, domain+`.exists(name, name == "odd")`,
		)}}}
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

// patience is a context that ends after twice as many steps as a prediction may take, instead of
// kube-scheduler's timeout of 10 s.
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
type counts struct{ Cases, Allocated, Invalid, Endless, GivenUp, Missed, Same int }

// compareKinds fails the test unless nodes of one kind get devices at the same places. It returns
// how many nodes get devices as another node of their kind.
func compareKinds(t *testing.T, predictor *firstfit.Predictor, request *firstfit.Request, view *snapshot.View) (same int) {
	t.Helper()
	of := map[firstfit.Kind]string{}
	for n := range view.All() {
		places := map[structured.DeviceID]int{}
		for _, pool := range n.DevicePools() {
			for _, s := range pool.Slices {
				for _, d := range s.Spec.Devices {
					places[structured.MakeDeviceID(pool.Driver, pool.Name, d.Name)] = len(places)
				}
			}
		}
		results, err := predictor.Allocate(request, n)
		for i := range results {
			for j := range results[i].Devices.Results {
				r := &results[i].Devices.Results[j]
				r.Device, r.Pool = fmt.Sprint(places[structured.MakeDeviceID(r.Driver, r.Pool, r.Device)]), ""
			}
		}
		got, kind := said(results, err), predictor.Kind(request, n)
		if want, known := of[kind]; known && got != want {
			t.Fatalf("%s gets %s, and another node of its kind %s", n.Name, got, want)
		} else if known && len(results) > 0 {
			same++
		}
		of[kind] = got
	}
	return same
}

// Predictions are what kube-scheduler's allocator gives when it knows the whole cluster.
func TestPredictionsAreAllocations(t *testing.T) {
	predictor := firstfit.New()
	var all counts
	for seed := range *seeds {
		predict(t, predictor, seed, &all)
	}
	t.Logf("%d predictions, %d of them with devices; %d of invalid claims; %d endless; %d given up, for %d of which there are devices; %d nodes were like another one",
		all.Cases, all.Allocated, all.Invalid, all.Endless, all.GivenUp, all.Missed, all.Same)
	if all.Allocated < all.Cases/5 || all.Same < all.Cases/10 || all.Missed > 1+all.Cases/1000 {
		t.Error("the cases are too few, or too many of them are given up")
	}
}

// predict compares 20 predictions for the cluster.
func predict(t *testing.T, predictor *firstfit.Predictor, seed uint64, c *counts) {
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
		c.Same += compareKinds(t, predictor, request, view)
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
}

// Two nodes are of one kind unless they differ in an attribute that the request may read.
func TestKindsForSelectors(t *testing.T) {
	const all = "model type uuid"
	for _, tt := range []struct {
		selector, constraint string
		reads                string
	}{
		{`device.driver == "d" && device.allowMultipleAllocations`, "", ""},
		{`device.capacity["d"].memory.compareTo(quantity("1Gi")) > 0`, "", ""},
		{`device.attributes["d"].model == "A" || device.attributes["e"]["type"] == "B"`, "", "model type"},
		{`has(device.attributes["d"].model) && device.attributes["d"].model in ["A", "B"]`, "", "model"},
		{`["A", "B"].exists(m, device.attributes["d"].model == m)`, "", "model"},
		{`device.attributes["d"].model == device.attributes["d"]["uu" + "id"]`, "", all},
		{`device.attributes["d"].model == device.attributes["d"]["uu\u0069d"]`, "", all},
		{`device.attributes[device.driver].model == "A"`, "", all},
		{`"model" in device.attributes["d"]`, "", all},
		{`device.attributes["d"].exists(name, name == "model")`, "", all},
		{`device.attributes["d"].exists // names
			(name, name == "model")`, "", all},
		{`cel.bind(all, device.attributes["d"], all.model == "A")`, "", all},
		{`[device].exists(d, d.attributes["d"].model == "A")`, "", all},
		{`true`, "d/uuid", "uuid"},
	} {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "class", Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: tt.selector}}}}}}
		if name := resourcev1.FullyQualifiedName(tt.constraint); name != "" {
			c.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: &name}, {DistinctAttribute: &name}}
		}
		var b snapshot.Builder
		b.SetDeviceClass(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}})
		b.SetResourceClaim(c)
		for _, changed := range []string{"", "model", "type", "uuid"} {
			name := "n" + changed
			d := resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}}
			for _, attribute := range []string{"model", "type", "uuid"} {
				value := strings.Repeat("x", 1+strings.Count(changed, attribute))
				d.Attributes[resourcev1.QualifiedName(attribute)] = resourcev1.DeviceAttribute{StringValue: &value}
			}
			b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
			b.SetResourceSlice(&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
				Driver: "d", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, ResourceSliceCount: 1}, Devices: []resourcev1.Device{d}}})
		}
		p, view := firstfit.New(), b.View()
		r, err := p.Request(podOf(c), view)
		if err != nil {
			t.Fatalf("%s: %v", tt.selector, err)
		}
		for _, name := range []string{"model", "type", "uuid"} {
			if differs := p.Kind(r, view.Node("n")) != p.Kind(r, view.Node("n"+name)); differs != strings.Contains(tt.reads, name) {
				t.Errorf("%s %s: nodes with another %s are of another kind: %t", tt.selector, tt.constraint, name, differs)
			}
		}
	}
}

// A request has the claims that are not allocated, by the names in the status of the pod if they
// are made from templates.
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

// BenchmarkAllocate predicts one device of a node with eight GPUs, or one partition of GPUs that
// MIG divides.
func BenchmarkAllocate(b *testing.B) {
	for _, divided := range []bool{false, true} {
		b.Run(fmt.Sprintf("divided=%t", divided), func(b *testing.B) {
			node, published := mig.Node("n", 8)
			claim := mig.Claim("c", "1g.5gb")
			if !divided {
				claim = mig.Claim("c", "")
				published = published[:2]
				published[0].Spec.SharedCounters, published[0].Spec.Pool.ResourceSliceCount = nil, 2
				published[1].Spec.Pool.ResourceSliceCount = 2
				gpu := published[1].Spec.Devices[0]
				gpu.ConsumesCounters, published[1].Spec.Devices = nil, nil
				for i := range 8 {
					gpu.Name = fmt.Sprint("gpu-", i)
					published[1].Spec.Devices = append(published[1].Spec.Devices, gpu)
				}
			}
			var w snapshot.Builder
			w.SetNode(node)
			w.SetDeviceClass(mig.DeviceClass())
			w.SetResourceClaim(claim)
			for _, s := range published {
				w.SetResourceSlice(s)
			}
			p, view := firstfit.New(), w.View()
			r, err := p.RequestOf([]*resourcev1.ResourceClaimSpec{&claim.Spec}, view, 0)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if results, err := p.Allocate(r, view.Node("n")); results == nil || err != nil {
					b.Fatal(results, err)
				}
			}
		})
	}
}
