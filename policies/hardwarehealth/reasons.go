package hardwarehealth

import "outboard.dev/outboard/policy"

// Reasons by what tells of the hardware.
var (
	degradedCondition = &policy.Reason{
		Code: "DegradedCondition",
		Text: "node(s) have a condition that tells of degraded hardware",
	}
	degradedMark = &policy.Reason{
		Code: "DegradedMark",
		Text: "node(s) have a label or annotation that tells of degraded hardware",
	}
	degradedSignal = &policy.Reason{
		Code: "DegradedSignal",
		Text: "node(s) have measured values that tell of degraded hardware",
	}
	signalStale = &policy.Reason{
		Code: "SignalStale",
		Text: "node(s) have no current values that tell of their hardware",
	}
)
