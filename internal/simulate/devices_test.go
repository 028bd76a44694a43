package simulate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// twoNodes have two GPUs of 40 GiB each, and templates and a claim for them.
const twoNodes = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: device.driver == "gpu"}}]}
---
{kind: Node, metadata: {name: a}, status: {capacity: {cpu: 16, memory: 64Gi, pods: 110}}}
---
{kind: Node, metadata: {name: b}, status: {capacity: {cpu: 8, memory: 64Gi, pods: 110}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: a}
spec: {driver: gpu, nodeName: a, pool: {name: a, resourceSliceCount: 1}, devices: [
  {name: gpu-0, allowMultipleAllocations: true, capacity: {memory: {value: 40Gi}}},
  {name: gpu-1, allowMultipleAllocations: true, capacity: {memory: {value: 40Gi}}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: b}
spec: {driver: gpu, nodeName: b, pool: {name: b, resourceSliceCount: 1}, devices: [
  {name: gpu-0, allowMultipleAllocations: true, capacity: {memory: {value: 40Gi}}},
  {name: gpu-1, allowMultipleAllocations: true, capacity: {memory: {value: 40Gi}}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: 30gi}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, capacity: {requests: {memory: 30Gi}}}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, capacity: {requests: {memory: 40Gi}}}}]}}
---
`

// claiming returns the manifest of a pod with a claim, on the node if that is not "".
func claiming(name, node, claim string) string {
	return fmt.Sprintf("{kind: Pod, metadata: {name: %s}, spec: {nodeName: %q, resourceClaims: [{name: gpu, %s}], containers: [{name: main, resources: {requests: {cpu: 1}}}]}}\n---\n", name, node, claim)
}

const (
	fromTemplate = "resourceClaimTemplateName: 30gi"
	ofShared     = "resourceClaimName: shared"
)

// dra returns the world of the manifests, and the pods that arrive.
func dra(t *testing.T, manifests string, empty bool) (*World, []*corev1.Pod) {
	t.Helper()
	objects, err := ReadManifests(strings.NewReader(manifests))
	if err != nil {
		t.Fatal(err)
	}
	p := NewPlan([]*Objects{objects}, empty)
	w := &World{Nodes: p.Nodes, Devices: p.Devices, Running: p.Running, Resource: corev1.ResourceCPU, Scheduler: Scheduler{ResourceScore: LeastAllocated, FirstOfEqual: true}}
	if p.Again && !empty {
		return w, p.Pending
	}
	return w, slices.Concat(p.Pending, p.Mix)
}

func placements(t *testing.T, w *World, jobs []*corev1.Pod) string {
	t.Helper()
	all, err := w.Place(t.Context(), jobs, 1)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := WritePlacements(&b, all); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Each pod of a template gets a claim of its own, and pods with one claim share its devices, on one node.
func TestDevicesOfClaims(t *testing.T) {
	manifests := twoNodes
	for i := range 2 {
		manifests += claiming(fmt.Sprintf("together-%d", i), "", ofShared)
	}
	for i := range 4 {
		manifests += claiming(fmt.Sprintf("own-%d", i), "", fromTemplate)
	}
	w, jobs := dra(t, manifests, false)
	want := `POD                 NODE  DEVICES
default/together-0  a     gpu-0 (40Gi of its memory)
default/together-1  a     gpu-0 (40Gi of its memory)
default/own-0       b     gpu-0 (30Gi of its memory)
default/own-1       a     gpu-1 (30Gi of its memory)
default/own-2       b     gpu-1 (30Gi of its memory)
default/own-3       none  2 cannot allocate all claims
`
	if got := placements(t, w, jobs); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Running pods have the devices of their claims, whether the files have the claims or only the template.
func TestDevicesOfRunningPods(t *testing.T) {
	allocated := `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: r-gpu-x7k, ownerReferences: [{apiVersion: v1, kind: Pod, name: r, uid: default/r, controller: true}]}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, capacity: {requests: {memory: 30Gi}}}}]}}
status:
  reservedFor: [{resource: pods, name: r, uid: default/r}]
  allocation: {devices: {results: [{request: gpu, driver: gpu, pool: a, device: gpu-1, shareID: 11111111-1111-1111-1111-111111111111, consumedCapacity: {memory: 30Gi}}]}}
