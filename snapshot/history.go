package snapshot

import (
	"cmp"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A History holds this many events, or this many for each node if that is more, and up to a quarter
// more.
const (
	historyMin     = 4000
	historyPerNode = 4
)

// PodEvent is a pod that came, or a bound pod that is gone.
type PodEvent struct {
	// Pod is the pod as it came; it must not be changed.
	Pod *corev1.Pod
	// Claims are what the pod's ResourceClaims request, in the order of the pod; none if the
	// Builder knows no DeviceClass.
	Claims []*resourcev1.ResourceClaimSpec
	Gone   bool
}

// History records which pods have come and gone lately, whether they were bound or not, the oldest
// first. It starts with the pods that exist when the first View is published, in order of their
// creation. A gated pod ([Gated]) comes when its gates are removed, and a pod with ResourceClaims,
// unless the Builder knows no DeviceClass, with the first change of the pod for which all of them
// exist: at the latest when it is bound. A History is immutable; the next View has a longer one. A
// nil History is empty.
//
// A new pod does not cause a new View: it is in the History of the next one.
type History struct {
	// Start identifies the first event: Histories with the same Start begin with the same events.
	// It is nil for an empty History that no Builder made.
	Start *HistoryStart
	// Came is the number of all pods that have come, including those before the first event.
	Came int
	// Events must not be changed.
	Events []PodEvent
}

// HistoryStart is the moment before the first event of a History.
type HistoryStart struct {
	// Came is the number of pods that had come by then.
	Came int
}

// History returns the events before the View. It may be nil, which is an empty History.
func (v *View) History() *History { return v.history }

// DropHistory omits the History from all following Views, which saves its cost.
func (b *Builder) DropHistory() { b.journal = journal{off: true} }

// KeepHistory undoes DropHistory. The History starts again with the given pods, which are all that
// exist, whether bound or not.
func (b *Builder) KeepHistory(pods iter.Seq[*corev1.Pod]) {
	if !b.journal.off {
		return
	}
	b.journal = journal{}
	for pod := range pods {
		if !Ended(pod) {
			b.journal.came(pod)
		}
	}
}

// Gated reports whether kube-scheduler does not try the pod yet because it has scheduling gates. A
// bound pod is not gated.
func Gated(pod *corev1.Pod) bool { return len(pod.Spec.SchedulingGates) > 0 && pod.Spec.NodeName == "" }

// journal is the part of a Builder that writes the History. What always holds:
//
//   - known has the pods that SetPod has shown without gates, and that are not gone; each comes once.
//   - A known pod that has not come has an event, or lacks a claim: then a change of the pod makes
//     an event.
//   - Whether a pod comes is decided when the next View is made: only then is everything known that
//     was listed at first, such as the DeviceClasses.
type journal struct {
	off    bool                    // and nothing else is set
	known  map[types.UID]*knownPod // the pods that are not gone
	events []journalEvent          // since the last View
	last   *History
}

type knownPod struct {
	pod    *corev1.Pod // as it came
	placed bool        // it has been on a node
	came   bool        // it is in the History
	claims []*resourcev1.ResourceClaimSpec
}

type journalEvent struct {
	*knownPod
	gone bool
}

func (j *journal) came(pod *corev1.Pod) {
	if j.off || Gated(pod) {
		return
	}
	known, ok := j.known[pod.UID]
	switch {
	case !ok:
		known = &knownPod{pod: pod}
		put(&j.known, pod.UID, known)
		j.events = append(j.events, journalEvent{knownPod: known})
	case !known.came && len(pod.Spec.ResourceClaims) > 0 && !same(known.pod, pod):
		known.pod = pod // its claims may exist now
		j.events = append(j.events, journalEvent{knownPod: known})
	}
	known.placed = known.placed || pod.Spec.NodeName != ""
}

func (j *journal) gone(uid types.UID) {
	known, ok := j.known[uid]
	if !ok {
		return
	}
	delete(j.known, uid)
	if known.placed {
		j.events = append(j.events, journalEvent{known, true})
	}
}

// arrive reports whether the pod comes now: it has not, and its claims exist.
func (known *knownPod) arrive(d *devices) bool {
	if known.came {
		return false
	}
	known.came = true
	if len(d.classes) > 0 {
		known.claims, known.came = d.claimsOf(known.pod)
	}
	return known.came
}

// claimsOf returns what the claims of the pod request; ok is false if not all of them exist.
func (d *devices) claimsOf(pod *corev1.Pod) (claims []*resourcev1.ResourceClaimSpec, ok bool) {
	for i := range pod.Spec.ResourceClaims {
		name, made := ClaimName(pod, &pod.Spec.ResourceClaims[i])
		if made && name == "" {
			continue
		}
		claim := d.claims.claim(types.NamespacedName{Namespace: pod.Namespace, Name: name})
		if claim == nil {
			return nil, false
		}
		claims = append(claims, &claim.Spec)
	}
	return claims, true
}

// history returns the History with the latest events, for a View with this many nodes.
func (j *journal) history(nodes int, d *devices) *History {
	if j.last == nil {
		slices.SortStableFunc(j.events, func(a, b journalEvent) int {
			return cmp.Or(a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), comparePods(a.pod, b.pod))
		})
	}
	var events []PodEvent
	for _, e := range j.events {
		if e.gone && e.came || !e.gone && e.arrive(d) {
			events = append(events, PodEvent{Pod: e.pod, Claims: e.claims, Gone: e.gone})
		}
	}
	clear(j.events)
	j.events = j.events[:0]
	if len(events) == 0 {
		return j.last
	}
	next := &History{Start: new(HistoryStart)}
	if j.last != nil {
		*next = *j.last
	}
	for _, e := range events {
		if !e.Gone {
			next.Came++
		}
	}
	// The last History does not read beyond its own end.
	next.Events = append(next.Events, events...)
	if keep := max(historyMin, historyPerNode*nodes); len(next.Events) > keep+keep/4 {
		next.Events = slices.Clone(next.Events[len(next.Events)-keep:])
		next.Start = &HistoryStart{Came: next.Came}
		for _, e := range next.Events {
			if !e.Gone {
				next.Start.Came--
			}
		}
	}
	j.last = next
	return next
}
