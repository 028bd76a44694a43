package server

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"
)

func testBudget(large int64, patience time.Duration) *budget {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "test"})
	return newBudget(Options{MaxInFlightBytes: large, MaxConnections: 4, BusyTimeout: patience}, gauge)
}

// For any competing bodies, any memory that handlers reserve for them, and any that they keep while they wait for another server: no
// limit is exceeded, every request succeeds before its timeout, and nothing stays reserved. While it waits, a request holds what it keeps, or
// everything, and afterwards again what it held before.
func TestBudgetNeitherOverflowsNorDeadlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 10 * ordinaryBody
		b := testBudget(limit, time.Hour)
		var held [5]atomic.Int64
		rooms := []*room{b.large, b.ordinary, b.light, b.heavy, b.waiting}
		bodies := rapid.SliceOfN(rapid.Int64Range(1, limit), 1, 12).Draw(t, "bodies")
		made := rapid.SliceOfN(rapid.Int64Range(1, 2*heavyRoom), 12, 12).Draw(t, "made")
		keeps := rapid.SliceOfN(rapid.Int64Range(0, waitRoom+waitRoom/4), 12, 12).Draw(t, "keeps") // 0: it does not wait
		var running sync.WaitGroup
		for i, size := range bodies {
			running.Go(func() {
				l := &lease{budget: b}
				ctx := context.WithValue(context.Background(), leaseKey{}, l)
				if err := errors.Join(l.take(ctx, b.forBody(size), size), ReserveMemory(ctx, made[i])); err != nil {
					t.Errorf("body of %d bytes: %v", size, err)
				}
				hold := func(holds ...*hold) {
					for _, sign := range []int64{1, -1} {
						for _, h := range holds {
							j := slices.Index(rooms, h.room)
							if held[j].Add(sign*h.amount) > h.room.size {
								t.Errorf("requests hold more than the %d %s", h.room.size, h.room.use)
							}
						}
						runtime.Gosched()
					}
				}
				hold(&l.holds[0], &l.holds[1])
				if keeps[i] > 0 {
					room, amount := l.holds[1].room, l.holds[1].amount
					err := Wait(ctx, keeps[i], func() {
						switch {
						case l.held == 2:
							hold(&l.holds[0], &l.holds[1])
						case l.kept.room == b.waiting && l.kept.amount == keeps[i]:
							hold(&l.holds[0], &l.kept)
						default:
							t.Errorf("while it waits, a request keeps %d of %d bytes", l.kept.amount, keeps[i])
						}
					})
					if err != nil || l.held != 2 || l.holds[1].room != room || l.holds[1].amount != amount {
						t.Errorf("after it has waited, a request holds %d bytes of the %d %s, want %d; error %v", l.holds[1].amount, room.size, room.use, amount, err)
					}
					hold(&l.holds[0], &l.holds[1])
				}
				l.release()
			})
		}
		running.Wait()
		for _, r := range rooms {
			if r.free != r.size {
				t.Errorf("%d of the %d %s are free", r.free, r.size, r.use)
			}
		}
	})
}

