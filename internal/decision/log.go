package decision

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// DefaultLogSize is the size of a Log made with size 0, in records.
	DefaultLogSize = 4096
	// maxScores bounds the Scores that a Log keeps, in bytes: those of 700 calls with about 500
	// nodes each, or of 70 with about 5,000.
	maxScores = 8 << 20
)

// Log keeps the latest records of all pods, and the latest [Scores] while they may be needed. It is
// safe for concurrent use; a call holds its lock only while it finds the records of one pod, or
// looks once at each record.
type Log struct {
	made    time.Time
	mu      sync.Mutex
	ring    []entry
	added   int // number of records added so far
	pods    map[podKey]*entry
	scores  int // bytes
	keeping int // number of the first record that may still have scores
	free    *Scores
	journal *Journal // nil: none
}

type podKey struct{ namespace, name string }

// entry is one record, in the list of its pod.
type entry struct {
	record       *Record
	scores       *Scores // nil: none
	older, newer *entry
}

// NewLog returns a Log that keeps the latest size records; 0 means
// [DefaultLogSize].
func NewLog(size int) *Log {
	return &Log{made: time.Now(), ring: make([]entry, cmp.Or(max(size, 0), DefaultLogSize)), pods: map[podKey]*entry{}}
}

// Add appends the record, of which it cuts long lists and texts, and drops the oldest one if the
// Log is full. scores are those of the call, and may be nil. Neither may be changed afterwards. Add
// returns Scores that are not needed any more, or nil: the caller may overwrite them, so that
// keeping scores needs no new memory for each call.
func (l *Log) Add(r *Record, scores *Scores) (unused *Scores) {
	r.bound()
	if l.journal != nil {
		l.journal.offer(r)
	}
	key := podKey{r.Pod.Namespace, r.Pod.Name}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.ring[l.added%len(l.ring)]
	l.added++
	l.drop(e)
	*e = entry{record: r, scores: scores, older: l.pods[key]}
	if e.older != nil {
		e.older.newer = e
	}
	l.pods[key] = e
	if scores == nil {
		return nil
	}
	l.scores += scores.size()
	for l.keeping = max(l.keeping, l.added-len(l.ring)); l.scores > maxScores; l.keeping++ {
		l.forget(&l.ring[l.keeping%len(l.ring)])
	}
	unused, l.free = l.free, nil
	return unused
}

// drop removes the oldest of all records from its list; there is none if the ring is not full.
func (l *Log) drop(e *entry) {
	if e.record == nil {
		return
	}
	l.forget(e)
	if e.newer != nil {
		e.newer.older = nil
	} else {
		delete(l.pods, podKey{e.record.Pod.Namespace, e.record.Pod.Name})
	}
}

func (l *Log) forget(e *entry) {
	if e.scores != nil {
		l.scores -= e.scores.size()
		l.free, e.scores = e.scores, nil
	}
}

// Since returns from when on the Log has all records.
func (l *Log) Since() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if oldest := l.ring[l.added%len(l.ring)].record; oldest != nil {
		return oldest.Time
	}
	return l.made
}

// SchedulerNames returns the schedulers that called the profile, by the pods that it manages, in
// alphabetical order.
func (l *Log) SchedulerNames(profile string) []string {
	names := map[string]bool{}
	l.Latest(len(l.ring), func(r *Record) bool {
		if r.Profile == profile && !r.Unmanaged && r.Pod.SchedulerName != "" {
			names[r.Pod.SchedulerName] = true
		}
		return false
	})
	return slices.Sorted(maps.Keys(names))
}

// Latest returns the latest records for which the function returns true, latest first, at most
// limit.
func (l *Log) Latest(limit int, selects func(*Record) bool) []*Record {
	records := []*Record{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := l.added - 1; at >= max(0, l.added-len(l.ring)) && len(records) < limit; at-- {
		if r := l.ring[at%len(l.ring)].record; selects(r) {
			records = append(records, r)
		}
	}
	return records
}

// Query selects records of a pod.
type Query struct {
	Namespace, Name string
	// UID is that of the records; "" selects any.
	UID string
	// Node is the node that was chosen for the pod; "" if unknown. The latest record of each
	// profile that scored nodes contains how the node compares ([Record.Chosen]), while the scores
	// are kept.
	Node string
	// Limit is the maximum number of records to return.
	Limit int
}

// Find returns the latest records about a pod, latest first.
func (l *Log) Find(q Query) []*Record { return l.find(q, false) }

// Why is [Why] of the pod's latest records, for its annotation [Annotation]. The profile binds the
// pod. The record of the scores gets the comparison of the node, and the scores of the other nodes
// are dropped.
func (l *Log) Why(pod *corev1.Pod, profile, node string) string {
	query := Query{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: node, Limit: 32}
	return Why(l.find(query, true), profile, node)
}

// find is Find. If the pod is being bound to the node, it stores the comparison of the node in the
// record, and drops the scores of the other nodes.
func (l *Log) find(q Query, bound bool) []*Record {
	records := []*Record{}
	l.mu.Lock()
	defer l.mu.Unlock()
	var scored []string // profiles
	for e := l.pods[podKey{q.Namespace, q.Name}]; e != nil && len(records) < q.Limit; e = e.older {
		r := e.record
		if q.UID != "" && q.UID != r.Pod.UID {
			continue
		}
		if len(r.Top) > 0 && r.Error == "" && !slices.Contains(scored, r.Profile) {
			scored = append(scored, r.Profile)
			if r = e.choose(q.Node); bound && r != e.record {
				e.record = r
				l.forget(e)
			}
		}
		records = append(records, r)
	}
	return records
}

// choose returns the record with the comparison of the chosen node.
func (e *entry) choose(node string) *Record {
	if node == "" || e.scores == nil {
		return e.record
	}
	chosen := e.scores.chosen(node, e.record.MaxTotal)
	if chosen == nil {
		return e.record
	}
	r := *e.record
	r.Chosen = chosen
	return &r
}
