package devices

import "outboard.dev/outboard/policy"

// Reasons about nodes on which no pod gets a unit.
var (
	noDevices = &policy.Reason{
		Code: "NoDevices",
		Text: "node(s) have no devices of the kind the pod asks for",
	}
	unreportedDevices = &policy.Reason{
		Code: "UnreportedDevices",
		Text: "node(s) have no devices of the kind the pod asks for, and no node reports any in status.allocatable: perhaps DRA serves them, which Devices does not count",
	}
	invalidDevices = &policy.Reason{
		Code: "InvalidDevices",
		Text: "node(s) do not say in a way that can be understood which devices they have",
	}
)

// Reasons about the node as a whole.
var (
	tooFewDevices = &policy.Reason{
		Code: "TooFewDevices",
		Text: "node(s) have fewer devices than the pod asks for, even if all were free",
		Unit: "devices",
	}
	insufficientDevices = &policy.Reason{
		Code: "InsufficientDevices",
		Text: "node(s) have too few free devices",
		Unit: "devices",
	}
	unusableClaim = &policy.Reason{
		Code: "UnusableClaim",
		Text: "a device that is claimed for the pod is gone",
	}
)

// partReasons are about a part of the node that must have all a pod asks for.
type partReasons struct {
	tooSmall *policy.Reason // even if it were free
	full     *policy.Reason
}

var (
	ofOneUnit = partReasons{
		tooSmall: &policy.Reason{
			Code: "DeviceTooSmall",
			Text: "node(s) have no single device with as many shares as the pod asks for, even if it were free",
			Unit: "shares",
		},
		full: &policy.Reason{
			Code: "InsufficientShares",
			Text: "node(s) have no single device with enough free shares",
			Unit: "shares",
		},
	}
	ofOneGroup = partReasons{
		tooSmall: &policy.Reason{
			Code: "GroupTooSmall",
			Text: "node(s) have no group of as many devices as the pod asks for, even if all were free",
			Unit: "devices",
		},
		full: &policy.Reason{
			Code: "InsufficientGroup",
			Text: "node(s) have too few free devices in any one group",
			Unit: "devices",
		},
	}
)
