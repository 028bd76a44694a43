package doctor

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/config/strictyaml"
)

// outboardArgs checks the arguments of Outboard's plugin, which are at path, in a profile of kube-scheduler with the sets of plugins.
// claims says whether a policy allocates resources; it is true if that is unknown.
func (c *checker) outboardArgs(path string, args strictyaml.Value, sets map[string]schedulerv1.PluginSet, profile string) (claims bool) {
	var document map[string]any
	if args.Decode(&document) != nil {
		return true // it has been reported
	}
	text, err := json.Marshal(document)
	if err != nil {
		return true
	}
	types := c.Types
	types.Unserved = true
	a, conf, err := config.ParseArguments(c.File, text, types)
	c.argumentErrors(path, err, "")
	if err == nil && a.Candidates > 0 {
		c.candidates(path+".candidates", sets, profile)
	}
	if err == nil && conf == nil {
		if conf = c.argumentFile(path, a.ConfigFile, types); conf != nil {
			if _, wrong := a.Choose(conf); wrong != nil {
				c.refuse("InvalidValue", path+"."+wrong.Field, wrong.ErrorBody(), "", "")
			}
		}
	}
	return conf == nil || slices.ContainsFunc(conf.Profiles, func(p config.Profile) bool {
		return (a.Profile == "" || p.Path == a.Profile) && p.Claimer() != ""
	})
}

// candidates checks whether the order of the plugins permits Outboard to name candidates, which are set at the path.
func (c *checker) candidates(path string, sets map[string]schedulerv1.PluginSet, profile string) {
	const why = "the plugin names no candidates: kube-scheduler evaluates the nodes as without candidates"
	multiPoint := namesOf(sets["multiPoint"])
	isMulti := func(name string) bool {
		return slices.Contains(multiPoint[0], name) || plugins[name].on && !slices.Contains(multiPoint[1], name) && !slices.Contains(multiPoint[1], "*")
	}
	// kube-scheduler runs those plugins in the list of an extension point first that are also in multiPoint.
	first := slices.DeleteFunc(namesOf(sets["postFilter"])[0], func(name string) bool { return !isMulti(name) })
	switch {
	case !slices.Contains(namesOf(sets["postFilter"])[0], pluginName):
		c.at(Warning, "PluginNotEnabled", profile+".plugins.postFilter", "plugins.postFilter does not list Outboard, and candidates is set",
			why, "list Outboard first in plugins.postFilter.enabled")
	case isMulti(pluginName) && first[0] != pluginName:
		c.at(Warning, "PluginOrder", profile+".plugins.postFilter", first[0]+" is before Outboard, and candidates is set",
			why, "list Outboard first in plugins.postFilter.enabled")
	}
	if isMulti(pluginName) && slices.Contains(namesOf(sets["preFilter"])[0], pluginName) {
		c.at(Warning, "PluginOrder", profile+".plugins.preFilter", "plugins.preFilter lists Outboard, so that it runs before the plugins of multiPoint, and candidates is set",
			why, "remove Outboard from plugins.preFilter, so that it runs last")
	}
	if c.since(35) {
		c.at(Note, "BatchingDisabled", path, "with candidates, kube-scheduler 1.35 and later does not use OpportunisticBatching",
			"equal pods are no longer placed with the results of the first, for this profile", "")
	}
}

// argumentFile reads the configuration file that arguments of Outboard's plugin name, and reports its errors. nil: it cannot be read here, or
// has errors.
func (c *checker) argumentFile(path, file string, types config.Types) *config.Config {
	if m := missing(file, c.ReadFile); m != nil {
		c.refuse("FileNotMounted", path+".configFile", file+" does not exist: "+m.Error(), "", "add the key, or name a file that the container has")
		return nil
	}
	data := c.readOrOmit(file, c.ReadFile)
	if data == nil {
		return nil
	}
	conf, err := config.Parse(file, data, types)
	c.argumentErrors(path, err, "configFile")
	return conf
}

// argumentErrors reports errors of the configuration in the arguments at path, or in the file that the field names.
func (c *checker) argumentErrors(path string, err error, field string) {
	var errs config.Errors
	if !errors.As(err, &errs) {
		return
	}
	for _, e := range errs {
		if len(c.Types.Policies) == 0 && (strings.HasPrefix(e.Path, "profiles") || strings.HasPrefix(e.Path, "signals")) {
			continue // the types are unknown
		}
		code, fix := "InvalidValue", ""
		if strings.HasSuffix(e.Path, ".type") {
			fix = "write the name of a type; or, if this kube-scheduler is a build with this type, ignore this"
		}
		if field != "" {
			c.refuse(code, path+"."+field, e.Error(), "", fix)
			continue
		}
		c.refuse(code, strings.TrimSuffix(path+"."+e.Path, "."), e.Message(), "", fix)
	}
}
