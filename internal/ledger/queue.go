package ledger

import (
	"errors"
	"slices"

	"outboard.dev/outboard/snapshot"
)

// queue holds the pending operations on one ledger. Operations that arrive during a write are written together next, so that many pods can
// be bound to one node in the time of a few writes. Its methods neither block nor read anything else; Keeper.mu guards it.
type queue struct {
	key     snapshot.LedgerKey
	pending []*submission
	writing bool    // a batch is being written
	written *Object // the latest version written or read by this Keeper; nil: unknown
	swept   bool    // a sweep has ended since then
}

// submission is an operation that a caller waits for.
type submission struct {
	operation
	done chan outcome // capacity 1
}

// add adds an operation behind the pending ones.
func (q *queue) add(s *submission) { q.pending = append(q.pending, s) }

// withdraw withdraws an operation whose caller no longer waits, or learned that its write failed. It returns what is known about the write.
// Unless nothing was written, the next write releases the claim, on which no caller relies.
func (q *queue) withdraw(s *submission) error {
	if i := slices.Index(q.pending, s); i >= 0 {
		q.pending = slices.Delete(q.pending, i, i+1)
		return errors.New("the claim was not written: it was still queued behind other writes")
	}
	if c := s.claim; c != nil {
		q.add(&submission{operation{release: &releaseOperation{c.pod.UID, c.pod.Token, false}}, make(chan outcome, 1)})
	}
	return errors.New("it is unknown whether the claim was written")
}

// take takes all pending operations as a batch, and returns how to write it. The queue is being written until a batch is empty.
func (q *queue) take() ([]*submission, writing) {
	batch := q.pending
	q.pending, q.writing = nil, len(batch) > 0
	w := writing{key: q.key, object: q.written}
	for _, s := range batch {
		w.operations = append(w.operations, s.operation)
	}
	return batch, w
}

// wrote ends the write of a batch, after which the ledger is as given, or unknown if nil. It reports whether operations are pending.
func (q *queue) wrote(object *Object) bool {
	q.written, q.swept = object, false
	return len(q.pending) > 0
}

// forget reports whether the Keeper can forget the queue at the end of a sweep. A ledger just written is in the cache before a second sweep.
func (q *queue) forget() bool {
	swept := q.swept
	q.swept = true
	return swept && !q.writing
}
