package extender

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/snapshot"
)

// allowed returns why a bind call must not bind the pod to the node, or nil. A caller of bind uses Outboard's
// permissions, which are those of a scheduler. So bind does only what the caller's kube-scheduler would request: it
// binds pods of the profile, to nodes on which they may run regardless of what is free there.
func (h *Handler) allowed(pod *corev1.Pod, node *snapshot.Node) error {
	if err := h.owns(pod); err != nil {
		return err
	}
	name := pod.Namespace + "/" + pod.Name
	if len(pod.Spec.SchedulingGates) > 0 {
		return fmt.Errorf("pod %s has scheduling gates", name)
	}
	if why := kubescheduler.For(pod).Excludes(node.Object); why != "" {
		return fmt.Errorf("pod %s cannot run on node %q: %s", name, node.Name, why)
	}
	return nil
}

// owns returns why the profile does not bind the pod, or nil.
func (h *Handler) owns(pod *corev1.Pod) error {
	name := pod.Namespace + "/" + pod.Name
	if !h.manages(pod) {
		return fmt.Errorf("pod %s requests none of the managedResources of profile %s: %s", name, h.Profile, strings.Join(h.ManagedResources, ", "))
	}
	return binder.OfScheduler(pod, h.Profile, h.SchedulerNames)
}
