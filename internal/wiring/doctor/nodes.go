package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// devices reports nodes whose device plugin and driver both publish the same devices, to which
// kube-scheduler allocates from each without regard to the other.
func (c *checker) devices() {
	if !c.listed("nodes") || !c.listed("resourceslices") {
		return
	}
	nodes := map[string][]string{} // by what is wrong with them
	for i := range c.Cluster.ResourceSlices {
		s := &c.Cluster.ResourceSlices[i].Spec
		at := slices.IndexFunc(c.Cluster.Nodes, func(n corev1.Node) bool { return s.NodeName != nil && n.Name == *s.NodeName })
		if at < 0 || len(s.Devices) == 0 {
			continue
		}
		var resources []string
		for name, amount := range c.Cluster.Nodes[at].Status.Allocatable {
			if amount.Sign() > 0 && sameDevices(string(name), s.Driver) {
				resources = append(resources, string(name))
			}
		}
		if slices.Sort(resources); len(resources) > 0 {
			text := strings.Join(resources, ", ") + " is allocatable, and the driver " + s.Driver + " publishes devices"
			nodes[text] = append(nodes[text], *s.NodeName)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(nodes)) {
		all := slices.Compact(slices.Sorted(slices.Values(nodes[text])))
		if n := len(all) - 1; n > 0 {
			text += fmt.Sprintf(", as on other nodes (%d)", n)
		}
		c.elsewhere(Warning, "DevicesAllocatedTwice", "node "+all[0], "status.allocatable", text,
			"kube-scheduler counts resources and devices separately, so a pod that requests the resource and one with a ResourceClaim may get the same device",
			"run the device plugin or the driver on a node, and not both; or exclude the devices of one from the other")
	}
}

// sameDevices reports whether the resource stands for devices of the driver, by their names, such as
// nvidia.com/gpu and nvidia.com/mig-1g.5gb for gpu.nvidia.com, and gpu.intel.com/i915 for
// gpu.intel.com. gpushare and HAMi share the GPUs of NVIDIA under names of their own.
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

// unmatched reports, below the field at path with this name, labels and annotations that a policy
// reads of nodes and that no node has, and selectors of pods that match none.
func (c *checker) unmatched(path, name string, value any) {
	switch v := value.(type) {
	case map[string]any:
		if name == "selector" {
			c.unmatchedPods(path, v)
		}
		for _, field := range slices.Sorted(maps.Keys(v)) {
			switch key, _ := v[field].(string); {
			case key != "" && strings.HasSuffix(name, "From"):
				c.unmatchedNodes(path, field, key)
			case key != "" && field == "clusterLabel":
				c.unmatchedNodes(path+"."+field, "label", key)
			}
			c.unmatched(path+"."+field, field, v[field])
		}
	case []any:
		for i, item := range v {
			at := fmt.Sprintf("%s[%d]", path, i)
			if key, _ := item.(string); name == "keyLabels" {
				c.unmatchedNodes(at, "label", key)
			}
			c.unmatched(at, "", item)
		}
	}
}

func (c *checker) unmatchedNodes(path, kind, key string) {
	has := func(n corev1.Node) bool {
		of := n.Labels
		if kind == "annotation" {
			of = n.Annotations
		}
		_, ok := of[key]
		return ok
	}
	if c.listed("nodes") && !slices.ContainsFunc(c.Cluster.Nodes, has) {
		c.elsewhere(Warning, "NothingMatches", c.ConfigFile, path, "no node has the "+kind+" "+key, "the policy decides as if no node declared anything", "correct the key, or set it on the nodes")
	}
}

func (c *checker) unmatchedPods(path string, value map[string]any) {
	var selector metav1.LabelSelector
	if runtime.DefaultUnstructuredConverter.FromUnstructured(value, &selector) != nil {
		return
	}
	s, err := metav1.LabelSelectorAsSelector(&selector)
	matches := func(p corev1.Pod) bool { return s.Matches(labels.Set(p.Labels)) }
	if err == nil && c.listed("pods") && !slices.ContainsFunc(c.Cluster.Pods, matches) {
		c.elsewhere(Note, "NothingMatches", c.ConfigFile, path, "no pod has the labels "+s.String(), "the policy has no effect on the pods of the cluster", "")
	}
}
