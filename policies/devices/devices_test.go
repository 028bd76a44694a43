package devices_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policies/devices"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

func TestScenarios(t *testing.T) {
	policytest.RunScenarios(t, devices.Type(), "testdata/*.txtar")
}

func TestConformance(t *testing.T) {
	for name, config := range map[string]string{
		"counted":  `{resource: example.com/fpga, capacityFrom: {annotation: example.com/count}, scoringStrategy: {type: Spread}}`,
		"numbered": `{resource: example.com/fpga, units: Numbered, allocationMode: Shares, sharesPerUnit: 2}`,
		"named":    `{resource: example.com/fpga, units: Named, unitsFrom: {annotation: example.com/units}, groupsFrom: {annotation: example.com/groups}}`,
		"grouped":  grouped,
		"shared":   shared,
	} {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, policytest.Options{
				New: policytest.FromYAML(devices.Type(), config),
				Pods: policytest.Pods(`
- {metadata: {name: one}, spec: {containers: [{name: c, resources: {limits: {example.com/fpga: 1}}}]}}
- {metadata: {name: two}, spec: {containers: [{name: c, resources: {limits: {example.com/fpga: 2}}}]}}
- metadata: {name: sidecar, annotations: {outboard.dev/example.com.fpga: u0}}
  spec:
    initContainers: [{name: s, restartPolicy: Always, resources: {limits: {example.com/fpga: 1}}}]
    containers: [{name: c, resources: {limits: {example.com/fpga: 2}}}]
- {metadata: {name: none}, spec: {containers: [{name: c}]}}
`),
				Nodes: policytest.Nodes(`
- metadata: {name: a, annotations: {example.com/units: "u0,u1=3,u2=0,u3", example.com/groups: "u0,u1;u2,u3", example.com/count: "3"}}
  status: {allocatable: {example.com/fpga: 4}}
- metadata: {name: b, annotations: {example.com/units: "u0,u1", example.com/count: "2"}}
  status: {allocatable: {example.com/fpga: 2}}
- metadata: {name: c}
- metadata: {name: d, annotations: {example.com/units: "u0,u0"}}
  status: {allocatable: {example.com/fpga: 100}}
`),
				Assigned: policytest.Pods(`
- metadata: {name: p1, annotations: {outboard.dev/example.com.fpga: u0}}
  spec: {nodeName: a, containers: [{name: c, resources: {limits: {example.com/fpga: 1}}}]}
- metadata: {name: p2, annotations: {outboard.dev/example.com.fpga: "1"}}
  spec: {nodeName: a, containers: [{name: c, resources: {limits: {example.com/fpga: 1}}}]}
- {metadata: {name: p3}, spec: {nodeName: b, containers: [{name: c, resources: {limits: {example.com/fpga: 1}}}]}}
- {metadata: {name: p4}, spec: {nodeName: b, containers: [{name: c}]}}
`),
			})
		})
	}
}

