package schedplugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/snapshot"
)

// mostNamed bounds a shortlist: of 100 nodes or more that PreFilter names, kube-scheduler evaluates
// a sample.
const mostNamed = 99

// nameShortlist returns the names of the best nodes for the pod, at most as many as the profile says,
// on which the filters of all plugins let it pass; or why there are none, and kube-scheduler must
// look at the nodes itself. The framework rejects the pod on every other node.
func (p *plugin) nameShortlist(ctx context.Context, state fwk.CycleState, a *attempt, pod *corev1.Pod) (sets.Set[string], callmetrics.Naming) {
	run, err := p.filters()
	switch {
	case !a.Ranks():
		return nil, callmetrics.NotScored
	case err != nil: // filters has reported it
		return nil, callmetrics.Disallowed
	case state.IsPodGroupSchedulingCycle() || !eligible(pod) || p.extended(pod):
		return nil, callmetrics.Ineligible
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed[pod.UID] {
		return nil, callmetrics.Suspended
	}
	run.set(state, pod)
	table := a.infos
	if len(table.rows) == 0 {
		return nil, callmetrics.NoneUsable
	}
	mayFit := prefilter(pod)
	left := 8*a.shortlist + 64 // nodes for which the filters of all plugins run at most
	choice := engine.Choice{Rows: table.rows, N: a.shortlist, First: p.next % len(table.rows)}
	choice.Usable = func(i int32) (usable, stop bool) {
		slot := &table.slots[i]
		if !mayFit(slot.info) {
			return false, false
		}
		left--
		return p.handle.RunFilterPluginsWithNominatedPods(ctx, state, pod, slot.info).IsSuccess(), left == 0
	}
	a.probing = true // Filter of this plugin runs as well: the NodeInfo may have other pods than the node of the View
	err = a.Best(ctx, choice, &p.result)
	a.probing = false
	if err != nil {
		return nil, callmetrics.Failed // Filter reports it, unless kube-scheduler does not come to the node
	}
	chosen := p.result.Kept
	if len(chosen) == 0 {
		return nil, callmetrics.NoneUsable // an empty set would reject the pod on every node
	}
	names := make(sets.Set[string], len(chosen))
	for _, i := range chosen {
		names.Insert(table.slots[i].info.Node().Name)
	}
	p.next = int(chosen[len(chosen)-1]) + 1
	a.named = p.result.Record
	return names, callmetrics.Named
}

// eligible reports whether nodes may be named for the pod. A pod that is nominated may have to go
// to its node, and one that names nodes, as a pod of a DaemonSet does, to one of those.
// DynamicResources allocates devices in Filter.
func eligible(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || pod.Status.NominatedNodeName != "" || len(pod.Spec.ResourceClaims) > 0 {
		return false
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchFields) > 0 {
			return false
		}
	}
	return true
}

// extended reports whether an extender may reject nodes for the pod, which it does after all
// plugins.
func (p *plugin) extended(pod *corev1.Pod) bool {
	for _, e := range p.handle.Extenders() {
		if e.IsFilter() && e.IsInterested(pod) {
			return true
		}
	}
	return false
}

// prefilter returns a function that rejects most nodes without enough room for the pod, in much
// less time than the filters take. A node that it rejects by mistake, because a plugin is disabled,
// is only not named.
func prefilter(pod *corev1.Pod) func(fwk.NodeInfo) bool {
	filters, requests := kubescheduler.For(pod), snapshot.PodRequests(pod)
	cpu, memory, ephemeral := requests.Cpu().MilliValue(), requests.Memory().Value(), requests.StorageEphemeral().Value()
	return func(info fwk.NodeInfo) bool {
		all, used := info.GetAllocatable(), info.GetRequested()
		return len(info.GetPods()) < all.GetAllowedPodNumber() &&
			(cpu == 0 || cpu <= all.GetMilliCPU()-used.GetMilliCPU()) &&
			(memory == 0 || memory <= all.GetMemory()-used.GetMemory()) &&
			(ephemeral == 0 || ephemeral <= all.GetEphemeralStorage()-used.GetEphemeralStorage()) &&
			filters.Excludes(info.Node()) == ""
	}
}

// mostFailed is how many failed pods the plugin remembers. Then it forgets all: some may no longer
// exist.
const mostFailed = 1000

// retryWithAll handles that no named node was usable after all, because a plugin in inertPlugins is
// not inert: kube-scheduler retries the pod at once, with all nodes. The status keeps the plugins
// after this one from evicting pods for it.
func (p *plugin) retryWithAll(ctx context.Context, c *cycle, pod *corev1.Pod) *fwk.Status {
	c.fails()
	p.naming.Rejected(c.profile)
	p.mu.Lock()
	if p.failed == nil || len(p.failed) >= mostFailed {
		p.failed = map[types.UID]bool{}
	}
	p.failed[pod.UID] = true
	// The pod is still being scheduled. So it will go to the backoff queue, from which
	// kube-scheduler takes it at once only if no other pod waits. The next attempt activates it
	// again.
	p.waiting = append(p.waiting, pod)
	p.mu.Unlock()
	p.activate(ctx, []*corev1.Pod{pod})
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
		fmt.Sprintf("other plugins reject the best %d node(s): the pod is retried at once with all nodes", c.named.Returned))
}

// activate makes kube-scheduler retry the pods without waiting for their backoff.
func (p *plugin) activate(ctx context.Context, pods []*corev1.Pod) {
	if len(pods) == 0 {
		return
	}
	named := make(map[string]*corev1.Pod, len(pods))
	for _, pod := range pods {
		named[pod.Namespace+"/"+pod.Name] = pod
	}
	p.handle.Activate(klog.FromContext(ctx), named)
}
