// Command own-scheduler is kube-scheduler with Outboard's policies and Seats as a plugin.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/schedplugin"

	"example.com/cad/seats"
)

func main() {
	policies := append(standard.Types(), seats.Type())
	outboard := app.WithPlugin(schedplugin.Name, schedplugin.New(policies, nil))
	os.Exit(cli.Run(app.NewSchedulerCommand(outboard)))
}
