package ui

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/pending"
)

// maxChanges bounds the pods of one response with changes, so that each takes little time.
const maxChanges = 1000

// roster has a row for each pod that waits. It makes a row again only when the pod or its rejection
// has changed, and remembers the order of the changes, so that a reader can follow them. It is safe
// for concurrent use.
type roster struct {
	source *Source
	epoch  string // of this roster, in cursors

	mu      sync.Mutex
	made    waitingState // of what the rows were made
	round   int          // of the latest update
	pods    map[types.UID]*waitingPod
	sorted  []*waitingPod // longest first
	changes []change      // in order of seq; of a pod, all but the last one are obsolete
	seq     uint64        // of the latest change
	dropped uint64        // a reader that has not read this change has missed pods that wait no longer
}

// waitingState identifies what the waiting pods are.
type waitingState struct {
	config  *config.Config
	version [2]uint64
}

// waitingPod is a pod that waits, or has waited.
type waitingPod struct {
	uid      types.UID
	object   *corev1.Pod
	profiles []*config.Profile
	calls    []call      // one for each profile
	mistaken bool        // by the hints, which the nodes can change
	row      *WaitingRow // replaced, not changed; nil: it waits no longer
	seq      uint64      // of its latest change
	round    int         // in which it was last found
}

// call is what identifies a status of a Requeuer; zero: the profile has not rejected the pod.
type call struct {
	last     time.Time
	requeues int
}

type change struct {
	seq uint64
	of  *waitingPod
}

func newRoster(s *Source) *roster {
	return &roster{source: s, epoch: strconv.FormatInt(time.Now().UnixNano(), 36), pods: map[types.UID]*waitingPod{}}
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
		p.row = nil
		r.changed(p)
		return true
	})
	slices.SortFunc(r.sorted, func(a, b *waitingPod) int { return longest(a.row, b.row) })
	if len(r.changes) > 4*len(r.sorted)+maxChanges {
		r.changes = slices.DeleteFunc(r.changes, func(c change) bool { return c.seq != c.of.seq || c.of.row == nil })
		r.dropped = r.seq
	}
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
	if changed || row.Text != p.row.Text {
		p.row = row
		r.changed(p)
	}
}

func (r *roster) changed(p *waitingPod) {
	r.seq++
	p.seq = r.seq
	r.changes = append(r.changes, change{r.seq, p})
}

// since returns the changes after the cursor of an earlier response. A cursor has the latest change
// when its reader began with all pods, and the latest one that the reader has read.
func (r *roster) since(cursor string) WaitingChanges {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.update()
	var epoch string
	var began, after uint64
	n, _ := fmt.Sscanf(strings.ReplaceAll(cursor, "-", " "), "%s %d %d", &epoch, &began, &after)
	w := WaitingChanges{Changes: []WaitingChange{}, Reset: n < 3 || epoch != r.epoch || max(began, after) < r.dropped}
	if w.Reset {
		began, after = r.seq, 0
	}
	first := sort.Search(len(r.changes), func(i int) bool { return r.changes[i].seq > after })
	for _, c := range r.changes[first:] {
		if c.seq != c.of.seq {
			continue // it has changed again
		}
		if w.More = len(w.Changes) == maxChanges; w.More {
			break
		}
		after = c.seq
		w.Changes = append(w.Changes, WaitingChange{UID: string(c.of.uid), Row: c.of.row})
	}
	w.Cursor = fmt.Sprintf("%s-%d-%d", r.epoch, began, after)
	return w
}
