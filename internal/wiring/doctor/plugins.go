package doctor

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/policy/fields"
)

// pluginName is the name of Outboard's plugin, in builds of kube-scheduler that contain it.
const pluginName = "Outboard"

// inTree is a plugin of kube-scheduler.
type inTree struct {
	points string // the extension points that it implements
	since  int    // the minor version, if later than 1.25
	on     bool   // enabled by default
}

// plugins are those of kube-scheduler 1.37.
var plugins = map[string]inTree{
	"DefaultBinder":                   {"bind", 0, true},
	"DefaultPreemption":               {"preEnqueue postFilter", 0, true},
	"DeferredPodScheduling":           {"preFilter filter permit", 37, false},
	"DynamicResources":                {"preEnqueue preFilter filter postFilter score reserve preBind podGroupPostFilter", 26, true},
	"GangScheduling":                  {"preEnqueue permit", 35, false},
	"ImageLocality":                   {"score", 0, true},
	"InterPodAffinity":                {"preFilter filter preScore score", 0, true},
	"NodeAffinity":                    {"preFilter filter preScore score", 0, true},
	"NodeDeclaredFeatures":            {"preFilter filter", 35, true},
	"NodeName":                        {"preFilter filter", 0, true},
	"NodePorts":                       {"preFilter filter", 0, true},
	"NodeResourcesBalancedAllocation": {"preScore score", 0, true},
	"NodeResourcesFit":                {"preFilter filter preScore score placementScore", 0, true},
	"NodeUnschedulable":               {"preFilter filter", 0, true},
	"NodeVolumeLimits":                {"preFilter filter", 0, true},
	"PodGroupPodsCount":               {"placementScore", 36, false},
	"PodTopologySpread":               {"preFilter filter preScore score", 0, true},
	"PrioritySort":                    {"queueSort", 0, true},
	"SchedulingGates":                 {"preEnqueue", 26, true},
	"TaintToleration":                 {"preFilter filter preScore score", 0, true},
	"TopologyPlacementGenerator":      {"placementGenerate", 36, false},
	"VolumeBinding":                   {"preFilter filter preScore score reserve preBind", 0, true},
	"VolumeRestrictions":              {"preFilter filter", 0, true},
	"VolumeZone":                      {"preFilter filter", 0, true},
}

// implements reports whether a plugin implements an extension point. A plugin that kube-scheduler
// does not know may.
func implements(name, point string) bool {
	p, known := plugins[name]
	return !known || slices.Contains(strings.Fields(p.points), point)
}

// pluginSets are the sets of plugins by the names of their fields.
func pluginSets(p *schedulerv1.Plugins) map[string]schedulerv1.PluginSet {
	sets := map[string]schedulerv1.PluginSet{}
	if p == nil {
		p = &schedulerv1.Plugins{}
	}
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		sets[name] = v.Field(i).Interface().(schedulerv1.PluginSet)
	}
	return sets
}

// schedulerProfiles checks the profiles of kube-scheduler.
func (c *checker) schedulerProfiles() {
	all := c.doc.config.Profiles
	for i := range all {
		path := fmt.Sprintf("profiles[%d]", i)
		sets := pluginSets(all[i].Plugins)
		for _, point := range slices.Sorted(maps.Keys(sets)) {
			c.pluginSet(path+".plugins."+point, point, sets[point].Enabled)
		}
		c.required(path, sets)
		c.pluginArgs(path, all[i].PluginConfig)
		if first := pluginSets(all[0].Plugins)["queueSort"]; !reflect.DeepEqual(namesOf(first), namesOf(sets["queueSort"])) {
			c.refuse("InvalidValue", path+".plugins.queueSort", "the plugins differ from those of profiles[0]", "all profiles share one queue", "list the same in all profiles")
		}
	}
}

// namesOf returns the plugins that a set enables and disables.
func namesOf(s schedulerv1.PluginSet) (names [2][]string) {
	for _, p := range s.Enabled {
		names[0] = append(names[0], p.Name)
	}
	for _, p := range s.Disabled {
		names[1] = append(names[1], p.Name)
	}
	return names
}

// inOrder returns the plugins at an extension point in the order in which kube-scheduler runs them,
// without plugins of other projects in multiPoint, of which it is not known whether they implement
// it.
func inOrder(sets map[string]schedulerv1.PluginSet, point string) (order []string) {
	multi, own := namesOf(sets["multiPoint"]), namesOf(sets[point])
	var everywhere []string
	for _, name := range append(slices.Sorted(maps.Keys(plugins)), pluginName) {
		on := slices.Contains(multi[0], name) || plugins[name].on && !slices.Contains(multi[1], name) && !slices.Contains(multi[1], "*")
		if on && implements(name, point) && !slices.Contains(own[1], name) && !slices.Contains(own[1], "*") {
			everywhere = append(everywhere, name)
		}
	}
	for _, both := range []bool{true, false} {
		for _, name := range own[0] {
			if slices.Contains(everywhere, name) == both {
				order = append(order, name)
			}
		}
		for _, name := range everywhere {
			if both && !slices.Contains(own[0], name) {
				order = append(order, name)
			}
		}
	}
	return order
}

