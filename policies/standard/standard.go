// Package standard lists the policies that come with Outboard. It is the only
// place that knows them all.
package standard

import (
	"outboard.dev/outboard/policies/cost"
	"outboard.dev/outboard/policies/devices"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policies/hardwarehealth"
	"outboard.dev/outboard/policies/imagelocality"
	"outboard.dev/outboard/policies/licenses"
	"outboard.dev/outboard/policies/podlimit"
	"outboard.dev/outboard/policies/remoteclusters"
	"outboard.dev/outboard/policies/resourceclaims"
	"outboard.dev/outboard/policies/rules"
	"outboard.dev/outboard/policies/utilization"
	"outboard.dev/outboard/policy"
)

// Types returns the policies that come with Outboard, in order of name.
func Types() []policy.Type {
	return []policy.Type{
		cost.Type(),
		devices.Type(),
		gpumemory.Type(),
		hardwarehealth.Type(),
		imagelocality.Type(),
		licenses.Type(),
		podlimit.Type(),
		remoteclusters.Type(),
		resourceclaims.Type(),
		rules.Type(),
		utilization.Type(),
	}
}
