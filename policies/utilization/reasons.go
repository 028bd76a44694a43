package utilization

import "outboard.dev/outboard/policy"

var signalStale = &policy.Reason{
	Code: "SignalStale",
	Text: "node(s) have no current measurement of their utilization",
}

// overMax are the reasons for exceeding the maximum of a resource.
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
