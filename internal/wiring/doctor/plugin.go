package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/policy/fields"
)

// pluginName is the name of Outboard's plugin, in builds of kube-scheduler that contain it.
const pluginName = "Outboard"

// pluginMinor is the minor version of the kube-scheduler that this release builds with the plugin.
const pluginMinor = 37

// defaultPlugins are those of kube-scheduler that are on by default, at extension points where the
// order matters to Outboard, or where it matters whether one is on.
var defaultPlugins = map[string][]string{"bind": {"DefaultBinder"}, "filter": {"NodeResourcesFit"}, "postFilter": {"DefaultPreemption"}}

// pluginSets are the sets of plugins of a profile by the names of their fields: those at extension
// points of Outboard's plugin.
type pluginSets map[string]schedulerv1.PluginSet

func setsOf(p *schedulerv1.Plugins) pluginSets {
	if p == nil {
		p = &schedulerv1.Plugins{}
	}
	return pluginSets{"multiPoint": p.MultiPoint, "preFilter": p.PreFilter, "filter": p.Filter, "postFilter": p.PostFilter,
		"preScore": p.PreScore, "score": p.Score, "reserve": p.Reserve, "bind": p.Bind}
}

func enables(set schedulerv1.PluginSet, name string) bool {
	return slices.ContainsFunc(set.Enabled, func(p schedulerv1.Plugin) bool { return p.Name == name })
}

func disables(set schedulerv1.PluginSet, name string) bool {
	return slices.ContainsFunc(set.Disabled, func(p schedulerv1.Plugin) bool { return p.Name == name || p.Name == "*" })
}

// everywhere reports whether multiPoint has a plugin, itself or by default.
func (s pluginSets) everywhere(point, name string) bool {
	multi := s["multiPoint"]
	return enables(multi, name) || slices.Contains(defaultPlugins[point], name) && !disables(multi, name)
}

// inOrder returns the plugins at an extension point in the order in which kube-scheduler runs them:
// first those of its list that are also in multiPoint, then those of multiPoint, then the others.
// Of plugins of other projects in multiPoint, it is not known whether they implement it.
func (s pluginSets) inOrder(point string) (order []string) {
	own := s[point]
	var others []string
	for _, p := range own.Enabled {
		if s.everywhere(point, p.Name) {
			order = append(order, p.Name)
		} else {
			others = append(others, p.Name)
		}
	}
	for _, name := range append(slices.Clone(defaultPlugins[point]), pluginName) {
		if s.everywhere(point, name) && !enables(own, name) && !disables(own, name) {
			order = append(order, name)
		}
	}
	return append(order, others...)
}

// plugin reports whether the configuration uses Outboard as a plugin, and checks how.
func (c *checker) plugin() (found bool) {
	for i, p := range c.doc.config.Profiles {
		path, sets, listed := fmt.Sprintf("profiles[%d]", i), setsOf(p.Plugins), false
		misspelled := false // kube-scheduler's order of the plugins is then unknown
		for point, set := range sets {
			listed = listed || enables(set, pluginName)
			for k, q := range set.Enabled {
				if !enables(set, pluginName) && fields.Nearest(q.Name, []string{pluginName}) != "" {
					misspelled = true
					c.refuse("InvalidValue", fmt.Sprintf("%s.plugins.%s.enabled[%d].name", path, point, k), "there is no plugin "+q.Name+"; did you mean Outboard?", "", "write name: Outboard")
				}
			}
		}
		j := slices.IndexFunc(p.PluginConfig, func(a pluginConfig) bool { return a.Name == pluginName })
		if j < 0 && !listed && !misspelled {
			continue
		}
		found = true
		switch {
		case misspelled:
		case !listed:
			c.at(Error, "PluginNotEnabled", path+".plugins", "pluginConfig has arguments for Outboard, and no list enables the plugin", "kube-scheduler does not call it", "list Outboard in plugins.multiPoint.enabled and plugins.bind.enabled")
		case j < 0 || p.PluginConfig[j].Args.At("configFile").IsZero() && p.PluginConfig[j].Args.At("profiles").IsZero():
			c.refuse("InvalidValue", path+".pluginConfig", "there is no configuration for Outboard", "the plugin needs one", "add an item with name: Outboard, and args with a configuration or with configFile")
		default:
			u := usedProfile{sets: sets, scheduler: path, path: fmt.Sprintf("%s.pluginConfig[%d].args", path, j), args: p.PluginConfig[j].Args, all: p.PluginConfig}
			c.pluginArguments(&u)
		}
	}
	// kube-scheduler may be as new as the API server, or one minor version older. Which release
	// its image is from, nothing in its configuration says.
	if found && c.minor > 0 && c.minor != pluginMinor && c.minor != pluginMinor+1 {
		c.at(Warning, "PluginVersion", "profiles", fmt.Sprintf("the plugin of this release is in kube-scheduler 1.%d, and the version is %s", pluginMinor, c.Version),
			"kube-scheduler must be as new as the API server, or one minor version older", "use the extender, or a release of Outboard for this version")
	}
	return found
}