// pluginSet checks the plugins that a profile enables at an extension point.
func (c *checker) pluginSet(path, point string, enabled []schedulerv1.Plugin) {
	first := map[string]bool{}
	for i, p := range enabled {
		at := fmt.Sprintf("%s.enabled[%d]", path, i)
		known, found := plugins[p.Name]
		switch {
		case !found && p.Name != pluginName:
			c.unknownPlugin(at, p.Name)
		case found && !c.since(known.since):
			c.refuse("UnknownPlugin", at, fmt.Sprintf("kube-scheduler 1.%d has no plugin %s", c.minor, p.Name), fmt.Sprintf("1.%d and later has it", known.since), "remove it")
		case first[p.Name]:
			c.refuse("InvalidValue", at, p.Name+" is in the list twice", "", "remove one of the two")
		case point != "multiPoint" && !implements(p.Name, point):
			c.refuse("InvalidValue", at, p.Name+" has no "+point, "it has "+strings.Join(strings.Fields(known.points), ", "), "remove it")
		case p.Weight != nil && *p.Weight < 0 && (point == "score" || point == "multiPoint" && implements(p.Name, "score")):
			c.refuse("InvalidValue", at+".weight", fmt.Sprintf("%d: must be positive", *p.Weight), "kube-scheduler reports that the sum of the weights could overflow", "")
		}
		first[p.Name] = true
	}
}

func (c *checker) unknownPlugin(at, name string) {
	fix := "write the name of a plugin; or, if this kube-scheduler is a build with this plugin, ignore this"
	if near := fields.Nearest(name, slices.Sorted(maps.Keys(plugins))); near != "" {
		fix = "write name: " + near
	}
	c.refuse("UnknownPlugin", at, fmt.Sprintf("kube-scheduler has no plugin %q", name), "no release of kube-scheduler has it", fix)
}

// required checks that a profile has a plugin that binds, and one that sorts the queue.
func (c *checker) required(path string, sets map[string]schedulerv1.PluginSet) {
	count := func(point string) (n int) {
		multi, set := namesOf(sets["multiPoint"]), namesOf(sets[point])
		n = len(set[0])
		if slices.Contains(set[1], "*") {
			return n
		}
		on := slices.Clone(multi[0])
		for name, p := range plugins {
			if p.on && !slices.Contains(multi[0], name) && !slices.Contains(multi[1], name) && !slices.Contains(multi[1], "*") {
				on = append(on, name)
			}
		}
		for _, name := range on {
			known := plugins[name].points != ""
			if known && implements(name, point) && !slices.Contains(set[0], name) && !slices.Contains(set[1], name) {
				n++
			}
		}
		return n
	}
	for _, required := range []struct{ point, does string }{{"bind", "binds pods"}, {"queueSort", "sorts the queue"}} {
		point, at := required.point, path+".plugins."+required.point
		switch n := count(point); {
		case n == 0 && !slices.Contains(namesOf(sets["multiPoint"])[0], pluginName):
			c.refuse("InvalidValue", at, "no plugin "+required.does, "every profile needs one, also with an extender that binds", "remove "+point+" from plugins")
		case n > 1 && point == "queueSort":
			c.refuse("InvalidValue", at, fmt.Sprintf("%d plugins sort the queue", n), "there can be only one", "disable the others: queueSort: {disabled: [{name: \"*\"}]}")
		}
	}
}

// plugin reports whether the configuration uses Outboard as a plugin, and checks how.
func (c *checker) plugin() bool {
	found := false
	for i, p := range c.doc.config.Profiles {
		path, sets, points, args, argsPath := fmt.Sprintf("profiles[%d]", i), pluginSets(p.Plugins), []string{}, strictyaml.Value{}, ""
		for point, set := range sets {
			if slices.Contains(namesOf(set)[0], pluginName) {
				points = append(points, point)
			}
		}
		for j, a := range p.PluginConfig {
			if a.Name == pluginName {
				args, argsPath = a.Args, fmt.Sprintf("%s.pluginConfig[%d].args", path, j)
			}
		}
		if len(points) == 0 && args.IsZero() {
			continue
		}
		found = true
		switch {
		case len(points) == 0:
			c.at(Error, "PluginNotEnabled", path+".plugins", "pluginConfig has arguments for Outboard, and no list enables the plugin", "kube-scheduler does not call it", "list Outboard in plugins.multiPoint.enabled and plugins.bind.enabled")
		case args.At("configFile").IsZero() && args.At("profiles").IsZero():
			c.refuse("InvalidValue", path+".pluginConfig", "there is no configuration for Outboard", "the plugin needs one", "add an item with name: Outboard, and args with a configuration or with configFile")
		default:
			c.outboardArgs(argsPath, args, sets, path, p.PluginConfig)
		}
	}
	return found
}

// argsOf returns a value for the arguments of a plugin; nil if kube-scheduler knows no type for
// them.
func argsOf(name string) runtime.Object {
	switch name {
	case "DefaultPreemption":
		return &schedulerv1.DefaultPreemptionArgs{}
	case "DynamicResources":
		return &schedulerv1.DynamicResourcesArgs{}
	case "InterPodAffinity":
		return &schedulerv1.InterPodAffinityArgs{}
	case "NodeAffinity":
		return &schedulerv1.NodeAffinityArgs{}
	case "NodeResourcesBalancedAllocation":
		return &schedulerv1.NodeResourcesBalancedAllocationArgs{}
	case "NodeResourcesFit":
		return &schedulerv1.NodeResourcesFitArgs{}
	case "PodTopologySpread":
		return &schedulerv1.PodTopologySpreadArgs{}
	case "VolumeBinding":
		return &schedulerv1.VolumeBindingArgs{}
	}
	return nil
}
