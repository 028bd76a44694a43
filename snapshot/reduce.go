package snapshot

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A cache of pods has a limit for each pod, so that the pods of one tenant cannot fill the memory: 30,000 pods of MaxPod bytes would take
// 1.9 GiB. A pod of more than maxWhole bytes is reduced to what decisions about other pods read of it, usually a tenth of that:
//
//	a pod that is to be placed   is read as a whole: from the call of kube-scheduler, or from the API server
//	a pod on a node              counts with its labels, its requests, and the annotations of its claims
//
// So a decision is the same with reduced pods as with whole ones. Nothing is counted over all pods: whether a pod is reduced
// depends on that pod alone.
const (
	// maxWhole is the size up to which a cached pod stays as it is. Pods of three or four containers are smaller.
	maxWhole = 8 << 10
	// maxLabels is the size up to which all labels of a reduced pod are kept: several times what pods usually have.
	maxLabels = 2 << 10
	// maxAnnotation is the maximum length of an annotation of a reduced pod: that of an annotation of a claim.
	maxAnnotation = 4 << 10
	// maxResources is how many resources each list of a reduced pod has in addition to those that are read.
	maxResources = 8
)

// Reads says what is read of pods on nodes and of nominated pods.
type Reads struct {
	// Policies and Selectors are versions of what policies read, and of the labels that disruption budgets select: 0 if they select none.
	Policies, Selectors uint64
	// Key reports whether a label or annotation with this key is read. Only a pod that is reduced causes calls.
	Key func(key string) bool
	// Resource reports whether a policy reads requests for the extended resource.
	Resource func(name corev1.ResourceName) bool
}

// reducedBy is the manager in the managed fields of a reduced pod, which also have the versions of what is read. A trimmed pod has no
// managed fields, so nobody can forge them.
const reducedBy = "outboard.dev/reduced"

// IsReduced reports whether ReducePod has removed parts of the pod, so that the pod itself cannot be evaluated.
func IsReduced(pod *corev1.Pod) bool {
	return len(pod.ManagedFields) == 1 && pod.ManagedFields[0].Manager == reducedBy
}

// MayLack reports whether ReducePod may have removed parts of the pod that are read now.
func (r Reads) MayLack(pod *corev1.Pod) bool {
	if !IsReduced(pod) {
		return false
	}
	was := &pod.ManagedFields[0]
	return was.APIVersion != version(r.Policies) || r.Selectors != 0 && was.Subresource != "" && was.Subresource != version(r.Selectors)
}

func version(n uint64) string { return strconv.FormatUint(n, 36) }

// ReducePod removes, in place, from a large trimmed pod what no decision about another pod can depend on. Smaller pods stay as they are.
//
// A reduced pod that is still larger than maxWhole has one container for all of them, with the sum of their requests, and is
// no longer seen as being resized. Of its resources that no policy reads, it has the first ones in order of name.
func ReducePod(pod *corev1.Pod, readsOf func(namespace string) Reads) {
	if PodSize(pod) <= maxWhole {
		return
	}
	reads := readsOf(pod.Namespace)
	mark := metav1.ManagedFieldsEntry{Manager: reducedBy, APIVersion: version(reads.Policies)}
	meta := metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Generation: pod.Generation,
		CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		Labels: pod.Labels, Annotations: reducedAnnotations(pod.Annotations, reads.Key),
	}
	if SizeOf(pod.Labels) > maxLabels {
		mark.Subresource = version(reads.Selectors) // not all labels are kept
		meta.Labels = maps.Clone(pod.Labels)
		maps.DeleteFunc(meta.Labels, func(key, _ string) bool { return !reads.Key(key) })
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		meta.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	meta.ManagedFields = []metav1.ManagedFieldsEntry{mark}
	pod.ObjectMeta = meta
	spec := corev1.PodSpec{
		NodeName: pod.Spec.NodeName, SchedulerName: pod.Spec.SchedulerName, RestartPolicy: pod.Spec.RestartPolicy, Priority: pod.Spec.Priority,
		PriorityClassName: pod.Spec.PriorityClassName, PreemptionPolicy: pod.Spec.PreemptionPolicy, Overhead: pod.Spec.Overhead, Resources: pod.Spec.Resources,
		InitContainers: withoutNames(pod.Spec.InitContainers), Containers: withoutNames(pod.Spec.Containers),
		SchedulingGates: pod.Spec.SchedulingGates[:min(1, len(pod.Spec.SchedulingGates))],
	}
	pod.Spec = spec
	pod.Status.Conditions = bindingConditions(pod.Status.Conditions)
	if PodSize(pod) > maxWhole {
		merge(pod, reads.Resource)
	}
}

