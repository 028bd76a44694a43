package simulate

import (
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	"outboard.dev/outboard/snapshot"
)

// What NodeResourcesFit assumes that a container uses which requests none.
const (
	assumedMilliCPU = 100
	assumedMemory   = 200 << 20
)

// scored is the CPU, in thousandths, and the memory, in bytes, that NodeResourcesFit counts when it
// scores nodes.
type scored [podsResource]int64

// scoredOf returns what snapshot.PodRequests does, and 100m and 200Mi for each container that does
// not say what it requests. As of v1.37, NodeResourcesFit leaves out what the pod that is to be
// placed requests as a whole (spec.resources).
func scoredOf(pod *corev1.Pod) scored {
	assigned := pod.Spec.NodeName != ""
	options := resource.PodResourcesOptions{
		UseStatusResources: assigned, InPlacePodLevelResourcesVerticalScalingEnabled: true, SkipPodLevelResources: !assigned,
		NonMissingContainerRequests: corev1.ResourceList{
			corev1.ResourceCPU: *quantity.NewMilliQuantity(assumedMilliCPU, quantity.DecimalSI), corev1.ResourceMemory: *quantity.NewQuantity(assumedMemory, quantity.BinarySI),
		},
	}
	if assigned && resource.IsPodLevelRequestsSet(pod) {
		for name := range snapshot.PodRequests(pod) {
			delete(options.NonMissingContainerRequests, name)
		}
	}
	requests := resource.PodRequests(pod, options)
	return scored{cpuResource: requests.Cpu().MilliValue(), memoryResource: requests.Memory().Value()}
}

func (s *scored) add(other scored, sign int64) {
	for i := range s {
		s[i] += sign * other[i]
	}
}
