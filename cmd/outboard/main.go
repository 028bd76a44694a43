// Command outboard is a Kubernetes scheduler extender and its tools. Named
// kubectl-outboard it is a kubectl plugin.
package main

import (
	"os"

	"outboard.dev/outboard/app"
)

func main() {
	os.Exit(app.Run(app.NewCommand()))
}
