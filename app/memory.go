package app

import (
	"io/fs"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// collectGarbage makes the garbage collector let the heap grow by half of what is
// reachable, not by as much again, unless the environment says what it may do. What
// is reachable is the cluster, and garbage is what is decoded of its changes, which
// then take a third more processor time; a call leaves next to none.
func collectGarbage() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(50)
	}
}

// limitMemory makes the garbage collector work harder before the process takes more
// than nine tenths of what its cgroup may, where the kernel would kill it. The rest is
// for what is not the Go runtime's, such as the buffers of sockets. The environment
// comes first. It returns the limit set; 0 is none.
func limitMemory(root fs.FS) int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	limit := cgroupLimit(root) / 10 * 9
	if limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	return limit
}

// cgroupLimit returns how much memory the process may take by its cgroup and those
// around it, version 1 or 2; 0 if there is no limit.
func cgroupLimit(root fs.FS) (limit int64) {
	own, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0 // no Linux
	}
	for line := range strings.Lines(string(own)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, dir, _ := strings.Cut(rest, ":")
		var hierarchy, file string
		switch {
		case id == "0" && controllers == "":
			hierarchy, file = "sys/fs/cgroup", "memory.max"
		case strings.Contains(","+controllers+",", ",memory,"):
			hierarchy, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// In a container the path may be the host's, of which nothing can be seen but the end: the top.
		for dir = path.Join("/", dir); ; dir = path.Dir(dir) {
			if most := readLimit(root, path.Join(hierarchy, dir, file)); most > 0 && (limit == 0 || most < limit) {
				limit = most
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit
}

// noLimit is less than what version 1 writes for none.
const noLimit = 1 << 60

func readLimit(root fs.FS, file string) int64 {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return 0
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || limit >= noLimit {
		return 0 // such as max
	}
	return limit
}
