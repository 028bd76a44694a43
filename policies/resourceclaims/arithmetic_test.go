package resourceclaims_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/policies/resourceclaims"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/mig"
)

// mixedWorld is a cluster of nodes with devices of several drivers: shared or not, with several capacities, request policies, taints and
// invalid versions, and some with counters or binding conditions.
type mixedWorld struct {
	random *rand.Rand
	odd    bool // devices and requests have what the arithmetic leaves to the allocator
	made   int
	snapshot.Builder
}

func (w *mixedWorld) name(prefix string) string {
	w.made++
	return fmt.Sprint(prefix, w.made)
}

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

var mixedDrivers = []string{"gpu.example.com", "nic.example.com"}

func newMixedWorld(random *rand.Rand) *mixedWorld {
	w := &mixedWorld{random: random, odd: random.IntN(4) == 0}
	for _, driver := range mixedDrivers {
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: driver, UID: types.UID(driver)}}
		class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver)}}}
		w.SetDeviceClass(class)
	}
	for range 4 {
		w.addNode()
	}
	return w
}

func (w *mixedWorld) addNode() {
	name := w.name("node-")
	w.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
	rare := w.random.IntN(14)
	for _, driver := range mixedDrivers {
		pools := w.random.IntN(2) + 1
		for range pools {
			pool := resourcev1.ResourcePool{Name: w.name("pool-"), ResourceSliceCount: int64(w.random.IntN(2) + 1)}
			model, shared := oneOf(w.random, "A", "B"), w.random.IntN(3) > 0
			for range pool.ResourceSliceCount {
				s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: w.name("slice-")}}
				s.UID = types.UID(s.Name)
				s.Spec = resourcev1.ResourceSliceSpec{Driver: driver, Pool: pool, NodeName: &name}
				for range w.random.IntN(5) + 1 {
					d := w.device(model, shared)
					if rare == 0 && w.random.IntN(2) == 0 {
						d.BindingConditions, d.BindingFailureConditions = []string{"attached"}, []string{"failed"}
					}
					s.Spec.Devices = append(s.Spec.Devices, d)
				}
				if rare == 1 {
					s.Spec.Devices[0].Name = "twice"
				}
				snapshot.TrimResourceSlice(s)
				w.SetResourceSlice(s)
			}
		}
	}
	if rare == 2 {
		node, slices := mig.Node(name, 1)
		w.SetNode(node)
		for _, s := range slices {
			w.SetResourceSlice(s)
		}
	}
}

func (w *mixedWorld) device(model string, shared bool) resourcev1.Device {
	name := w.name("device-")
	d := resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
		"model": {StringValue: &model}, "uuid": {StringValue: &name}, "index": {IntValue: new(int64(w.made % 5))},
	}}
	if w.odd && w.random.IntN(3) == 0 {
		delete(d.Attributes, "model")
		d.Attributes["gpu.example.com/model"] = resourcev1.DeviceAttribute{StringValue: &model}
	}
	if w.random.IntN(5) == 0 {
		d.Attributes["driverVersion"] = resourcev1.DeviceAttribute{VersionValue: new("1.2.3")}
		if w.odd && w.random.IntN(3) == 0 {
			d.Attributes["driverVersion"] = resourcev1.DeviceAttribute{VersionValue: new("not a version")}
		}
	}
	d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(oneOf(w.random, "40Gi", "16Gi"))}}
	if w.random.IntN(3) == 0 {
		d.Capacity["cores"] = resourcev1.DeviceCapacity{Value: resource.MustParse(oneOf(w.random, "100", "100", "0"))}
		if w.odd && w.random.IntN(4) == 0 {
			d.Capacity["cores"] = resourcev1.DeviceCapacity{Value: resource.MustParse("1500m")}
		}
	}
	if shared && w.random.IntN(6) > 0 {
		d.AllowMultipleAllocations = &shared
		if w.random.IntN(3) == 0 {
			least, step := resource.MustParse("4Gi"), resource.MustParse("4Gi")
			c := d.Capacity["memory"]
			c.RequestPolicy = &resourcev1.CapacityRequestPolicy{Default: &least, ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: &least, Step: &step}}
			d.Capacity["memory"] = c
		}
	}
	if w.random.IntN(12) == 0 {
		d.Taints = []resourcev1.DeviceTaint{{Key: "ill", Effect: oneOf(w.random, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)}}
	}
	return d
}

