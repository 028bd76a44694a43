package ledger

import (
	"context"
	"time"
)

// Sweeper lets tests look for claims nobody needs at times of their choice.
type Sweeper struct{ s *sweeper }

// NewSweeper returns what Run would use.
func (k *Keeper) NewSweeper() Sweeper {
	return Sweeper{newSweeper(k)}
}

// Sweep looks once.
func (s Sweeper) Sweep(ctx context.Context, now time.Time) { s.s.sweep(ctx, now) }
