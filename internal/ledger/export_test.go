package ledger

import (
	"context"
	"time"

	"outboard.dev/outboard/snapshot"
)

// Waiting is the number of operations that wait for the current write of the ledger.
func (k *Keeper) Waiting(key snapshot.LedgerKey) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b := k.queues[Name(key)]; b != nil {
		return len(b.pending)
	}
	return 0
}

// Busy reports whether the ledger is being written and no operation waits.
func (k *Keeper) Busy(key snapshot.LedgerKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := k.queues[Name(key)]
	return b != nil && b.writing && len(b.pending) == 0
}

// Sweeper lets tests control when unneeded allocations are removed.
type Sweeper struct{ s *sweeper }

// NewSweeper returns the sweeper that Run would use.
func (k *Keeper) NewSweeper() Sweeper {
	return Sweeper{&sweeper{keeper: k}}
}

// Sweep runs one sweep.
func (s Sweeper) Sweep(ctx context.Context, now time.Time) { s.s.sweep(ctx, now) }