// usedProfile is the profile of Outboard's configuration that the plugin uses in a profile of
// kube-scheduler.
type usedProfile struct {
	*config.Profile // nil: unknown

	args      strictyaml.Value
	path      string // of the arguments
	scheduler string // the path of kube-scheduler's profile
	sets      pluginSets
	all       []pluginConfig
}

// pluginArguments checks the arguments of Outboard's plugin.
func (c *checker) pluginArguments(u *usedProfile) {
	var document map[string]any
	if u.args.Decode(&document) != nil {
		return // it has been reported
	}
	text, err := json.Marshal(document)
	if err != nil {
		return
	}
	types := c.Types
	types.Unserved = true
	a, conf, err := config.ParseArguments(c.File, text, types)
	c.argumentErrors(u.path, err, "")
	if err == nil && conf == nil {
		conf = c.argumentFile(u.path, a.ConfigFile, types)
	}
	if err == nil && conf != nil {
		p, wrong := a.Choose(conf)
		if wrong != nil {
			c.refuse("InvalidValue", u.path+"."+wrong.Field, wrong.ErrorBody(), "", "")
		}
		u.Profile = p
	}
	if u.Profile == nil {
		why := "its arguments have errors"
		if err == nil && conf == nil {
			why = "its configuration is not known: FILE names it"
		}
		c.omit("what the policies of Outboard's plugin need in "+u.scheduler+".plugins", why)
	} else {
		c.bindsFirst(u)
		c.namesShortlist(u)
		c.countedByFit(u)
		c.pluginWeight(u)
	}
}

// pluginWeight reports a weight with which the policies count otherwise than other plugins with
// their weights. That in plugins.score takes the place of that in plugins.multiPoint.
func (c *checker) pluginWeight(u *usedProfile) {
	for _, point := range []string{"score", "multiPoint"} {
		k := slices.IndexFunc(u.sets[point].Enabled, func(p schedulerv1.Plugin) bool { return p.Name == pluginName })
		if k < 0 {
			continue
		}
		got, want := int64(1), u.ExtenderWeight()
		if w := u.sets[point].Enabled[k].Weight; w != nil && *w != 0 {
			got = int64(*w)
		}
		if want > 0 && got != want {
			c.weightIs(fmt.Sprintf("%s.plugins.%s.enabled[%d].weight", u.scheduler, point, k), got, want, u.Profile)
		}
		return
	}
}

// bindsFirst checks that no other plugin binds pods before Outboard's does, which rejects all pods
// for which a policy allocates resources otherwise.
func (c *checker) bindsFirst(u *usedProfile) {
	order, allocator := u.sets.inOrder("bind"), u.Allocator()
	if allocator == "" || len(order) > 0 && order[0] == pluginName {
		return
	}
	why := "Outboard does not bind"
	if len(order) > 0 {
		why = order[0] + " binds first, and knows no allocations"
	}
	fix := "list Outboard first in plugins.bind.enabled"
	if !enables(u.sets["multiPoint"], pluginName) {
		fix += ", and in plugins.multiPoint.enabled"
	}
	c.at(Error, "PluginNotEnabled", u.scheduler+".plugins.bind", "Outboard is not the first in plugins.bind, and "+allocator+" allocates resources", why+": Outboard rejects all pods that need an allocation, and they stay pending", fix)
}

