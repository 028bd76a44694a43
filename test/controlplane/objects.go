package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// NodeSpec describes a node in a few words. Quantities are strings such as "4",
// "500m" or "16Gi".
type NodeSpec struct {
	Name string

	// CPU and Memory are the node's size. Default: "8" and "32Gi".
	CPU, Memory string

	// Resources are further resources, such as {"nvidia.com/gpu": "4"}. They
	// override CPU, Memory and the default of 110 pods.
	Resources map[string]string

	// Allocatable overrides what pods may use of a resource. Default: all of it.
	Allocatable map[string]string

	// Labels come in addition to kubernetes.io/hostname, arch and os.
	Labels      map[string]string
	Annotations map[string]string
	Taints      []corev1.Taint

	// Images are the names of images the node has, with their sizes in bytes.
	Images map[string]int64

	// NotReady makes the Ready condition false. The scheduler does not look at
	// the condition but at taints, which nobody derives from it here.
	NotReady bool
}

// Node returns the node described, with its status filled in: the API server
// stores it as it is, so no kubelet is needed. It panics if a quantity is malformed.
func (s NodeSpec) Node() *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname:   s.Name,
		corev1.LabelArchStable: "amd64",
		corev1.LabelOSStable:   "linux",
	}
	maps.Copy(labels, s.Labels)

	capacity := resources(map[string]string{
		"cpu":    cmp.Or(s.CPU, "8"),
		"memory": cmp.Or(s.Memory, "32Gi"),
		"pods":   "110",
	}, s.Resources)
	allocatable := capacity.DeepCopy()
	maps.Copy(allocatable, resources(s.Allocatable))

	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}
	if s.NotReady {
		ready.Status, ready.Reason = corev1.ConditionFalse, "KubeletNotReady"
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: labels, Annotations: maps.Clone(s.Annotations)},
		Spec:       corev1.NodeSpec{Taints: s.Taints},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: allocatable,
			Conditions:  []corev1.NodeCondition{ready},
		},
	}
	for _, name := range slices.Sorted(maps.Keys(s.Images)) {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{name}, SizeBytes: s.Images[name]})
	}
	return node
}

// PodSpec describes a pod with one container in a few words. Quantities are
// strings such as "500m" or "1Gi".
type PodSpec struct {
	// Namespace defaults to "default".
	Namespace string
	Name      string

	// CPU and Memory are requests. Default: none.
	CPU, Memory string

	// Resources are requests and limits of further resources, such as
	// {"nvidia.com/gpu": "1"}.
	Resources map[string]string

	Labels       map[string]string
	Annotations  map[string]string
	NodeSelector map[string]string

	// Image is the container's image, which is never pulled. Default: "pause".
	Image string

	// NodeName assigns the pod to a node as if it had been scheduled.
	NodeName string

	// SchedulerName names the profile to schedule it. Default: the default scheduler.
	SchedulerName string

	// PriorityClass is the name of a PriorityClass. Default: none.
	PriorityClass string
}

// Pod returns the pod described. It panics if a quantity is malformed.
func (s PodSpec) Pod() *corev1.Pod {
	requests := map[string]string{}
	if s.CPU != "" {
		requests["cpu"] = s.CPU
	}
	if s.Memory != "" {
		requests["memory"] = s.Memory
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   cmp.Or(s.Namespace, metav1.NamespaceDefault),
			Name:        s.Name,
			Labels:      maps.Clone(s.Labels),
			Annotations: maps.Clone(s.Annotations),
		},
		Spec: corev1.PodSpec{
			NodeName:          s.NodeName,
			SchedulerName:     s.SchedulerName,
			PriorityClassName: s.PriorityClass,
			NodeSelector:      maps.Clone(s.NodeSelector),
			Containers: []corev1.Container{{
				Name:  "main",
				Image: cmp.Or(s.Image, "pause"),
				Resources: corev1.ResourceRequirements{
					Requests: resources(requests, s.Resources),
					Limits:   resources(s.Resources),
				},
			}},
		},
	}
}

// creators is how many requests CreateNodes has under way at a time, enough to
// keep the API server busy.
const creators = 32

// CreateNodes creates nodes, many at a time. With the client of
// [ControlPlane.AdminConfig], which has no rate limit, 5,000 take a few seconds.
// It stops at the first error.
func CreateNodes(ctx context.Context, client kubernetes.Interface, nodes ...*corev1.Node) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for _, node := range nodes {
		group.Go(func() error {
			if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create node %s: %w", node.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// DeletePod deletes a pod at once. Without a grace period of zero a pod that is
// bound would wait for its kubelet, and there is none.
func DeletePod(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	options := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	if pod.UID != "" {
		options.Preconditions = &metav1.Preconditions{UID: &pod.UID}
	}
	return client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
}

// resources merges quantities, the later ones winning.
func resources(quantities ...map[string]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, q := range quantities {
		for name, quantity := range q {
			list[corev1.ResourceName(name)] = resource.MustParse(quantity)
		}
	}
	return list
}
