package main

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
)

// preempts creates the pod, and reports whether the first attempt evicts pods for it. If so, the pod
// is bound when it returns.
func (s *scene) preempts(ctx context.Context, spec controlplane.PodSpec) (*corev1.Pod, bool, error) {
	placed, err := s.Place(ctx, spec.Pod())
	switch {
	case err != nil:
		return nil, false, err
	case placed.Waiting == "":
		return nil, false, fmt.Errorf("pod %s evicts no pods and is bound to %s", spec.Name, placed.Pod.Spec.NodeName)
	case placed.Pod.Status.NominatedNodeName == "":
		return placed.Pod, false, nil
	}
	pod, err := controlplane.WaitForPodBound(ctx, s.Client, placed.Pod)
	return pod, err == nil, err
}

// Two GPUs have 5 and 4 units left, and a pod needs 8 on one GPU. As kube-scheduler counts, 9 are
// left, so it would evict no pod.
func (s *scene) emptyVictims(ctx context.Context) (string, error) {
	var pods []*corev1.Pod
	for i, units := range []int{5, 4, 3} {
		pod, err := s.bound(ctx, gpuPod(fmt.Sprintf("part-%d", i), units, "low"))
		if err != nil {
			return "", err
		}
		pods = append(pods, pod)
	}
	if on := func(i int) string { return pods[i].Annotations[gpuAnnotation] }; on(0) != on(2) || on(0) == on(1) {
		return "", fmt.Errorf("the pods are on GPUs %s, %s and %s", on(0), on(1), on(2))
	}
	if err := controlplane.DeletePod(ctx, s.Client, pods[0]); err != nil {
		return "", err
	}
	if _, ok, err := s.preempts(ctx, gpuPod("whole", 8, "high")); err != nil || !ok {
		return waits, err
	}
	left, err := s.left(ctx, pods)
	if err == nil && len(left) != 1 {
		err = fmt.Errorf("%d of 2 pods of low priority are left, want 1", len(left))
	}
	return evicts, err
}

// crowds are how many nodes the scenario has on which evictions do not help, and trials how many
// pods it places with each number. kube-scheduler tries evictions on 100 nodes, or 10 % of them.
var crowds = []int{300, 1000}

const trials = 24

// On the node useful, two pods of low priority hold the GPUs. On many nodes, pods of high priority
// leave 1 and 2 units of two GPUs, and a pod of low priority without a GPU runs. For each pod that
// needs 3 units on one GPU, kube-scheduler evicts one in its first attempt.
func (s *scene) crowd(ctx context.Context) (string, error) {
	// By default, kube-scheduler may not filter the useful node.
	if err := s.schedule(ctx, "percentageOfNodesToScore: 100\n"+s.printed); err != nil {
		return "", err
	}
	useful := controlplane.NodeSpec{
		Name: "useful", Labels: map[string]string{"pool": "crowd"},
		Resources: map[string]string{"aliyun.com/gpu-mem": "8", "aliyun.com/gpu-count": "2"},
	}
	if err := controlplane.CreateNodes(ctx, s.Client, useful.Node()); err != nil {
		return "", err
	}
	var missed error
	for i, n := range crowds {
		group, creating := errgroup.WithContext(ctx)
		group.SetLimit(16)
		for j := range n - append([]int{0}, crowds...)[i] {
			node := useful
			node.Name = fmt.Sprintf("crowd-%d-%d", n, j)
			group.Go(func() error { return s.crowdNode(creating, node) })
		}
		if err := group.Wait(); err != nil {
			return "", err
		}
		placed := 0
		for j := range trials {
			evicts, err := s.trial(ctx, fmt.Sprintf("urgent-%d-%d", n, j))
			if err != nil {
				return "", err
			}
			if evicts {
				placed++
			}
		}
		if placed < trials {
			missed = errors.Join(missed, fmt.Errorf("with %d other nodes, %d of %d pods are placed", n, placed, trials))
		}
	}
	return passed, missed
}

// crowdNode creates a node of the crowd with its pods.
func (s *scene) crowdNode(ctx context.Context, spec controlplane.NodeSpec) error {
	pods := []controlplane.PodSpec{
		gpuPod(spec.Name+"-0", 3, "high"), gpuPod(spec.Name+"-1", 2, "high"), {Name: spec.Name + "-low", PriorityClass: "low"},
	}
	for i := range pods[:2] {
		pods[i].Annotations = map[string]string{gpuAnnotation: fmt.Sprint(i), "ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
	}
	err := controlplane.CreateNodes(ctx, s.Client, spec.Node())
	for _, pod := range pods {
		if err == nil {
			pod.NodeName = spec.Name
			_, err = s.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod.Pod(), metav1.CreateOptions{})
		}
	}
	return err
}

// trial reports whether a pod is placed, and deletes it and the others on the useful node. One of
// these must be evicted, and the other one keep its GPU.
func (s *scene) trial(ctx context.Context, name string) (bool, error) {
	var pods []*corev1.Pod
	for _, victim := range []string{name + "-a", name + "-b"} {
		spec := gpuPod(victim, 4, "low")
		spec.NodeSelector = map[string]string{corev1.LabelHostname: "useful"}
		pod, err := s.bound(ctx, spec)
		if err != nil {
			return false, err
		}
		pods = append(pods, pod)
	}
	urgent := gpuPod(name, 3, "high")
	urgent.NodeSelector = map[string]string{"pool": "crowd"}
	pod, evicts, err := s.preempts(ctx, urgent)
	if err != nil {
		return false, err
	}
	left, err := s.left(ctx, pods)
	if err != nil {
		return false, err
	}
	if evicts && (len(left) != 1 || left[0].Annotations[gpuAnnotation] == pod.Annotations[gpuAnnotation]) {
		return false, fmt.Errorf("%d pods are left on the node of %s, want 1 on another GPU", len(left), name)
	}
	for _, pod := range append(left, pod) {
		if err := controlplane.DeletePod(ctx, s.Client, pod); err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
	}
	return evicts, nil
}
