package binder

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// OfScheduler returns why the profile does not bind the pod, if the pod is of another scheduler than those with these names, or nil. With
// no names, the profile binds the pods of any scheduler.
func OfScheduler(pod *corev1.Pod, profile string, schedulerNames []string) error {
	name := cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName)
	if len(schedulerNames) == 0 || slices.Contains(schedulerNames, name) {
		return nil
	}
	return fmt.Errorf("pod %s has schedulerName %q, which is not among the schedulerNames of profile %s: %s",
		pod.Namespace+"/"+pod.Name, name, profile, strings.Join(schedulerNames, ", "))
}
