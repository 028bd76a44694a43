package app

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// collectGarbage makes the garbage collector run when the heap has grown by half, instead of
// doubled, unless the environment sets its limits. Most of the heap is the cluster, and most
// garbage comes from decoding watch events, which takes a third more processor time with this
// setting. Calls allocate almost nothing.
func collectGarbage() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(50)
	}
}

const (
	relaxedPercent = 400
	relaxedFor     = 10 * time.Second
	often          = 2 // collections
)

// relaxCollector makes the garbage collector run less often while callers produce much garbage:
// with two processors, each collection delays requests by milliseconds. If it ran often within a
// second, the heap may grow by relaxedPercent, until it has run less often than that within
// relaxedFor. Without a memory limit relaxCollector changes nothing, as the heap could take all
// memory. It returns when ctx ends. collections returns how often the collector has run.
func relaxCollector(ctx context.Context, collections func() uint64) {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		return
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	var until time.Time // relaxed
	percent := 0        // as it was before
	for last := collections(); ; {
		select {
		case <-ctx.Done():
			if !until.IsZero() {
				debug.SetGCPercent(percent)
			}
			return
		case now := <-second.C:
			n := collections()
			switch {
			case until.IsZero() && n-last >= often:
				percent = debug.SetGCPercent(relaxedPercent)
				if percent < 0 || percent > relaxedPercent {
					debug.SetGCPercent(percent) // the environment asks for fewer collections
					return
				}
				until = now.Add(relaxedFor)
			case !until.IsZero() && now.Before(until): // n counts from when it was relaxed
				continue
			case !until.IsZero() && n-last >= often:
				until = now.Add(relaxedFor)
			case !until.IsZero():
				debug.SetGCPercent(percent)
				until = time.Time{}
			}
			last = n
		}
	}
}

// collections returns how often the garbage collector of this process has run.
func collections() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// limitMemory sets the memory limit of the Go runtime to nine tenths of the limit of the cgroup,
// above which the kernel kills the process. The rest is for memory outside the Go runtime, such as
// the buffers of sockets. A limit in the environment takes precedence. limitMemory returns the
// limit that it has set; 0 is none.
func limitMemory(ofCgroup memlimit.Provider) int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	of, err := ofCgroup()
	if err != nil {
		return 0 // there is no limit, or no Linux
	}
	limit := int64(of / 10 * 9)
	debug.SetMemoryLimit(limit)
	return limit
}
