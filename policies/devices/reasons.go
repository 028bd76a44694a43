package devices

import "outboard.dev/outboard/policy"

// Reasons about nodes without usable units.
var (
	noDevices = &policy.Reason{
		Code: "NoDevices",
		Text: "node(s) have none of the devices that the pod requests",
	}
	unreportedDevices = &policy.Reason{
		Code: "UnreportedDevices",
		Text: "node(s) have none of the devices that the pod requests, and no node reports any in status.allocatable; Devices does not count devices that DRA allocates",
	}
	pluginDown = &policy.Reason{
		Code: "DevicePluginDown",
		Text: "node(s) report devices of which none is allocatable: their device plugin does not run, or all devices are unhealthy",
	}
	invalidDevices = &policy.Reason{
		Code: "InvalidDevices",
		Text: "node(s) report their devices in an invalid annotation, label or status",
	}
)

// Reasons about the node as a whole.
var (
	tooFewDevices = &policy.Reason{
		Code: "TooFewDevices",
		Text: "node(s) have fewer devices in total than the pod requests",
		Unit: "devices",
	}
	insufficientDevices = &policy.Reason{
		Code: "InsufficientDevices",
		Text: "node(s) do not have enough free devices",
		Unit: "devices",
	}
	unusableAllocation = &policy.Reason{
		Code: "UnusableAllocation",
		Text: "a device that the pod has allocated no longer exists",
	}
)

// partReasons are about a part of the node that must have everything a pod requests.
type partReasons struct {
	tooSmall *policy.Reason // even if it were free
	full     *policy.Reason
}

var (
	ofOneUnit = partReasons{
		tooSmall: &policy.Reason{
			Code: "DeviceTooSmall",
			Text: "node(s) have no device with as many shares in total as the pod requests",
			Unit: "shares",
		},
		full: &policy.Reason{
			Code: "InsufficientShares",
			Text: "node(s) have no device with enough free shares",
			Unit: "shares",
		},
	}
	ofOneGroup = partReasons{
		tooSmall: &policy.Reason{
			Code: "GroupTooSmall",
			Text: "node(s) have no group with as many devices in total as the pod requests",
			Unit: "devices",
		},
		full: &policy.Reason{
			Code: "InsufficientGroup",
			Text: "node(s) have no group with enough free devices",
			Unit: "devices",
		},
	}
)
