// Command outboard is Outboard with the built-in policies and the policy Seats.
package main

import (
	"os"

	"outboard.dev/outboard/app"
	"outboard.dev/outboard/policies/standard"

	"example.com/cad/seats"
)

func main() {
	policies := append(standard.Types(), seats.Type())
	os.Exit(app.Run(app.NewCommand(app.WithPolicies(policies...))))
}