// reducedAnnotations returns the annotations that are read. A longer one than any claim has is cut.
func reducedAnnotations(all map[string]string, reads func(string) bool) map[string]string {
	var kept map[string]string
	for key, value := range all {
		if !reads(key) {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		if len(value) > maxAnnotation {
			value = strings.Clone(value[:maxAnnotation]) // without the rest in memory
		}
		kept[key] = value
	}
	return kept
}

// withoutNames returns the containers with what they request; the status of a pod that is resized refers to their names.
func withoutNames(containers []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, len(containers))
	for i, c := range containers {
		kept[i] = corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
		kept[i].Resources.Claims = nil
	}
	return kept
}

// bindingConditions returns the conditions that say when the pod was bound, and whether it is resized.
func bindingConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	var kept []corev1.PodCondition
	for _, c := range conditions {
		switch c.Type {
		case corev1.PodScheduled, corev1.PodReady, corev1.PodResizePending, corev1.PodResizeInProgress:
			c.Message = ""
			kept = append(kept, c)
		}
	}
	return kept
}

// merge replaces the containers by one, the sidecars by one, and the other init containers by one that requests the most that any of them
// needs in addition to the sidecars before it. So all sums stay the same.
func merge(pod *corev1.Pod, reads func(corev1.ResourceName) bool) {
	names := countedNames(pod, reads)
	var sum, sidecars, peak corev1.ResourceRequirements
	for i := range pod.Spec.Containers {
		sum = combined(sum, only(pod.Spec.Containers[i].Resources, names), add)
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		beside := combined(sidecars, only(c.Resources, names), add)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = beside
		}
		peak = combined(peak, beside, larger)
	}
	always := corev1.ContainerRestartPolicyAlways
	pod.Spec.Containers = []corev1.Container{{Name: "all", Resources: sum}}
	pod.Spec.InitContainers = []corev1.Container{{Name: "peak", Resources: peak}, {Name: "sidecars", Resources: sidecars, RestartPolicy: &always}}
	pod.Spec.Overhead = only(corev1.ResourceRequirements{Requests: pod.Spec.Overhead}, names).Requests
	if pod.Spec.Resources != nil {
		pod.Spec.Resources = new(only(*pod.Spec.Resources, names))
	}
	pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.AllocatedResources, pod.Status.Resources = nil, nil, nil, nil
}

// countedNames returns the resources that the reduced pod has: those that are read, and a few others.
func countedNames(pod *corev1.Pod, reads func(corev1.ResourceName) bool) map[corev1.ResourceName]bool {
	names, others := map[corev1.ResourceName]bool{}, map[corev1.ResourceName]bool{}
	collect := func(list corev1.ResourceList) {
		for name := range list {
			if name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || reads(name) {
				names[name] = true
			} else {
				others[name] = true
			}
		}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			collect(containers[i].Resources.Requests)
			collect(containers[i].Resources.Limits)
		}
	}
	collect(pod.Spec.Overhead)
	if pod.Spec.Resources != nil {
		collect(pod.Spec.Resources.Requests)
		collect(pod.Spec.Resources.Limits)
	}
	sorted := slices.Sorted(maps.Keys(others))
	for _, name := range sorted[:min(maxResources, len(sorted))] {
		names[name] = true
	}
	return names
}

// only returns the amounts of these resources.
func only(r corev1.ResourceRequirements, names map[corev1.ResourceName]bool) corev1.ResourceRequirements {
	list := func(all corev1.ResourceList) corev1.ResourceList {
		var kept corev1.ResourceList
		for name, q := range all {
			if !names[name] {
				continue
			}
			if kept == nil {
				kept = corev1.ResourceList{}
			}
			kept[name] = q
		}
		return kept
	}
	return corev1.ResourceRequirements{Requests: list(r.Requests), Limits: list(r.Limits)}
}

// combined returns the amounts of both, and of what both have the result of amount.
func combined(a, b corev1.ResourceRequirements, amount func(a, b quantity.Quantity) quantity.Quantity) corev1.ResourceRequirements {
	list := func(a, b corev1.ResourceList) corev1.ResourceList {
		both := maps.Clone(a)
		for name, q := range b {
			if both == nil {
				both = corev1.ResourceList{}
			}
			both[name] = amount(both[name], q)
		}
		return both
	}
	return corev1.ResourceRequirements{Requests: list(a.Requests, b.Requests), Limits: list(a.Limits, b.Limits)}
}

func add(a, b quantity.Quantity) quantity.Quantity {
	sum := a.DeepCopy()
	sum.Add(b)
	return sum
}

func larger(a, b quantity.Quantity) quantity.Quantity {
	if a.Cmp(b) >= 0 {
		return a
	}
	return b
}
