package gpumemory

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// request is what a pod asks for.
type request struct {
	refused *policy.Reason // why no node can serve it; nil: some can
	memory  int64          // of all cards together, divisible by cards; 0: whole cards
	cards   int64          // how many different ones, at least 1
	share   int64          // memory of each card; 0: whole cards
	models  []string       // of which the cards must be, in order; empty: any
}

// whole says that nobody else may use the cards.
func (r *request) whole() bool { return r.memory == 0 }

// fits says whether the card can be one of those the pod gets.
func (r *request) fits(c card) bool {
	if r.whole() {
		return r.possible(c) && c.used == 0
	}
	return r.possible(c) && c.free() >= r.share
}

// possible says whether the card could be one of those the pod gets if it were empty.
func (r *request) possible(c card) bool {
	return c.healthy && c.capacity > 0 && c.capacity >= r.share
}

// request returns what the pod asks for, or nil when it asks for no GPU.
func (p *gpuMemory) request(pod *corev1.Pod) *request {
	memory, count := asked(pod)
	r := &request{memory: memory, cards: count}
	if asking(pod.Spec.InitContainers) > 0 {
		r.refused, r.cards = initContainer, 1
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
		r.cards = n
	}
	r.cards = max(1, r.cards)
	r.share = r.memory / r.cards
	r.models = p.models(pod)
	switch {
	case r.refused != nil:
	case !p.config.MultiContainer && asking(pod.Spec.Containers) > 1:
		r.refused = severalContainers
	case !p.config.MultiGPU && !r.whole() && r.cards > 1:
		r.refused = severalCards
	case !evenly(pod.Spec.Containers, r.cards):
		r.refused = unevenShares
	}
	return r
}

// models are those that the pod allows, in order and each once: an annotation has room for thousands.
func (p *gpuMemory) models(pod *corev1.Pod) []string {
	var models []string
	for model := range strings.SplitSeq(pod.Annotations[p.config.ModelAnnotation], ",") {
		if model = strings.TrimSpace(model); model != "" {
			models = append(models, model)
		}
	}
	slices.Sort(models)
	return slices.Compact(models)
}

// asked returns what the pod asks for in its containers. Its init containers do not
// count, as they do not for gpushare.
func asked(pod *corev1.Pod) (memory, count int64) {
	for i := range pod.Spec.Containers {
		memory = snapshot.AddAmounts(memory, limit(&pod.Spec.Containers[i], memoryResource))
		count = snapshot.AddAmounts(count, limit(&pod.Spec.Containers[i], countResource))
	}
	return memory, count
}

// asking is how many of the containers ask for a GPU.
func asking(containers []corev1.Container) int {
	n := 0
	for i := range containers {
		if limit(&containers[i], memoryResource) > 0 || limit(&containers[i], countResource) > 0 {
			n++
		}
	}
	return n
}

// evenly says whether what each container asks for can be divided by so many cards.
func evenly(containers []corev1.Container, cards int64) bool {
	for i := range containers {
		if limit(&containers[i], memoryResource)%cards != 0 {
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
