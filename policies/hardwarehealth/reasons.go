package hardwarehealth

import "outboard.dev/outboard/policy"

// Reasons by the source of the data.
var (
	degradedCondition = &policy.Reason{
		Code: "DegradedCondition",
		Text: "node(s) have a condition that indicates degraded hardware",
	}
	degradedLabel = &policy.Reason{
		Code: "DegradedLabel",
		Text: "node(s) have a label that indicates degraded hardware",
	}
	degradedSignal = &policy.Reason{
		Code: "DegradedSignal",
		Text: "node(s) have a signal that indicates degraded hardware",
	}
	signalStale = &policy.Reason{
		Code: "SignalStale",
		Text: "node(s) have no current signal about their hardware",
	}
)
