package schedplugin

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/test/measure"
)

// The plugin's part of an attempt with 5,000 nodes, of which kube-scheduler evaluates some, for pods
// that are bound one by one.
func BenchmarkAttempt(b *testing.B) {
	const cheap, gpus = "ImageLocality and PodLimit", "GPUMemory and Rules"
	profiles := map[string]string{
		cheap: `{type: PodLimit, config: {max: 20, selector: {matchLabels: {app: web}}}}, {type: ImageLocality}`,
		gpus: `{type: GPUMemory}, {type: Rules, config: {filters: [{name: room, expression: 'usage.free["pods"].asInteger() > 0'}],
			scores: [{name: free, expression: 'usage.free["pods"].asInteger()'}]}}`,
	}
	crowds := map[string]*scheduler{}
	for _, arm := range []struct {
		name, profile                string
		sampled, templates, inFlight int
	}{
		{"OneTemplate/" + cheap + ", 500", cheap, 500, 1, 0}, {"OneTemplate/" + cheap + ", 5000", cheap, 5000, 1, 0},
		{"OneTemplate/" + gpus + ", 500", gpus, 500, 1, 0}, {"OneTemplate/" + gpus + ", 5000", gpus, 5000, 1, 0},
		{"ManyTemplates", cheap, 500, 100, 0}, {"InFlight", cheap, 500, 1, 500},
	} {
		s := crowds[arm.profile]
		if s == nil {
			s = crowd(b, profiles[arm.profile])
			crowds[arm.profile] = s
		}
		var all []fwk.NodeInfo
		for _, info := range s.infos {
			all = append(all, info)
		}
		b.Run(arm.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range arm.inFlight {
				pod, st := podNamed(fmt.Sprint("in flight ", i), web), &state{}
				s.PreFilter(b.Context(), st, pod, all)
				s.Reserve(b.Context(), st, pod, all[i*7].Node().Name)
				defer s.Unreserve(b.Context(), st, pod, "")
			}
			var used float64
			warm := crowdNodes / arm.sampled // attempts until each node was evaluated
			for i := range warm + b.N {
				if i == warm {
					used = 0
					b.ResetTimer()
				}
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new", UID: "new", ResourceVersion: fmt.Sprint(i), Labels: web}}
				pod.Spec.Containers = []corev1.Container{{Name: "c", Image: fmt.Sprintf("app:%d", i%arm.templates)}}
				if arm.profile == gpus {
					pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse("6")}
				}
				b.StopTimer()
				touch()
				b.StartTimer()
				since := measure.Used()
				s.play(b.Context(), pod, all, i*arm.sampled%crowdNodes, arm.sampled)
				used += measure.Used() - since
			}
			b.ReportMetric(used/float64(b.N), "cpu-µs/op")
		})
	}
}

const crowdNodes = 5000

// crowd starts the plugin with a profile of the policies, in a cluster with two pods on each of 5,000 nodes with GPUs.
func crowd(b *testing.B, policies string) *scheduler {
	size := corev1.ResourceList{"pods": resource.MustParse("110"), "aliyun.com/gpu-mem": resource.MustParse("1600"), "aliyun.com/gpu-count": resource.MustParse("8"), "example.com/nic": resource.MustParse("200")}
	var infos []*nodeInfo
	var objects []runtime.Object
	for i := range crowdNodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), UID: types.UID(fmt.Sprintf("6f1d2c3e-%06d", i))}, Status: corev1.NodeStatus{Capacity: size, Allocatable: size}}
		objects = append(objects, node)
		infos = append(infos, &nodeInfo{node: node})
		for j := range 2 {
			pod := podNamed(fmt.Sprintf("p%d-%d", i, j), map[string]string{"app": fmt.Sprint(j)})
			pod.Spec.NodeName = fmt.Sprintf("n%d", i)
			pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "app:1"}}
			objects = append(objects, pod)
		}
	}
	s := schedule(b, 0, `profiles: [{policies: [`+policies+`]}]`, objects...)
	s.infos = infos
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok {
			var node int
			fmt.Sscanf(pod.Spec.NodeName, "n%d", &node)
			s.assume(pod, node)
		}
	}
	return s
}

// play runs the plugin's part of an attempt in which kube-scheduler evaluates the NodeInfos from the first on.
func (s *scheduler) play(ctx context.Context, pod *corev1.Pod, all []fwk.NodeInfo, first, sampled int) {
	st := &state{}
	s.PreFilter(ctx, st, pod, all)
	left := make([]fwk.NodeInfo, 0, sampled)
	for _, info := range all[first : first+sampled] {
		if s.Filter(ctx, st, pod, info).IsSuccess() {
			left = append(left, info)
		}
	}
	s.PreScore(ctx, st, pod, left)
	for _, info := range left {
		s.Score(ctx, st, pod, info)
	}
	s.Reserve(ctx, st, pod, left[0].Node().Name)
	s.Unreserve(ctx, st, pod, left[0].Node().Name)
}

var memory = make([]byte, 24<<20)

// touch replaces what is in the processor's caches, as the rest of kube-scheduler does between two attempts.
func touch() {
	for i := 0; i < len(memory); i += 64 {
		memory[i]++
	}
}
