package cost

import "outboard.dev/outboard/policy"

var (
	spotNode = &policy.Reason{
		Code: "SpotNode",
		Text: "node(s) are spot nodes, on which the pod is not allowed",
	}
	tooExpensive = &policy.Reason{
		Code: "TooExpensive",
		Text: "node(s) cost more than the maximum price",
		Unit: "millionths",
	}
	priceUnknown = &policy.Reason{
		Code: "PriceUnknown",
		Text: "node(s) have no known price",
	}
	signalStale = &policy.Reason{
		Code: "SignalStale",
		Text: "node(s) have only a stale price",
	}
)
