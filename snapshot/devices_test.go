package snapshot_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/snapshot"
)

// resourceSlice returns a slice of the pool with one device for each name.
func resourceSlice(name, node, driver, pool string, generation, count int64, devices ...string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	s.Spec = resourcev1.ResourceSliceSpec{Driver: driver, Pool: resourcev1.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: count}, NodeName: &node}
	for _, device := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: device})
	}
	return s
}

// allocatedClaim returns a claim that has these devices, each as driver/pool/device.
func allocatedClaim(name string, devices ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r"}}
	if len(devices) > 0 {
		c.Status.Allocation = new(resourcev1.AllocationResult)
	}
	for _, id := range devices {
		part := strings.Split(id, "/")
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Driver: part[0], Pool: part[1], Device: part[2]})
	}
	return c
}

// shown is what a View has of the devices of a node.
func shown(n *snapshot.Node) string {
	var text strings.Builder
	for _, p := range n.DevicePools() {
		fmt.Fprintf(&text, "%s/%s[", p.Driver, p.Name)
		for _, s := range p.Slices {
			for _, d := range s.Spec.Devices {
				text.WriteString(" " + d.Name)
				for _, taint := range d.Taints {
					text.WriteString("!" + taint.Key)
				}
			}
		}
		text.WriteString(" ]")
		for _, a := range p.Allocated {
			text.WriteString(" " + a.Claim.Name + "=" + a.Result.Device)
		}
		text.WriteString(";")
	}
	return text.String()
}

// Devices are in the order in which kube-scheduler tries them; a pool counts when all slices of its newest generation are there.
func TestDevicePools(t *testing.T) {
	var b snapshot.Builder
	shows := func(what, want string) {
		t.Helper()
		if got := shown(b.View().Node("n")); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	b.SetResourceSlice(resourceSlice("z", "n", "b.example", "p", 1, 2, "d0"))
	b.SetResourceClaim(allocatedClaim("c", "b.example/p/d1", "gone.example/p/d0"))
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	shows("one of two slices", "")
	b.SetResourceSlice(resourceSlice("a", "n", "b.example", "p", 1, 2, "d1"))
	b.SetResourceSlice(resourceSlice("y", "n", "a.example", "q", 7, 1, "x"))
	b.SetResourceSlice(resourceSlice("x", "n", "a.example", "o", 7, 1, "y"))
	shows("complete", "a.example/o[ y ];a.example/q[ x ];b.example/p[ d1 d0 ] c=d1;")
	b.SetResourceSlice(resourceSlice("new", "n", "b.example", "p", 2, 1, "d2", "d1"))
	shows("a newer generation", "a.example/o[ y ];a.example/q[ x ];b.example/p[ d2 d1 ] c=d1;")
	driver, device := "b.example", "d2"
	b.SetDeviceTaintRule(&resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r"}, Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: &driver, Device: &device}, Taint: resourcev1.DeviceTaint{Key: "ill"}}})
	shows("a taint", "a.example/o[ y ];a.example/q[ x ];b.example/p[ d2!ill d1 ] c=d1;")
	b.SetResourceSlice(resourceSlice("other", "m", "a.example", "q", 7, 2, "z"))
	b.SetResourceSlice(resourceSlice("y", "n", "a.example", "q", 7, 2, "x"))
	shows("a pool of two nodes", "a.example/o[ y ];b.example/p[ d2!ill d1 ] c=d1;")
	b.DeleteResourceClaim(allocatedClaim("c"))
	b.DeleteDeviceTaintRule("r")
	shows("the claim and the rule are gone", "a.example/o[ y ];b.example/p[ d2 d1 ];")
}

// A View has what a model computes from all objects, and unchanged nodes are those of the View before.
func TestDevicesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b snapshot.Builder
		resourceSlices, claims := map[string]*resourcev1.ResourceSlice{}, map[string]*resourcev1.ResourceClaim{}
		name := func(prefix string) string { return prefix + fmt.Sprint(rapid.IntRange(0, 3).Draw(t, prefix)) }
		show := func(v *snapshot.View) string {
			text := ""
			for n := range v.All() {
				text += n.Name + ":" + shown(n) + "\n"
			}
			for i := range 4 {
				text += fmt.Sprint(v.ResourceClaim("ns", fmt.Sprintf("claim%d", i)) != nil)
			}
			return text
		}
		t.Repeat(map[string]func(*rapid.T){
			"node":        func(*rapid.T) { b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name("n")}}) },
			"delete node": func(*rapid.T) { b.DeleteNode(name("n")) },
			"slice": func(*rapid.T) {
				s := resourceSlice(name("slice"), name("n"), "driver", name("pool"), int64(rapid.IntRange(1, 2).Draw(t, "generation")), int64(rapid.IntRange(1, 2).Draw(t, "count")), "d0", "d1")
				resourceSlices[s.Name] = s
				b.SetResourceSlice(s)
			},
			"delete slice": func(*rapid.T) {
				if s := resourceSlices[name("slice")]; s != nil {
					delete(resourceSlices, s.Name)
					b.DeleteResourceSlice(s.Name)
				}
			},
			"claim": func(*rapid.T) {
				c := allocatedClaim(name("claim"), "driver/"+name("pool")+"/d0", "driver/"+name("pool")+"/d1")
				claims[c.Name] = c
				b.SetResourceClaim(c)
			},
			"delete claim": func(*rapid.T) {
				if c := claims[name("claim")]; c != nil {
					delete(claims, c.Name)
					b.DeleteResourceClaim(c)
				}
			},
			"": func(t *rapid.T) {
				var anew snapshot.Builder
				for n := range b.View().All() {
					anew.SetNode(n.Object)
				}
				byName := func(x, y string) int { return cmp.Compare(y, x) }
				for _, key := range slices.SortedFunc(maps.Keys(resourceSlices), byName) {
					anew.SetResourceSlice(resourceSlices[key])
				}
				for _, key := range slices.SortedFunc(maps.Keys(claims), byName) {
					anew.SetResourceClaim(claims[key])
				}
				if got, want := show(b.View()), show(anew.View()); got != want {
					t.Fatalf("after events:\n%s\nall at once:\n%s", got, want)
				}
			},
		})
	})
}

// Of a claim that is too large, the devices count.
func TestLargeClaim(t *testing.T) {
	c := allocatedClaim("c", "d/p/x")
	long := strings.Repeat("x", 9<<10)
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: long}}}}}}
	share := types.UID("share")
	c.Status.Allocation.Devices.Results[0].ShareID = &share
	c.Status.Allocation.Devices.Results[0].ConsumedCapacity = map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("1Gi")}
	c.Status.Allocation.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, 1)}
	snapshot.TrimResourceClaim(c)
	if c.Status.Allocation.NodeSelector != nil {
		t.Errorf("the claim keeps %+v", c.Status.Allocation.NodeSelector)
	}
	if r := c.Status.Allocation.Devices.Results[0]; !snapshot.IsReducedClaim(c) || r.Device != "x" || r.ShareID != nil || r.ConsumedCapacity != nil {
		t.Errorf("the claim is %+v", c)
	}
}
