package cluster

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/lru"
)

// Objects share memory with the latest one that was made from the same template, as far as they are
// equal: 5,000 nodes and 30,000 pods take 120 MiB instead of 360 MiB. A template that an lru.Cache
// has dropped only costs memory: nothing needs to be invalidated.
const (
	// maxTemplates is how many templates of pods, or of nodes, are remembered, with at most 8 or
	// 32 KiB each. Lists are in order of name, so pods of one template are near each other.
	maxTemplates = 1 << 12
	maxImages    = 1 << 14
)

// podKey is the same for pods made from the same template.
type podKey struct{ namespace, container, image string }

func podKeyOf(pod *corev1.Pod) podKey {
	key := podKey{namespace: pod.Namespace}
	if len(pod.Spec.Containers) > 0 {
		key.container, key.image = pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image
	}
	return key
}

// nodeKey is the same for nodes of the same kind, whose memory available to Kubernetes differs a
// little.
type nodeKey struct {
	instanceType string
	memory       int64
}

func nodeKeyOf(node *corev1.Node) nodeKey {
	return nodeKey{node.Labels[corev1.LabelInstanceTypeStable], node.Status.Capacity.Memory().Value()}
}

// internPod makes pod use the memory of like wherever they are equal. pod must not be shared yet;
// its parts, and like, are only read.
func internPod(pod, like *corev1.Pod) {
	intern(&pod.Namespace, like.Namespace)
	intern(&pod.Spec.NodeName, like.Spec.NodeName)
	intern(&pod.Spec.SchedulerName, like.Spec.SchedulerName)
	intern(&pod.Spec.ServiceAccountName, like.Spec.ServiceAccountName)
	intern(&pod.Spec.DeprecatedServiceAccount, pod.Spec.ServiceAccountName)
	intern(&pod.Spec.PriorityClassName, like.Spec.PriorityClassName)
	internMap(&pod.Labels, like.Labels)
	internMap(&pod.Annotations, like.Annotations)
	internDeep(&pod.OwnerReferences, like.OwnerReferences)
	internDeep(&pod.Spec.InitContainers, like.Spec.InitContainers)
	internDeep(&pod.Spec.Containers, like.Spec.Containers)
	internDeep(&pod.Spec.Volumes, like.Spec.Volumes)
	internDeep(&pod.Spec.NodeSelector, like.Spec.NodeSelector)
	internDeep(&pod.Spec.Affinity, like.Spec.Affinity)
	internDeep(&pod.Spec.Tolerations, like.Spec.Tolerations)
	internDeep(&pod.Spec.TopologySpreadConstraints, like.Spec.TopologySpreadConstraints)
	internDeep(&pod.Spec.Overhead, like.Spec.Overhead)
	internDeep(&pod.Spec.Resources, like.Spec.Resources)
	internDeep(&pod.Spec.ResourceClaims, like.Spec.ResourceClaims)
	internDeep(&pod.Status.Conditions, like.Status.Conditions)
	internDeep(&pod.Status.ContainerStatuses, like.Status.ContainerStatuses)
	internDeep(&pod.Status.InitContainerStatuses, like.Status.InitContainerStatuses)
	internDeep(&pod.Status.AllocatedResources, like.Status.AllocatedResources)
	internDeep(&pod.Status.Resources, like.Status.Resources)
}

// internNode is like internPod, for nodes.
func internNode(node, like *corev1.Node) {
	internMap(&node.Labels, like.Labels)
	internMap(&node.Annotations, like.Annotations)
	internDeep(&node.Spec.Taints, like.Spec.Taints)
	internDeep(&node.Status.Capacity, like.Status.Capacity)
	internDeep(&node.Status.Allocatable, like.Status.Allocatable)
	internDeep(&node.Status.Conditions, like.Status.Conditions)
	intern(&node.Status.NodeInfo.KernelVersion, like.Status.NodeInfo.KernelVersion)
	intern(&node.Status.NodeInfo.OSImage, like.Status.NodeInfo.OSImage)
	intern(&node.Status.NodeInfo.ContainerRuntimeVersion, like.Status.NodeInfo.ContainerRuntimeVersion)
	intern(&node.Status.NodeInfo.KubeletVersion, like.Status.NodeInfo.KubeletVersion)
}

func intern(part *string, like string) {
	if *part == like {
		*part = like
	}
}

func internDeep[T any](part *T, like T) {
	if equality.Semantic.DeepEqual(*part, like) {
		*part = like
	}
}

// internMap uses the whole map if it is equal, and equal strings in it otherwise.
func internMap(part *map[string]string, like map[string]string) {
	if maps.Equal(*part, like) {
		*part = like
		return
	}
	own := make(map[string]string, len(*part))
	for key, value := range like {
		if mine, ok := (*part)[key]; ok {
			intern(&mine, value)
			own[key] = mine
		}
	}
	for key, value := range *part {
		if _, ok := own[key]; !ok {
			own[key] = value
		}
	}
	*part = own
}

// internImages makes the images of a node use the names of equal images of other nodes.
func internImages(known *lru.Cache, node *corev1.Node) {
	for i := range node.Status.Images {
		image := &node.Status.Images[i]
		if len(image.Names) == 0 {
			continue
		}
		if last, ok := known.Get(image.Names[0]); ok && slices.Equal(last.([]string), image.Names) {
			image.Names = last.([]string)
		} else {
			known.Add(image.Names[0], image.Names)
		}
	}
}
