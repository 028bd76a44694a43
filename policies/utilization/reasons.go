package utilization

import "outboard.dev/outboard/policy"

var signalStale = &policy.Reason{
	Code: "SignalStale",
	Text: "node(s) have no current measurement of their utilization",
}

// overMax are about a resource of which more would be used than is allowed.
var overMax = [kinds]*policy.Reason{
	cpu: &policy.Reason{
		Code: "TooMuchCPUUsed",
		Text: "node(s) would exceed their maximum CPU utilization",
		Unit: "% of CPU",
	},
	memory: &policy.Reason{
		Code: "TooMuchMemoryUsed",
		Text: "node(s) would exceed their maximum memory utilization",
		Unit: "% of memory",
	},
}

// tooRisky are about a resource that would too likely be overloaded.
var tooRisky = [kinds]*policy.Reason{
	cpu: &policy.Reason{
		Code: "CPUOverloadLikely",
		Text: "node(s) would exceed the maximum risk of CPU overload",
		Unit: "% probability of no overload",
	},
	memory: &policy.Reason{
		Code: "MemoryOverloadLikely",
		Text: "node(s) would exceed the maximum risk of memory overload",
		Unit: "% probability of no overload",
	},
}
