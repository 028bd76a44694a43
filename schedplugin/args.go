package schedplugin

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config"
)

// argsName is the name in errors of a configuration in the arguments.
const argsName = "pluginConfig[" + Name + "].args"

// arguments are those of the plugin.
type arguments = config.PluginArguments

// parseArguments returns the arguments in the configuration of kube-scheduler, with the
// configuration unless ConfigFile has it.
func parseArguments(args runtime.Object, types config.Types) (arguments, *config.Config, error) {
	unknown, ok := args.(*runtime.Unknown)
	if args == nil || ok && len(unknown.Raw) == 0 {
		return arguments{}, nil, fmt.Errorf("%s: Required value: must be a configuration, or name one with configFile", argsName)
	}
	if !ok {
		return arguments{}, nil, fmt.Errorf("%s: is a %T: must be a configuration", argsName, args)
	}
	raw, err := yaml.YAMLToJSONStrict(unknown.Raw) // JSON is YAML
	if err != nil {
		return arguments{}, nil, fmt.Errorf("%s: %w", argsName, err)
	}
	a, c, err := config.ParseArguments(argsName, raw, types)
	var errs config.Errors
	if errors.As(err, &errs) {
		for _, e := range errs {
			e.Line = 0 // of the JSON that kube-scheduler has made of its file
		}
	}
	return a, c, err
}

// choose returns the profile of the configuration that the arguments name.
func choose(a arguments, c *config.Config) (*config.Profile, error) {
	p, err := a.Choose(c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", argsName, err)
	}
	return p, nil
}
