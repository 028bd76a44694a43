package clustermetrics

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/config"
)

// recent is how long a pod counts as bound recently.
const recent = 15 * time.Minute

// recentlyBound returns how many pods of the profiles were bound recently, whatever bound them. It
// does not count pods of DaemonSets, which fit on one node, so that kube-scheduler does not call
// for their scores, and static pods, which nobody schedules.
func recentlyBound(o Options, c *config.Config, pods []*corev1.Pod, now time.Time) (count int) {
	for _, pod := range pods {
		if pod.Spec.NodeName == "" || now.Sub(boundAt(pod)) > recent || fixed(pod) {
			continue
		}
		if slices.ContainsFunc(c.Profiles, func(p config.Profile) bool { return o.Places(&p, pod) }) {
			count++
		}
	}
	return count
}

// boundAt returns when the pod was bound; long ago if it does not say.
func boundAt(pod *corev1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// fixed reports whether the pod can run on one node only, by its owner.
func fixed(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node")
}
