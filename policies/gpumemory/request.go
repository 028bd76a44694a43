package gpumemory

import (
	"cmp"
	"encoding/binary"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
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
func (p *gpuMemory) request(pod *corev1.Pod) (*request, error) {
	r, err := p.agent.request(pod)
	if r != nil {
		r.models = p.models(pod)
		err = cmp.Or(err, fields.Misspelled(pod, p.config.ModelAnnotation))
	}
	return r, err
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
