package schedplugin

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// filterStates are kube-scheduler's own plugins with PreFilter, each with the key of what PreFilter
// leaves for Filter in the state of the attempt. If it leaves nothing, it has told the framework to
// skip Filter, which does not work then. "": Filter works in any case. These may change with a
// minor version of Kubernetes.
var filterStates = map[string]fwk.StateKey{
	"DeferredPodScheduling": "",
	"DynamicResources":      "",
	"InterPodAffinity":      "PreFilterInterPodAffinity",
	"NodeAffinity":          "",
	"NodeDeclaredFeatures":  "PreFilterNodeDeclaredFeatures",
	"NodeName":              "",
	"NodePorts":             "PreFilterNodePorts",
	"NodeResourcesFit":      "PreFilterNodeResourcesFit",
	"NodeUnschedulable":     "",
	"NodeVolumeLimits":      "",
	"PodTopologySpread":     "PreFilterPodTopologySpread",
	"TaintToleration":       "",
	volumeBinding:           "",
	"VolumeRestrictions":    "PreFilterVolumeRestrictions",
	"VolumeZone":            "",
}

// volumeBinding skips Filter for pods without allocations of volumes, although it leaves something
// in the state.
const volumeBinding = "VolumeBinding"

// filters says how to run the filters of all plugins in PreFilter.
type filters struct {
	skip  []string // plugins that are taken for inert
	state []string // those of filterStates with a key
}

// filtersOf returns an error that says what to change if the filters cannot be run in PreFilter, or
// if a pod for which PreFilter has named nodes that all reject the pod could cause the eviction of
// other pods. inert are plugins to ignore.
func filtersOf(handle any, inert []string) (*filters, error) {
	after, err := listed(handle, "PostFilter")
	if err != nil {
		return nil, err
	}
	if len(after) == 0 || after[0] != Name {
		return nil, fmt.Errorf("plugins.postFilter.enabled of the profile must have %s beside plugins.multiPoint.enabled, so that it runs before the plugins that evict pods", Name)
	}
	before, _ := listed(handle, "PreFilter")
	if len(before) == 0 || before[len(before)-1] != Name {
		return nil, fmt.Errorf("%s must be the last plugin of preFilter in the profile, so that it sees what the others have found", Name)
	}
	f := &filters{}
	for _, name := range before[:len(before)-1] {
		key, known := filterStates[name]
		switch {
		case slices.Contains(inert, name):
			f.skip = append(f.skip, name)
		case !known:
			return nil, fmt.Errorf("the plugin %s has PreFilter: list it in inertPlugins if it neither rejects nor names nodes", name)
		case key != "":
			f.state = append(f.state, name)
		}
	}
	return f, nil
}

// set makes the framework run the filters that are not skipped for the pod.
func (f *filters) set(state fwk.CycleState, pod *corev1.Pod) {
	skip := state.GetSkipFilterPlugins().Clone()
	skip.Insert(f.skip...)
	for _, name := range f.state {
		if _, err := state.Read(filterStates[name]); err != nil {
			skip.Insert(name)
		}
	}
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }) {
		skip.Insert(volumeBinding)
	}
	state.SetSkipFilterPlugins(skip)
}
