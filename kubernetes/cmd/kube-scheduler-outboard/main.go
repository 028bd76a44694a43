// Command kube-scheduler-outboard is kube-scheduler with the policies of Outboard as a plugin: see
// package schedplugin of Outboard.
package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // the log format json
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"outboard.dev/outboard/schedplugin"
)

func main() {
	command := app.NewSchedulerCommand(app.WithPlugin(schedplugin.Name, schedplugin.New(nil, nil)))
	schedule := command.RunE
	command.RunE = func(c *cobra.Command, args []string) error {
		if c.Flags().Changed("version") {
			fmt.Println(version())
		}
		return schedule(c, args) // prints the version of Kubernetes, too
	}
	os.Exit(cli.Run(command))
}

// version says from what the binary was built. Outside of a checkout, the commit is unknown.
func version() string {
	module, commit := "(devel)", "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok {
		module = cmp.Or(info.Main.Version, module)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value
			}
		}
	}
	return fmt.Sprintf("Outboard %s, commit %s", module, commit)
}
