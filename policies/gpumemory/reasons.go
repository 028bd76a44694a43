package gpumemory

import "outboard.dev/outboard/policy"

// Reasons about nodes. Texts that the gpushare extender also has are the same as there.
var (
	notSharing = &policy.Reason{
		Code: "NotGPUShare",
		Text: "The node is not for GPU share, need skip",
	}
	invalidGPUs = &policy.Reason{
		Code: "InvalidGPUs",
		Text: "node(s) report an invalid number or memory size of their GPUs",
	}
	pluginDown = &policy.Reason{
		Code: "DevicePluginDown",
		Text: "node(s) report GPU memory of which nothing is allocatable: their device plugin does not run",
	}
	notFractioning = &policy.Reason{
		Code: "NodeNotFractioning",
		Text: "node(s) on which kai-gpu-fractioning is not ready",
	}
	wholeGPUs = &policy.Reason{
		Code: "WholeGPUs",
		Text: "node(s) whose GPUs NVIDIA's device plugin gives to other pods",
	}
	gpusChanged = &policy.Reason{
		Code: "GPUsChanged",
		Text: "node(s) with another number of GPUs than when pods on them got theirs",
	}
	wrongModel = &policy.Reason{
		Code: "WrongModel",
		Text: "node(s) have GPUs of a model that the pod does not allow",
	}
	mixedModels = &policy.Reason{
		Code: "MixedModels",
		Text: "node(s) have GPUs of different sizes, and their label cannot say which of them are of a model that the pod allows",
	}
	insufficientMemory = inEachUnit(policy.Reason{
		Code: "InsufficientMemory",
		Text: "Insufficient GPU Memory in one device",
	})
	tooLarge = inEachUnit(policy.Reason{
		Code: "TooLarge",
		Text: "node(s) have no healthy GPU that is large enough",
	})
	tooFewGPUs = &policy.Reason{
		Code: "TooFewGPUs",
		Text: "node(s) do not have enough GPUs with enough free memory",
		Unit: "GPUs",
	}
	tooFewUnused = &policy.Reason{
		Code: "TooFewUnusedGPUs",
		Text: "node(s) do not have enough GPUs that no pod uses",
		Unit: "GPUs",
	}
	unusableAllocation = &policy.Reason{
		Code: "UnusableAllocation",
		Text: "a GPU that the pod has allocated is unhealthy or no longer exists",
	}
)

// Reasons about pods: no node can serve them.
var (
	initContainer = &policy.Reason{
		Code: "InitContainer",
		Text: "the pod requests GPUs in an init container, which the device plugin does not support",
	}
	severalContainers = &policy.Reason{
		Code: "SeveralContainers",
		Text: "the pod requests GPUs in several containers, which the device plugin cannot tell apart: request them in one container",
	}
	severalGPUs = &policy.Reason{
		Code: "SeveralGPUs",
		Text: "the pod requests memory of several GPUs, but the device plugin allocates memory of one GPU only",
	}
	invalidCount = &policy.Reason{
		Code: "InvalidCount",
		Text: "the pod does not request a valid number of GPUs",
	}
	tooManyContainers = &policy.Reason{
		Code: "TooManyContainers",
		Text: "the pod requests GPUs in too many containers",
	}
	longName = &policy.Reason{
		Code: "LongContainerName",
		Text: "the pod requests GPUs for a container with a name that is too long for an annotation's key",
	}
	computeMode = &policy.Reason{
		Code: "ComputeMode",
		Text: "the pod requests another compute mode than time-slicing",
	}
	unevenShares = &policy.Reason{
		Code: "UnevenShares",
		Text: "the pod requests GPU memory that cannot be divided evenly among its GPUs",
	}
)

// inEachUnit returns the reason with its numbers in each unit.
func inEachUnit(r policy.Reason) map[Unit]*policy.Reason {
	inGiB, inMiB := r, r
	inGiB.Unit, inMiB.Unit = string(GiB), string(MiB)
	return map[Unit]*policy.Reason{GiB: &inGiB, MiB: &inMiB}
}