// TestAllocation: the content of the ledger and of the pod's annotation.
func TestAllocation(t *testing.T) {
	for name, tc := range map[string]struct {
		config  string
		node    *corev1.Node
		want    int64
		units   []policy.Capacity
		amounts []policy.Amount
		told    map[string]string
	}{
		"counted": {
			counted, counting(3), 2, []policy.Capacity{{Unit: "*", Capacity: 3}}, []policy.Amount{{Unit: "*", Amount: 2}}, nil,
		},
		"numbered": {
			numbered, counting(3), 2,
			[]policy.Capacity{{Unit: "0", Capacity: 1}, {Unit: "1", Capacity: 1}, {Unit: "2", Capacity: 1}},
			[]policy.Amount{{Unit: "0", Amount: 1}, {Unit: "1", Amount: 1}}, map[string]string{fpgaKey: "0,1"},
		},
		"named": {
			named, naming("x, 0000:3b:00.1 = 4,ill=0", ""), 2,
			[]policy.Capacity{{Unit: "x", Capacity: 1}, {Unit: "0000:3b:00.1", Capacity: 1}, {Unit: "ill"}},
			[]policy.Amount{{Unit: "x", Amount: 1}, {Unit: "0000:3b:00.1", Amount: 1}}, map[string]string{fpgaKey: "x,0000:3b:00.1"},
		},
		"shared": {
			shared, naming("a=2,b", ""), 3, []policy.Capacity{{Unit: "a", Capacity: 2}, {Unit: "b", Capacity: 4}},
			[]policy.Amount{{Unit: "b", Amount: 3}}, map[string]string{fpgaKey: "b"},
		},
		"numbered and shared": {
			`{resource: example.com/fpga, units: Numbered, allocationMode: Shares, sharesPerUnit: 4, resultAnnotation: example.com/told}`,
			counting(11), 3,
			[]policy.Capacity{{Unit: "0", Capacity: 4}, {Unit: "1", Capacity: 4}},
			[]policy.Amount{{Unit: "0", Amount: 3}}, map[string]string{"example.com/told": "0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{node: tc.node}
			got := w.allocation(t, policytest.Build(t, devices.Type(), tc.config), asking("p", tc.want))
			if !slices.Equal(got.Units, tc.units) || !slices.Equal(got.Amounts, tc.amounts) || !maps.Equal(got.Annotations, tc.told) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestChoose: which of the free units a pod gets.
func TestChoose(t *testing.T) {
	const units, groups = "a0,a1,b0,b1,b2,c0,c1,c2,c3,lone", "a0,a1;b2,b1,b0;c0,c1,c2,c3,gone"
	preferred := strings.Replace(grouped, "Required", "Preferred", 1)
	spread := func(config string) string {
		return strings.TrimSuffix(config, "}") + ", scoringStrategy: {type: Spread}}"
	}
	for _, tc := range []struct {
		what, config string
		node         *corev1.Node
		taken        string // units of pods on the node, as many as there are names
		want         int64
		told         string
	}{
		{"lowest number", numbered, counting(4), "0,2", 2, "1,3"},
		{"one of the smallest group", grouped, naming(units, groups), "", 1, "lone"},
		{"smallest group that is enough", grouped, naming(units, groups), "", 3, "b0,b1,b2"},
		{"what is left of a group", grouped, naming(units, groups), "c0,c3", 2, "a0,a1"},
		{"smallest rest that is enough", grouped, naming(units, groups), "a0,c0,c3", 2, "c1,c2"},
		{"largest group", spread(grouped), naming(units, groups), "", 2, "c0,c1"},
		{"largest rest", spread(grouped), naming(units, groups), "c0,c3", 1, "b0"},
		{"one group though others would do", preferred, naming(units, groups), "", 3, "b0,b1,b2"},
		{"few groups if one is too small", preferred, naming(units, groups), "", 6, "b0,b1,c0,c1,c2,c3"},
		{"no group has so many", grouped, naming(units, groups), "", 5, "GroupTooSmall! 4/5 devices"},
		{"no group has so many left", grouped, naming(units, groups), "c0", 4, "InsufficientGroup 3/4 devices"},
		{"groups are not told", grouped, naming("x,y", ""), "", 2, "GroupTooSmall! 1/2 devices"},
		{"groups are not told but only preferred", preferred, naming("x,y", ""), "", 2, "x,y"},
		{"fullest unit that is enough", shared, naming("x,y,z", ""), "y,z", 2, "y"},
		{"emptiest unit", spread(shared), naming("x,y,z=9", ""), "x,z,z", 1, "z"},
		{"shares of one unit only", shared, naming("x,y", ""), "x,y", 4, "InsufficientShares 3/4 shares"},
	} {
		w := &world{node: tc.node}
		for i, unit := range strings.Split(tc.taken, ",") {
			if unit != "" {
				w.pods = append(w.pods, bound(fmt.Sprint("old", i), 1, unit))
			}
		}
		expect(t, tc.what, w.told(policytest.Build(t, devices.Type(), tc.config), asking("p", tc.want)), tc.told)
	}
}

// TestOverbooked: overbooked nodes have nothing free, however much their pods use, and an
// overbooked unit does not reduce the others.
func TestOverbooked(t *testing.T) {
	w := &world{node: counting(2), pods: []*corev1.Pod{bound("a", math.MaxInt64, "-"), bound("b", math.MaxInt64, "-")}}
	expect(t, "counted", w.filter(t, policytest.Build(t, devices.Type(), counted), asking("p", 1)), "InsufficientDevices 0/1 devices")
	expect(t, "numbered", w.filter(t, policytest.Build(t, devices.Type(), numbered), asking("p", 1)), "InsufficientDevices 0/1 devices")
	w = &world{node: naming("a,b", ""), pods: []*corev1.Pod{bound("a", math.MaxInt64, "a"), bound("b", math.MaxInt64, "a")}}
	expect(t, "shares", w.told(policytest.Build(t, devices.Type(), shared), asking("p", 4)), "b")
	for _, pod := range []*corev1.Pod{asking("p", 1), asking("p", math.MaxInt64)} {
		if score := prepare(t, policytest.Build(t, devices.Type(), shared), pod).Score(w.snapshot()); score < 0 || score > policy.MaxScore {
			t.Errorf("the score is %d", score)
		}
	}
}

// TestConfigurationChanges: allocations made under another setting of units are subtracted from the node
// as a whole.
func TestConfigurationChanges(t *testing.T) {
	node := naming("a,b,c", "")
	node.Status = counting(3).Status
	for _, before := range []string{counted, numbered, named} {
		for _, after := range []string{counted, numbered, named} {
			w := &world{node: node}
			old := asking("old", 2)
			w.allocation(t, policytest.Build(t, devices.Type(), before), old)
			w.bind(old)
			what := before + " to " + after
			expect(t, what, w.filter(t, policytest.Build(t, devices.Type(), after), asking("p", 2)), "InsufficientDevices 1/2 devices")
			if _, verdict := w.reserve(policytest.Build(t, devices.Type(), after), asking("p", 1)); !verdict.Fits() {
				t.Errorf("%s: %s", what, policytest.Says(verdict))
			}
		}
	}
}

// TestLedgerBounds: Filter rejects a node if its ledger cannot hold the allocation.
func TestLedgerBounds(t *testing.T) {
	p := policytest.Build(t, devices.Type(), numbered)
	expect(t, "most units", (&world{node: counting(snapshot.MaxLedgerUnits)}).filter(t, p, asking("p", snapshot.MaxLedgerUnits)), "fits")
	expect(t, "too many units", (&world{node: counting(snapshot.MaxLedgerUnits + 1)}).filter(t, p, asking("p", 1)), "InvalidDevices!")

	const annotationLength = 4096 // of an allocation, as in the ledger's schema
	names := make([]string, snapshot.MaxLedgerUnits)
	for i := range names {
		names[i] = fmt.Sprintf("%063d", i)
	}
	w := &world{node: naming(strings.Join(names, ","), "")}
	told := w.told(policytest.Build(t, devices.Type(), named), asking("p", snapshot.MaxLedgerUnits))
	if told != strings.Join(names, ",") || len(told) > annotationLength {
		t.Errorf("the pod's annotation has %d bytes: %s", len(told), told)
	}
	w.node = naming(strings.Join(names, ",")+",x", "")
	expect(t, "too many names", w.filter(t, policytest.Build(t, devices.Type(), named), asking("p", 1)), "InvalidDevices!")
	w.node = naming("0"+names[0], "")
	expect(t, "too long a name", w.filter(t, policytest.Build(t, devices.Type(), named), asking("p", 1)), "InvalidDevices!")
}

func BenchmarkDevices(b *testing.B) {
	var builder snapshot.Builder
	for i := range 5000 {
		node := naming("f0,f1,f2,f3,f4,f5,f6,f7", "f0,f1,f2,f3;f4,f5,f6,f7")
		node.Name = fmt.Sprint("node-", i)
		builder.SetNode(node)
		for j := range 30 {
			pod := bound(fmt.Sprint("pod-", j), int64(j/24), fmt.Sprint("f", j%8))
			pod.UID, pod.Spec.NodeName = types.UID(fmt.Sprint(i, "/", j)), node.Name
			builder.SetPod(pod)
		}
	}
	policytest.Benchmark(b, policytest.Build(b, devices.Type(), grouped), asking("p", 2), builder.View())
}

// TestResizedPodKeepsItsAllocation: a resize in place changes CPU and memory, but neither the allocations of
// a pod nor the units of a pod without an allocation.
func TestResizedPodKeepsItsAllocation(t *testing.T) {
	p := policytest.Build(t, devices.Type(), numbered)
	w := &world{node: counting(4)}
	w.allocation(t, p, asking("allocated", 2))
	allocated := w.bind(asking("allocated", 2))
	w.pods = append(w.pods, bound("foreign", 1, "-"))
	for _, pod := range w.pods {
		amount := func(cpu string) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), fpga: pod.Spec.Containers[0].Resources.Limits[fpga]}
		}
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amount("1"), Limits: amount("1")}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResources: amount("8"), Resources: &corev1.ResourceRequirements{Requests: amount("8")}}}
	}
	expect(t, "as much as is left", w.filter(t, p, asking("new", 1)), "fits")
	expect(t, "more than is left", w.filter(t, p, asking("new", 2)), "InsufficientDevices 1/2 devices")
	expect(t, "the pod itself", w.filter(t, p, allocated), "fits")
	expect(t, "what the next gets", w.told(p, asking("new", 1)), "2")
}

