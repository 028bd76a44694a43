package clustermetrics

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/snapshot"
)

// waiting are the pods that wait for one reason.
type waiting struct {
	pods    int
	longest time.Duration
}

// waits remembers when it last saw pods with scheduling gates: their wait begins when the gates are
// removed.
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
		profiles := o.Profiles(c, pod)
		if len(profiles) == 0 {
			continue
		}
		since := pod.CreationTimestamp.Time
		if snapshot.Gated(pod) {
			gated[pod.UID] = now
		} else if at, was := w.gated[pod.UID]; was {
			gated[pod.UID], since = at, at
		}
		reason := o.Waits(pod, profiles).Code
		those := all[reason]
		those.pods++
		those.longest = max(those.longest, now.Sub(since))
		all[reason] = those
	}
	w.gated = gated
	return all
}
