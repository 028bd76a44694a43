package resourceclaims_test

import (
	"fmt"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/mig"
)

// unitsOf is the units as text: name, used, capacity and holders.
func unitsOf(list policy.UnitList) string {
	var text strings.Builder
	for _, n := range list.Nodes {
		fmt.Fprintf(&text, "%s (%s):", n.Node, n.Group)
		for _, u := range n.Units {
			fmt.Fprintf(&text, " %s %d/%d", u.Name, u.Used, u.Capacity)
			if u.Unhealthy {
				text.WriteString(" unhealthy")
			}
			for _, h := range u.Holders {
				fmt.Fprintf(&text, " %s=%s:%d", h.Claim.Name, h.Pod, h.Amount)
			}
			text.WriteString(";")
		}
		text.WriteString("\n")
	}
	return text.String()
}

// The units are shared devices with their memory, or the GPUs from which partitions are cut.
func TestUnits(t *testing.T) {
	var b snapshot.Builder
	for _, n := range policytest.Nodes(nodes) {
		b.SetNode(n)
	}
	policytest.Devices(objects(t))(&b)
	pod := claiming("held")
	pod.UID, pod.Spec.NodeName = "holder", "a"
	b.SetPod(pod)
	p := build(t, "scoringStrategy: {driver: gpu.example.com, modelAttribute: model}").(policy.UnitLister)
	want := "a (A100): gpu-0 30/40 held=holder:10 more=:20; gpu-1 0/40;\n" + "b (A100): gpu-0 40/40 whole=:40; gpu-1 0/40 unhealthy;\n"
	list := p.Units(b.View())
	if got := unitsOf(list); got != want || list.Resource != "gpu.example.com" || list.Unit != "GiB" {
		t.Errorf("%s in %s:\n%swant\n%s", list.Resource, list.Unit, got, want)
	}

	node, published := mig.Node("m", 2)
	b.SetNode(node)
	b.SetDeviceClass(mig.DeviceClass())
	for _, s := range published {
		b.SetResourceSlice(s)
	}
	claim := mig.Claim("partition", "2g.10gb")
	allocate(t, &b, claim, "m")
	p = build(t, "").(policy.UnitLister)
	want = "m (NVIDIA A100-SXM4-40GB): gpu-0-counter-set 10/40 partition=:10; gpu-1-counter-set 0/40;\n"
	if got := unitsOf(p.Units(b.View())); got != want {
		t.Errorf("partitions:\n%swant\n%s", got, want)
	}
}

// Administrative access uses nothing of a device, and a claim may have a device that no slice has
// any more.
func TestUnitsWithoutUse(t *testing.T) {
	var b snapshot.Builder
	for _, n := range policytest.Nodes(nodes) {
		b.SetNode(n)
	}
	policytest.Devices(objects(t))(&b)
	for _, r := range []resourcev1.DeviceRequestAllocationResult{
		{Driver: "gpu.example.com", Pool: "a", Device: "gpu-1", AdminAccess: new(true)},
		{Driver: "gpu.example.com", Pool: "a", Device: "gpu-2"},
	} {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: r.Device, UID: types.UID(r.Device)}}
		c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{r}}}
		b.SetResourceClaim(c)
	}
	p := build(t, "scoringStrategy: {driver: gpu.example.com, modelAttribute: model}").(policy.UnitLister)
	if got, want := unitsOf(p.Units(b.View())), "a (A100): gpu-0 30/40 held=:10 more=:20; gpu-1 0/40;\n"; !strings.HasPrefix(got, want) {
		t.Errorf("%swant\n%s", got, want)
	}
}

// allocate gives the claim what the allocator gives it on the node.
func allocate(t *testing.T, b *snapshot.Builder, claim *resourcev1.ResourceClaim, node string) {
	t.Helper()
	predictor, view := firstfit.New(), b.View()
	request, err := predictor.RequestOf([]*resourcev1.ResourceClaimSpec{&claim.Spec}, view, 0)
	if err != nil {
		t.Fatal(err)
	}
	results, err := predictor.Allocate(request, view.Node(node))
	if err != nil || results == nil {
		t.Fatal(results, err)
	}
	claim.Status.Allocation = &results[0]
	b.SetResourceClaim(claim)
}
