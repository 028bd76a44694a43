package licenses

import "outboard.dev/outboard/policy"

// Reasons about floating seats.
var (
	noFreeSeat = &policy.Reason{
		Code: "NoFreeSeat",
		Text: "too few seats of a floating license are free",
		Unit: "seats",
	}
	tooFewSeats = &policy.Reason{
		Code: "TooFewSeats",
		Text: "a floating license has fewer seats than the pod needs, even if all were free",
		Unit: "seats",
	}
	namespaceLimit = &policy.Reason{
		Code: "NamespaceLimit",
		Text: "the pods of the namespace have as many seats of a floating license as they may",
		Unit: "seats",
	}
	signalStale = &policy.Reason{
		Code: "SignalStale",
		Text: "the license server has not told lately how many seats are free",
	}
)

// Reasons about nodes.
var (
	notInstalled = &policy.Reason{
		Code: "NotInstalled",
		Text: "node(s) do not have a license that the pod needs",
	}
	noFreeNodeSeat = &policy.Reason{
		Code: "NoFreeNodeSeat",
		Text: "node(s) have too few free seats of a license of their own",
		Unit: "seats",
	}
	tooFewNodeSeats = &policy.Reason{
		Code: "TooFewNodeSeats",
		Text: "node(s) have fewer seats of a license than the pod needs, even if all were free",
		Unit: "seats",
	}
)
