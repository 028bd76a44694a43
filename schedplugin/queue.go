package schedplugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// EventsToRegister implements fwk.EnqueueExtensions. An event queues a pod only if it changes the
// pod itself, adds a node on which the pod fits, or if package internal/requeue does not track the
// pod. That package has kube-scheduler retry the pods that it tracks once they fit: whatever can
// make one fit publishes a new View with more room, and it evaluates them again then. That includes
// what is no event of kube-scheduler: changes of ledgers, ConfigMaps and signals, and a reservation
// that is reverted.
func (p *plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	event := func(resource fwk.EventResource, action fwk.ActionType, hint fwk.QueueingHintFn) fwk.ClusterEventWithHint {
		return fwk.ClusterEventWithHint{Event: fwk.ClusterEvent{Resource: resource, ActionType: action}, QueueingHintFn: hint}
	}
	return []fwk.ClusterEventWithHint{
		event(fwk.TargetPod, fwk.Update, podChanged),
		event(fwk.Node, fwk.Add, p.fitsNewNode),
		event(fwk.Node, fwk.Update|fwk.Delete, p.untracked),
		event(fwk.AssignedPod, fwk.All, p.untracked),
	}, nil
}

// podChanged queues the pod if more than its status has changed.
func podChanged(_ klog.Logger, _ *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	former, ok := oldObj.(*corev1.Pod)
	changed, isPod := newObj.(*corev1.Pod)
	if ok && isPod && equality.Semantic.DeepEqual(former.Spec, changed.Spec) &&
		equality.Semantic.DeepEqual(former.Labels, changed.Labels) && equality.Semantic.DeepEqual(former.Annotations, changed.Annotations) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// untracked queues the pod unless it is requeued when it fits.
func (p *plugin) untracked(_ klog.Logger, pod *corev1.Pod, _, _ any) (fwk.QueueingHint, error) {
	requeuer := p.service.Requeuer
	profile, _, err := p.profile()
	if requeuer == nil || err != nil {
		return fwk.Queue, nil
	}
	if _, tracked := requeuer.Status(profile.Path, pod.UID); !tracked {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

const (
	// mostKeys is the number of labels and annotations above which a hint does not evaluate a pod,
	// and mostBytes the size.
	mostKeys  = 100
	mostBytes = 32 << 10
)

// ordinary reports whether the evaluation of the pod surely takes microseconds: the cost of an
// expression grows with the pod.
func ordinary(pod *corev1.Pod) bool {
	return len(pod.Labels)+len(pod.Annotations) <= mostKeys && pod.Size() <= mostBytes
}

// fitsNewNode queues the pod if it fits on the node, which has no pods yet. kube-scheduler holds
// the lock of its queue meanwhile, and calls for each pending pod: a pod that is not ordinary is
// queued without evaluation.
func (p *plugin) fitsNewNode(_ klog.Logger, pod *corev1.Pod, _, newObj any) (fwk.QueueingHint, error) {
	object, ok := newObj.(*corev1.Node)
	_, e, err := p.profile()
	if !ok || err != nil || !ordinary(pod) {
		return fwk.Queue, nil
	}
	node := snapshot.NewNode(snapshot.TrimmedNode(object))
	fits, err := e.FitsAny(context.Background(), engine.Request{Pod: p.trimmed(pod), View: p.service.Cluster.View(), Nodes: []*snapshot.Node{node}})
	if fits || err != nil {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// SignPod implements fwk.SignPlugin: pods with the same signature get the same verdicts and scores
// on the same nodes. With a shortlist, no pod has one: kube-scheduler would place all pods with the
// same signature on the few nodes that PreFilter has named for one of them.
func (p *plugin) SignPod(ctx context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	a, err := p.begin(ctx, pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, err.Error()) // PreFilter says so
	}
	if a == nil {
		return nil, nil
	}
	if _, err := p.filters(); a.shortlist > 0 && err == nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the shortlist of a pod is not that of other pods")
	}
	signature, ok := a.Signature()
	if !ok {
		return nil, fwk.NewStatus(fwk.Unschedulable, "a policy depends on more than the node and the pod")
	}
	return []fwk.SignFragment{{Key: Name + ".Signature()", Value: []byte(signature)}}, nil
}
