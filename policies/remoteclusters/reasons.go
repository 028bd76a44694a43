package remoteclusters

import (
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
)

// Reasons for missing data.
var (
	unknownCluster = &policy.Reason{
		Code: "UnknownCluster",
		Text: "node(s) represent a cluster that is not configured",
	}
	signalStale = &policy.Reason{
		Code: "SignalStale",
		Text: "node(s) represent a cluster whose signal is missing or stale",
	}
)

// Reasons about what the cluster has left.
var (
	insufficientCPU = &policy.Reason{
		Code: "InsufficientCPU",
		Text: "node(s) represent a cluster with insufficient CPU",
		Unit: "millicores",
	}
	insufficientMemory = &policy.Reason{
		Code: "InsufficientMemory",
		Text: "node(s) represent a cluster with insufficient memory",
		Unit: "MiB",
	}
	insufficientPods = &policy.Reason{
		Code: "InsufficientPods",
		Text: "node(s) represent a cluster that cannot run more pods",
		Unit: "free places",
	}
	insufficientResource = &policy.Reason{
		Code: "InsufficientResource",
		Text: "node(s) represent a cluster with an insufficient amount of a resource that the pod requests",
		Unit: "units",
	}
)

// Reasons about what a single node of the cluster has left.
var (
	noNodeWithCPU = &policy.Reason{
		Code: "NoNodeWithCPU",
		Text: "node(s) represent a cluster in which no single node has enough free CPU",
		Unit: "millicores",
	}
	noNodeWithMemory = &policy.Reason{
		Code: "NoNodeWithMemory",
		Text: "node(s) represent a cluster in which no single node has enough free memory",
		Unit: "MiB",
	}
	noNodeWithResource = &policy.Reason{
		Code: "NoNodeWithResource",
		Text: "node(s) represent a cluster in which no single node has enough of a resource that the pod requests",
		Unit: "units",
	}
)

const mib = 1 << 20

// short returns the verdict on a cluster that has less left than the pod requests.
func short(resource corev1.ResourceName, have, want int64) policy.Verdict {
	reason := insufficientResource
	switch resource {
	case corev1.ResourceCPU:
		reason = insufficientCPU
	case corev1.ResourceMemory:
		reason = insufficientMemory
	case corev1.ResourcePods:
		reason = insufficientPods
	}
	return verdict(reason, have, want)
}

// shortOnEveryNode returns the verdict on a cluster that has enough left, but on no single node.
func shortOnEveryNode(resource corev1.ResourceName, have, want int64) policy.Verdict {
	reason := noNodeWithResource
	switch resource {
	case corev1.ResourceCPU:
		reason = noNodeWithCPU
	case corev1.ResourceMemory:
		reason = noNodeWithMemory
	}
	return verdict(reason, have, want)
}

func verdict(reason *policy.Reason, have, want int64) policy.Verdict {
	if reason.Unit == "MiB" {
		have, want = have/mib, (want+mib-1)/mib
	}
	return policy.Verdict{Reason: reason, Unresolvable: true, Have: have, Want: want}
}
