package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
)

// devices checks that no node reports devices as a resource whose driver publishes them in
// ResourceSlices as well.
func (c *checker) devices() {
	if !c.listed("nodes") || !c.listed("resourceslices") {
		return
	}
	type booking struct{ resources, driver string }
	nodes := map[booking][]string{}
	drivers := driversOf(c.Cluster.ResourceSlices)
	for i := range c.Cluster.Nodes {
		n := &c.Cluster.Nodes[i]
		for driver := range drivers[n.Name] {
			var resources []string
			for name, amount := range n.Status.Allocatable {
				if amount.Sign() > 0 && sameDevices(string(name), driver) {
					resources = append(resources, string(name))
				}
			}
			if slices.Sort(resources); len(resources) > 0 {
				b := booking{strings.Join(resources, ", "), driver}
				nodes[b] = append(nodes[b], n.Name)
			}
		}
	}
	for _, b := range slices.SortedFunc(maps.Keys(nodes), func(a, b booking) int {
		return strings.Compare(a.resources+" "+a.driver, b.resources+" "+b.driver)
	}) {
		who, other := "it reports", ""
		if n := len(nodes[b]); n > 1 {
			who, other = fmt.Sprintf("it and %d more report", n-1), "s"
		}
		c.elsewhere(Warning, "DevicesBookedTwice", "node "+slices.Min(nodes[b]), "status.allocatable", fmt.Sprintf("%s %s, and the driver %s publishes devices of the node%s", who, b.resources, b.driver, other),
			"kube-scheduler allocates the resource and the devices without regard to each other, so a pod that requests the resource and one with a ResourceClaim may get the same device",
			"on each node, run the device plugin or the driver, and not both; or exclude the devices of one from the other")
	}
}

// driversOf returns the drivers that publish devices of each node.
func driversOf(all []resourcev1.ResourceSlice) map[string]map[string]bool {
	drivers := map[string]map[string]bool{}
	for i := range all {
		spec := &all[i].Spec
		if spec.NodeName == nil || len(spec.Devices) == 0 {
			continue
		}
		if drivers[*spec.NodeName] == nil {
			drivers[*spec.NodeName] = map[string]bool{}
		}
		drivers[*spec.NodeName][spec.Driver] = true
	}
	return drivers
}

// sameDevices reports whether the resource stands for devices of the driver, by their names:
// nvidia.com/gpu and nvidia.com/mig-1g.5gb for those of gpu.nvidia.com, and gpu.intel.com/i915 for
// those of gpu.intel.com. The driver compute-domain.nvidia.com has other devices. gpushare and HAMi
// share the GPUs of NVIDIA under names of their own.
func sameDevices(resource, driver string) bool {
	domain, name, _ := strings.Cut(resource, "/")
	kind, of, _ := strings.Cut(driver, ".")
	if of == "project-hami.io" && strings.Contains(kind, "gpu") {
		kind, of = "gpu", "nvidia.com"
	}
	if domain == "aliyun.com" && strings.HasPrefix(name, "gpu-") {
		domain = "nvidia.com"
	}
	partition := kind == "gpu" && strings.HasPrefix(name, "mig-")
	return domain == driver || domain == of && (strings.HasPrefix(name, kind) || partition)
}
