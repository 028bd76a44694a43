package schedplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/policy/fields"
)

// argsName is the name in errors of a configuration in the arguments.
const argsName = "pluginConfig[" + Name + "].args"

// arguments are those of the plugin.
type arguments struct {
	// ConfigFile is the configuration file; "": the configuration is in the arguments.
	ConfigFile string
	// Profile is the path of the profile whose policies run; "": the only one.
	Profile string
	// Candidates is how many nodes PreFilter names at most, 0..99; 0: it names none, and kube-scheduler evaluates as many nodes
	// as without the plugin.
	Candidates int
	// InertPlugins are the names of plugins that are neither Outboard nor kube-scheduler's own, and that reject and name no nodes for the
	// pods for which PreFilter names nodes.
	InertPlugins []string

	document []byte // the configuration in the arguments
}

// parseArguments parses the arguments in the configuration of kube-scheduler.
func parseArguments(args runtime.Object) (arguments, error) {
	var a arguments
	unknown, ok := args.(*runtime.Unknown)
	if args == nil || ok && len(unknown.Raw) == 0 {
		return a, fmt.Errorf("%s: Required value: must be a configuration, or name one with configFile", argsName)
	}
	if !ok {
		return a, fmt.Errorf("%s: is a %T: must be a configuration", argsName, args)
	}
	raw, err := yaml.YAMLToJSONStrict(unknown.Raw) // JSON is YAML
	if err != nil {
		return a, fmt.Errorf("%s: %w", argsName, err)
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return a, fmt.Errorf("%s: must be a mapping", argsName)
	}
	var errs []error
	for _, f := range []struct {
		name string
		into any
		must string
	}{
		{"configFile", &a.ConfigFile, "a string"}, {"profile", &a.Profile, "a string"},
		{"candidates", &a.Candidates, "a number"}, {"inertPlugins", &a.InertPlugins, "a list of names"},
	} {
		if value, has := given[f.name]; has {
			if json.Unmarshal(value, f.into) != nil {
				errs = append(errs, fmt.Errorf("%s: %s: Invalid value: must be %s", argsName, f.name, f.must))
			}
			delete(given, f.name)
		}
	}
	if a.Candidates < 0 || a.Candidates > config.MaxCandidates {
		errs = append(errs, fmt.Errorf("%s: candidates: Invalid value: %d: must be between 0 and %d", argsName, a.Candidates, config.MaxCandidates))
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		near := fields.Nearest(name, []string{"configFile", "profile", "profiles", "candidates", "inertPlugins"})
		switch misspelled := near != "" && near != name; {
		case a.ConfigFile != "" && !misspelled:
			errs = append(errs, fmt.Errorf("%s: %s: Forbidden: the configuration is in configFile", argsName, name))
		case misspelled && (a.ConfigFile != "" || near != "profiles"): // loading the configuration reports the others
			errs = append(errs, fmt.Errorf("%s: %s: Unknown field: did you mean %q?", argsName, name, near))
		}
	}
	if a.document, err = json.Marshal(given); err != nil {
		errs = append(errs, err)
	}
	return a, errors.Join(errs...)
}

// load reads the configuration.
func (a arguments) load(types config.Types) (*config.Config, error) {
	if a.ConfigFile != "" {
		return config.Load(a.ConfigFile, types)
	}
	c, err := config.Parse(argsName, a.document, types)
	var errs config.Errors
	if errors.As(err, &errs) {
		for _, e := range errs {
			e.Line = 0 // of the JSON that kube-scheduler has made of its file
		}
	}
	return c, err
}

// choose returns the profile of the configuration that the arguments name.
func (a arguments) choose(c *config.Config) (*config.Profile, error) {
	var paths []string
	for i := range c.Profiles {
		p := &c.Profiles[i]
		if p.Path == a.Profile || a.Profile == "" && len(c.Profiles) == 1 {
			return p, nil
		}
		paths = append(paths, p.Path)
	}
	known := "profiles: " + strings.Join(paths, ", ")
	if a.Profile == "" {
		return nil, fmt.Errorf("%s: profile: Required value: the configuration has several %s", argsName, known)
	}
	return nil, fmt.Errorf("%s: profile: Not found: %q: the configuration has the %s", argsName, a.Profile, known)
}
