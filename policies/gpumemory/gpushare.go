package gpumemory

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/gpushare"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

// This file implements the protocol of the gpushare device plugin: its data about nodes, and its
// annotations of pods.

const (
	memoryResource = gpushare.Memory
	countResource  = gpushare.Count

	indexKey    = "ALIYUN_COM_GPU_MEM_IDX"
	sizeKey     = "ALIYUN_COM_GPU_MEM_DEV"
	amountKey   = "ALIYUN_COM_GPU_MEM_POD"
	assignedKey = "ALIYUN_COM_GPU_MEM_ASSIGNED"
	timeKey     = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
	// allocationKey holds {"<index of container>": {"<index of GPU>": amount}}. The
	// gpushare device plugin does not read it; kubectl inspect gpushare does.
	allocationKey = "scheduler.framework.gpushare.allocation"

	assigned    = "true"
	notAssigned = "false"
)

// unhealthyGPUs are the ConfigMaps with the indices of unhealthy GPUs, under the key "gpus".
var unhealthyGPUs = snapshot.ConfigMapSource{Namespace: "kube-system", Prefix: "unhealthy-gpu-"}

// unhealthy returns the unhealthy GPUs as bits. It ignores invalid indices.
func unhealthy(n *snapshot.Node) uint64 {
	var gpus uint64
	for entry := range fields.List(n.ConfigMap(unhealthyGPUs)["gpus"], ",") {
		if i, err := strconv.Atoi(entry); err == nil && i >= 0 && i < maxGPUs {
			gpus |= 1 << i
		}
	}
	return gpus
}

// annotations returns the annotations from which the device plugin reads which GPUs the pod gets,
// and how much of each; the GPUs have the given sizes. The device plugin serves pods with the same
// request in order of ask.At.
func (p *gpuMemory) annotations(ask policy.ReserveRequest, r *request, given []policy.Amount, sizes []string) map[string]string {
	indexes, total := make([]string, len(given)), int64(0)
	for i, g := range given {
		indexes[i] = g.Unit
		total += g.Amount
	}
	written := map[string]string{
		indexKey:    strings.Join(indexes, ","),
		sizeKey:     strings.Join(sizes, ","),
		amountKey:   strconv.FormatInt(total, 10),
		assignedKey: notAssigned,
		timeKey:     strconv.FormatInt(ask.At.UnixNano(), 10),
	}
	if r.whole() {
		written[assignedKey] = assigned // the device plugin does not allocate whole GPUs
	} else if p.config.MultiGPU {
		written[allocationKey] = allocation(ask.Pod, indexes)
	}
	return written
}

// served returns the pods that are being bound to the node, request as much as this one, made their
// allocations before it, and did not get the same GPUs. They must be bound first, because the
// device plugin serves pending pods with the same request in the order of their times, for
// any pod that the kubelet calls.
func served(n *snapshot.Node, ledger *snapshot.Ledger, at time.Time, given []policy.Amount, total int64) []types.UID {
	var first []types.UID
	for i := range ledger.Pods {
		uid := ledger.Pods[i].UID
		if !ledger.Pods[i].At.Before(at) {
			break // they are in order of At
		}
		allocated, same := int64(0), true
		for j := range ledger.Units {
			amount := ledger.Units[j].Amount(uid)
			allocated = snapshot.AddAmounts(allocated, amount)
			same = same && (amount > 0) == slices.ContainsFunc(given, func(g policy.Amount) bool { return g.Unit == ledger.Units[j].Name })
		}
		if allocated == total && !same && !slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return p.UID == uid && p.Spec.NodeName != "" }) {
			first = append(first, uid)
		}
	}
	return first
}

// allocation returns the value of allocationKey for a pod with an equal share of each GPU.
func allocation(pod *corev1.Pod, indexes []string) string {
	all := map[string]map[string]int64{}
	for i := range pod.Spec.Containers {
		memory := limit(&pod.Spec.Containers[i], memoryResource)
		if memory == 0 {
			continue
		}
		shares := map[string]int64{}
		for _, index := range indexes {
			shares[index] = memory / int64(len(indexes))
		}
		all[strconv.Itoa(i)] = shares
	}
	text, _ := json.Marshal(all) // encoding maps of numbers cannot fail
	return string(text)
}

// annotated appends what a pod on the node holds according to its annotations, whatever tool wrote
// them. The amount comes from the pod's limits, which are immutable.
func annotated(all []holding, pod *podState, hw *hardware) []holding {
	if pod.memory == 0 && pod.count == 0 {
		return all
	}
	h := holding{holder: &pod.holder, total: pod.memory, unserved: pod.unserved()}
	if pod.shares != nil {
		for h.gpu, h.amount = range pod.shares {
			all = append(all, h)
		}
		return all
	}
	indexes := pod.indexes
	if indexes == nil && len(hw.capacities) == 1 {
		indexes = []int{0} // the device plugin gives the only GPU to a pod without an annotation
	}
	switch {
	case pod.memory > 0:
		for _, h.gpu = range indexes {
			h.amount = (pod.memory-1)/int64(len(indexes)) + 1
			all = append(all, h)
		}
		return all
	case slices.Equal(indexes, []int{everyGPU}):
		indexes = slices.Repeat([]int{anyGPU}, int(min(pod.count, maxGPUs)))
	}
	for _, h.gpu = range indexes[:min(int64(len(indexes)), pod.count)] {
		h.amount = hw.capacity(h.gpu)
		all = append(all, h)
	}
	return all
}

// parseIndexes returns everyGPU unless the text is a list of different indices.
func parseIndexes(text string) []int {
	var indexes []int
	for part := range strings.SplitSeq(text, ",") {
		i, err := strconv.Atoi(part)
		if err != nil || i < 0 || len(indexes) == maxGPUs || slices.Contains(indexes, i) {
			return []int{everyGPU}
		}
		indexes = append(indexes, i)
	}
	return indexes
}

// allocated parses a value of allocationKey: how much the pod holds of each GPU. It returns nil if
// the value is invalid, or its sum is not memory.
func allocated(text string, memory int64) map[int]int64 {
	if text == "" {
		return nil
	}
	var containers map[string]map[string]int64
	if json.Unmarshal([]byte(text), &containers) != nil {
		return nil
	}
	shares, sum := map[int]int64{}, int64(0)
	for _, gpus := range containers {
		for index, amount := range gpus {
			i, err := strconv.Atoi(index)
			if err != nil || i < 0 || amount < 0 {
				return nil
			}
			shares[i] = snapshot.AddAmounts(shares[i], amount)
			sum = snapshot.AddAmounts(sum, amount)
		}
	}
	if sum != memory {
		return nil
	}
	return shares
}
