package app

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for _, tt := range []struct {
		name, environment string
		cgroup            memlimit.Provider
		set, want         int64
	}{
		{"of the cgroup", "", memlimit.Limit(1_000_000_000_000), 900_000_000_000, 900_000_000_000},
		{"of the environment", "1GiB", memlimit.Limit(1_000_000_000_000), 0, math.MaxInt64},
		{"none", "", func() (uint64, error) { return 0, memlimit.ErrNoLimit }, 0, math.MaxInt64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", tt.environment)
			debug.SetMemoryLimit(math.MaxInt64)
			set := limitMemory(tt.cgroup)
			if got := debug.SetMemoryLimit(-1); got != tt.want || set != tt.set {
				t.Errorf("limit %d, want %d; limitMemory returns %d, want %d", got, tt.want, set, tt.set)
			}
		})
	}
}

// While the garbage collector has much to do, it runs less often if there is a memory limit.
func TestCollectorIsRelaxed(t *testing.T) {
	limit, before := debug.SetMemoryLimit(-1), debug.SetGCPercent(-1)
	defer func() { debug.SetMemoryLimit(limit); debug.SetGCPercent(before) }()
	for _, tt := range []struct {
		name          string
		limit         int64
		percent, want int
	}{
		{"with a limit", 1 << 40, 50, relaxedPercent},
		{"without a limit", math.MaxInt64, 50, 50},
		{"with fewer collections already", 1 << 40, 1000, 1000},
		{"without collections", 1 << 40, -1, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				debug.SetMemoryLimit(tt.limit)
				debug.SetGCPercent(tt.percent)
				ctx, stop := context.WithCancel(t.Context())
				var ran atomic.Uint64
				go relaxCollector(ctx, ran.Load)
				synctest.Wait()
				check := func(when string, collections int, d time.Duration, want int) {
					t.Helper()
					ran.Add(uint64(collections))
					time.Sleep(d)
					synctest.Wait()
					if got := percent(); got != want {
						t.Errorf("%s: %d %%, want %d", when, got, want)
					}
				}
				check("one collection in a second", 1, time.Second, tt.percent)
				check("several", often, time.Second, tt.want)
				check("for a while", 0, relaxedFor-time.Second, tt.want)
				check("several in the meantime", often, time.Second, tt.want)
				check("one in the meantime", 1, relaxedFor, tt.percent)
				check("several again", often, time.Second, tt.want)
				stop()
				check("at the end", 0, time.Second, tt.percent)
			})
		})
	}
}

// percent returns by how much the heap grows between two collections; -1: there are none.
func percent() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	if p := sample[0].Value.Uint64(); p < math.MaxUint32 {
		return int(p)
	}
	return -1
}
