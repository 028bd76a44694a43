package rules

import "outboard.dev/outboard/policy"

var (
	signalStale = &policy.Reason{
		Code: "SignalStale",
		Text: "node(s) have no current value of a signal that a rule reads",
	}
	ruleFailed = &policy.Reason{
		Code: "RuleFailed",
		Text: "node(s) for which a rule cannot be evaluated",
	}
)

// costExceededSuffix is appended to a filter's name in the code of the reason for nodes on which
// the filter costs too much.
const costExceededSuffix = "-cost-exceeded"
