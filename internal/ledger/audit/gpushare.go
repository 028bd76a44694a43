package audit

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// The keys of gpushare's protocol. This package does not share code with the policy that allocates
// GPUs, so that it finds errors of that.
const (
	memoryResource = "aliyun.com/gpu-mem"
	countResource  = "aliyun.com/gpu-count"

	indexKey      = "ALIYUN_COM_GPU_MEM_IDX"
	sizeKey       = "ALIYUN_COM_GPU_MEM_DEV"
	amountKey     = "ALIYUN_COM_GPU_MEM_POD"
	assignedKey   = "ALIYUN_COM_GPU_MEM_ASSIGNED"
	timeKey       = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
	annotationKey = "scheduler.framework.gpushare.allocation"
)

// Tenants write the annotations of pods, so that what the audit counts has limits.
const (
	// maxAmount bounds what one pod can hold of one GPU, so that no sum overflows.
	maxAmount = 1 << 48
	// maxGPUs is how many GPUs a node has at most, and how many of those that one pod names count.
	maxGPUs = snapshot.MaxLedgerUnits
	// maxGPUFindings bounds the findings about GPUs of which the annotations of pods say too much.
	// More are not reported.
	maxGPUFindings = 10_000
)

// pluginWrites reports whether the device plugin changes the annotation when it gives the pod its
// GPU.
func pluginWrites(key string) bool { return key == assignedKey || key == timeKey }

