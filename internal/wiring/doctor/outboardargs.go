package doctor

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/config/strictyaml"
)

// outboardArgs checks the arguments of Outboard's plugin, which are at path. points are the extension points at which the profile of
// kube-scheduler lists the plugin. claims says whether a policy allocates resources; it is true if that is unknown.
func (c *checker) outboardArgs(path string, args strictyaml.Value, points []string, profile string) (claims bool) {
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
	if a.Candidates > 0 && !slices.Contains(points, "postFilter") {
		c.at(Warning, "PluginNotEnabled", profile+".plugins.postFilter", "plugins.postFilter does not list Outboard, and candidates is set",
			"the plugin names no candidates: kube-scheduler evaluates the nodes as without candidates", "list Outboard first in plugins.postFilter.enabled")
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
