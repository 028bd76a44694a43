package resourceclaims_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/policies/resourceclaims"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

func TestScenarios(t *testing.T) {
	policytest.RunScenarios(t, resourceclaims.Type(), "testdata/*.txtar")
}

func TestConformance(t *testing.T) {
	policytest.Run(t, policytest.Options{
		New:    policytest.FromYAML(resourceclaims.Type(), "scoringStrategy: {type: Spread}"),
		Pods:   []*corev1.Pod{claiming("share", "two"), claiming("part"), claiming("no-such-claim")},
		Nodes:  policytest.Nodes(nodes),
		Extend: policytest.Devices(objects(t)),
	})
}

func BenchmarkPolicy(b *testing.B) {
	policytest.Benchmark(b, build(b, ""), claiming("share"), view(b))
}

// The explanation of a node names the devices that the pod would get, or what each device lacks.
func TestExplain(t *testing.T) {
	p := build(t, "")
	for _, tt := range []struct {
		claim, node, want string
	}{
		{"share", "a", "claim share: would get gpu-0 (10Gi of its memory)\ndevices of the node: 1.0 of 2 used then"},
		{"two", "a", "claim two, request r: gpu-0 (memory: 10Gi of 40Gi free; held by default/held (10Gi), default/more (20Gi)), gpu-1 (can serve it alone)"},
		{"two", "b", "claim two, request r: gpu-0 (allocated to default/whole), gpu-1 (tainted: ill)"},
		{"old-model", "a", "claim old-model, request r: gpu-0 (not selected), gpu-1 (not selected)"},
		{"part", "b", "claim part, request r: whole (not selected), half (counter part-0 of mig-0: 0 of 1 free; held by default/cut)"},
		{"part", "a", "claim part, request r: no device of the node is of the class"},
		{"part", "c", "the node: has no devices of its own (scores do not count devices that several nodes share)"},
	} {
		v := view(t)
		c := policytest.Prepare[policy.Explainer](t, p, claiming(tt.claim), v)
		if got := strings.Join(c.Explain(v.Node(tt.node)), "\n"); got != tt.want {
			t.Errorf("%s on %s:\n%s\nwant\n%s", tt.claim, tt.node, got, tt.want)
		}
	}
	c := policytest.Prepare[policy.Explainer](t, p, claiming("gone"), view(t))
	if got, want := strings.Join(c.Explain(nil), "\n"), `scores: unknown (there is no ResourceClaim "gone")`; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// The allocator may try fewer combinations on a node if there are more devices, so that the scores
// of all nodes take bounded work. The claim needs some dozen: all groups of devices but the last
// are too small.
func TestWorkIsBounded(t *testing.T) {
	var b snapshot.Builder
	slice := func(name string, devices []resourcev1.Device) {
		b.SetResourceSlice(&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "g", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, ResourceSliceCount: 1}, Devices: devices,
		}})
	}
	var devices []resourcev1.Device
	for i := range 21 {
		group := fmt.Sprint(min(i/2, 9))
		devices = append(devices, resourcev1.Device{
			Name: fmt.Sprint("d", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"g/group": {StringValue: &group}},
		})
	}
	b.SetDeviceClass(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	slice("n", devices)
	same := resourcev1.FullyQualifiedName("g/group")
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "c"}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 3,
	}}}
	claim.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: &same}}
	b.SetResourceClaim(claim)
	p := build(t, "")
	for _, tt := range []struct {
		others int
		known  bool
		want   string
	}{
		{0, true, "claim c: would get d18, d19, d20"},
		{2000, false, "the claims: unknown (filter operation aborted: too many combinations of devices to try: more than 16 steps)"},
	} {
		for i := range tt.others {
			slice(fmt.Sprint("other-", i), make([]resourcev1.Device, 128))
		}
		v := b.View()
		score := policytest.Prepare[policy.Score](t, p, claiming("c"), v).Score(v.Node("n"))
		got := policytest.Prepare[policy.Explainer](t, p, claiming("c"), v).Explain(v.Node("n"))[0]
		if got != tt.want || tt.known != (score != policy.NoOpinion) {
			t.Errorf("with %d nodes more, the score is %d: %s; want %s", tt.others, score, got, tt.want)
		}
	}
}

// BenchmarkCluster scores all nodes of a cluster for one pod after another, each of which takes a
// share on the best node: only that node has changed for the next pod. Pods request usual amounts,
// or each another one, so that nothing is known of it, on nodes that are alike or all differ.
func BenchmarkCluster(b *testing.B) {
	for _, strategy := range []string{"BinPack", "LeastWaste"} {
		for _, count := range []int{500, 5000} {
			for _, requests := range []string{"usual", "new", "new, nodes differ"} {
				b.Run(fmt.Sprintf("%s/%d/%s", strategy, count, requests), func(b *testing.B) { benchmarkCluster(b, strategy, count, requests) })
			}
		}
	}
}

func benchmarkCluster(b *testing.B, strategy string, count int, requests string) {
	w, p := newGPUWorld(), build(b, "scoringStrategy: {type: "+strategy+", driver: gpu.example.com, modelAttribute: model}")
	for i := range count {
		name := fmt.Sprint("n", i)
		w.node(name, []string{"T4", "P100", "V100"}[i%3], 8, false)
		if requests == "new, nodes differ" {
			held := allocated(w.claim("held-"+name, 1, 1), name, 1, 7)
			held.Status.Allocation.Devices.Results[0].ConsumedCapacity["memory"] = *resource.NewQuantity(int64(i+1), resource.BinarySI)
			w.SetResourceClaim(held)
		}
	}
	for i := range 2000 {
		w.come(w.claim(fmt.Sprint("past-", i), 1, []int64{0, 2, 4, 6, 10}[i%5]), "")
	}
	view := w.View()
	rows, all := make([]int32, 0, count), make([]int64, count)
	for n := range view.All() {
		rows = append(rows, int32(n.Row()))
	}
	pod := 0
	next := func() {
		memory := []int64{2, 4, 6, 10}[pod%4]
		claim := w.claim(fmt.Sprint("new-", pod), 1, memory)
		if requests != "usual" {
			claim.Spec.Devices.Requests[0].Exactly.Capacity.Requests["memory"] = *resource.NewQuantity(memory<<30+int64(pod+1), resource.BinarySI)
		}
		pending := claiming(claim.Name)
		w.SetResourceClaim(claim)
		view = w.View()
		b.StartTimer()
		cycle := policytest.Prepare[policy.Score](b, p, pending, view)
		scoreAll(cycle, view, rows, all)
		b.StopTimer()
		if best := slices.Max(all); best <= 0 {
			b.Fatalf("the best score is %d", best)
		}
		w.SetResourceClaim(allocated(claim, view.At(int(rows[slices.Index(all, slices.Max(all))])).Name, memory, pod%8))
		pod++
	}
	b.StopTimer()
	for range 8 {
		next() // what is learned and kept is not measured
	}
	b.StopTimer()
	b.ResetTimer()
	for range b.N {
		next()
	}
}

// Only LeastWaste learns from the pods that have come.
func TestInputs(t *testing.T) {
	for config, want := range map[string]bool{"": false, "scoringStrategy: {type: Spread}": false, "scoringStrategy: {type: LeastWaste}": true} {
		in := build(t, config).(policy.InputReader).Inputs()
		if in.History != want || !in.Devices || !in.ScoreOnly {
			t.Errorf("%q: the policy reads %+v, want the history: %t", config, in, want)
		}
	}
}