// namesShortlist checks that Outboard runs before the plugins that evict pods: otherwise the plugin
// names no nodes, because the others would consider only these.
func (c *checker) namesShortlist(u *usedProfile) {
	if order := u.sets.inOrder("postFilter"); u.Listed() > 0 && (len(order) == 0 || order[0] != pluginName) {
		c.at(Warning, "PluginNotEnabled", u.scheduler+".plugins.postFilter", "Outboard is not the first in plugins.postFilter, and the profile "+u.Path+" has a shortlist",
			"the plugin names no nodes: kube-scheduler evaluates the nodes as usual, and not the best by the policies", "list Outboard first in plugins.postFilter.enabled, and in plugins.multiPoint.enabled, or set shortlist: 0 in the profile")
	}
}

// countedByFit reports resources that kube-scheduler is not to count, and that its own plugin
// counts: only for extenders it leaves them out.
func (c *checker) countedByFit(u *usedProfile) {
	var uncounted, missing []string
	for _, q := range u.all {
		var a schedulerv1.NodeResourcesFitArgs
		if q.Name == "NodeResourcesFit" && q.Args.Decode(&a) == nil {
			uncounted = slices.Concat(a.IgnoredResources, a.IgnoredResourceGroups)
		}
	}
	for _, e := range c.doc.config.Extenders {
		for _, r := range slices.DeleteFunc(slices.Clone(e.ManagedResources), counted) {
			uncounted = append(uncounted, r.Name)
		}
	}
	for _, r := range u.ManagedResources {
		group, _, _ := strings.Cut(r.Name, "/")
		reported := c.Cluster != nil && c.Cluster.reports(corev1.ResourceName(r.Name))
		if r.IgnoredByScheduler && !reported && !slices.Contains(uncounted, r.Name) && !slices.Contains(uncounted, group) {
			missing = append(missing, r.Name)
		}
	}
	if len(missing) > 0 && slices.Contains(u.sets.inOrder("filter"), "NodeResourcesFit") {
		list := strings.Join(missing, ", ")
		c.at(Error, "CountedByFit", u.scheduler+".pluginConfig", "NodeResourcesFit counts "+list+", which the profile "+u.Path+" has with ignoredByScheduler: true",
			"unless nodes report it, kube-scheduler rejects every node with \"Insufficient "+missing[0]+"\"",
			"list it in the arguments of NodeResourcesFit: {name: NodeResourcesFit, args: {ignoredResources: ["+list+"]}}")
	}
}

// argumentFile returns the configuration in the file that arguments of Outboard's plugin name, or
// the one that the user names instead. It reports errors of the file. nil: it cannot be read here,
// or has errors.
func (c *checker) argumentFile(path, file string, types config.Types) *config.Config {
	if m := missing(file, c.ReadFile); m != nil {
		c.refuse("FileNotFound", path+".configFile", file+" does not exist: "+m.Error(), "", "add the key, or name a file that the container has")
		return nil
	}
	if c.Config != nil && !c.configDeployed {
		return c.Config
	}
	data := c.readOrOmit(file, c.ReadFile)
	if data == nil {
		return nil
	}
	conf, err := config.Parse(file, data, types)
	c.argumentErrors(path, err, "configFile")
	return conf
}

// argumentErrors reports errors of the configuration in the arguments at path, or in the file that
// the field names.
func (c *checker) argumentErrors(path string, err error, field string) {
	var errs config.Errors
	_ = errors.As(err, &errs)
	for _, e := range errs {
		switch {
		case len(c.Types.Policies) == 0 && (strings.HasPrefix(e.Path, "profiles") || strings.HasPrefix(e.Path, "signals")):
			// The types are unknown.
		case field != "":
			c.refuse("InvalidValue", path+"."+field, e.Error(), "", "")
		default:
			c.refuse("InvalidValue", strings.TrimSuffix(path+"."+e.Path, "."), e.Message(), "", "")
		}
	}
}
