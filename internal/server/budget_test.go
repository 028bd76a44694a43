package server

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"
)

func testBudget(large int64, patience time.Duration, evict func()) *budget {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "test"})
	return newBudget(Options{MaxInFlightBytes: large, MaxConnections: 4, BusyTimeout: patience}, gauge, evict)
}

// For any competing bodies, and any memory that handlers reserve for them: no limit is exceeded, every request succeeds before
// its timeout, and nothing stays reserved.
func TestBudgetNeitherOverflowsNorDeadlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 10 * ordinaryBody
		b := testBudget(limit, time.Hour, nil)
		var held [4]atomic.Int64
		rooms := []*room{b.large, b.ordinary, b.light, b.heavy}
		bodies := rapid.SliceOfN(rapid.Int64Range(1, limit), 1, 12).Draw(t, "bodies")
		made := rapid.SliceOfN(rapid.Int64Range(1, 2*heavyRoom), 12, 12).Draw(t, "made")
		var running sync.WaitGroup
		for i, size := range bodies {
			running.Go(func() {
				l := &lease{budget: b}
				err := errors.Join(
					l.take(context.Background(), b.forBody(size), size),
					Reserve(context.WithValue(context.Background(), leaseKey{}, l), made[i]))
				if err != nil {
					t.Errorf("body of %d bytes: %v", size, err)
				}
				count := func(sign int64) {
					for _, h := range l.holds {
						for j, r := range rooms {
							if h.room == r && held[j].Add(sign*h.bytes) > r.size {
								t.Errorf("requests hold more than the %d bytes for %s", r.size, r.use)
							}
						}
					}
				}
				count(1)
				runtime.Gosched()
				count(-1)
				l.release()
			})
		}
		running.Wait()
		for _, r := range rooms {
			if err := r.free.Acquire(context.Background(), r.size); err != nil { // heavy requests after a pause
				t.Errorf("the memory for %s: %v", r.use, err)
			}
		}
	})
}

// Large requests do not take memory from requests of ordinary size.
func TestBudgetKeepsRoomForOrdinaryRequests(t *testing.T) {
	b := testBudget(100*ordinaryBody, time.Nanosecond, nil)
	take := func(body, made int64) error {
		l := &lease{budget: b}
		return errors.Join(l.take(t.Context(), b.forBody(body), body), Reserve(context.WithValue(t.Context(), leaseKey{}, l), made))
	}
	if err := take(100*ordinaryBody, heavyRoom); err != nil {
		t.Fatal(err)
	}
	for _, request := range [][2]int64{{ordinaryBody + 1, 1}, {1, lightWork + 1}} {
		if err := take(request[0], request[1]); !errors.Is(err, ErrBusy) {
			t.Errorf("a request of %d bytes that reserves %d: %v, want ErrBusy", request[0], request[1], err)
		}
	}
	for range 3 {
		if err := take(ordinaryBody, lightWork); err != nil {
			t.Errorf("an ordinary request: %v", err)
		}
	}
}

// Every connection can hold an ordinary body, up to the maximum number of connections.
func TestBudgetHasRoomForAnOrdinaryBodyOnEachConnection(t *testing.T) {
	b := testBudget(0, time.Nanosecond, nil)
	for range 4 {
		if err := (&lease{budget: b}).take(t.Context(), b.forBody(ordinaryBody), ordinaryBody); err != nil {
			t.Error(err)
		}
	}
}

func TestBudgetServesTheOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testBudget(100<<20, time.Hour, nil)
		holder := &lease{budget: b}
		if err := holder.take(t.Context(), b.heavy, heavyRoom); err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 2)
		for _, name := range []string{"first", "second"} {
			go func() {
				l := &lease{budget: b}
				if err := l.take(context.Background(), b.heavy, heavyRoom); err != nil {
					order <- fmt.Sprint(name, ": ", err)
					return
				}
				order <- name
				l.release()
			}()
			synctest.Wait() // until it is in the queue
		}
		holder.release()
		if a, b := <-order, <-order; a != "first" || b != "second" {
			t.Errorf("served %q, then %q", a, b)
		}
	})
}

func TestBudgetWaitEndsWithTheRequest(t *testing.T) {
	b := testBudget(100<<20, time.Hour, nil)
	if err := (&lease{budget: b}).take(t.Context(), b.large, 100<<20); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&lease{budget: b}).take(ctx, b.large, 50<<20); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want context.Canceled", err)
	}
}

// Between heavy requests that wait for each other there is a pause; without waiting requests the next one starts at once.
func TestBudgetRestsBetweenHeavyRequests(t *testing.T) {
	b := testBudget(100<<20, time.Hour, nil)
	heavy := func() *lease {
		l := &lease{budget: b}
		if err := l.take(t.Context(), b.heavy, heavyRoom); err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := heavy()
	first.release()
	if !b.heavy.free.TryAcquire(heavyRoom) {
		t.Fatal("the memory is unavailable, although no request waits")
	}
	b.heavy.free.Release(heavyRoom)

	first = heavy()
	entered := make(chan *lease)
	go func() { entered <- heavy() }()
	for b.heavy.waiting.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	held := time.Since(first.holds[0].since)
	released := time.Now()
	first.release()
	second := <-entered
	if rested := time.Since(released); rested < heavyRest*held {
		t.Errorf("held for %s, and available again after %s", held, rested)
	}
	second.release()
}

// Large bodies are slowed down while others wait for their memory, and only then. The time is that of the synctest bubble.
func TestLargeBodiesArePacedWhileOthersWait(t *testing.T) {
	const size = 40 << 20
	tests := []struct {
		name    string
		body    int64
		waiting bool
		want    time.Duration
	}{
		{"nobody waits", size, false, 0},
		{"a body that is not large", pacedBody, true, 0},
		{"a large body, after its first part", size, true, (size - pacedBody) * time.Second / pacedRate},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := testBudget(size, time.Hour, nil)
				holder := &lease{budget: b}
				if err := holder.take(t.Context(), b.large, size); err != nil {
					t.Fatal(err)
				}
				if test.waiting {
					ctx, cancel := context.WithCancel(t.Context())
					go func() { _ = (&lease{budget: b}).take(ctx, b.large, size) }()
					synctest.Wait()
					defer cancel()
				}
				began := time.Now()
				for read := int64(0); read < test.body; read += readStep {
					b.pace(t.Context(), test.body, readStep)
				}
				if took := time.Since(began).Round(time.Millisecond / 2); took != test.want {
					t.Errorf("the body took %s, want %s", took, test.want)
				}
			})
		})
	}
}
