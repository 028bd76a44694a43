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
	"outboard.dev/outboard/internal/remedy"
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
						pod.Namespace, pod.Name, name, &amount, c.Name, rule)
				}
			}
		}
	}
	return nil
}

// hints returns mistakes in the amounts and names of extended resources.
func (s Source) hints(pod *corev1.Pod, view *snapshot.View, engines map[string]*engine.Engine) (hints []string) {
	requests := snapshot.PodRequests(pod)
	ignored, counted := s.ignored(pod)
	for _, name := range counted {
		hints = append(hints, fmt.Sprintf("kube-scheduler counts %s, although Outboard's configuration has "+
			"ignoredByScheduler: true; outboard doctor finds what to correct, and with the plugin, "+
			"ignoredResources of NodeResourcesFit must have it", name))
	}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if !extended(name) || slices.Contains(ignored, name) {
			continue
		}
		unit := ""
		for _, e := range engines {
			unit = cmp.Or(unit, remedy.UnitOf(e, name))
		}
		if amount := requests[name]; amount.Format == resource.BinarySI {
			bytes := amount.Value()
			hints = append(hints, fmt.Sprintf("%s: %s is %d units: write %s", name, &amount, bytes, meant(bytes, unit)))
		}
		reported := map[string]int{} // nodes
		for n := range view.All() {
			for other, amount := range n.Object.Status.Allocatable {
				if extended(other) && amount.Sign() > 0 {
					reported[string(other)]++
				}
			}
		}
		if reported[string(name)] > 0 {
			continue
		}
		hint := fmt.Sprintf("no node reports %s", name)
		if near := fields.Nearest(string(name), slices.Sorted(maps.Keys(reported))); near != "" {
			hint += fmt.Sprintf("; did you mean %s (nodes: %d)?", near, reported[near])
		}
		hints = append(hints, hint)
	}
	return hints
}

// meant is a number of the units for an amount in bytes.
func meant(bytes int64, unit string) string {
	size := map[string]int64{"MiB": 1 << 20, "GiB": 1 << 30}[unit]
	if size == 0 || bytes%size != 0 {
		return "a number without a suffix"
	}
	return fmt.Sprintf("%d for %[1]d %s", bytes/size, unit)
}
