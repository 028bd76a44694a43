package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
	th.Eventually("explain says that the pod is gated", func() bool { return slices.Equal(th.Explain(o, "gated").Gates, []string{"example.com/quota"}) })
	if doc := th.Explain(o, "gated"); len(doc.Decisions) > 0 || doc.Now[0].Pending != nil {
		t.Errorf("the explanation of a gated pod is %+v", doc)
	}
	if _, err := th.Client.CoreV1().Pods(pod.Namespace).Patch(th.Ctx, pod.Name, types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := controlplane.WaitForPodBound(th.Ctx, th.Client, pod); err != nil {
		t.Fatal(err)
	}
	th.Eventually("explain says that the pod is bound", func() bool { doc := th.Explain(o, "gated"); return doc.Node == "a" && doc.Gates == nil })
}
