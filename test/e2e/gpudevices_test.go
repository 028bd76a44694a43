package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// Only Outboard names the GPUs of a container: when a pod is created, changed or bound. Others can
// request GPU memory, until the pod is bound. The GPU Operator's own containers get their devices.
func TestOnlyOutboardNamesGPUs(t *testing.T) {
	const devices, limit = "nvidia.com/container.main.gpus.devices", "nvidia.com/container.main.gpu-memory.limit"
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a"})
	th.Apply(nil, "--server-side", "-f", filepath.Join(th.Root, "deploy", "gpu-devices.yaml"))
	config, err := clientcmd.BuildConfigFromFlags("", th.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:outboard-system:outboard", Groups: []string{"system:masters"}}
	outboard, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	create := func(key, value string) (*corev1.Pod, error) {
		n++
		pod := controlplane.PodSpec{Name: fmt.Sprint("p", n), SchedulerName: "none"}.Pod()
		pod.Annotations = map[string]string{key: value}
		return th.Client.CoreV1().Pods("default").Create(th.Ctx, pod, metav1.CreateOptions{})
	}
	bind := func(client kubernetes.Interface, pod *corev1.Pod) error {
		b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Annotations: map[string]string{devices: "0", limit: "1024Mi"}}, Target: corev1.ObjectReference{Kind: "Node", Name: "a"}}
		return client.CoreV1().Pods("default").Bind(th.Ctx, b, metav1.CreateOptions{})
	}
	change := func(name, subresource, key, value string) error {
		pod, err := th.Client.CoreV1().Pods("default").Get(th.Ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Annotations[key] = value; value == "" {
			delete(pod.Annotations, key)
		}
		if subresource == "status" {
			_, err = th.Client.CoreV1().Pods("default").UpdateStatus(th.Ctx, pod, metav1.UpdateOptions{})
		} else {
			_, err = th.Client.CoreV1().Pods("default").Update(th.Ctx, pod, metav1.UpdateOptions{})
		}
		return err
	}
	expect := func(what string, err error, refused bool) {
		t.Helper()
		if apierrors.IsForbidden(err) != refused || err != nil && !refused {
			t.Errorf("%s: %v, want it to be refused: %t", what, err, refused)
		}
	}
	th.Eventually("the policy is in force", func() bool {
		_, err := create(devices, "0")
		return apierrors.IsForbidden(err)
	})
	for annotation, refused := range map[[2]string]bool{
		{devices, "GPU-5c1f"}: true,
		{"nvidia.cdi.k8s.io/container.main", "nvidia.com/gpu=0"}:              true,
		{"nvidia.cdi.k8s.io/pod", "management.nvidia.com/gpu=all,x.com/y=0"}:  true,
		{"nvidia.cdi.k8s.io", "nvidia.com/gpu=all"}:                           true,
		{"nvidia.cdi.k8s.io/container.main", "management.nvidia.com/gpu=all"}: false,
		{"nvidia.com/container.main.gpu-compute.mode", "time-slicing"}:        false,
	} {
		_, err := create(annotation[0], annotation[1])
		expect(fmt.Sprint("a new pod with ", annotation), err, refused)
	}
	pod, err := create(limit, "1Gi")
	expect("a new pod that requests memory", err, false)
	expect("another request", change(pod.Name, "", limit, "2Gi"), false)
	expect("a GPU for a pod that waits", change(pod.Name, "", devices, "0"), true)
	expect("a Binding by another user", bind(th.Client, pod), true)
	expect("a Binding by Outboard", bind(outboard, pod), false)
	for _, subresource := range []string{"", "status"} {
		expect("another GPU", change(pod.Name, subresource, devices, "1"), true)
		expect("no GPU", change(pod.Name, subresource, devices, ""), true)
		expect("more memory", change(pod.Name, subresource, limit, "80Gi"), true)
		expect("no limit", change(pod.Name, subresource, limit, ""), true)
		expect("another annotation", change(pod.Name, subresource, "example.com/note", "x"+subresource), false)
	}
}
