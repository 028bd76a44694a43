package extender

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

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
	if taint, found := untolerated(pod, node.Object); found {
		return fmt.Errorf("pod %s does not tolerate the taint %s of node %q", name, taint.ToString(), node.Name)
	}
	if pod.Spec.NodeSelector == nil && pod.Spec.Affinity == nil {
		return nil
	}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node.Object)
	switch {
	case err != nil:
		return fmt.Errorf("pod %s: the required node affinity is invalid: %w", name, err)
	case !matches:
		return fmt.Errorf("node %q does not match the nodeSelector or the required node affinity of pod %s", node.Name, name)
	}
	return nil
}

// owns returns why the profile does not bind the pod, or nil.
func (h *Handler) owns(pod *corev1.Pod) error {
	name := pod.Namespace + "/" + pod.Name
	if !h.manages(pod) {
		return fmt.Errorf("pod %s requests none of the managedResources of profile %s: %s", name, h.Profile, strings.Join(h.ManagedResources, ", "))
	}
	scheduler := pod.Spec.SchedulerName
	if scheduler == "" {
		scheduler = corev1.DefaultSchedulerName
	}
	if len(h.SchedulerNames) > 0 && !slices.Contains(h.SchedulerNames, scheduler) {
		return fmt.Errorf("pod %s has schedulerName %q, which is not among the schedulerNames of profile %s: %s", name, scheduler, h.Profile, strings.Join(h.SchedulerNames, ", "))
	}
	return nil
}

// untolerated returns a taint of the node that repels the pod. An unschedulable node has one, as in kube-scheduler.
func untolerated(pod *corev1.Pod, node *corev1.Node) (corev1.Taint, bool) {
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		taints = append(slices.Clip(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	if len(taints) == 0 {
		return corev1.Taint{}, false
	}
	// The API server decides whether pods may have tolerations with Lt and Gt.
	return scheduling.FindMatchingUntoleratedTaint(klog.Background(), taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, true)
}
