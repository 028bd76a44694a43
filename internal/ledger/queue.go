package ledger

import (
	"errors"
	"slices"

	"outboard.dev/outboard/snapshot"
)

// Queue holds the pending operations on one ledger. Operations that arrive during a write are
// written together next, so that many pods can be bound to one node in the time of a few writes. It
// is a value that can be copied: its methods change no memory that copies share, neither block nor
// read anything else; Keeper.mu guards it.
type Queue struct {
	Key     snapshot.LedgerKey
	pending []*Submission
	writing bool    // a batch is being written
	written *Object // the latest version written or read by this Keeper; nil: unknown
	late    *Object // see Writing
	swept   bool    // a sweep has ended since then
}

// Submission is an operation that a caller waits for.
type Submission struct {
	Operation
	done chan Outcome // capacity 1
}

// Add adds an operation behind the pending ones.
func (q *Queue) Add(s *Submission) { q.pending = append(slices.Clip(q.pending), s) }

// Withdraw withdraws an operation whose caller no longer waits, or learned that its write failed.
// It returns what is known about the write. Unless nothing was written, the next write releases the
// allocation, on which no caller relies.
func (q *Queue) Withdraw(s *Submission) error {
	if i := slices.Index(q.pending, s); i >= 0 {
		q.pending = slices.Concat(q.pending[:i], q.pending[i+1:])
		return errors.New("the allocation was not written: it was still queued behind other writes")
	}
	if s.choose != nil {
		q.Add(&Submission{ReleaseOf(s.pod, false), make(chan Outcome, 1)})
	}
	return errors.New("it is unknown whether the allocation was written")
}

// Take takes all pending operations as a batch, and returns how to write it. The queue is being
// written until a batch is empty.
func (q *Queue) Take() ([]*Submission, Writing) {
	batch := q.pending
	q.pending, q.writing = nil, len(batch) > 0
	w := Writing{key: q.Key, Object: q.written, late: q.late}
	for _, s := range batch {
		w.operations = append(w.operations, s.Operation)
	}
	return batch, w
}

// Wrote ends the write of a batch. It reports whether operations are pending.
func (q *Queue) Wrote(w Writing) bool {
	q.written, q.late, q.swept = w.Object, w.late, false
	return len(q.pending) > 0
}

// Forget reports whether the Keeper can forget the queue at the end of a sweep. A ledger just
// written is in the cache before a second sweep.
func (q *Queue) Forget() bool {
	swept := q.swept
	q.swept = true
	return swept && !q.writing
}

// Pending returns how many operations wait to be written.
func (q *Queue) Pending() int { return len(q.pending) }
