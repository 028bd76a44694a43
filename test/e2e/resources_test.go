package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// resize patches the requests of the pod's container, as a user does.
func resize(th *theater.Theater, pod *corev1.Pod, requests map[string]string) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"name": pod.Spec.Containers[0].Name, "resources": map[string]any{"requests": requests}},
	}}})
	if err != nil {
		return err
	}
	_, err = th.Client.CoreV1().Pods(pod.Namespace).Patch(th.Ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "resize")
	return err
}

// reportMemory writes into the pod's status, as the kubelet does, that its container has this
// memory.
func reportMemory(th *theater.Theater, pod *corev1.Pod, memory string) {
	th.T.Helper()
	patch := fmt.Appendf(nil, `{"status": {"phase": "Running", "containerStatuses": [{"name": %q, "image": "pause", "imageID": "", "state": {"running": {}},
		"allocatedResources": {"memory": %q}, "resources": {"requests": {"memory": %q}}}]}}`, pod.Spec.Containers[0].Name, memory, memory)
	if _, err := th.Client.CoreV1().Pods(pod.Namespace).Patch(th.Ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		th.T.Fatal(err)
	}
}

// A pod with reduced requests keeps its resources until the kubelet has applied the resize. Until
// then neither kube-scheduler nor Outboard allocates them to others, and afterwards both do. An
// extended resource cannot be resized.
func TestResizedPodsCountWithWhatTheyHave(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a", CPU: "4", Memory: "8Gi", Resources: map[string]string{"example.com/fpga": "4"}})
	o := th.Outboard(halfFull)
	th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter bind"}))
	resized := th.BoundAndSeen(o, controlplane.PodSpec{Name: "resized", Memory: "3Gi", Resources: map[string]string{"example.com/fpga": "1"}})
	reportMemory(th, resized, "3Gi")
	if err := resize(th, resized, map[string]string{"memory": "1Gi"}); err != nil {
		t.Fatal(err)
	}
	if waits, want := th.Placed(controlplane.PodSpec{Name: "large", Memory: "6Gi"}).Waiting, "Insufficient memory"; !strings.Contains(waits, want) {
		t.Errorf("kube-scheduler itself keeps a pod with 6Gi pending because of %q, want %q: 3Gi of 8Gi are held", waits, want)
	}
	small := th.Placed(controlplane.PodSpec{Name: "small", Memory: "2Gi"})
	if want := "1 node(s) would be more than half full"; !strings.Contains(small.Waiting, want) {
		t.Errorf("a pod with 2Gi is on %q and waits because of %q, want %q: 3Gi are held, although 1Gi is requested", small.Pod.Spec.NodeName, small.Waiting, want)
	}
	reportMemory(th, resized, "1Gi")
	th.WillBeBound(small.Pod)
	if err := resize(th, resized, map[string]string{"example.com/fpga": "2"}); err == nil || !strings.Contains(err.Error(), "only cpu and memory resources are mutable") {
		t.Errorf("resizing an extended resource: %v", err)
	}
}

