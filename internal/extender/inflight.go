package extender

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/snapshot"
)

const (
	// unseenTimeout is how long filter calls wait for a pod. It is well below the httpTimeout of a
	// soft extender. A Binding and its watch event take some milliseconds. A pod for which
	// kube-scheduler waits before the Binding is nominated (from Kubernetes 1.35 on).
	unseenTimeout = 500 * time.Millisecond
	// unseenPause is how long a pod is not awaited again after maxAttempts filter calls for it that
	// nothing followed. kube-scheduler makes no more calls for a pod in that time: it pauses 1, 2 and
	// 4 seconds between them.
	unseenPause = 5 * time.Second
	maxAttempts = 3
	// unseenInterval is how often a waiting call looks for what changes no View: a pod that
	// kube-scheduler could not place, or that is gone.
	unseenInterval = 20 * time.Millisecond
	// maxUnseen bounds the pods, which callers choose.
	maxUnseen = 4096
)

// InFlight is what the Handlers of a process, including those that a reload creates, know about
// pods between the first call for them and their Binding. The methods of Handler use it
// concurrently.
type InFlight struct {
	awaited   binder.Awaited
	admission chan struct{} // capacity 1; held while a pod is being admitted
	unseen    unseen
}

// NewInFlight returns an InFlight without pods.
func NewInFlight() *InFlight { return &InFlight{admission: make(chan struct{}, 1)} }

// unseen holds the pods that a filter call has let pass and that a View may not show on a node yet.
// kube-scheduler places one pod after the other: when it calls filter for the next one, it has
// chosen a node for the former one, and binds it meanwhile. A policy that counts pods must count
// this one too.
//
// Each pod is awaited from the response to its filter call until a View counts it, kube-scheduler
// has failed to place it, it is gone, or unseenTimeout has passed. After maxAttempts, the same call,
// which anybody may repeat, has no effect for unseenPause. A call waits for the pods of earlier calls
// only. So each call waits for at most unseenTimeout, and all calls together wait for one pod no more
// than maxAttempts times as long in unseenPause. It is safe for concurrent use.
type unseen struct {
	mu   sync.Mutex
	pods map[types.UID]unseenPod
}

type unseenPod struct {
	// versions are the resourceVersions of the pod that kube-scheduler and the watch had at the
	// filter call: what the watch shows with another one is newer.
	versions [2]string
	group    string // the PodGroup, namespace/name; "" if it has none
	attempts int
	until    time.Time
}

// forgotten reports whether calls may wait for the pod again.
func (p *unseenPod) forgotten(now time.Time) bool { return now.After(p.until.Add(unseenPause)) }

// set records that a filter call has let the pod pass, or not. While there are too many pods, it
// records no others.
func (u *unseen) set(pod *corev1.Pod, passed bool, cluster Cluster, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if p, known := u.pods[pod.UID]; known && !p.forgotten(now) && !p.settled(pod.UID, cluster) {
		switch {
		case passed && p.attempts < maxAttempts && !now.Before(p.until):
			p.attempts++
			p.until = now.Add(unseenTimeout)
		case !passed && now.Before(p.until):
			p.until = now
		}
		u.pods[pod.UID] = p
		return
	}
	delete(u.pods, pod.UID)
	if !passed {
		return
	}
	if u.pods == nil {
		u.pods = map[types.UID]unseenPod{}
	}
	if len(u.pods) == maxUnseen {
		maps.DeleteFunc(u.pods, func(_ types.UID, p unseenPod) bool { return now.After(p.until) })
	}
	if len(u.pods) < maxUnseen {
		p := unseenPod{group: groupOf(pod), attempts: 1, until: now.Add(unseenTimeout)}
		p.versions[0] = pod.ResourceVersion
		if watched := cluster.PodByUID(pod.UID); watched != nil {
			p.versions[1] = watched.ResourceVersion
		}
		u.pods[pod.UID] = p
	}
}

// groupOf returns the PodGroup of the pod. kube-scheduler chooses nodes for all pods of a PodGroup
// before it binds any of them, so none waits for another one.
func groupOf(pod *corev1.Pod) string {
	if g := pod.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return pod.Namespace + "/" + *g.PodGroupName
	}
	return ""
}

// others returns whether a call about the pod that began then must wait for other pods, and drops
// those that are settled or forgotten.
func (u *unseen) others(pod *corev1.Pod, cluster Cluster, began, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	group, wait := groupOf(pod), false
	for uid, p := range u.pods {
		switch {
		case uid == pod.UID || p.group != "" && p.group == group:
		case p.forgotten(now) || p.settled(uid, cluster):
			delete(u.pods, uid)
		default:
			later := p.until.After(began.Add(unseenTimeout)) // a call after this one let it pass
			wait = wait || !later && now.Before(p.until)
		}
	}
	return wait
}

// settled reports whether the latest View counts the pod, or no View will.
func (p *unseenPod) settled(uid types.UID, cluster Cluster) bool {
	assumed, pod, view := cluster.Assumed(uid), cluster.PodByUID(uid), cluster.View()
	switch {
	case assumed != "":
		return true // Assume has published it
	case pod == nil:
		return false // gone, or not shown yet
	case pod.Spec.NodeName != "":
		node := view.Node(pod.Spec.NodeName)
		return node == nil || node.Has(uid)
	case slices.Contains(p.versions[:], pod.ResourceVersion):
		return false
	}
	failed := func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	}
	nominated := func(pod *corev1.Pod) bool { return pod.UID == uid }
	return slices.ContainsFunc(view.Nominated(), nominated) || slices.ContainsFunc(pod.Status.Conditions, failed)
}

// awaitUnseen waits until the View counts the pods that earlier filter calls have let pass.
func (h *Handler) awaitUnseen(ctx context.Context, pod *corev1.Pod) {
	began := time.Now()
	binder.Wait(ctx, h.Cluster, func(_ *snapshot.View, now time.Time) (until time.Time) {
		if h.InFlight.unseen.others(pod, h.Cluster, began, now) {
			until = now.Add(unseenInterval)
		}
		return until
	})
}
