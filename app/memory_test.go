package app

import (
	"math"
	"os"
	"regexp"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"outboard.dev/outboard/internal/config"
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

// While large requests come and for ten seconds after, the garbage collector runs rarely if there is a memory limit.
func TestCollectorIsRelaxed(t *testing.T) {
	limit, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(50)
	defer func() { debug.SetMemoryLimit(limit); debug.SetGCPercent(percent) }()
	check := func(when string, want int) {
		t.Helper()
		gogc := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		if metrics.Read(gogc); gogc[0].Value.Uint64() != uint64(want) {
			t.Errorf("%s: %d %%, want %d", when, gogc[0].Value.Uint64(), want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var r relaxed
		debug.SetMemoryLimit(math.MaxInt64)
		r.relax()
		check("without a limit", 50)
		debug.SetMemoryLimit(1 << 40)
		for range 3 {
			r.relax()
			time.Sleep(relaxedFor - time.Second)
			check("while large requests come", relaxedPercent)
		}
		time.Sleep(2 * time.Second)
		check("after the last one", 50)
		for _, percent := range []int{1000, -1} {
			debug.SetGCPercent(percent)
			new(relaxed).relax()
			if got := debug.SetGCPercent(50); got != percent {
				t.Errorf("of %d, the collector is set to %d %%", percent, got)
			}
		}
	})
}

// The limits in the manifests suffice for a large cluster (docs/performance.md) and the largest
// requests: large bodies, ordinary bodies, what is decoded from both, and nodes in requests, once
// cached and once while they are decoded.
func TestManifestsLeaveRoomForRequests(t *testing.T) {
	const mib = 1 << 20
	needed := 255*mib + int64(config.Default().Serving.MaxInFlightBytes) + 1024*96<<10 + 64*mib + 64*mib + 2*88*mib
	for _, name := range []string{"outboard.yaml", "gpushare-extender.yaml"} {
		manifest, err := os.ReadFile("../deploy/" + name)
		if err != nil {
			t.Fatal(err)
		}
		number := func(pattern string) int64 {
			found := regexp.MustCompile(pattern).FindSubmatch(manifest)
			if found == nil {
				return 0
			}
			n, _ := strconv.ParseInt(string(found[1]), 10, 64)
			return n * mib
		}
		soft, hard := number(`name: GOMEMLIMIT, value: (\d+)MiB`), number(`limits:\s+\{?memory: (\d+)Mi`)
		if soft == 0 {
			soft = hard / 10 * 9 // as Outboard sets it
		}
		if needed > soft || soft > hard/10*9 {
			t.Errorf("%s: Outboard needs %d MiB, GOMEMLIMIT is %d MiB, the limit %d MiB", name, needed/mib, soft/mib, hard/mib)
		}
	}
}