func (w *mixedWorld) claim() *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: w.name("claim-")}}
	c.UID = types.UID(c.Name)
	for i := range oneOf(w.random, 1, 1, 1, 2) {
		r := resourcev1.DeviceRequest{Name: fmt.Sprint("r", i)}
		if w.random.IntN(4) > 0 {
			e := w.exactly()
			r.Exactly = &e
		} else {
			for j := range w.random.IntN(3) + 1 {
				e := w.exactly()
				r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{Name: fmt.Sprint("s", j), DeviceClassName: e.DeviceClassName, Selectors: e.Selectors, AllocationMode: e.AllocationMode, Count: e.Count, Tolerations: e.Tolerations, Capacity: e.Capacity})
			}
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, r)
	}
	if w.odd && w.random.IntN(10) == 0 {
		c.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: new(resourcev1.FullyQualifiedName("gpu.example.com/model"))}}
	}
	return c
}

func (w *mixedWorld) exactly() resourcev1.ExactDeviceRequest {
	e := resourcev1.ExactDeviceRequest{DeviceClassName: oneOf(w.random, mixedDrivers...), AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: oneOf(w.random, int64(1), 1, 1, 2, 3)}
	if w.odd && w.random.IntN(20) == 0 {
		e.AllocationMode, e.Count = resourcev1.DeviceAllocationModeAll, 0
	}
	if w.odd && w.random.IntN(20) == 0 {
		e.AdminAccess = new(true)
	}
	if w.random.IntN(3) == 0 {
		domain := fmt.Sprintf("device.attributes[%q]", e.DeviceClassName)
		e.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: oneOf(w.random,
			domain+`.model == "A"`, domain+`.model == "B"`, domain+`["model"] == "B"`,
			`"model" in `+domain+` && `+domain+`.model == "B"`, fmt.Sprintf("%s.uuid == %q", domain, fmt.Sprint("device-", w.random.IntN(w.made))),
			domain+`.index < 3`, `has(`+domain+`.driverVersion)`, `device.allowMultipleAllocations`,
			fmt.Sprintf(`device.capacity[%q].memory.compareTo(quantity("20Gi")) > 0`, e.DeviceClassName),
			`"model" in device.attributes["gpu.example.com"] && device.attributes["gpu.example.com"].model == "A"`, domain+`.exists(name, name == "driverVersion")`,
		)}}}
	}
	if w.random.IntN(2) == 0 {
		e.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(oneOf(w.random, "3Gi", "10Gi", "10Gi", "40Gi"))}}
		if w.odd && w.random.IntN(8) == 0 {
			e.Capacity.Requests["memory"] = resource.MustParse("500m")
		}
		if w.random.IntN(4) == 0 {
			e.Capacity.Requests["cores"] = resource.MustParse(oneOf(w.random, "30", "1"))
		}
	}
	if w.random.IntN(5) == 0 {
		e.Tolerations = []resourcev1.DeviceToleration{{Key: "ill", Operator: resourcev1.DeviceTolerationOpExists}}
	}
	return e
}

// partitionClaim is a claim for one or more partitions or whole GPUs, in one or more ways.
func partitionClaim(random *rand.Rand, name string) *resourcev1.ResourceClaim {
	of := func(name string) *resourcev1.ResourceClaim {
		profile := ""
		if at := random.IntN(len(mig.A100) + 2); at < len(mig.A100) {
			profile = mig.A100[at].Name
		}
		c := mig.Claim(name, profile)
		exact := c.Spec.Devices.Requests[0].Exactly
		exact.Count = oneOf(random, int64(1), 1, 1, 1, 2, 3)
		if random.IntN(6) == 0 {
			exact.Selectors = nil
			exact.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(oneOf(random, "5Gi", "15Gi"))}}
		}
		if random.IntN(8) == 0 {
			exact.Tolerations = []resourcev1.DeviceToleration{{Key: "ill", Operator: resourcev1.DeviceTolerationOpExists}}
		}
		return c
	}
	c := of(name)
	for i := range oneOf(random, 0, 0, 0, 1, 2) {
		more := of(name).Spec.Devices.Requests[0]
		more.Name = fmt.Sprint("more-", i)
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, more)
	}
	if random.IntN(5) == 0 {
		r := &c.Spec.Devices.Requests[0]
		for j := range 2 {
			e := of(name).Spec.Devices.Requests[0].Exactly
			r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{Name: fmt.Sprint("s", j), DeviceClassName: e.DeviceClassName, Selectors: e.Selectors, AllocationMode: e.AllocationMode, Count: e.Count, Tolerations: e.Tolerations, Capacity: e.Capacity})
		}
		r.Exactly = nil
	}
	return c
}

