package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// strictForAllPods checks whether the extender must respond before kube-scheduler places any pod,
// also a pod in which the extender runs. There is no finding if something else places these pods.
// Without a cluster, it assumes that the default scheduler does.
func (e *extenderAt) strictForAllPods() {
	x := e.extender
	if x.Ignorable || len(x.ManagedResources) > 0 || x.FilterVerb == "" && x.BindVerb == "" {
		return
	}
	names := e.doc.config.schedulerNames()
	own := "unless they are static pods or select another scheduler"
	if pods := e.ownPods(); len(pods) > 0 {
		i := slices.IndexFunc(pods, func(p *corev1.Pod) bool {
			return p.Annotations[corev1.MirrorPodAnnotationKey] == "" && slices.Contains(names, p.Spec.SchedulerName)
		})
		if i < 0 {
			return
		}
		own = "such as " + pods[i].Namespace + "/" + pods[i].Name
	} else if !slices.Contains(names, ownScheduler) {
		return
	}
	fix := "list managedResources here and in the profile, with policies for other pods in a second profile"
	if e.Config != nil && !e.outboard {
		fix = "list managedResources"
	}
	fix += "; or call the extender from a second scheduler that does not place its pods"
	if x.BindVerb == "" {
		fix += "; or set ignorable: true, if pods may be placed without it"
	}
	e.report(Warning, "StrictForAllPods", "managedResources", fmt.Sprintf("the extender is strict, and called for all pods of %s", strings.Join(names, ", ")),
		"while it does not respond, kube-scheduler places no pods, not even those in which the extender runs, "+own, fix)
}

// schedulerNames returns the names of kube-scheduler's profiles.
func (c *configuration) schedulerNames() []string {
	names := []string{}
	for _, p := range c.Profiles {
		if p.SchedulerName == nil {
			names = append(names, ownScheduler)
		} else {
			names = append(names, *p.SchedulerName)
		}
	}
	if len(names) == 0 {
		names = append(names, ownScheduler)
	}
	return names
}

// ownPods returns the pods of the Service that urlPrefix calls; none if the cluster or the Service
// is unknown.
func (e *extenderAt) ownPods() (pods []*corev1.Pod) {
	if e.Cluster == nil {
		return nil
	}
	s, _ := e.Cluster.serviceOf(e.url())
	if s == nil || len(s.Spec.Selector) == 0 {
		return nil
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	for i := range e.Cluster.Pods {
		if p := &e.Cluster.Pods[i]; p.Namespace == s.Namespace && selector.Matches(labels.Set(p.Labels)) {
			pods = append(pods, p)
		}
	}
	return pods
}
