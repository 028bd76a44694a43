// Command ideal-scheduler is kube-scheduler with a plugin that does nothing, in place of
// Outboard's. make bench-scheduler measures it as the bound for any plugin.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // the log format json
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"outboard.dev/outboard/kubernetes/yardstick"
	"outboard.dev/outboard/schedplugin"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(schedplugin.Name, yardstick.NewNothing))))
}
