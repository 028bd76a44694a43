package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// strictForAllPods checks whether the extender must respond before kube-scheduler places any pod,
// also a pod in which the extender runs, which is probably one of the default scheduler.
func (e *extenderAt) strictForAllPods() {
	x, names := e.extender, e.doc.config.schedulerNames()
	if x.Ignorable || len(x.ManagedResources) > 0 || x.FilterVerb == "" && x.BindVerb == "" || !slices.Contains(names, ownScheduler) {
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
		"while it does not respond, kube-scheduler places no pods, not even those in which the extender runs, unless they are static pods or select another scheduler", fix)
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
