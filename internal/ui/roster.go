package ui

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/pending"
)

// roster has a row for each pod that waits. It makes a row again only when the pod or its rejection
// has changed. It is safe for concurrent use.
type roster struct {
	source *Source

	mu     sync.Mutex
	made   waitingState // of what the rows were made
	round  int          // of the latest update
	pods   map[types.UID]*waitingPod
	sorted []*waitingPod // longest first
}

// waitingState identifies what the waiting pods are.
type waitingState struct {
	config  *config.Config
	version [2]uint64
}

// waitingPod is a pod that waits.
type waitingPod struct {
	uid      types.UID
	object   *corev1.Pod
	profiles []*config.Profile
	calls    []call      // one for each profile
	mistaken bool        // by the hints, which the nodes can change
	row      *WaitingRow // replaced, not changed
	round    int         // in which it was last found
}

// call is what identifies a status of a Requeuer; zero: the profile has not rejected the pod.
type call struct {
	last     time.Time
	requeues int
}

func newRoster(s *Source) *roster {
	return &roster{source: s, pods: map[types.UID]*waitingPod{}}
}

// state identifies what the rows are now.
func (r *roster) state() waitingState {
	if r.source.Unbound == nil {
		return waitingState{}
	}
	return waitingState{r.source.Config(), r.source.Version()}
}

// rows returns a row for each pod that waits now, those that wait longest first. The rows are
// shared.
func (r *roster) rows() []*WaitingRow {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.update()
	rows := make([]*WaitingRow, len(r.sorted))
	for i, p := range r.sorted {
		rows[i] = p.row
	}
	return rows
}

// count returns how many pods wait now.
func (r *roster) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.update()
	return len(r.sorted)
}

// update makes the rows those of the present state.
func (r *roster) update() {
	state := r.state() // before the pods are read: what changes in the meantime is found next time
	if state == r.made || r.source.Unbound == nil {
		return
	}
	again := state.config != r.made.config
	r.made = state
	r.round++
	hints := func(*corev1.Pod) []string { return nil }
	if r.source.Hints != nil {
		hints = r.source.Hints()
	}
	for _, pod := range r.source.Unbound() {
		if pod.DeletionTimestamp == nil {
			r.found(pod, again, hints)
		}
	}
	r.sorted = slices.DeleteFunc(r.sorted, func(p *waitingPod) bool {
		if p.round == r.round {
			return false
		}
		delete(r.pods, p.uid)
		return true
	})
	slices.SortFunc(r.sorted, func(a, b *waitingPod) int { return longest(a.row, b.row) })
}

// found makes the row of the pod, unless it is as it was. again is true if the profiles may be
// others.
func (r *roster) found(pod *corev1.Pod, again bool, hints func(*corev1.Pod) []string) {
	p := r.pods[pod.UID]
	if p == nil {
		p = &waitingPod{uid: pod.UID}
	}
	changed := again || p.object != pod
	if changed {
		p.object, p.profiles = pod, r.source.Profiles(r.made.config, pod)
		p.calls = make([]call, len(p.profiles))
	}
	if len(p.profiles) == 0 {
		return
	}
	for i, profile := range p.profiles {
		status, _ := r.source.Rejected(profile.Path, pod.UID)
		if c := (call{status.LastCall, status.Requeues}); c != p.calls[i] {
			p.calls[i], changed = c, true
		}
	}
	p.round = r.round
	if p.row == nil {
		r.pods[pod.UID] = p
		r.sorted = append(r.sorted, p)
	}
	if !changed && !p.mistaken {
		return
	}
	row := r.source.row(pod, p.profiles)
	p.mistaken = false
	switch row.Reason {
	case pending.Gated, pending.NotTried, pending.Failed, pending.OtherScheduler:
	default: // its nodes were rejected
		if mistakes := hints(pod); len(mistakes) > 0 {
			p.mistaken, row.Text, row.Nearest = true, mistakes[0], nil
		}
	}
	p.row = row
}
