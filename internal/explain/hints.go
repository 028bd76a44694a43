package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/whatif"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

// extended reports whether the resource is counted in whole units.
func extended(name corev1.ResourceName) bool {
	domain, _, qualified := strings.Cut(string(name), "/")
	return qualified && domain != "kubernetes.io"
}

// refused returns why the API server refuses the pod, by its rules for extended resources, or nil.
func refused(pod *corev1.Pod) error {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		limits := c.Resources.Limits
		for _, list := range []corev1.ResourceList{limits, c.Resources.Requests} {
			for name, amount := range list {
				limit, rule := limits[name], ""
				switch {
				case !extended(name):
				case amount.MilliValue()%1000 != 0:
					rule = "must be an integer"
				case limit.Cmp(amount) != 0:
					rule = "must have a limit that is equal to the request"
				}
				if rule != "" {
					return fmt.Errorf("manifest: the API server refuses pod %s/%s: %s: %s of container %s %s",
						pod.Namespace, pod.Name, name, amount.AsDec(), c.Name, rule)
				}
			}
		}
	}
	return nil
}

// Hints returns a function that returns mistakes in the amounts and names of extended resources of
// a pod. It looks at all nodes once, however many pods it is called for, by one goroutine.
func (s Source) Hints() func(pod *corev1.Pod) []string {
	return (&hinter{source: s, engines: s.Engines()}).hints
}

type hinter struct {
	source    Source
	engines   map[string]*engine.Engine
	resources map[string]*reported
}

// reported is what nodes report of an extended resource.
type reported struct {
	unit  string   // of the policies
	nodes int      // of which some is allocatable
	down  []string // other nodes that have the resource: their device plugin does not run
	most  int64    // on one node
}

func (h *hinter) of(name corev1.ResourceName) *reported {
	r := h.resources[string(name)]
	if r == nil {
		r = new(reported)
		for _, e := range h.engines {
			r.unit = cmp.Or(r.unit, whatif.UnitOf(e, name))
		}
		h.resources[string(name)] = r
	}
	return r
}

// read sets the resources, unless they are set.
func (h *hinter) read() {
	if h.resources != nil {
		return
	}
	h.resources = map[string]*reported{}
	for n := range h.source.View("").All() {
		for name, amount := range n.Object.Status.Allocatable {
			capacity := n.Object.Status.Capacity[name]
			if !extended(name) || capacity.Sign() <= 0 && amount.Sign() <= 0 {
				continue
			}
			r := h.of(name)
			if r.most = max(r.most, capacity.Value(), amount.Value()); amount.Sign() > 0 {
				r.nodes++
			} else {
				r.down = append(r.down, n.Name)
			}
		}
	}
}

func (h *hinter) hints(pod *corev1.Pod) (hints []string) {
	h.read()
	requests := snapshot.PodRequests(pod)
	ignored, counted := h.source.ignored(pod)
	for _, name := range counted {
		hints = append(hints, fmt.Sprintf("kube-scheduler counts %s, although Outboard's configuration has "+
			"ignoredByScheduler: true; outboard check --cluster finds what to correct, and with the plugin, "+
			"ignoredResources of NodeResourcesFit must have it", name))
	}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if !extended(name) {
			continue
		}
		r := h.of(name)
		if hint := r.wrongUnit(name, requests[name]); hint != "" {
			hints = append(hints, hint)
		}
		switch {
		case slices.Contains(ignored, name) || r.nodes > 0:
		case len(r.down) > 0:
			hints = append(hints, fmt.Sprintf("the device plugin of %s does not run: %s has allocatable 0",
				examples(r.down[:min(len(r.down), maxExamples)], len(r.down)), name))
		default:
			others := slices.Sorted(maps.Keys(h.resources))
			others = slices.DeleteFunc(others, func(other string) bool { return h.resources[other].nodes == 0 })
			hint := fmt.Sprintf("no node reports %s", name)
			if near := fields.Nearest(string(name), others); near != "" {
				hint += fmt.Sprintf("; did you mean %s (nodes: %d)?", near, h.resources[near].nodes)
			}
			hints = append(hints, hint)
		}
	}
	return hints
}

// wrongUnit says that an amount is probably in another unit than that of the resource; "" if it is
// not. The API server writes 8000 as 8k.
func (r *reported) wrongUnit(name corev1.ResourceName, amount resource.Quantity) string {
	units, text := amount.Value(), amount.String()
	suffix := strings.Trim(text, "0123456789")
	switch {
	case amount.Format != resource.BinarySI && (r.most == 0 || units <= r.most):
		return ""
	case r.unit == "GiB" && (suffix == "" || suffix == "k") && units >= 1024 && (units+1023)/1024 <= r.most:
		return fmt.Sprintf("%s: %d is %[2]d GiB: write %d if you mean %[2]d MiB", name, units, (units+1023)/1024)
	case suffix == "" || suffix == "k":
		return ""
	}
	return fmt.Sprintf("%s: %s is %d units: write %s", name, text, units, meant(units, r.unit))
}

// meant is a number of the units for an amount in bytes.
func meant(bytes int64, unit string) string {
	size := map[string]int64{"MiB": 1 << 20, "GiB": 1 << 30}[unit]
	switch {
	case size == 0:
		return "a number without a suffix"
	case bytes%size != 0:
		return fmt.Sprintf("a number of %s without a suffix", unit)
	}
	return fmt.Sprintf("%d for %[1]d %s", bytes/size, unit)
}
