package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/config/strictyaml"
)

// outboardArgs checks the arguments of Outboard's plugin, which are at path. points are the extension points at which the profile of
// kube-scheduler lists the plugin. claims says whether a policy allocates resources; it is true if that is unknown.
func (c *checker) outboardArgs(path string, args strictyaml.Value, points []string, profile string) (claims bool) {
	candidates, chosen := 0, ""
	switch at := args.At("candidates"); {
	case at.IsZero():
	case at.Decode(&candidates) != nil:
		c.refuse("InvalidValue", path+".candidates", "must be a number", "", fmt.Sprintf("write a number from 0 to %d", config.MaxCandidates))
	case candidates < 0 || candidates > config.MaxCandidates:
		c.refuse("InvalidValue", path+".candidates", fmt.Sprintf("%d: must be between 0 and %d", candidates, config.MaxCandidates), "", fmt.Sprintf("write a number from 0 to %d", config.MaxCandidates))
	case candidates > 0 && !slices.Contains(points, "postFilter"):
		c.at(Warning, "PluginNotEnabled", profile+".plugins.postFilter", "plugins.postFilter does not list Outboard, and candidates is set",
			"the plugin names no candidates: kube-scheduler evaluates the nodes as without candidates", "list Outboard first in plugins.postFilter.enabled")
	}
	_ = args.At("profile").Decode(&chosen)
	conf := c.inlineConfig(path, args)
	return conf == nil || slices.ContainsFunc(conf.Profiles, func(p config.Profile) bool {
		return (chosen == "" || p.Path == chosen) && p.Claimer() != ""
	})
}

// inlineConfig returns the configuration in the arguments of Outboard's plugin, and reports its errors. nil: there is none, the types of
// policies are unknown, or it has errors.
func (c *checker) inlineConfig(path string, args strictyaml.Value) *config.Config {
	var document map[string]any
	if len(c.Types.Policies) == 0 || !args.At("configFile").IsZero() || args.Decode(&document) != nil {
		return nil
	}
	for _, name := range []string{"configFile", "profile", "candidates", "inertPlugins"} { // those of the plugin itself
		delete(document, name)
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil
	}
	types := c.Types
	types.Unserved = true
	conf, err := config.Parse(c.File, text, types)
	var errs config.Errors
	if errors.As(err, &errs) {
		for _, e := range errs {
			fix := ""
			if strings.HasSuffix(e.Path, ".type") {
				fix = "write the name of a type; or, if this kube-scheduler is a build with this type, ignore this"
			}
			c.refuse("InvalidValue", strings.TrimSuffix(path+"."+e.Path, "."), e.Message(), "", fix)
		}
	}
	return conf
}