// auditAnnotations adds up what the annotations of bound pods say that they hold of GPUs, whatever
// tool bound them.
func (a *auditor) auditAnnotations() {
	byNode := map[string][]*corev1.Pod{}
	for _, pod := range a.Pods {
		if node := pod.Spec.NodeName; node != "" && !snapshot.Ended(pod) {
			byNode[node] = append(byNode[node], pod)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(byNode)) { // the findings are the same in each audit
		a.auditGPUNode(node, byNode[node])
	}
}

// auditGPUNode adds up what pods hold of the GPUs of their node.
func (a *auditor) auditGPUNode(node string, pods []*corev1.Pod) {
	allocated, byNVIDIA := map[string][]share{}, map[string][]share{}
	for _, pod := range pods {
		shares := gpuShares(pod)
		for index, s := range shares {
			allocated[index] = append(allocated[index], s)
		}
		memory := limit(pod, memoryResource)
		if memory > 0 || limit(pod, countResource) > 0 {
			a.auditGPUPod(pod, memoryResource, memory, len(shares) > 0)
		}
		memory, shares = a.nvidiaShares(pod)
		for index, s := range shares {
			byNVIDIA[index] = append(byNVIDIA[index], s)
		}
		if memory > 0 || len(shares) > 0 {
			a.auditGPUPod(pod, nvidiaResource, memory, len(shares) > 0)
		}
	}
	a.auditGPUs(node, memoryResource, allocated)
	a.auditGPUs(node, nvidiaResource, byNVIDIA)
}

// auditGPUs compares what pods hold of the GPUs of a node with what these have.
func (a *auditor) auditGPUs(node, resource string, allocated map[string][]share) {
	for _, index := range slices.Sorted(maps.Keys(allocated)) {
		shares := allocated[index]
		var used, largest int64
		for _, s := range shares {
			used, largest = used+s.Amount, max(largest, s.size)
		}
		capacity := a.gpuSize(resource, node, index)
		if used <= capacity || a.gpuFindings == maxGPUFindings {
			continue
		}
		a.gpuFindings++
		if largest == 0 { // the annotations do not say
			largest = a.written[unitKey{resource, node, index}]
		}
		f := Finding{
			Kind: Overallocated, Resource: resource, Node: node, Unit: index, CountedBy: Annotations,
			Used: used, Capacity: capacity, Holders: holders(shares),
		}
		switch counted := a.counted[resource]; {
		case counted && used <= largest: // the GPU had this size once; the order of the allocations is unknown
			f.Kind = Overcommitted
		case !counted && (used <= largest || largest == 0 && capacity == 0):
			f.Kind, f.CountedBy, f.Used, f.Capacity = Unaudited, "", 0, 0
			f.Detail = "not audited: needs --config FILE with GPUMemory, which knows what the GPU has"
		case !counted:
			f.Capacity = max(capacity, largest)
		}
		a.find(f)
	}
}

// auditGPUPod checks that a bound pod that requests GPUs has an allocation, or at least annotations
// that name its GPUs.
func (a *auditor) auditGPUPod(pod *corev1.Pod, resource string, memory int64, says bool) {
	if a.allocations[allocationKey{resource, pod.Spec.NodeName, pod.UID}] {
		return // auditAllocation checks allocations
	}
	f := Finding{
		Kind: Unallocated, Resource: resource, Node: pod.Spec.NodeName,
		Holders: []Holder{{pod.Namespace, pod.Name, pod.UID, memory}},
		Detail:  "no ledger holds an allocation of the pod: another tool bound it, or its ledger was deleted",
	}
	if !says {
		f.Kind, f.Detail = Unannotated, "no annotation names its GPU, and no ledger holds an allocation of it"
	}
	a.find(f)
}

// limit is the sum of the limits of the pod's containers.
func limit(pod *corev1.Pod, name corev1.ResourceName) int64 {
	var sum int64
	for i := range pod.Spec.Containers {
		q := pod.Spec.Containers[i].Resources.Limits[name]
		sum += q.Value()
	}
	return sum
}

// gpuShares returns what the pod's annotations say that it holds of each GPU, by index: in total at
// least its limits.
func gpuShares(pod *corev1.Pod) map[string]share {
	memory := min(limit(pod, memoryResource), maxAmount)
	indexes, sizes := gpusIn(pod.Annotations)
	amounts := allocation(pod.Annotations[annotationKey], memory)
	if amounts == nil {
		total, _ := strconv.ParseInt(pod.Annotations[amountKey], 10, 64) // 0 without the annotation
		total = min(max(total, memory), maxAmount)
		amounts = map[string]int64{}
		for _, index := range indexes {
			amounts[index] = (total + int64(len(indexes)) - 1) / int64(len(indexes))
			if memory == 0 && sizes[index] > 0 { // the whole GPU
				amounts[index] = sizes[index]
			}
		}
	}
	shares := map[string]share{}
	for index, amount := range amounts {
		shares[index] = share{Holder: Holder{pod.Namespace, pod.Name, pod.UID, amount}, size: sizes[index]}
	}
	return shares
}

// gpusIn returns the indices of the GPUs that the annotations name, at most maxGPUs, and the sizes
// that these had when they were allocated, by index; none if the annotations do not say.
func gpusIn(annotations map[string]string) (indexes []string, sizes map[string]int64) {
	for text := range strings.SplitSeq(annotations[indexKey], ",") {
		if index, err := strconv.ParseUint(text, 10, 16); err == nil && len(indexes) < maxGPUs {
			indexes = append(indexes, strconv.FormatUint(index, 10))
		}
	}
	texts := strings.SplitN(annotations[sizeKey], ",", maxGPUs+1)
	if len(texts) != len(indexes) {
		return indexes, nil
	}
	sizes = map[string]int64{}
	for i, text := range texts {
		if size, err := strconv.ParseInt(text, 10, 64); err == nil {
			sizes[indexes[i]] = size
		}
	}
	return indexes, sizes
}

// allocation adds up, by GPU, what the annotation says each container holds. It returns nil unless
// the sum is memory.
func allocation(text string, memory int64) map[string]int64 {
	var containers map[string]map[string]int64
	if text == "" || json.Unmarshal([]byte(text), &containers) != nil {
		return nil
	}
	parts, sum := map[string]int64{}, int64(0)
	for _, gpus := range containers {
		for index, amount := range gpus {
			if amount < 0 || amount > memory {
				return nil
			}
			if parts[index] += amount; len(parts) > maxGPUs {
				return nil
			}
			sum += amount
		}
	}
	if sum != memory {
		return nil
	}
	return parts
}

// readSizes reads the sizes of all GPUs: the largest if several policies count a GPU, and for
// resources that none counts, what nodes report.
func (a *auditor) readSizes() {
	for _, list := range a.Units {
		resource := string(list.Resource)
		a.counted[resource] = true
		for _, node := range list.Nodes {
			for i := range node.Units {
				key := unitKey{resource, node.Node, node.Units[i].Name}
				a.sizes[key] = max(a.sizes[key], node.Units[i].Capacity)
			}
		}
	}
	for _, node := range a.Nodes {
		for _, resource := range []string{memoryResource, nvidiaResource} {
			count, size := reported(node, resource)
			for i := range min(maxGPUs, count) {
				if !a.counted[resource] {
					a.sizes[unitKey{resource, node.Name, strconv.FormatInt(i, 10)}] = size
				}
			}
		}
	}
}

// reported returns how many GPUs the node reports, and the memory of each in the unit of the
// resource.
func reported(node *corev1.Node, resource string) (count, size int64) {
	if resource == nvidiaResource {
		count, _ = strconv.ParseInt(node.Labels["nvidia.com/gpu.count"], 10, 64)
		size, _ = strconv.ParseInt(node.Labels["nvidia.com/gpu.memory"], 10, 64)
		return count, size
	}
	memory, cards := node.Status.Capacity[memoryResource], node.Status.Capacity[countResource]
	return cards.Value(), memory.Value() / max(1, cards.Value())
}

// gpuSize returns the memory of the node's GPU; 0 if there is no such GPU or node, or nothing says
// its size.
func (a *auditor) gpuSize(resource, node, index string) int64 {
	if i, err := strconv.ParseUint(index, 10, 16); err == nil {
		return a.sizes[unitKey{resource, node, strconv.FormatUint(i, 10)}]
	}
	return 0
}