// The arithmetic of partitions, which share counters, gives the scores that the allocator gives alone.
func TestPartitionScoresAreThoseOfTheAllocator(t *testing.T) {
	c := comparison{allocator: firstfit.New()}
	for seed := range uint64(6) {
		random, b := rand.New(rand.NewPCG(seed, 2)), new(snapshot.Builder)
		p := build(t, oneOf(random, "", "scoringStrategy: {type: Spread}"))
		b.SetDeviceClass(mig.DeviceClass())
		for i := range 4 {
			node, published := mig.Node(fmt.Sprint("node-", i), 1+i%3)
			b.SetNode(node)
			for _, s := range published {
				if random.IntN(4) == 0 && len(s.Spec.Devices) > 0 {
					s.Spec.Devices[random.IntN(len(s.Spec.Devices))].Taints = []resourcev1.DeviceTaint{{Key: "ill", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
				}
				if random.IntN(12) == 0 && len(s.Spec.SharedCounters) > 0 { // less than its partitions need
					s.Spec.SharedCounters[0].Counters["memory"] = resourcev1.Counter{Value: resource.MustParse("30Gi")}
				}
				b.SetResourceSlice(s)
			}
		}
		held := holders{builder: b, allocator: c.allocator, random: random}
		for step := range 60 {
			claims, names := []*resourcev1.ResourceClaim{partitionClaim(random, fmt.Sprint("a-", step))}, []string{fmt.Sprint("a-", step)}
			if random.IntN(4) == 0 {
				claims, names = append(claims, partitionClaim(random, fmt.Sprint("b-", step))), append(names, fmt.Sprint("b-", step))
			}
			for _, c := range claims {
				b.SetResourceClaim(c)
			}
			view, pod := b.View(), claiming(names...)
			c.compare(t, p, pod, view, fmt.Sprintf("seed %d, step %d", seed, step))
			held.add(t, pod, claims, view)
		}
	}
	t.Logf("%d cases, %d of them without the allocator, %d of these with devices", c.cases, c.arithmetic, c.allocated)
	if c.arithmetic < c.cases/2 || c.allocated < 200 {
		t.Error("too few cases")
	}
}

var seeds = flag.Uint64("seeds", 15, "how many clusters TestScoresAreThoseOfTheAllocator draws")

// The scores of a policy that has seen many requests and changes are those that the allocator gives alone, which keeps nothing.
func TestScoresAreThoseOfTheAllocator(t *testing.T) {
	c := comparison{allocator: firstfit.New()}
	for seed := range *seeds {
		w := newMixedWorld(rand.New(rand.NewPCG(seed, 1)))
		p := build(t, oneOf(w.random, "", "scoringStrategy: {type: Spread}"))
		held := holders{builder: &w.Builder, allocator: c.allocator, random: w.random}
		for step := range 40 {
			claims := []*resourcev1.ResourceClaim{w.claim()}
			if w.random.IntN(4) == 0 {
				claims = append(claims, w.claim())
			}
			var names []string
			for _, c := range claims {
				w.SetResourceClaim(c)
				names = append(names, c.Name)
			}
			view, pod := w.View(), claiming(names...)
			c.compare(t, p, pod, view, fmt.Sprintf("seed %d, step %d", seed, step))
			held.add(t, pod, claims, view)
			if w.random.IntN(10) == 0 {
				w.addNode()
			}
		}
	}
	t.Logf("%d cases, %d of them without the allocator, %d of these with devices", c.cases, c.arithmetic, c.allocated)
	if c.arithmetic < c.cases/4 || c.allocated < 50*int(*seeds) {
		t.Error("the cases are too few")
	}
}

// What the arithmetic does not know of devices is left to the allocator: a capacity that is not a whole number, also if a claim requests a
// whole number of it, and more capacities than it counts.
func TestOddCapacitiesAreLeftToTheAllocator(t *testing.T) {
	for _, tt := range []struct {
		devices    int
		capacities []string
		arithmetic bool
	}{
		{1, []string{"2"}, true}, {1, []string{"1500m"}, false}, {1, []string{"2", "1500m"}, false},
		{32, []string{"2", "2"}, true}, {33, []string{"2", "2"}, false}, {100, []string{"2", "2", "2"}, false},
	} {
		w, p := newGPUWorld(), build(t, "")
		w.node("n", "T4", 0, false)
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "slice", UID: "slice"}}
		s.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: new("n"), Pool: resourcev1.ResourcePool{Name: "pool", ResourceSliceCount: 1}}
		for i := range tt.devices {
			d := resourcev1.Device{Name: fmt.Sprint("gpu-", i), AllowMultipleAllocations: new(true), Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}}
			for j, capacity := range tt.capacities {
				d.Capacity[resourcev1.QualifiedName(fmt.Sprint("c", j))] = resourcev1.DeviceCapacity{Value: resource.MustParse(capacity)}
			}
			s.Spec.Devices = append(s.Spec.Devices, d)
		}
		w.SetResourceSlice(s)
		claim := w.claim("c", int64(min(32, tt.devices)), 0)
		requests := map[resourcev1.QualifiedName]resource.Quantity{}
		for j := range tt.capacities {
			requests[resourcev1.QualifiedName(fmt.Sprint("c", j))] = resource.MustParse("1")
		}
		claim.Spec.Devices.Requests[0].Exactly.Capacity = &resourcev1.CapacityRequirements{Requests: requests}
		w.SetResourceClaim(claim)
		pod := claiming("c")
		pod.Namespace = "default"
		view := w.View()
		cycle := policytest.Prepare[policy.Score](t, p, pod, view)
		want, arithmetic := resourceclaims.ByAllocator(firstfit.New(), cycle, view.Node("n"))
		if got := cycle.Score(view.Node("n")); got != want || want == policy.NoOpinion || arithmetic != tt.arithmetic {
			t.Errorf("%d devices of %q: the score is %d, and %d by the allocator; predicted without it: %t, want %t", tt.devices, tt.capacities, got, want, arithmetic, tt.arithmetic)
		}
	}
}

