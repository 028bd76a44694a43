package licenses

import "outboard.dev/outboard/policy"

// Reasons about floating seats.
var (
	noFreeSeat = &policy.Reason{
		Code: "NoFreeSeat",
		Text: "not enough free seats of a floating license",
		Unit: "seats",
	}
	tooFewSeats = &policy.Reason{
		Code: "TooFewSeats",
		Text: "a floating license has fewer seats in total than the pod requests",
		Unit: "seats",
	}
	namespaceLimit = &policy.Reason{
		Code: "NamespaceLimit",
		Text: "the pod would exceed its namespace's limit of seats of a floating license",
		Unit: "seats",
	}
	signalStale = &policy.Reason{
		Code: "SignalStale",
		Text: "the number of free seats of a floating license is unknown or stale",
	}
)

// Reasons about nodes.
var (
	notInstalled = &policy.Reason{
		Code: "NotInstalled",
		Text: "node(s) do not have a license that the pod requests",
	}
	noFreeNodeSeat = &policy.Reason{
		Code: "NoFreeNodeSeat",
		Text: "node(s) do not have enough free seats of a node-locked license",
		Unit: "seats",
	}
	tooFewNodeSeats = &policy.Reason{
		Code: "TooFewNodeSeats",
		Text: "node(s) have fewer seats of a node-locked license in total than the pod requests",
		Unit: "seats",
	}
)
