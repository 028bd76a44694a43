package decision

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// DefaultLogSize is the number of records a Log made with size 0 keeps.
const DefaultLogSize = 4096

// Log keeps the latest records of all pods in a ring. Adding never waits and
// never blocks a reader. A Log may be used by any number of goroutines.
type Log struct {
	next  atomic.Uint64
	slots []atomic.Pointer[entry]
}

type entry struct {
	sequence uint64
	record   *Record
}

// NewLog returns a Log that keeps the latest size records; 0 means
// [DefaultLogSize].
func NewLog(size int) *Log {
	return &Log{slots: make([]atomic.Pointer[entry], cmp.Or(max(size, 0), DefaultLogSize))}
}

// Add appends the record, dropping the oldest when the Log is full. The record
// must not be written to afterwards.
func (l *Log) Add(r *Record) {
	e := &entry{l.next.Add(1), r}
	slot := &l.slots[e.sequence%uint64(len(l.slots))]
	for {
		old := slot.Load()
		if old != nil && old.sequence > e.sequence {
			return // overtaken by a whole round of the ring
		}
		if slot.CompareAndSwap(old, e) {
			return
		}
	}
}

// Find returns the latest records for which match is true, latest first, at most
// limit of them.
func (l *Log) Find(match func(*Record) bool, limit int) []*Record {
	var found []*entry
	for i := range l.slots {
		if e := l.slots[i].Load(); e != nil && match(e.record) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b *entry) int { return cmp.Compare(b.sequence, a.sequence) })
	records := make([]*Record, 0, min(len(found), max(limit, 0)))
	for _, e := range found[:cap(records)] {
		records = append(records, e.record)
	}
	return records
}