// Large requests do not take memory from requests of ordinary size.
func TestBudgetKeepsRoomForOrdinaryRequests(t *testing.T) {
	b := testBudget(100*ordinaryBody, time.Nanosecond)
	take := func(body, made int64) error {
		l := &lease{budget: b}
		return errors.Join(l.take(t.Context(), b.forBody(body), body), ReserveMemory(context.WithValue(t.Context(), leaseKey{}, l), made))
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
	b := testBudget(0, time.Nanosecond)
	for range 4 {
		if err := (&lease{budget: b}).take(t.Context(), b.forBody(ordinaryBody), ordinaryBody); err != nil {
			t.Error(err)
		}
	}
}

func TestBudgetServesTheOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testBudget(100<<20, time.Hour)
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

// The caller of a large request rests before its next one if another caller sends ordinary requests, and only then.
// Meanwhile its bodies arrive slowly.
func TestCallersOfLargeRequestsRest(t *testing.T) {
	for _, tt := range []struct {
		name         string
		before       time.Duration // since the latest ordinary request; negative: none
		by           string        // its caller
		decodes      time.Duration // the first large request
		rests, reads time.Duration // before the second one; for a mebibyte of a body after the first one
	}{
		{"others send ordinary requests", 0, "B", 32 * time.Millisecond, 960 * time.Millisecond, time.Second / 32},
		{"one did lately", 900 * time.Millisecond, "B", 32 * time.Millisecond, 960 * time.Millisecond, time.Second / 32},
		{"for a long one at most a second", 0, "B", 500 * time.Millisecond, time.Second, time.Second / 32},
		{"one did long ago", 2 * time.Second, "B", 10 * time.Millisecond, 0, 0},
		{"nobody else calls", -1, "", 10 * time.Millisecond, 0, 0},
		{"only the caller itself", 0, "A", 10 * time.Millisecond, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := testBudget(100<<20, 2*time.Second)
				request := func(by string, bytes int64) *lease {
					l := &lease{budget: b, by: by}
					ctx := context.WithValue(t.Context(), leaseKey{}, l)
					if err := errors.Join(l.take(ctx, b.large, 2<<20), ReserveMemory(ctx, bytes)); err != nil {
						t.Fatal(err)
					}
					return l
				}
				if tt.before >= 0 {
					request(tt.by, 1).release()
					time.Sleep(tt.before)
				}
				l := request("A", heavyRoom)
				start := time.Now()
				if l.pace(1 << 20) {
					t.Error("it must end")
				}
				if took := time.Since(start); took != tt.reads {
					t.Errorf("a mebibyte took %s, want %s", took, tt.reads)
				}
				time.Sleep(tt.decodes - tt.reads)
				l.release()
				start = time.Now()
				request("A", heavyRoom).release()
				if took := time.Since(start); took < tt.rests || took > tt.rests+lookAgain {
					t.Errorf("the caller rests for %s, want %s", took, tt.rests)
				}
			})
		})
	}
}

func TestBudgetWaitEndsWithTheRequest(t *testing.T) {
	b := testBudget(100<<20, time.Hour)
	if err := (&lease{budget: b}).take(t.Context(), b.large, 100<<20); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&lease{budget: b}).take(ctx, b.large, 50<<20); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want context.Canceled", err)
	}
}

// While a request waits for another server, it holds the memory that it keeps, and others can be decoded. Afterwards it holds again what
// it has reserved.
func TestRequestsDoNotWaitForAnotherServer(t *testing.T) {
	b := testBudget(100*ordinaryBody, time.Nanosecond)
	reserve := func(bytes int64) (context.Context, *lease, error) {
		l := &lease{budget: b}
		ctx := context.WithValue(t.Context(), leaseKey{}, l)
		return ctx, l, errors.Join(l.take(t.Context(), b.ordinary, 1), ReserveMemory(ctx, bytes))
	}
	const keeps = 1 << 20
	ctx, first, err := reserve(heavyRoom)
	if err != nil {
		t.Fatal(err)
	}
	waited := false
	err = Wait(ctx, keeps, func() {
		waited = true
		if free := b.waiting.free; free != waitRoom-keeps {
			t.Errorf("%d bytes are free for requests that wait, want %d", free, waitRoom-keeps)
		}
		_, second, err := reserve(heavyRoom)
		if err != nil {
			t.Errorf("another request: %v", err)
		}
		second.release()
	})
	if _, _, busy := reserve(heavyRoom); err != nil || !waited || !errors.Is(busy, ErrBusy) {
		t.Errorf("got error %v, waited: %t, and another request gets %v afterwards, want ErrBusy", err, waited, busy)
	}
	first.release()

	ctx, first, err = reserve(heavyRoom)
	if err != nil {
		t.Fatal(err)
	}
	err = Wait(ctx, waitRoom+1, func() {
		if _, _, err := reserve(heavyRoom); !errors.Is(err, ErrBusy) {
			t.Errorf("while a request waits that keeps too much, another gets %v, want ErrBusy", err)
		}
	})
	if err != nil {
		t.Error(err)
	}
	var second *lease
	if err = Wait(ctx, keeps, func() { _, second, err = reserve(heavyRoom) }); !errors.Is(err, ErrBusy) {
		t.Errorf("got error %v after another request has taken the room, want ErrBusy", err)
	}
	first.release()
	second.release()
	if b.heavy.free != heavyRoom || b.waiting.free != waitRoom {
		t.Errorf("%d and %d bytes are free at the end", b.heavy.free, b.waiting.free)
	}
}
