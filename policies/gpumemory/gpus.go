package gpumemory

import (
	"cmp"
	"slices"

	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/snapshot"
)

// GPU is the state of one GPU of a node, for tools.
type GPU struct {
	Index int `json:"index"`
	// Capacity is 0 if the node does not have the GPU, or no longer has it, and a pod still holds
	// some of it.
	Capacity int64 `json:"capacity"`
	// Used may exceed Capacity, because hardware was replaced or another tool has overcommitted the
	// GPU.
	Used int64 `json:"used"`
	// Reserved is the part of Used that is not in use yet: of pods that are not bound, or to which
	// the device plugin has not given the GPU.
	Reserved int64 `json:"reserved"`
	// Healthy is false if the device plugin reports the GPU as unhealthy.
	Healthy bool `json:"healthy"`
	// Pods are the pods that hold a part of Used, in order of namespace and name.
	Pods []GPUPod `json:"pods"`
}

// Free returns what is left for other pods, at least 0, whether the GPU is healthy or not.
func (d *GPU) Free() int64 { return max(0, d.Capacity-d.Used) }

// GPUPod is what one pod holds of one GPU.
type GPUPod struct {
	allocations.Holder
	Amount   int64 `json:"amount"`
	Reserved bool  `json:"reserved,omitempty"`
	// Unplaced is true if the pod's annotation names no GPU, so that the pod counts in full on each
	// GPU of the node.
	Unplaced bool `json:"unplaced,omitempty"`
}

// gpusOf returns the GPUs of the node in order of index; none if the node has no shared GPUs and no
// pod holds any.
func (p *gpuMemory) gpusOf(n *snapshot.Node) []GPU {
	all := p.usageOf(n, p.ledger(n), true).all
	for i := range all {
		slices.SortStableFunc(all[i].Pods, func(a, b GPUPod) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
		})
	}
	return all
}

// unannotated returns the pods of the node that request GPUs, and of which neither an allocation
// nor an annotation says which GPUs they have: see [NodeReport].
func (p *gpuMemory) unannotated(n *snapshot.Node) []GPUPod {
	_, unallocated := allocations.On(n, p.ledger(n))
	var pods []GPUPod
	for _, i := range unallocated {
		pod := p.podStates.Of(n, i)
		if (pod.memory > 0 || pod.count > 0) && len(annotated(nil, pod, p.hardware.Of(n))) == 0 {
			pods = append(pods, GPUPod{Holder: pod.holder, Amount: pod.memory})
		}
	}
	return pods
}
