// Command outboard-scheduler is kube-scheduler with the policies of Outboard as a plugin: see package schedplugin of Outboard.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // the log format json
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"outboard.dev/outboard/schedplugin"
)

func main() {
	outboard := app.WithPlugin(schedplugin.Name, schedplugin.New(nil, nil))
	os.Exit(cli.Run(app.NewSchedulerCommand(outboard)))
}
