package snapshot

import (
	"cmp"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// A History holds this many events, or this many for each node if that is more, and up to a
	// quarter more.
	historyMin     = 4000
	historyPerNode = 4
)

// PodEvent is a pod that came, or a bound pod that is gone.
type PodEvent struct {
	// Pod is the pod as it came; it must not be changed.
	Pod  *corev1.Pod
	Gone bool
}

// History records which pods have come and gone lately, whether they were bound or not, the oldest
// first. It starts with the pods that exist when the first View is published, in order of their
// creation. A gated pod ([Gated]) comes when its gates are removed. A History is immutable; the
// next View has a longer one. A nil History is empty.
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

// journal is the part of a Builder that writes the History.
type journal struct {
	off    bool
	known  map[types.UID]knownPod // the pods that have come and are not gone
	events []PodEvent             // since the last View
	last   *History
}

type knownPod struct {
	pod    *corev1.Pod // as it came
	placed bool        // it has been on a node
}

func (j *journal) came(pod *corev1.Pod) {
	if j.off || Gated(pod) {
		return
	}
	known, ok := j.known[pod.UID]
	if !ok {
		if j.known == nil {
			j.known = map[types.UID]knownPod{}
		}
		known.pod = pod
		j.events = append(j.events, PodEvent{Pod: pod})
	}
	known.placed = known.placed || pod.Spec.NodeName != ""
	j.known[pod.UID] = known
}

func (j *journal) gone(uid types.UID) {
	known, ok := j.known[uid]
	if !ok {
		return
	}
	delete(j.known, uid)
	if known.placed {
		j.events = append(j.events, PodEvent{Pod: known.pod, Gone: true})
	}
}

// history returns the History with the latest events, for a View with this many nodes.
func (j *journal) history(nodes int) *History {
	if len(j.events) == 0 {
		return j.last
	}
	next := &History{Start: new(HistoryStart)}
	if j.last == nil {
		slices.SortStableFunc(j.events, func(a, b PodEvent) int {
			return cmp.Or(a.Pod.CreationTimestamp.Compare(b.Pod.CreationTimestamp.Time), comparePods(a.Pod, b.Pod))
		})
	} else {
		*next = *j.last
	}
	for _, e := range j.events {
		if !e.Gone {
			next.Came++
		}
	}
	// The last History does not read beyond its own end.
	next.Events = append(next.Events, j.events...)
	j.events = j.events[:0]
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
