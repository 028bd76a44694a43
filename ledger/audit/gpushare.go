package audit

import (
	"encoding/json"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The protocol of gpushare, as far as it tells who has what. This is on purpose not the code that hands it out.
const (
	memoryResource = "aliyun.com/gpu-mem"
	countResource  = "aliyun.com/gpu-count"

	indexKey      = "ALIYUN_COM_GPU_MEM_IDX"
	sizeKey       = "ALIYUN_COM_GPU_MEM_DEV"
	amountKey     = "ALIYUN_COM_GPU_MEM_POD"
	assignedKey   = "ALIYUN_COM_GPU_MEM_ASSIGNED"
	timeKey       = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
	allocationKey = "scheduler.framework.gpushare.allocation"
)

// maxAmount bounds what one pod can say it has of one card, so that no sum overflows.
const maxAmount = 1 << 48

// pluginWrites says whether the device plugin changes the annotation when it gives the pod its GPU.
func pluginWrites(key string) bool { return key == assignedKey || key == timeKey }

// auditGPUShare counts what bound pods say they have of GPUs, whoever gave it to them.
func (a *auditor) auditGPUShare() {
	type card struct{ node, index string }
	given := map[card][]share{}
	for i := range a.Pods {
		pod := &a.Pods[i]
		node := pod.Spec.NodeName
		if node == "" || ended(pod) {
			continue
		}
		shares := cardShares(pod)
		for index, s := range shares {
			given[card{node, index}] = append(given[card{node, index}], s)
		}
		a.auditGPUPod(pod, len(shares) > 0)
	}
	for c, shares := range given {
		var used, largest int64
		for _, s := range shares {
			used, largest = used+s.Amount, max(largest, s.size)
		}
		capacity := a.cardSize(c.node, c.index)
		if used <= capacity {
			continue
		}
		kind := Oversold
		if used <= largest { // it was as large as that; the order in which they came is not known
			kind = Overbooked
		}
		a.find(Finding{
			Kind: kind, Resource: memoryResource, Node: c.node, Unit: c.index, CountedBy: Annotations,
			Used: used, Capacity: capacity, Holders: holders(shares),
		})
	}
}

// auditGPUPod looks whether a bound pod that asks for GPUs has a claim, or at least says which ones it has.
func (a *auditor) auditGPUPod(pod *corev1.Pod, says bool) {
	memory, count := limit(pod, memoryResource), limit(pod, countResource)
	claimed := a.claims[claimKey{memoryResource, pod.Spec.NodeName, pod.UID}]
	if memory == 0 && count == 0 || claimed {
		return // what claims demand is looked at with them
	}
	f := Finding{
		Kind: Unclaimed, Resource: memoryResource, Node: pod.Spec.NodeName,
		Holders: []Holder{{pod.Namespace, pod.Name, pod.UID, memory}},
		Detail:  "no ledger has a claim of the pod: another tool has bound it, or its ledger was deleted",
	}
	if !says {
		f.Kind, f.Detail = Unannotated, "no annotation "+indexKey+" says which GPU it has, and no ledger has a claim of it"
	}
	a.find(f)
}

// limit is the sum over the pod's containers.
func limit(pod *corev1.Pod, name corev1.ResourceName) int64 {
	var sum int64
	for i := range pod.Spec.Containers {
		q := pod.Spec.Containers[i].Resources.Limits[name]
		sum += q.Value()
	}
	return sum
}

// cardShares is what the pod says it has of each card, by index. It has no less in all than its limits say.
func cardShares(pod *corev1.Pod) map[string]share {
	memory := min(limit(pod, memoryResource), maxAmount)
	total, _ := strconv.ParseInt(pod.Annotations[amountKey], 10, 64) // 0 if it says nothing
	total = min(max(total, memory), maxAmount)
	indexes := cardIndexes(pod.Annotations)
	sizes := cardSizes(pod.Annotations)
	shares := map[string]share{}
	add := func(index string, amount int64) {
		shares[index] = share{Holder: Holder{pod.Namespace, pod.Name, pod.UID, amount}, size: sizes[index]}
	}
	if parts := allocation(pod.Annotations[allocationKey], memory); parts != nil {
		for index, amount := range parts {
			add(index, amount)
		}
		return shares
	}
	for _, index := range indexes {
		if memory == 0 && sizes[index] > 0 { // the whole card
			add(index, sizes[index])
			continue
		}
		add(index, (total+int64(len(indexes))-1)/int64(len(indexes)))
	}
	return shares
}

// cardIndexes are the cards that the annotations name.
func cardIndexes(annotations map[string]string) []string {
	var indexes []string
	for text := range strings.SplitSeq(annotations[indexKey], ",") {
		if index, err := strconv.ParseUint(text, 10, 16); err == nil {
			indexes = append(indexes, strconv.FormatUint(index, 10))
		}
	}
	return indexes
}

// cardSizes is how large the cards were when they were given, by index; none if the annotations do not say.
func cardSizes(annotations map[string]string) map[string]int64 {
	indexes := cardIndexes(annotations)
	texts := strings.Split(annotations[sizeKey], ",")
	if len(texts) != len(indexes) {
		return nil
	}
	sizes := map[string]int64{}
	for i, text := range texts {
		if size, err := strconv.ParseInt(text, 10, 64); err == nil {
			sizes[indexes[i]] = size
		}
	}
	return sizes
}

// allocation adds up, by card, what the annotation says each container has. Nil if that is not so much memory in all.
func allocation(text string, memory int64) map[string]int64 {
	var containers map[string]map[string]int64
	if text == "" || json.Unmarshal([]byte(text), &containers) != nil {
		return nil
	}
	parts, sum := map[string]int64{}, int64(0)
	for _, cards := range containers {
		for index, amount := range cards {
			if amount < 0 || amount > memory {
				return nil
			}
			parts[index] += amount
			sum += amount
		}
	}
	if sum != memory {
		return nil
	}
	return parts
}

// cardSize is what the card of the node has; 0 if there is no such card or node.
func (a *auditor) cardSize(node, index string) int64 {
	object := a.nodes[node]
	i, err := strconv.ParseUint(index, 10, 16)
	if object == nil || err != nil {
		return 0
	}
	text, told := object.Annotations[a.SizesFrom]
	if !told {
		text, told = object.Labels[a.SizesFrom]
	}
	if a.SizesFrom != "" && told {
		sizes := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(",-_ ", r) })
		if i >= uint64(len(sizes)) {
			return 0
		}
		size, err := strconv.ParseInt(sizes[i], 10, 64)
		if err != nil {
			return 0
		}
		return size
	}
	memory, count := object.Status.Capacity[memoryResource], object.Status.Capacity[countResource]
	if i >= uint64(max(0, count.Value())) {
		return 0
	}
	return memory.Value() / count.Value()
}