---
`
	named := "{kind: Pod, metadata: {name: r}, spec: {nodeName: a, resourceClaims: [{name: gpu, resourceClaimTemplateName: 30gi}], containers: [{name: main}]}, status: {resourceClaimStatuses: [{name: gpu, resourceClaimName: r-gpu-x7k}]}}\n---\n"
	for name, tt := range map[string]struct {
		running string
		empty   bool
		want    []string // the devices that pods of the template get, with the running one if it comes again
	}{
		"the claim is in the file":       {allocated + named, false, []string{"a gpu-0", "b gpu-0", "b gpu-1"}},
		"only the template":              {claiming("r", "a", fromTemplate), false, []string{"a gpu-1", "b gpu-0", "b gpu-1"}},
		"removed from its node":          {allocated + named, true, []string{"a gpu-0", "a gpu-1", "b gpu-0", "b gpu-1"}},
		"removed, with only a template":  {claiming("r", "a", fromTemplate), true, []string{"a gpu-0", "a gpu-1", "b gpu-0", "b gpu-1"}},
		"on a node that is not here any": {claiming("r", "gone", fromTemplate), false, []string{"a gpu-0", "a gpu-1", "b gpu-0", "b gpu-1"}},
	} {
		manifests := twoNodes + tt.running
		for i := range 5 {
			manifests += claiming(fmt.Sprintf("p%d", i), "", fromTemplate)
		}
		w, jobs := dra(t, manifests, tt.empty)
		all, err := w.Place(t.Context(), jobs, 1)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range all {
			for _, d := range p.Devices {
				got = append(got, p.Node+" "+d.Device)
			}
		}
		if slices.Sort(got); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// A pod that ends leaves its devices to the next one; a claim that pods share keeps them until the last of its pods has ended.
func TestDevicesOfPodsThatEnd(t *testing.T) {
	w, _ := dra(t, twoNodes, false)
	r := w.Begin(1)
	var without []*corev1.Pod
	start := func(name, claim string) (*corev1.Pod, bool) {
		objects, err := ReadManifests(strings.NewReader(claiming(name, "", claim)))
		if err != nil {
			t.Fatal(err)
		}
		pod := instance(objects.Pods[0], objects.Pods[0].Name+"-0", r.now)
		r.arrive(pod)
		if err := r.Schedule(t.Context(), pod); err != nil {
			r.leave(pod)
			without = append(without, pod)
			return pod, false
		}
		return pod, true
	}
	var owners []*corev1.Pod
	for i := range 2 {
		pod, _ := start(fmt.Sprintf("shares-%d", i), ofShared)
		owners = append(owners, pod)
	}
	for i := range 3 {
		if _, ok := start(fmt.Sprintf("own-%d", i), fromTemplate); !ok {
			t.Fatalf("pod %d fits on no node", i)
		}
	}
	if _, ok := start("first", fromTemplate); ok {
		t.Error("a pod has a device that is in use")
	}
	r.remove(owners[0].UID)
	if _, ok := start("second", fromTemplate); ok {
		t.Error("a pod has the device of a claim that one more pod uses")
	}
	r.remove(owners[1].UID)
	if _, ok := start("more", fromTemplate); !ok {
		t.Error("a pod cannot have the device of a claim that no pod uses")
	}
	for _, pod := range without {
		if claims := r.claimsOf(pod); len(claims) > 0 {
			t.Errorf("%s has left %d claims", pod.Name, len(claims))
		}
	}
}

// No more pods use a claim than the API permits, and a pod whose claim or class does not exist fits on no node.
func TestClaimsThatCannotBeUsed(t *testing.T) {
	w, _ := dra(t, twoNodes, false)
	for range resourcev1.ResourceClaimReservedForMaxSize {
		w.Devices.Claims[0].Status.ReservedFor = append(w.Devices.Claims[0].Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Name: "other"})
	}
	noClass := "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: no-class}, spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: other}}]}}}}\n"
	classless, err := ReadManifests(strings.NewReader(noClass))
	if err != nil {
		t.Fatal(err)
	}
	w.Devices.Add(&classless.Devices)
	for claim, want := range map[string]string{
		ofShared: "2 resourceclaim in use", "resourceClaimName: missing": `2 there is no ResourceClaim "missing"`,
		"resourceClaimTemplateName: missing":  `2 the ResourceClaim of "gpu" is not created yet`,
		"resourceClaimTemplateName: no-class": `2 ResourceClaim "p-gpu": there is no DeviceClass "other"`,
	} {
		objects, err := ReadManifests(strings.NewReader(claiming("p", "", claim)))
		if err != nil {
			t.Fatal(err)
		}
		if got := placements(t, w, Again(objects.Pods)); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nwant %s", claim, got, want)
		}
		if missing := w.Devices.Missing(objects.Pods[0]); (len(missing) == 1) != strings.HasSuffix(claim, "missing") {
			t.Errorf("%s: missing is %v", claim, missing)
		}
	}
}

func TestDevicesThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"{apiVersion: resource.k8s.io/v1beta1, kind: ResourceSlice, metadata: {name: a}}":                         "must be of resource.k8s.io/v1",
		"{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: a}}":                              "resourceSliceCount",
		"{apiVersion: resource.k8s.io/v1, kind: DeviceClass}":                                                     "unique name",
		"{kind: ResourceClaim, metadata: {name: a}}\n---\n{kind: ResourceClaim, metadata: {name: a}}":             "unique name",
		"{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: a}, spec: {spec: 7}}":     "a ResourceClaimTemplate",
		"{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, metadata: {name: a}, spec: {deviceSelector: 7}}": "a DeviceTaintRule",
	} {
		if _, err := ReadManifests(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	ok := "{kind: ResourceClaim, metadata: {name: a}}\n---\n{kind: ResourceClaim, metadata: {name: a, namespace: other}}"
	if o, err := ReadManifests(strings.NewReader(ok)); err != nil || len(o.Devices.Claims) != 2 {
		t.Error(err)
	}
}
