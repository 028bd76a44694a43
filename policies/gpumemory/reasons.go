package gpumemory

import "outboard.dev/outboard/policy"

// Reasons about nodes. The texts that the gpushare extender has too are its own.
var (
	notSharing = &policy.Reason{
		Code: "NotGPUShare",
		Text: "The node is not for GPU share, need skip",
	}
	invalidCards = &policy.Reason{
		Code: "InvalidGPUs",
		Text: "node(s) do not say in a way that can be understood how many GPUs they have, and how large",
	}
	wrongModel = &policy.Reason{
		Code: "WrongModel",
		Text: "node(s) have GPUs of a model that the pod does not allow",
	}
	insufficientMemory = inEachUnit(policy.Reason{
		Code: "InsufficientMemory",
		Text: "Insufficient GPU Memory in one device",
	})
	tooLarge = inEachUnit(policy.Reason{
		Code: "TooLarge",
		Text: "Insufficient GPU Memory in one device, even if it were empty: no healthy GPU is that large",
	})
	tooFewCards = &policy.Reason{
		Code: "TooFewGPUs",
		Text: "node(s) have too few GPUs with enough free memory",
		Unit: "GPUs",
	}
	unusableClaim = &policy.Reason{
		Code: "UnusableClaim",
		Text: "a GPU that is claimed for the pod is unhealthy or gone",
	}
)

// Reasons about pods: no node can serve them.
var (
	initContainer = &policy.Reason{
		Code: "InitContainer",
		Text: "the pod asks for GPUs in an init container, which the device plugin cannot serve",
	}
	severalContainers = &policy.Reason{
		Code: "SeveralContainers",
		Text: "the pod asks for GPUs in several containers, which the device plugin cannot tell apart: ask in one",
	}
	severalCards = &policy.Reason{
		Code: "SeveralGPUs",
		Text: "the pod asks for memory of several GPUs, but the device plugin gives it to a pod from one",
	}
	invalidCount = &policy.Reason{
		Code: "InvalidCount",
		Text: "the pod's label aliyun.com/gpu-count is not a whole number of GPUs",
	}
	unevenShares = &policy.Reason{
		Code: "UnevenShares",
		Text: "the pod asks for GPU memory that cannot be divided evenly among its GPUs",
	}
)

// inEachUnit returns the reason with its numbers in each unit.
func inEachUnit(r policy.Reason) map[Unit]*policy.Reason {
	inGiB, inMiB := r, r
	inGiB.Unit, inMiB.Unit = string(GiB), string(MiB)
	return map[Unit]*policy.Reason{GiB: &inGiB, MiB: &inMiB}
}
