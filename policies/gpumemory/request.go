package gpumemory

import (
	"encoding/binary"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

type request struct {
	refused *policy.Reason // why no node can serve the request; nil: some can
	memory  int64          // of all GPUs together, divisible by gpus; 0: whole GPUs
	gpus    int64          // number of different GPUs, at least 1
	share   int64          // memory of each GPU; 0: whole GPUs
	models  []string       // permitted models, in order; empty: any
}

// signature is the same for requests that get the same verdicts and amounts: gpus and share
// determine each other for the same memory.
func (r *request) signature() string {
	text := binary.AppendVarint(nil, r.memory)
	text = binary.AppendVarint(text, r.gpus)
	if r.refused != nil {
		return string(append(text, r.refused.Code...))
	}
	for _, model := range r.models {
		text = append(append(text, ','), model...) // a model has no comma
	}
	return string(text)
}

// whole reports whether no other pod may use the GPUs.
func (r *request) whole() bool { return r.memory == 0 }

// fits reports whether the pod can get the GPU.
func (r *request) fits(d *GPU) bool {
	if r.whole() {
		return r.possible(d) && d.Used == 0
	}
	return r.possible(d) && d.Free() >= r.share
}

// possible reports whether the pod could get the GPU if that were empty.
func (r *request) possible(d *GPU) bool {
	return d.Healthy && d.Capacity > 0 && d.Capacity >= r.share
}

// request returns what the pod requests, or nil when it requests no GPU.
func (p *gpuMemory) request(pod *corev1.Pod) *request {
	memory, count := requested(pod)
	r := &request{memory: memory, gpus: count}
	if asking(pod.Spec.InitContainers) > 0 {
		r.refused, r.gpus = initContainer, 1
		return r
	}
	if memory == 0 && count == 0 {
		return nil
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
	r.models = p.models(pod)
	switch {
	case r.refused != nil:
	case !p.config.MultiContainer && asking(pod.Spec.Containers) > 1:
		r.refused = severalContainers
	case !p.config.MultiGPU && !r.whole() && r.gpus > 1:
		r.refused = severalGPUs
	case !evenly(pod.Spec.Containers, r.gpus):
		r.refused = unevenShares
	}
	return r
}

// models returns the models that the pod permits, in order and without duplicates: an annotation
// has room for thousands.
func (p *gpuMemory) models(pod *corev1.Pod) []string {
	var models []string
	for model := range fields.List(pod.Annotations[p.config.ModelAnnotation], ",") {
		if model != "" {
			models = append(models, model)
		}
	}
	slices.Sort(models)
	return slices.Compact(models)
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
