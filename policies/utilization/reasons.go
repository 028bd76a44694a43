package utilization

import "outboard.dev/outboard/policy"

var signalStale = &policy.Reason{
	Code: "SignalStale",
	Text: "node(s) have no current measurement of what they use",
}

// overMax are about a resource of which more would be used than is allowed.
var overMax = [kinds]*policy.Reason{
	cpu: &policy.Reason{
		Code: "TooMuchCPUUsed",
		Text: "node(s) would really use more CPU than they may",
		Unit: "% of CPU",
	},
	memory: &policy.Reason{
		Code: "TooMuchMemoryUsed",
		Text: "node(s) would really use more memory than they may",
		Unit: "% of memory",
	},
}

// tooRisky are about a resource that would too likely be overloaded.
var tooRisky = [kinds]*policy.Reason{
	cpu: &policy.Reason{
		Code: "CPUOverloadLikely",
		Text: "node(s) would be too likely to have too much CPU used",
		Unit: "% likely to stay safe",
	},
	memory: &policy.Reason{
		Code: "MemoryOverloadLikely",
		Text: "node(s) would be too likely to have too much memory used",
		Unit: "% likely to stay safe",
	},
}
