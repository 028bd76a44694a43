package schedplugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"outboard.dev/outboard/internal/config"
	policies "outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
)

const header = "apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\n"

// The configuration is the same as in a file of the extender, with the same errors, but without
// line numbers, because kube-scheduler converts its own file to JSON.
func TestArguments(t *testing.T) {
	types := config.Types{Policies: policies.Types(), Signals: signals.Types(), Unserved: true}
	file := filepath.Join(t.TempDir(), "outboard.yaml")
	two := header + "profiles:\n- {path: /a, policies: [{type: ImageLocality}]}\n- {path: /b, policies: [{type: ImageLocality}]}\n"
	if err := os.WriteFile(file, []byte(two), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, args, profile, want string }{
		{"inline", header + "profiles: [{policies: [{type: ImageLocality}]}]", "/", ""},
		{"one of several", "profile: /b\n" + two, "/b", ""},
		{"JSON", `{"apiVersion":"outboard.dev/v1alpha1","kind":"OutboardConfiguration","profiles":[{"policies":[{"type":"ImageLocality"}]}]}`, "/", ""},
		{"a file", "{configFile: " + file + ", profile: /a}", "/a", ""},
		{"a file and an inert plugin", "{configFile: " + file + ", profile: /a, inertPlugins: [Quota]}", "/a", ""},
		{"one inert plugin", "{configFile: " + file + ", inertPlugins: Quota}", "", "pluginConfig[Outboard].args: inertPlugins: Invalid value: \"Quota\": must be a list"},
		{"nothing", "", "", "pluginConfig[Outboard].args: Required value: must be a configuration, or name one with configFile"},
		{"a list", "[]", "", "pluginConfig[Outboard].args: Invalid value: list: must be a mapping"},
		{"a number", "{configFile: 1}", "", "pluginConfig[Outboard].args: configFile: Invalid value: 1: must be a string"},
		{"twice", "{profile: /a, profile: /b}", "", "already"},
		{"file and more", "{configFile: " + file + ", profiles: []}", "", "pluginConfig[Outboard].args: profiles: Forbidden: the configuration is in configFile"},
		{"misspelled", "{configFile: " + file + ", profle: /a}", "", `pluginConfig[Outboard].args: profle: Unknown field: did you mean "profile"?`},
		{"misspelled file", "{configFiel: " + file + "}", "", `pluginConfig[Outboard].args: configFiel: Unknown field: did you mean "configFile"?`},
		{"unknown and far", "quantity: 8\n" + two, "", "pluginConfig[Outboard].args: quantity: Unknown field: known here: configFile, profile, inertPlugins, apiVersion, kind, serving"},
		{"no profile", two, "", "pluginConfig[Outboard].args: profile: Required value: the configuration has several profiles: /a, /b"},
		{"unknown profile", "profile: /c\n" + two, "", `pluginConfig[Outboard].args: profile: Not found: "/c": the configuration has the profiles: /a, /b`},
		{"unknown policy", header + "profiles: [{policies: [{type: ImageLocalty}]}]", "", `pluginConfig[Outboard].args: profiles[0].policies[0].type: Unsupported value: "ImageLocalty": did you mean "ImageLocality"?`},
		{"unknown field", header + "profiles: [{polices: [{type: ImageLocality}]}]", "", `pluginConfig[Outboard].args: profiles[0].polices: Unknown field: did you mean "policies"?`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, err := chosen(tt.args, types)
			switch {
			case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q", err, tt.want)
			case path != tt.profile:
				t.Errorf("profile %q, want %q", path, tt.profile)
			}
		})
	}
}

// chosen returns the path of the profile that the arguments name.
func chosen(args string, types config.Types) (string, error) {
	a, c, err := parseArguments(&runtime.Unknown{Raw: []byte(args)}, types)
	if err == nil && c == nil {
		c, err = config.Load(a.ConfigFile, types)
	}
	if err != nil {
		return "", err
	}
	profile, err := choose(a, c)
	if err != nil {
		return "", err
	}
	return profile.Path, nil
}

// ordered is a handle that lists plugins as kube-scheduler's own does.
type ordered struct{ binds, preFilters, postFilters []string }

type enabledPlugin struct{ Name string }

type pluginSet struct{ Enabled []enabledPlugin }

func enabled(names []string) (set pluginSet) {
	for _, name := range names {
		set.Enabled = append(set.Enabled, enabledPlugin{name})
	}
	return set
}

// ListPlugins is the method of kube-scheduler's framework.
func (o ordered) ListPlugins() *struct{ Bind, PreFilter, PostFilter pluginSet } {
	return &struct{ Bind, PreFilter, PostFilter pluginSet }{enabled(o.binds), enabled(o.preFilters), enabled(o.postFilters)}
}

// The plugin must not bind a pod without the annotations of its allocations.
func TestOrderOfBindPlugins(t *testing.T) {
	for _, tt := range []struct {
		binds []string
		want  string
	}{
		{[]string{Name, "DefaultBinder"}, ""},
		{[]string{"DefaultBinder", Name}, "DefaultBinder binds pods before Outboard does"},
		{[]string{"DefaultBinder"}, "DefaultBinder binds pods before Outboard does"},
		{nil, "Outboard does not bind pods"},
	} {
		if err := bindsFirst(struct {
			ordered
		}{ordered{binds: tt.binds}}); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("with %v: %v, want %q", tt.binds, err, tt.want)
		}
	}
	if err := bindsFirst(struct{}{}); err == nil {
		t.Error("there is no error for a framework that lists no plugins")
	}
}
