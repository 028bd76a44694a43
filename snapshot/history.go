package snapshot

import (
	"cmp"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// A History goes back this many events, or this many for each node if that is more,
	// and up to a quarter further.
	historyMin     = 4000
	historyPerNode = 4
)

// PodEvent is a pod that came, or one that had been on a node and is gone.
type PodEvent struct {
	// Pod is as it was when it came; it may not be written to.
	Pod  *corev1.Pod
	Gone bool
}

// History is which pods have come and gone lately, whether or not they ever got a
// node, the oldest first. It begins with the pods there are when the first View is
// published, in order of their creation. A gated pod ([Gated]) comes when its gates are
// gone. It never changes; the next View has a longer one. A nil History is empty.
//
// A pod that comes is no reason to publish a View: it is in the History of the next.
type History struct {
	// Start identifies the first event: Histories with the same Start begin with the
	// same events. Nil for an empty History of no Builder.
	Start *HistoryStart
	// Came is the number of pods that have ever come, including those before the first
	// event.
	Came int
	// Events may not be written to.
	Events []PodEvent
}

// HistoryStart is the moment before the first event of a History.
type HistoryStart struct {
	// Came is the number of pods that had come by then.
	Came int
}

// History is what came before. It may be nil, which is nothing.
func (v *View) History() *History { return v.history }

// DropHistory gives Views no History from the next one on, and costs nothing for it.
func (b *Builder) DropHistory() { b.journal = journal{off: true} }

// KeepHistory undoes DropHistory. The History begins anew, with the given pods, which
// are those there are, whether on a node or not.
func (b *Builder) KeepHistory(pods iter.Seq[*corev1.Pod]) {
	if !b.journal.off {
		return
	}
	b.journal = journal{}
	for pod := range pods {
		if !ended(pod) {
			b.journal.came(pod)
		}
	}
}

// Gated says whether kube-scheduler does not try the pod yet, because it has scheduling
// gates. A pod on a node is not gated.
func Gated(pod *corev1.Pod) bool { return len(pod.Spec.SchedulingGates) > 0 && pod.Spec.NodeName == "" }

// journal is the part of a Builder that writes the History.
type journal struct {
	off    bool
	known  map[types.UID]knownPod // the pods that have come and not gone
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

// history returns the History with the latest events, for a View of so many nodes.
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
	// Behind the end of the last History, where it does not look.
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
