package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// Hundreds of equal pods on one node, at the speed of kube-scheduler: every container runs on the
// GPU that Outboard chose for its pod, although the device plugin can only guess which pod it
// serves; and every GPU is full.
func TestEveryContainerGetsItsGPU(t *testing.T) {
	th := theater.Open(t)
	const cards, each = 8, 30
	th.Nodes(theater.GPUs("gpu-node", cards, each))
	o := th.Outboard(theater.GPUShare)
	th.Scheduler(theater.GPUShareScheduler(o))
	node := startGPUNode(th.Ctx, th.Client, "gpu-node")
	group, ctx := errgroup.WithContext(th.Ctx)
	group.SetLimit(8)
	for i := range cards * each {
		group.Go(func() error {
			_, err := th.Client.CoreV1().Pods("default").Create(ctx, theater.GPUPod(fmt.Sprintf("p%03d", i), 1).Pod(), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	th.Eventually("all containers have a GPU", func() bool { return node.count() == cards*each })
	for _, err := range node.failed {
		t.Error(err)
	}
	pods, err := th.Client.CoreV1().Pods("default").List(th.Ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]int{}
	for _, p := range pods.Items {
		chosen := p.Annotations[GPUIndex]
		used[chosen]++
		if got := node.served[p.UID]; got != chosen {
			t.Errorf("pod %s has an allocation of GPU %s, and its container runs on %s", p.Name, chosen, got)
		}
	}
	for card := range cards {
		if got := used[fmt.Sprint(card)]; got != each {
			t.Errorf("GPU %d has %d pods, want %d", card, got, each)
		}
	}
	one := th.Placed(theater.GPUPod("one-more", 1))
	if one.Waiting == "" {
		t.Errorf("one more pod was bound to %s", one.Pod.Spec.NodeName)
	}
}

// A pod of high priority that fits on no GPU gets one with enough room. kube-scheduler evicts one
// pod, after which the sum over both GPUs is enough, but neither GPU alone is; so the pod that
// shares its GPU is evicted too. The two pods on the other GPU stay.
func TestPreemptFreesOneGPU(t *testing.T) {
	th := theater.Open(t)
	node := theater.GPUs("gpu-node", 2, 16)
	node.CPU = "8"
	th.Nodes(node)
	for name, value := range map[string]int32{"low": 10, "less": 15, "middle": 20, "high": 1000} {
		th.Priority(name, value)
	}
	o := th.Outboard(theater.GPUShare)
	th.Scheduler(theater.GPUShareScheduler(o))
	pod := func(name, class, cpu string, units int) controlplane.PodSpec {
		spec := theater.GPUPod(name, units)
		spec.PriorityClass, spec.CPU = class, cpu
		return spec
	}
	important := th.Bound(pod("important", "middle", "100m", 10))
	neighbor := th.Bound(pod("neighbor", "middle", "100m", 3))
	hog := th.Bound(pod("hog", "low", "6", 9))
	small := th.Bound(pod("small", "less", "100m", 4))
	if important.Annotations[GPUIndex] != neighbor.Annotations[GPUIndex] || hog.Annotations[GPUIndex] != small.Annotations[GPUIndex] {
		t.Fatal("the pods are not where the test needs them")
	}
	go controlplane.FinishDeletions(th.Ctx, th.Client)
	urgent := th.AwaitBound(th.Create(pod("urgent", "high", "3", 14)))
	if got, want := urgent.Annotations[GPUIndex], hog.Annotations[GPUIndex]; got != want {
		t.Errorf("the pod is on GPU %s, want %s", got, want)
	}
	for name, stays := range map[string]bool{"important": true, "neighbor": true, "hog": false, "small": false} {
		p, err := th.Client.CoreV1().Pods("default").Get(th.Ctx, name, metav1.GetOptions{})
		if got := err == nil && p.DeletionTimestamp == nil; got != stays {
			t.Errorf("%s still exists: %v, want %v", name, got, stays)
		}
	}
}

const GPUIndex = "ALIYUN_COM_GPU_MEM_IDX"

const gpuAssumed = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"

const gpuTaken = "ALIYUN_COM_GPU_MEM_ASSIGNED"

// gpuNode simulates a kubelet and the gpushare device plugin of one node. The kubelet admits pods
// one by one, in the order of their arrival, and calls the plugin for each container. The call does
// not name the pod. The plugin does what its source code does: among the node's pending pods that
// request GPU memory, have an assume time and are not assigned, it takes the first by assume time
// whose total equals the container's request.
type gpuNode struct {
	client kubernetes.Interface
	name   string

	mu     sync.Mutex
	served map[types.UID]string // the GPU each pod's container got
	failed []error
}

// startGPUNode simulates until ctx ends.
func startGPUNode(ctx context.Context, client kubernetes.Interface, name string) *gpuNode {
	g := &gpuNode{client: client, name: name, served: map[types.UID]string{}}
	go func() {
		err := controlplane.FollowPods(ctx, client, "spec.nodeName="+name, func(event watch.EventType, pod *corev1.Pod) {
			if event != watch.Deleted && pod.Status.Phase == corev1.PodPending {
				g.admit(ctx, pod)
			}
		})
		if ctx.Err() == nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.failed = append(g.failed, fmt.Errorf("watching the pods: %w", err))
		}
	}()
	return g
}

func (g *gpuNode) admit(ctx context.Context, pod *corev1.Pod) {
	g.mu.Lock()
	_, known := g.served[pod.UID]
	g.mu.Unlock()
	if known {
		return
	}
	for _, c := range pod.Spec.Containers {
		units := c.Resources.Limits[theater.GPUMem]
		index, err := g.allocate(ctx, units.Value())
		g.mu.Lock()
		g.served[pod.UID] = index
		if err != nil && ctx.Err() == nil {
			g.failed = append(g.failed, fmt.Errorf("pod %s: %w", pod.Name, err))
		}
		g.mu.Unlock()
	}
}

// allocate is the plugin's Allocate, for one container.
func (g *gpuNode) allocate(ctx context.Context, units int64) (string, error) {
	list, err := g.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Pending,spec.nodeName=" + g.name})
	if err != nil {
		return "", err
	}
	assumed := func(p corev1.Pod) int64 {
		at, err := strconv.ParseInt(p.Annotations[gpuAssumed], 10, 64)
		if err != nil {
			return 0
		}
		return at
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return cmp.Compare(assumed(a), assumed(b)) })
	for _, p := range list.Items {
		var total int64
		for _, c := range p.Spec.Containers {
			limit := c.Resources.Limits[theater.GPUMem]
			total += limit.Value()
		}
		if total == 0 || assumed(p) == 0 || p.Annotations[gpuTaken] != "false" || total != units {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true",%q:"%d"}}}`, gpuTaken, gpuAssumed, time.Now().UnixNano())
		if _, err := g.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return "", err
		}
		return p.Annotations[GPUIndex], nil
	}
	return "-1", fmt.Errorf("no pod waits for %d units", units)
}

// count returns how many pods the plugin has served.
func (g *gpuNode) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.served)
}
