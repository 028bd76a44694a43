package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// gpushare configures Outboard as a replacement of the gpushare extender: the same paths, the same
// resource.
const gpushare = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- path: /gpushare-scheduler
  managedResources:
  - {name: aliyun.com/gpu-mem}
  - {name: aliyun.com/gpu-count}
  policies:
  - {type: GPUMemory, weight: 1}
`

// gpushareScheduler is the unchanged scheduler configuration of a gpushare installation.
func gpushareScheduler(o *stage.Outboard) string {
	return strings.ReplaceAll(schedulerConfig(extender{o: o, path: "/gpushare-scheduler", verbs: "filter bind preempt", managed: []string{string(gpuMem)}}),
		"ignoredByScheduler: true", "ignoredByScheduler: false")
}

// gpus describes a node with a number of GPUs of the same memory.
func gpus(name string, count, each int) controlplane.NodeSpec {
	return controlplane.NodeSpec{Name: name, CPU: "1000", Memory: "1000Gi", Resources: map[string]string{
		"pods": "1000", "aliyun.com/gpu-count": fmt.Sprint(count), string(gpuMem): fmt.Sprint(count * each),
	}}
}

func gpuPod(name string, units int) controlplane.PodSpec {
	return controlplane.PodSpec{Name: name, Resources: map[string]string{string(gpuMem): fmt.Sprint(units)}}
}

// Hundreds of equal pods on one node, at the speed of kube-scheduler: every container runs on the
// GPU that Outboard chose for its pod, although the device plugin can only guess which pod it
// serves; and every GPU is full.
func TestEveryContainerGetsItsGPU(t *testing.T) {
	th := open(t)
	const cards, each = 8, 30
	th.nodes(gpus("gpu-node", cards, each))
	o := th.outboard(gpushare)
	th.scheduler(gpushareScheduler(o))
	node := startGPUNode(th.ctx, th.Client, "gpu-node")
	group, ctx := errgroup.WithContext(th.ctx)
	group.SetLimit(8)
	for i := range cards * each {
		group.Go(func() error {
			_, err := th.Client.CoreV1().Pods("default").Create(ctx, gpuPod(fmt.Sprintf("p%03d", i), 1).Pod(), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	th.eventually("all containers have a GPU", func() bool { return node.count() == cards*each })
	for _, err := range node.failed {
		t.Error(err)
	}
	pods, err := th.Client.CoreV1().Pods("default").List(th.ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]int{}
	for _, p := range pods.Items {
		chosen := p.Annotations[gpuIndex]
		used[chosen]++
		if got := node.served[p.UID]; got != chosen {
			t.Errorf("pod %s has a claim of GPU %s, and its container runs on %s", p.Name, chosen, got)
		}
	}
	for card := range cards {
		if got := used[fmt.Sprint(card)]; got != each {
			t.Errorf("GPU %d has %d pods, want %d", card, got, each)
		}
	}
	one := th.place(gpuPod("one-more", 1))
	if one.Waiting == "" {
		t.Errorf("one more pod was bound to %s", one.Pod.Spec.NodeName)
	}
}

// A pod that is too large for each GPU waits, and its event has the reason in gpushare's words;
// when another pod has ended and is deleted, it runs.
func TestGPUMemoryIsOfOneGPU(t *testing.T) {
	th := open(t)
	th.nodes(gpus("gpu-node", 2, 16))
	o := th.outboard(gpushare)
	th.scheduler(gpushareScheduler(o))
	first, second := th.bound(gpuPod("first", 9)), th.bound(gpuPod("second", 9))
	if first.Annotations[gpuIndex] == second.Annotations[gpuIndex] {
		t.Errorf("both pods are on GPU %s", first.Annotations[gpuIndex])
	}
	const shown = `{"nodes":[{"name":"gpu-node","totalGPU":32,"usedGPU":18,"devs":[` +
		`{"id":0,"totalGPU":16,"usedGPU":9,"pods":[{"name":"first","namespace":"default","usedGPU":9}]},` +
		`{"id":1,"totalGPU":16,"usedGPU":9,"pods":[{"name":"second","namespace":"default","usedGPU":9}]}]}]}`
	for path, want := range map[string]string{
		"inspect": shown, "inspect/gpu-node": shown, "inspect/no-such-node": `{"nodes":[],"error":"node \"no-such-node\" not found"}`,
	} {
		if got := th.get(o.URL + "/gpushare-scheduler/" + path); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", path, got, want)
		}
	}
	table, err := exec.CommandContext(th.ctx, th.Binary(), "gpus", "--admin", o.Admin).CombinedOutput()
	const want = `NODE      GPU  USED  RESERVED  FREE  OF GiB  PODS
