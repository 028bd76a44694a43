package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// gpuDriver is the driver, and the class, of the devices.
const gpuDriver = "gpu.example.com"

// deviceNodes creates nodes with two GPUs each, which have 40 GiB and are shared by claims.
func (th *theater) deviceNodes(names ...string) {
	th.t.Helper()
	th.gpuClass()
	for _, node := range names {
		th.deviceNode(node, "4", "40Gi", "40Gi")
	}
}

func (th *theater) gpuClass() {
	th.t.Helper()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: gpuDriver}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", gpuDriver)}}}
	if _, err := th.Client.ResourceV1().DeviceClasses().Create(th.ctx, class, metav1.CreateOptions{}); err != nil {
		th.t.Fatal(err)
	}
}

// deviceNode creates a node that has GPUs with these memories, which are shared by claims.
func (th *theater) deviceNode(node, cpu string, memories ...string) {
	th.t.Helper()
	shared := true
	th.nodes(controlplane.NodeSpec{Name: node, CPU: cpu})
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "gpus-of-" + node}, Spec: resourcev1.ResourceSliceSpec{
		Driver: gpuDriver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
	}}
	for i, memory := range memories {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{
			Name: fmt.Sprintf("gpu-%d", i), AllowMultipleAllocations: &shared,
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(memory)}},
		})
	}
	if _, err := th.Client.ResourceV1().ResourceSlices().Create(th.ctx, slice, metav1.CreateOptions{}); err != nil {
		th.t.Fatal(err)
	}
}

// claiming creates a claim of this much memory of each of several GPUs, and returns a pod with it.
func (th *theater) claiming(name, memory string, gpus int64) *corev1.Pod {
	th.t.Helper()
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: gpuDriver, Count: gpus,
		Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)}}}}}
	if _, err := th.Client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Create(th.ctx, claim, metav1.CreateOptions{}); err != nil {
		th.t.Fatal(err)
	}
	return withClaim(name, name)
}

// withClaim returns a pod that has the claim.
func withClaim(name, claim string) *corev1.Pod {
	pod := controlplane.PodSpec{Name: name, CPU: "100m"}.Pod()
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	return pod
}

// placeClaims places nine pods with 10 GiB each, and then one with two whole GPUs. It returns how many pods each node has, and the last
// pod. seen waits until a pod counts in the next decision.
func (th *theater) placeClaims(seen func(*corev1.Pod)) (count map[string]int, last stage.Outcome) {
	th.t.Helper()
	count = map[string]int{}
	for i := range 9 {
		placed, err := th.Place(th.ctx, th.claiming(fmt.Sprintf("share-%d", i), "10Gi", 1))
		if err != nil || placed.Waiting != "" {
			th.t.Fatal(placed.Waiting, err)
		}
		seen(placed.Pod)
		count[placed.Pod.Spec.NodeName]++
	}
	last, err := th.Place(th.ctx, th.claiming("two-whole-gpus", "40Gi", 2))
	if err != nil {
		th.t.Fatal(err)
	}
	return count, last
}

// With ResourceClaims, they fill the GPUs of one node first. The entry is the generated one: it is soft, and does not call filter.
func TestResourceClaimsFillNodes(t *testing.T) {
	th := open(t)
	th.deviceNodes("a", "b", "c")
	o := th.outboard("apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nprofiles:\n- policies:\n  - {type: ResourceClaims}\n" + plainHTTP)
	th.scheduler(schedulerConfig(extender{o: o, verbs: "prioritize", ignorable: true}))
	count, last := th.placeClaims(func(pod *corev1.Pod) {
		th.eventually("Outboard has seen "+pod.Name+" bound", func() bool { return th.explain(o, pod.Name).Node != "" })
		th.nextView(o)
	})
	if len(count) != 2 || last.Waiting != "" || count[last.Pod.Spec.NodeName] != 0 {
		t.Fatalf("the shares are on %v, and the pod with whole GPUs on %q: %q", count, last.Pod.Spec.NodeName, last.Waiting)
	}
	// All GPUs that are left have less than 40 GiB.
	placed, err := th.Place(th.ctx, th.claiming("no-room", "40Gi", 2))
	if err != nil || !strings.Contains(placed.Waiting, "cannot allocate all claims") {
		t.Fatal(placed.Waiting, err)
	}
	var full, partly string
	for node, pods := range count {
		if pods == 8 {
			full = node
		} else {
			partly = node
		}
	}
	want := "claim no-room, request gpu: gpu-0 (memory: 0 of 40Gi free; held by default/share-0 (10Gi)"
	th.eventually("explain says what is missing", func() bool { return strings.Contains(th.notes(o, "no-room", full), want) })
	remedies := th.explainPending(o, "no-room").Now[0].Remedies
	change := "with 30Gi of memory instead of 40Gi in request gpu of claim no-room, on " + partly
	if len(remedies) != 1 || remedies[0].String() != change {
		t.Fatalf("%v, want %s", remedies, change)
	}
	if placed, err = th.Place(th.ctx, th.claiming("no-room-for-more", "31Gi", 2)); err != nil || placed.Waiting == "" {
		t.Errorf("a pod with more is on %q (%v)", placed.Pod.Spec.NodeName, err)
	}
	if placed, err = th.Place(th.ctx, th.claiming("changed", "30Gi", 2)); err != nil || placed.Pod.Spec.NodeName != partly {
		t.Errorf("the changed pod is on %q: %s (%v)", placed.Pod.Spec.NodeName, placed.Waiting, err)
	}
}

// gpus shows the GPUs of device plugins and the devices of ResourceClaims, from all replicas.
func TestGPUsShowDevices(t *testing.T) {
	th := open(t)
	th.deviceNodes("claimed")
	th.nodes(gpus("shared", 1, 16))
	th.host("shared", kubelet(t))
	config := gpushare + "- path: /claims\n  policies:\n  - {type: ResourceClaims, config: {scoringStrategy: {driver: " + gpuDriver + "}}}\n"
	th.apply(nil, "-f", filepath.Join(th.Root, "deploy", "namespace.yaml"))
	for _, name := range []string{"outboard-1", "outboard-2"} {
		th.replica(name, "shared", th.outboard(config).Admin, corev1.PodRunning)
	}
	th.scheduler("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
	if placed, err := th.Place(th.ctx, th.claiming("train", "10Gi", 1)); err != nil || placed.Waiting != "" {
		t.Fatal(placed.Waiting, err)
	}
	const devices = `Devices of gpu.example.com
NODE     DEVICE  USED  FREE  OF GiB  PODS
claimed  gpu-0   10    30    40      default/train (10)
claimed  gpu-1   0     40    40      
all              10    70    80      
`
	const all = `NODE    GPU  USED  RESERVED  FREE  OF GiB  PODS
shared  0    0     0         16    16      
all          0     0         16    16      

` + devices
	for node, want := range map[string]string{"": all, "claimed": devices} {
		args := slices.DeleteFunc([]string{"gpus", node}, func(arg string) bool { return arg == "" })
		var status int
		var stdout, stderr string
		th.eventually("both replicas have seen the claim", func() bool {
			status, stdout, stderr = th.run(th.Kubeconfig(), args...)
			return status == 0 && strings.Contains(stdout, "train") && stderr == ""
		})
		if stdout != want {
			t.Errorf("%q:\n%s\nwant\n%s", args, stdout, want)
		}
	}
	if status, stdout, _ := th.run(th.Kubeconfig(), "gpus", "none"); status != 1 || stdout != "node \"none\" not found\n" {
		t.Errorf("status %d, %q", status, stdout)
	}
}
