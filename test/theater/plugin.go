package theater

import (
	"strings"

	"outboard.dev/outboard/test/controlplane"
)

// PluginEnabled is the rest of a profile of kube-scheduler up to the configuration of the plugin.
const PluginEnabled = `  plugins:
    multiPoint: {enabled: [{name: Outboard}]}
    bind: {enabled: [{name: Outboard}]}
  pluginConfig:
  - name: Outboard
    args:
`

// Plugin starts kube-scheduler with the plugin, with the lines as its configuration.
func (th *Theater) Plugin(configuration string) *controlplane.Scheduler {
	th.T.Helper()
	path, err := Plugged()
	if err != nil {
		th.T.Fatal(err)
	}
	return th.PluginOf(path, configuration)
}

// PluginOf is Plugin for a build of kube-scheduler, with these arguments.
func (th *Theater) PluginOf(path, configuration string, args ...string) *controlplane.Scheduler {
	th.T.Helper()
	return th.PluginIn(path, PluginEnabled, configuration, args...)
}

// PluginIn is PluginOf with the rest of the profile in place of PluginEnabled.
func (th *Theater) PluginIn(path, profile, configuration string, args ...string) *controlplane.Scheduler {
	th.T.Helper()
	configuration = OutboardHeader + "admin: {address: 127.0.0.1:0}\n" + configuration
	config := `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
` + profile + "      " + strings.ReplaceAll(strings.TrimSpace(configuration), "\n", "\n      ") + "\n"
	if err := th.Grant(th.Ctx, "plugin.yaml", "system:kube-scheduler"); err != nil {
		th.T.Fatal(err)
	}
	s, err := th.StartScheduler(th.Ctx, controlplane.SchedulerOptions{Config: config, Args: args, Verbosity: 3, Path: path})
	if err != nil {
		th.T.Fatal(err)
	}
	th.T.Cleanup(func() {
		if th.T.Failed() {
			th.T.Logf("kube-scheduler:\n%s", Tail(s.Log(), 8000))
		}
	})
	return s
}
