package app

import (
	"math"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// collectGarbage makes the garbage collector run when the heap has grown by half, instead of doubled, unless the
// environment sets its limits. Most of the heap is the cluster, and most garbage comes from decoding watch events, which
// takes a third more processor time with this setting. Calls allocate almost nothing.
func collectGarbage() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(50)
	}
}

// relaxed makes the garbage collector run less often while large requests produce much garbage: with two processors, it delays other
// requests by milliseconds each time. Without a memory limit it changes nothing, as the heap could take all memory. The zero value is ready.
type relaxed struct {
	mu      sync.Mutex
	percent int         // as it was before
	end     *time.Timer // nil: the collector runs as before
}

const (
	relaxedPercent = 400
	relaxedFor     = 10 * time.Second // after the latest large request
)

// relax is called for each large request beside other callers. It is safe for concurrent use.
func (r *relaxed) relax() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		r.end.Reset(relaxedFor)
		return
	}
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		return
	}
	if r.percent = debug.SetGCPercent(relaxedPercent); r.percent < 0 || r.percent > relaxedPercent {
		debug.SetGCPercent(r.percent) // the environment asks for fewer collections
	}
	r.end = time.AfterFunc(relaxedFor, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		debug.SetGCPercent(r.percent)
		r.end = nil
	})
}

// limitMemory sets the memory limit of the Go runtime to nine tenths of the limit of the cgroup, above which the kernel
// kills the process. The rest is for memory outside the Go runtime, such as the buffers of sockets. A limit in the
// environment takes precedence. limitMemory returns the limit that it has set; 0 is none.
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