gpu-node  0    9     9         7     16      default/first (9)
gpu-node  1    9     9         7     16      default/second (9)
all            18    18        14    32      
`
	if err != nil || string(table) != want {
		t.Errorf("outboard gpus: %v\n%s\nwant\n%s", err, table, want)
	}
	waits := th.place(gpuPod("third", 10))
	if !strings.Contains(waits.Waiting, "Insufficient GPU Memory in one device") {
		t.Fatalf("the third pod: bound to %q, waiting: %q", waits.Pod.Spec.NodeName, waits.Waiting)
	}
	if err := controlplane.DeletePod(th.ctx, th.Client, first); err != nil {
		t.Fatal(err)
	}
	third := th.willBeBound(waits.Pod)
	if third.Annotations[gpuIndex] != first.Annotations[gpuIndex] {
		t.Errorf("the third pod is on GPU %s, want %s", third.Annotations[gpuIndex], first.Annotations[gpuIndex])
	}
	for key, want := range map[string]string{"ALIYUN_COM_GPU_MEM_POD": "10", "ALIYUN_COM_GPU_MEM_DEV": "16", gpuTaken: "false"} {
		if third.Annotations[key] != want {
			t.Errorf("%s is %q, want %q", key, third.Annotations[key], want)
		}
	}
}

// A pod of high priority that fits on no GPU gets one with enough room. kube-scheduler evicts one
// pod, after which the sum over both GPUs is enough, but neither GPU alone is; so the pod that
// shares its GPU is evicted too. The two pods on the other GPU stay.
func TestPreemptFreesOneGPU(t *testing.T) {
	th := open(t)
	node := gpus("gpu-node", 2, 16)
	node.CPU = "8"
	th.nodes(node)
	for name, value := range map[string]int32{"low": 10, "less": 15, "middle": 20, "high": 1000} {
		th.priority(name, value)
	}
	o := th.outboard(gpushare)
	th.scheduler(gpushareScheduler(o))
	pod := func(name, class, cpu string, units int) controlplane.PodSpec {
		spec := gpuPod(name, units)
		spec.PriorityClass, spec.CPU = class, cpu
		return spec
	}
	important := th.bound(pod("important", "middle", "100m", 10))
	neighbor := th.bound(pod("neighbor", "middle", "100m", 3))
	hog := th.bound(pod("hog", "low", "6", 9))
	small := th.bound(pod("small", "less", "100m", 4))
	if important.Annotations[gpuIndex] != neighbor.Annotations[gpuIndex] || hog.Annotations[gpuIndex] != small.Annotations[gpuIndex] {
		t.Fatal("the pods are not where the test needs them")
	}
	go controlplane.FinishDeletions(th.ctx, th.Client)
	urgent := th.awaitBound(th.create(pod("urgent", "high", "3", 14)))
	if got, want := urgent.Annotations[gpuIndex], hog.Annotations[gpuIndex]; got != want {
		t.Errorf("the pod is on GPU %s, want %s", got, want)
	}
	for name, stays := range map[string]bool{"important": true, "neighbor": true, "hog": false, "small": false} {
		p, err := th.Client.CoreV1().Pods("default").Get(th.ctx, name, metav1.GetOptions{})
		if got := err == nil && p.DeletionTimestamp == nil; got != stays {
			t.Errorf("%s still exists: %v, want %v", name, got, stays)
		}
	}
}

// Outboard replaces the gpushare extender, whose pods are already on the node: another tool has
// bound them, with the same annotations, and without claims. They count; and a GPU that the device
// plugin marks as unhealthy gets no pods until it is healthy.
func TestTakesOverFromGPUShare(t *testing.T) {
	th := open(t)
	th.nodes(gpus("gpu-node", 2, 16))
	for name, index := range map[string]string{"old-0": "0", "old-1": "1"} {
		spec := gpuPod(name, 8)
		spec.NodeName = "gpu-node"
		spec.Annotations = map[string]string{
			gpuIndex: index, "ALIYUN_COM_GPU_MEM_POD": "8", "ALIYUN_COM_GPU_MEM_DEV": "16", gpuTaken: "true", gpuAssumed: "1700000000000000000",
		}
		th.create(spec)
	}
	o := th.outboard(gpushare)
	th.scheduler(gpushareScheduler(o))
	if waits := th.place(gpuPod("large", 9)); waits.Waiting == "" {
		t.Errorf("9 of 8 free units: on GPU %s", waits.Pod.Annotations[gpuIndex])
	}
	health := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "unhealthy-gpu-gpu-node"}, Data: map[string]string{"gpus": "0"}}
	if _, err := th.Client.CoreV1().ConfigMaps("kube-system").Create(th.ctx, health, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	th.eventually("Outboard knows that GPU 0 is unhealthy", func() bool {
		return strings.Contains(th.get(o.Admin+"/inspect/gpus"), `"healthy":false`)
	})
	if got := th.bound(gpuPod("first", 5)).Annotations[gpuIndex]; got != "1" {
		t.Errorf("while GPU 0 is unhealthy: on GPU %s", got)
	}
	waits := th.place(gpuPod("second", 5))
	if waits.Waiting == "" {
		t.Errorf("while GPU 0 is unhealthy and GPU 1 has 3 units left: on GPU %s", waits.Pod.Annotations[gpuIndex])
	}
	if err := th.Client.CoreV1().ConfigMaps("kube-system").Delete(th.ctx, health.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := th.willBeBound(waits.Pod).Annotations[gpuIndex]; got != "0" {
		t.Errorf("when GPU 0 is healthy: on GPU %s", got)
	}
}