// TestUnreported: a resource that no node has gets a different reason from one that only this node
// lacks, also after nodes have changed.
func TestUnreported(t *testing.T) {
	p, whole := policytest.Build(t, devices.Type(), counted), policytest.Build(t, devices.Type(), named)
	nodes := func(counts ...int64) *snapshot.View {
		var b snapshot.Builder
		for i, n := range counts {
			node := counting(n)
			node.Name = fmt.Sprint("n", i)
			b.SetNode(node)
		}
		return b.View()
	}
	says := func(p policy.Policy, view *snapshot.View) string {
		c := policytest.Prepare[policy.Filter](t, p, asking("p", 1), view)
		return policytest.Says(c.Filter((&world{node: counting(0)}).snapshot()))
	}
	for _, tc := range []struct {
		what   string
		policy policy.Policy
		view   *snapshot.View
		want   string
	}{
		{"no node has any", p, nodes(0, 0, 0), "UnreportedDevices!"},
		{"the last has some", p, nodes(0, 0, 5), "NoDevices!"},
		{"there are fewer nodes", p, nodes(0), "UnreportedDevices!"},
		{"another has some", p, nodes(0, 5, 0), "NoDevices!"},
		{"no node has any again", p, nodes(0, 0, 0), "UnreportedDevices!"},
		{"nodes are not known", p, nodes(), "NoDevices!"},
		{"nodes are to name theirs", whole, nodes(0, 0), "NoDevices!"},
	} {
		expect(t, tc.what, says(tc.policy, tc.view), tc.want)
	}
	c := policytest.Prepare[policy.Explainer](t, p, asking("p", 1), nodes(0))
	if said := c.Explain(nil); len(said) != 1 || !strings.Contains(said[0], "example.com/fpga: no node reports any in status.allocatable (if a DeviceClass") {
		t.Errorf("the explanation is %q", said)
	}
	c = policytest.Prepare[policy.Explainer](t, p, asking("p", 1), nodes(0, 1))
	if said := c.Explain(nil); len(said) > 0 {
		t.Errorf("a node has some, and the explanation is %q", said)
	}
}
