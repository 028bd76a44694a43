package app

import (
	"math"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"testing"
	"testing/fstest"

	"outboard.dev/outboard/config"
)

func TestCgroupLimit(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"no cgroups", nil, 0},
		{"version 2, in a container", map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n",
		}, 1 << 30},
		{"version 2, none", map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n",
		}, 0},
		{"version 2, on a host, the least of those around it", map[string]string{
			"proc/self/cgroup": "0::/system.slice/outboard.service\n",
			"sys/fs/cgroup/system.slice/outboard.service/memory.max": "max\n",
			"sys/fs/cgroup/system.slice/memory.max":                  "2000000\n",
		}, 2_000_000},
		{"version 2, the host's path in a container", map[string]string{
			"proc/self/cgroup": "0::/kubepods.slice/pod1/abc\n", "sys/fs/cgroup/memory.max": "3000000\n",
		}, 3_000_000},
		{"version 1", map[string]string{
			"proc/self/cgroup": "12:pids:/x\n5:cpu,memory:/kubepods/pod1\n0::/\n",
			"sys/fs/cgroup/memory/kubepods/pod1/memory.limit_in_bytes": "4000000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":               "9223372036854771712\n",
		}, 4_000_000},
		{"not understood", map[string]string{
			"proc/self/cgroup": "what\n\n0::\n", "sys/fs/cgroup/memory.max": "many",
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, text := range tt.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := cgroupLimit(root); got != tt.want {
				t.Errorf("limit %d, want %d", got, tt.want)
			}
		})
	}
}

func TestLimitMemory(t *testing.T) {
	root := fstest.MapFS{
		"proc/self/cgroup":         {Data: []byte("0::/\n")},
		"sys/fs/cgroup/memory.max": {Data: []byte("1000000000000\n")},
	}
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for environment, want := range map[string]int64{"": 900_000_000_000, "1GiB": math.MaxInt64} {
		t.Setenv("GOMEMLIMIT", environment)
		debug.SetMemoryLimit(math.MaxInt64)
		limitMemory(root)
		if got := debug.SetMemoryLimit(-1); got != want {
			t.Errorf("GOMEMLIMIT=%q: limit %d, want %d", environment, got, want)
		}
	}
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
