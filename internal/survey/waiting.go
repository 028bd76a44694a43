package survey

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/snapshot"
)

// Why a pod waits, in metrics, if Outboard has not rejected it: otherwise the reason is POLICY/REASON of the most nodes.
const (
	waitsGated     = "gated"           // it has scheduling gates
	waitsUntried   = "not_tried"       // no scheduler has tried it
	waitsFailed    = "scheduler_error" // the attempt to place it failed, such as a call of an extender
	waitsElsewhere = "other"           // kube-scheduler, another extender or another replica rejected the nodes
)

// waiting are the pods that wait for one reason.
type waiting struct {
	pods    int
	longest time.Duration
}

// waits remembers when it last saw pods with scheduling gates: their wait begins when the gates are removed.
type waits struct {
	gated map[types.UID]time.Time
}

// pass returns which pods of the profiles wait, by reason.
func (w *waits) pass(o Options, c *config.Config, pods []*corev1.Pod, now time.Time) map[string]waiting {
	all, gated := map[string]waiting{}, map[types.UID]time.Time{}
	for _, pod := range pods {
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
			continue
		}
		p := slices.IndexFunc(c.Profiles, func(p config.Profile) bool { return o.Places(&p, pod) })
		if p < 0 {
			continue
		}
		since := pod.CreationTimestamp.Time
		if snapshot.Gated(pod) {
			gated[pod.UID] = now
		} else if at, was := w.gated[pod.UID]; was {
			gated[pod.UID], since = at, at
		}
		reason := reasonOf(o, pod, c.Profiles[p].Path)
		those := all[reason]
		those.pods++
		those.longest = max(those.longest, now.Sub(since))
		all[reason] = those
	}
	w.gated = gated
	return all
}

// reasonOf returns why the pod waits.
func reasonOf(o Options, pod *corev1.Pod, profile string) string {
	if snapshot.Gated(pod) {
		return waitsGated
	}
	tried := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Reason != corev1.PodReasonSchedulingGated
	})
	switch {
	case tried < 0:
		return waitsUntried
	case pod.Status.Conditions[tried].Reason == corev1.PodReasonSchedulerError:
		return waitsFailed
	}
	switch status, ok := o.Rejected(profile, pod.UID); {
	case !ok, status.Rejection.Code == "":
		return waitsElsewhere
	case status.Rejection.Policy == "":
		return status.Rejection.Code
	default:
		return status.Rejection.Policy + "/" + status.Rejection.Code
	}
}
