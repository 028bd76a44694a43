package yardstick

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"outboard.dev/outboard/schedplugin"
)

const (
	benchNodes   = 5000
	benchSampled = 500 // nodes for each pod, as kube-scheduler samples them by default
	benchImages  = 48  // on each node, of twice as many
	benchPods    = 20  // in each turn of an arm
	benchTurns   = 15
)

// BenchmarkAttempt measures what kube-scheduler's framework does to choose a node for a pod: with its own plugins alone, with
// another one that does nothing, which is the bound for any plugin, and with Outboard. The figures are processor time, without
// garbage collection, and allocated memory. The arms take turns, because the speed of a shared machine changes, and the median turn
// counts. Run it with -benchtime 1x.
func BenchmarkAttempt(b *testing.B) {
	var nodes []*corev1.Node
	var pods []*corev1.Pod
	var objects []runtime.Object
	for i := range benchNodes {
		node := benchNode(i)
		nodes, objects = append(nodes, node), append(objects, node)
		for j := range 2 {
			pod := benchPod(fmt.Sprintf("running-%d-%d", i, j))
			pod.Spec.NodeName = node.Name
			pods, objects = append(pods, pod), append(objects, pod)
		}
	}
	arms := []struct {
		name   string
		plugin func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error)
		*inTree
		cpu   []time.Duration // by turn
		bytes uint64
		first int
	}{
		{name: "stock"},
		{name: "nothing", plugin: NewNothing},
		{name: "outboard", plugin: schedplugin.New(nil, nil)},
	}
	for i := range arms {
		arms[i].inTree = startWith(b, arms[i].plugin, objects)
		arms[i].snapshot.Snapshot = cache.NewSnapshot(pods, nodes)
	}
	turn := func(i int) {
		a := &arms[i]
		cpu, bytes := used(b)
		for range benchPods {
			a.place(b, a.first)
			a.first = (a.first + benchSampled) % benchNodes
		}
		cpuAfter, bytesAfter := used(b)
		a.cpu, a.bytes = append(a.cpu, cpuAfter-cpu), a.bytes+bytesAfter-bytes
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for i := range arms {
		turn(i)
		arms[i].cpu, arms[i].bytes = nil, 0 // caches are filled now
	}
	b.ResetTimer()
	for range b.N * benchTurns {
		for i := range arms {
			turn(i)
		}
	}
	for _, a := range arms {
		slices.Sort(a.cpu)
		b.ReportMetric(float64(a.cpu[len(a.cpu)/2].Microseconds())/benchPods, a.name+"-µs/pod")
		b.ReportMetric(float64(a.bytes)/float64(1000*len(a.cpu)*benchPods), a.name+"-KB/pod")
	}
}

// args are the configuration of Outboard: two cheap policies.
const args = `{"apiVersion": "outboard.dev/v1alpha1", "kind": "OutboardConfiguration", "admin": {"address": "127.0.0.1:0"}, "profiles": [{"policies": [
	{"type": "ImageLocality"}, {"type": "PodLimit", "config": {"max": 110, "selector": {"matchLabels": {"app": "bench"}}}}]}]}`

// startWith starts the default profile of kube-scheduler with the plugin, if it is not nil.
func startWith(b *testing.B, plugin frameworkruntime.PluginFactory, objects []runtime.Object) *inTree {
	defaults, err := latest.Default()
	if err != nil {
		b.Fatal(err)
	}
	profile, registry := &defaults.Profiles[0], plugins.NewInTreeRegistry()
	if plugin != nil {
		if err := registry.Register(schedplugin.Name, plugin); err != nil {
			b.Fatal(err)
		}
		profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, schedulerapi.Plugin{Name: schedplugin.Name, Weight: 1})
		profile.PluginConfig = append(profile.PluginConfig, schedulerapi.PluginConfig{Name: schedplugin.Name, Args: &runtime.Unknown{Raw: []byte(args)}})
	}
	return start(b, profile, registry, objects...)
}

// place chooses a node for a pod, as kube-scheduler does, from the nodes from the first on.
func (f *inTree) place(b *testing.B, first int) {
	all, err := f.snapshot.List()
	if err != nil {
		b.Fatal(err)
	}
	pod := benchPod("waiting")
	a := f.begin(pod)
	if a.rejected != nil {
		b.Fatal(a.rejected.AsError())
	}
	left := make([]fwk.NodeInfo, 0, benchSampled)
	for _, info := range all[first : first+benchSampled] {
		if f.RunFilterPlugins(b.Context(), a.state, pod, info).IsSuccess() {
			left = append(left, info)
		}
	}
	if status := f.RunPreScorePlugins(b.Context(), a.state, pod, left); !status.IsSuccess() {
		b.Fatal(status.AsError())
	}
	scores, status := f.RunScorePlugins(b.Context(), a.state, pod, left)
	if !status.IsSuccess() {
		b.Fatal(status.AsError())
	}
	best := slices.MaxFunc(scores, func(a, b fwk.NodePluginScores) int { return cmp.Compare(a.TotalScore, b.TotalScore) })
	if status := f.RunReservePluginsReserve(b.Context(), a.state, pod, best.Name); !status.IsSuccess() {
		b.Fatal(status.AsError())
	}
	f.RunReservePluginsUnreserve(b.Context(), a.state, pod, best.Name)
}

// used returns the processor time and the memory that the process has used so far.
func used(b *testing.B) (time.Duration, uint64) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	var memory goruntime.MemStats
	goruntime.ReadMemStats(&memory)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), memory.TotalAlloc
}

func benchImage(k int) string { return fmt.Sprintf("registry.example.com/service-%02d:v1", k) }

func benchNode(i int) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%05d", i), Labels: map[string]string{
		corev1.LabelHostname: fmt.Sprintf("node-%05d", i), corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3),
	}}}
	size := corev1.ResourceList{"cpu": resource.MustParse("32"), "memory": resource.MustParse("128Gi"), "pods": resource.MustParse("110")}
	node.Status.Capacity, node.Status.Allocatable = size, size
	random := rand.New(rand.NewPCG(1, uint64(i)))
	for _, k := range random.Perm(2 * benchImages)[:benchImages] {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{benchImage(k)}, SizeBytes: int64(100+k) << 20})
	}
	return node
}

func benchPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "bench"}},
		Spec: corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName, Containers: []corev1.Container{{
			Name: "c", Image: benchImage(7), Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				"cpu": resource.MustParse("50m"), "memory": resource.MustParse("64Mi"),
			}},
		}}},
	}
}
