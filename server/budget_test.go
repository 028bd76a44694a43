package server

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"
)

func newBudget(limit int64) *budget {
	return &budget{limit: limit, gauge: prometheus.NewGauge(prometheus.GaugeOpts{Name: "test"})}
}

// Whatever sizes compete: the bound holds, everybody gets an answer without anybody's patience running out, the eldest
// always gets through, and nothing is left over.
func TestBudgetNeitherOverflowsNorDeadlocks(t *testing.T) {
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		const limit = 10 * smallBody
		b := newBudget(limit)
		bodies := rapid.SliceOfN(rapid.Int64Range(1, limit), 1, 12).Draw(t, "bodies")
		step := rapid.Int64Range(limit/20, limit/2).Draw(t, "step")
		leases := make([]*lease, len(bodies))
		for i := range bodies {
			leases[i] = b.lease()
		}
		errs := make([]error, len(bodies))
		var running sync.WaitGroup
		for i, size := range bodies {
			running.Go(func() {
				defer leases[i].release()
				defer runtime.Gosched()
				for left := size; left > 0 && errs[i] == nil; left -= step {
					// The patience is never needed: whoever waits is served or refused when the others move.
					errs[i] = leases[i].grow(context.Background(), min(step, left), time.Hour)
					b.mu.Lock()
					if used := b.used; used > limit+smallReserve {
						t.Errorf("%d bytes held, the limit is %d", used, limit)
					}
					b.mu.Unlock()
					runtime.Gosched()
				}
			})
		}
		running.Wait()
		if errs[0] != nil {
			t.Errorf("the eldest was refused: %v", errs[0])
		}
		for i, err := range errs {
			if err != nil {
				refused++
			}
			if err != nil && !errors.Is(err, ErrBusy) {
				t.Errorf("body %d: %v, want nil or ErrBusy", i, err)
			}
		}
		if b.used != 0 || b.holders != 0 || len(b.waiting) != 0 {
			t.Errorf("left over: %d bytes, %d holders, %d waiting", b.used, b.holders, len(b.waiting))
		}
	})
	t.Logf("%d bodies refused", refused)
}

func TestBudgetLargeBodiesStayUnderTheLimit(t *testing.T) {
	b := newBudget(100 << 10)
	first, second := b.lease(), b.lease()
	if err := first.grow(t.Context(), 100<<10, time.Hour); err != nil {
		t.Fatal(err)
	}
	err := second.grow(t.Context(), smallBody+1, time.Nanosecond)
	if !errors.Is(err, ErrBusy) {
		t.Errorf("error = %v, want ErrBusy", err)
	}
	if err := second.grow(t.Context(), smallBody, time.Hour); err != nil {
		t.Errorf("a small body finds no room: %v", err)
	}
}

func TestBudgetServesTheOldestFirst(t *testing.T) {
	b := newBudget(100 << 10)
	oldest, holder, youngest := b.lease(), b.lease(), b.lease()
	if err := holder.grow(t.Context(), 100<<10, time.Hour); err != nil {
		t.Fatal(err)
	}
	order := make(chan string, 2)
	var running sync.WaitGroup
	wait := func(l *lease, name string, waiting int) {
		running.Go(func() {
			if err := l.grow(context.Background(), 60<<10, time.Hour); err != nil {
				order <- fmt.Sprint(name, ": ", err)
				return
			}
			order <- name
			l.release()
		})
		for ready := false; !ready; {
			b.mu.Lock()
			ready = len(b.waiting) == waiting
			b.mu.Unlock()
		}
	}
	wait(youngest, "youngest", 1)
	wait(oldest, "oldest", 2)
	holder.release()
	running.Wait()
	if a, b := <-order, <-order; a != "oldest" || b != "youngest" {
		t.Errorf("served %q, then %q", a, b)
	}
}

func TestBudgetWaitEndsWithTheRequest(t *testing.T) {
	b := newBudget(100 << 10)
	holder, other := b.lease(), b.lease()
	if err := holder.grow(t.Context(), 100<<10, time.Hour); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := other.grow(ctx, 50<<10, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want context.Canceled", err)
	}
	if len(b.waiting) != 0 {
		t.Error("who left still waits")
	}
}
