package ledger

import (
	"context"
	"time"

	"outboard.dev/outboard/snapshot"
)

// Waiting is how many operations on the ledger wait for one that is written.
func (k *Keeper) Waiting(key snapshot.LedgerKey) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b := k.queues[Name(key)]; b != nil {
		return len(b.pending)
	}
	return 0
}

// Busy says whether the ledger is being written, and nothing waits.
func (k *Keeper) Busy(key snapshot.LedgerKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := k.queues[Name(key)]
	return b != nil && b.writing && len(b.pending) == 0
}

// Sweeper lets tests look for claims nobody needs at times of their choice.
type Sweeper struct{ s *sweeper }

// NewSweeper returns what Run would use.
func (k *Keeper) NewSweeper() Sweeper {
	return Sweeper{newSweeper(k)}
}

// Sweep looks once.
func (s Sweeper) Sweep(ctx context.Context, now time.Time) { s.s.sweep(ctx, now) }

// Books is how many ledgers the Keeper remembers.
func (k *Keeper) Books() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.queues)
}