// kube-scheduler does not try a gated pod, and Outboard does not explain it as rejected; after the
// removal of the gates, kube-scheduler places it.
func TestGatedPod(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a"})
	o := th.Outboard(theater.OneWeb)
	th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter bind"}))
	pod := web("gated").Pod()
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
	if _, err := th.Client.CoreV1().Pods(pod.Namespace).Create(th.Ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	th.Eventually("explain says that the pod is gated", func() bool { return strings.Contains(th.Explain(o, "gated").Verdict, "(example.com/quota)") })
	if doc := th.Explain(o, "gated"); len(doc.Decisions) > 0 || doc.Reason.Profile != "" {
		t.Errorf("the explanation of a gated pod is %+v", doc)
	}
	if _, err := th.Client.CoreV1().Pods(pod.Namespace).Patch(th.Ctx, pod.Name, types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := controlplane.WaitForPodBound(th.Ctx, th.Client, pod); err != nil {
		t.Fatal(err)
	}
	th.Eventually("explain says that the pod is bound", func() bool { doc := th.Explain(o, "gated"); return doc.Node == "a" && doc.Reason == nil })
}

// countedFPGAs counts the devices that nodes report.
const countedFPGAs = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies:
  - type: Devices
    config: {resource: example.com/fpga}
`

// serveFPGAs makes DRA provide example.com/fpga with two devices of the node.
func serveFPGAs(th *theater.Theater, node string) {
	th.T.Helper()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "fpga.example.com"}}
	class.Spec.ExtendedResourceName = new("example.com/fpga")
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "fpga.example.com"`}}}
	if _, err := th.Client.ResourceV1().DeviceClasses().Create(th.Ctx, class, metav1.CreateOptions{}); err != nil {
		th.T.Fatal(err)
	}
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "fpgas-of-" + node}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "fpga.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{Name: "fpga-0"}, {Name: "fpga-1"}},
	}}
	if _, err := th.Client.ResourceV1().ResourceSlices().Create(th.Ctx, slice, metav1.CreateOptions{}); err != nil {
		th.T.Fatal(err)
	}
}

// A resource that DRA provides is in no node's status.allocatable. kube-scheduler calls the
// extender that manages it anyway, and Devices rejects the pod with the reason; without the entry
// in managedResources kube-scheduler allocates the device.
func TestResourceServedByDRA(t *testing.T) {
	t.Parallel()
	for name, ignored := range map[string]string{"counted by kube-scheduler": "false", "ignored by kube-scheduler": "true"} {
		t.Run(name, func(t *testing.T) {
			th := theater.Open(t)
			th.Nodes(controlplane.NodeSpec{Name: "a"})
			serveFPGAs(th, "a")
			o := th.Outboard(countedFPGAs)
			config := theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter bind", Managed: []string{"example.com/fpga"}})
			th.Scheduler(strings.ReplaceAll(config, "ignoredByScheduler: true", "ignoredByScheduler: "+ignored))
			placed := th.Placed(controlplane.PodSpec{Name: "p", Resources: map[string]string{"example.com/fpga": "1"}})
			if want := "no node reports any in status.allocatable; Devices does not count devices that DRA allocates"; !strings.Contains(placed.Waiting, want) {
				t.Errorf("the pod is on %q and waits because of %q, want %q", placed.Pod.Spec.NodeName, placed.Waiting, want)
			}
			var notes []string
			for _, n := range th.ExplainPending(o, "p").Now[0].Notes {
				notes = append(notes, n.Notes...)
			}
			if len(notes) != 1 || !strings.HasPrefix(notes[0], "example.com/fpga: no node reports any in status.allocatable ") {
				t.Errorf("the explanation is %q", notes)
			}
		})
	}
	t.Run("left to kube-scheduler", func(t *testing.T) {
		th := theater.Open(t)
		th.Nodes(controlplane.NodeSpec{Name: "a"})
		serveFPGAs(th, "a")
		o := th.Outboard(countedFPGAs)
		th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter bind", Managed: []string{"example.com/other"}}))
		th.Bound(controlplane.PodSpec{Name: "served", Resources: map[string]string{"example.com/fpga": "1"}})
		claims, err := th.Client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).List(th.Ctx, metav1.ListOptions{})
		if err != nil || len(claims.Items) != 1 || claims.Items[0].Status.Allocation == nil {
			t.Errorf("the allocated devices: %v (%v)", claims, err)
		}
		both := th.Placed(controlplane.PodSpec{Name: "both", Resources: map[string]string{"example.com/fpga": "1", "example.com/other": "1"}})
		if want := "cannot fit resource"; !strings.Contains(both.Waiting, want) {
			t.Errorf("a pod that also requests an unreported resource is on %q and waits because of %q, want %q", both.Pod.Spec.NodeName, both.Waiting, want)
		}
	})
}
