package gpumemory

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/gpushare"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/snapshot"
)

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

// gpuShare is the protocol of the gpushare device plugin: its data about nodes, and its annotations
// of pods.
type gpuShare struct{ config *Config }

func (a *gpuShare) resource() string { return memoryResource }

func (a *gpuShare) resources() []corev1.ResourceName {
	return []corev1.ResourceName{memoryResource, countResource}
}

func (a *gpuShare) ordered() bool { return true }

// annotations implements agent. The device plugin serves pods with the same request in order of
// ask.At.
func (a *gpuShare) annotations(ask policy.ReserveRequest, r *request, given []policy.Amount, sizes []int64) map[string]string {
	indexes, texts, total := make([]string, len(given)), make([]string, len(given)), int64(0)
	for i, g := range given {
		indexes[i], texts[i] = g.Unit, strconv.FormatInt(sizes[i], 10)
		total += g.Amount
	}
	written := map[string]string{
		indexKey:    strings.Join(indexes, ","),
		sizeKey:     strings.Join(texts, ","),
		amountKey:   strconv.FormatInt(total, 10),
		assignedKey: notAssigned,
		timeKey:     strconv.FormatInt(ask.At.UnixNano(), 10),
	}
	_, copied := ask.Pod.Annotations[allocationKey] // from another pod, it would name other GPUs
	if r.whole() {
		written[assignedKey] = assigned // the device plugin does not allocate whole GPUs
	} else if a.config.MultiGPU || copied {
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

func (a *gpuShare) hardware(node *corev1.Node) hardware {
	memory, count := amount(node.Status.Capacity, memoryResource), amount(node.Status.Capacity, countResource)
	if memory <= 0 {
		return hardware{problem: notSharing}
	}
	hw := a.config.hardwareOf(node, countResource, count, memory/max(1, count))
	if hw.problem == nil && node.Status.Allocatable != nil && amount(node.Status.Allocatable, memoryResource) == 0 {
		hw.problem, hw.reported = pluginDown, fmt.Sprintf("allocatable 0 of %d %s", memory, memoryResource)
	}
	return hw
}

func (a *gpuShare) request(pod *corev1.Pod) (*request, error) {
	memory, count := requested(pod)
	r := &request{memory: memory, gpus: count}
	if asking(pod.Spec.InitContainers) > 0 {
		r.refused, r.gpus = initContainer, 1
		return r, nil
	}
	if memory == 0 && count == 0 {
		return nil, nil
	}
	if label, ok := pod.Labels[countResource]; ok && count == 0 {
		n, err := strconv.ParseInt(label, 10, 32)
		if err != nil || n < 1 {
			r.refused, n = invalidCount, 1
		}
		r.gpus = n
	}
	r.gpus = max(1, r.gpus)
	r.share = r.memory / r.gpus
	switch {
	case r.refused != nil:
	case !a.config.MultiContainer && asking(pod.Spec.Containers) > 1:
		r.refused = severalContainers
	case !a.config.MultiGPU && !r.whole() && r.gpus > 1:
		r.refused = severalGPUs
	case !evenly(pod.Spec.Containers, r.gpus):
		r.refused = unevenShares
	}
	return r, nil
}

func (a *gpuShare) state(pod *corev1.Pod) podState {
	s := podState{holder: allocations.HolderOf(pod)}
	if s.memory, s.count = requested(pod); s.memory > 0 {
		s.shares = allocated(pod.Annotations[allocationKey], s.memory)
	}
	if text, ok := pod.Annotations[indexKey]; ok {
		s.indexes = parseIndexes(text)
	}
	s.pending = pod.Status.Phase == corev1.PodPending || pod.Status.Phase == ""
	text, marked := pod.Annotations[assignedKey]
	s.marked, s.notAssigned = marked, text == notAssigned
	return s
}

// requested returns what the pod's containers request. Init containers do not count, as in
// gpushare.
func requested(pod *corev1.Pod) (memory, count int64) {
	for i := range pod.Spec.Containers {
		memory = snapshot.AddAmounts(memory, limit(&pod.Spec.Containers[i], memoryResource))
		count = snapshot.AddAmounts(count, limit(&pod.Spec.Containers[i], countResource))
	}
	return memory, count
}

// asking returns how many of the containers request a GPU.
func asking(containers []corev1.Container) int {
	n := 0
	for i := range containers {
		if limit(&containers[i], memoryResource) > 0 || limit(&containers[i], countResource) > 0 {
			n++
		}
	}
	return n
}

// evenly reports whether the request of each container is divisible by the number of GPUs.
func evenly(containers []corev1.Container, gpus int64) bool {
	for i := range containers {
		if limit(&containers[i], memoryResource)%gpus != 0 {
			return false
		}
	}
	return true
}

func limit(c *corev1.Container, name corev1.ResourceName) int64 {
	q, ok := c.Resources.Limits[name]
	if !ok {
		return 0
	}
	return max(0, q.Value())
}
