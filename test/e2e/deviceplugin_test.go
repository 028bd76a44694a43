package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"outboard.dev/outboard/test/controlplane"
)

const (
	gpuMem     = corev1.ResourceName("aliyun.com/gpu-mem")
	gpuIndex   = "ALIYUN_COM_GPU_MEM_IDX"
	gpuAssumed = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
	gpuTaken   = "ALIYUN_COM_GPU_MEM_ASSIGNED"
)

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
		units := c.Resources.Limits[gpuMem]
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
			limit := c.Resources.Limits[gpuMem]
			total += limit.Value()
		}
		if total == 0 || assumed(p) == 0 || p.Annotations[gpuTaken] != "false" || total != units {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true",%q:"%d"}}}`, gpuTaken, gpuAssumed, time.Now().UnixNano())
		if _, err := g.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return "", err
		}
		return p.Annotations[gpuIndex], nil
	}
	return "-1", fmt.Errorf("no pod waits for %d units", units)
}

// count returns how many pods the plugin has served.
func (g *gpuNode) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.served)
}
