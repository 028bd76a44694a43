package cost

import "outboard.dev/outboard/policy"

var (
	spotNode = &policy.Reason{
		Code: "SpotNode",
		Text: "node(s) are spot nodes, which the pod must not be on",
	}
	tooExpensive = &policy.Reason{
		Code: "TooExpensive",
		Text: "node(s) cost more than the configuration allows",
		Unit: "millionths",
	}
	priceUnknown = &policy.Reason{
		Code: "PriceUnknown",
		Text: "node(s) have no known price",
	}
	signalStale = &policy.Reason{
		Code: "SignalStale",
		Text: "node(s) have no known price but one that is too old",
	}
)