// What is kept of devices is bounded, and scores do not depend on it: claims read more sets of attributes than are kept, and one of them
// tells more nodes apart than are kept.
func TestKeptDevicesAreBounded(t *testing.T) {
	const count = 300
	w, p, allocator := newGPUWorld(), build(t, ""), firstfit.New()
	for i := range count {
		w.node(fmt.Sprint("n", i), "T4", 1+i%2, false)
	}
	for i := range 12 {
		w.class(fmt.Sprint("class-", i), fmt.Sprintf("!has(device.attributes[\"gpu.example.com\"].other%d) && device.attributes[\"gpu.example.com\"].model == \"T4\"", i))
	}
	w.class("first", `device.attributes["gpu.example.com"].uuid.endsWith("-0")`)
	for round := range 3 {
		for i := range 13 {
			claim := w.claim(fmt.Sprint("c", i), 2, int64(round+1))
			exact := claim.Spec.Devices.Requests[0].Exactly
			if exact.DeviceClassName = fmt.Sprint("class-", i); i == 12 {
				exact.DeviceClassName, exact.Count = "first", 1
			}
			w.SetResourceClaim(claim)
			pod := claiming(claim.Name)
			c := comparison{allocator: allocator}
			c.compare(t, p, pod, w.View(), fmt.Sprintf("round %d, claim %d", round, i))
			if most := map[bool]int{true: 256, false: count}[i == 12]; c.arithmetic != most {
				t.Errorf("round %d, claim %d: %d nodes are predicted without the allocator, not %d", round, i, c.arithmetic, most)
			}
		}
	}
}
