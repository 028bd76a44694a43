package config

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/policy/fields"
)

// PluginArguments are the arguments of the plugin in kube-scheduler other than the configuration,
// which can be beside them.
type PluginArguments struct {
	// ConfigFile is the configuration file; "": the configuration is in the arguments.
	ConfigFile string `json:"configFile"`
	// Profile is the path of the profile whose policies run; "": the only one.
	Profile string `json:"profile"`
	// InertPlugins are the names of plugins that are neither Outboard nor kube-scheduler's own, and
	// that reject and name no nodes for the pods for which PreFilter names nodes.
	InertPlugins []string `json:"inertPlugins" items:"must not be empty"`
}

// pluginDocument has all fields that the arguments of the plugin can have.
type pluginDocument struct {
	*PluginArguments
	*document
}

// ParseArguments parses arguments of the plugin. file is what errors call them. The configuration
// is nil if it is in ConfigFile, and if it has errors itself. All errors are of type [Errors]; the
// arguments then have the values that could be decoded.
func ParseArguments(file string, data []byte, types Types) (PluginArguments, *Config, error) {
	var a PluginArguments
	root, err := strictyaml.Parse(file, data)
	if err != nil {
		return a, nil, err
	}
	var own Errors // about the arguments other than the configuration
	decode := func(d *document) (others Errors) {
		for _, e := range errorsIn(root.Decode(&pluginDocument{&a, d})) {
			if withinAny(e.Path, strictyaml.Fields(&a)) {
				own = append(own, e)
			} else {
				others = append(others, e)
			}
		}
		own = append(own, root.Locate(fields.Check(nil, &a).ToAggregate())...)
		return others
	}
	var named string
	if root.At("configFile").Decode(&named) != nil || named != "" {
		configuration := strictyaml.Fields(&document{})
		errs := slices.DeleteFunc(decode(&document{Process: &Process{}}), func(e *Error) bool { return withinAny(e.Path, configuration) })
		for _, name := range configuration {
			if !root.At(name).IsZero() {
				errs = append(errs, root.Locate(field.Forbidden(field.NewPath(name), "the configuration is in configFile"))...)
			}
		}
		return a, nil, strictyaml.Join(own, errs)
	}
	c, err := assemble(file, root, types, decode)
	if err != nil {
		return a, nil, strictyaml.Join(own, err)
	}
	if _, wrong := a.Choose(c); wrong != nil && len(own) == 0 {
		own = root.Locate(wrong)
	}
	return a, c, strictyaml.Join(own)
}

// withinAny reports whether path is one of the fields, or inside one.
func withinAny(path string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return within(path, name) })
}

// Choose returns the profile of the configuration that the arguments name.
func (a *PluginArguments) Choose(c *Config) (*Profile, *field.Error) {
	for i := range c.Profiles {
		if p := &c.Profiles[i]; p.Path == a.Profile || a.Profile == "" && len(c.Profiles) == 1 {
			return p, nil
		}
	}
	at, known := field.NewPath("profile"), "profiles: "+strings.Join(paths(c), ", ")
	if a.Profile == "" {
		return nil, field.Required(at, "the configuration has several "+known)
	}
	err := field.NotFound(at, a.Profile)
	err.Detail = "the configuration has the " + known
	return nil, err
}
