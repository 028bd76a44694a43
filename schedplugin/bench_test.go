package schedplugin

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
)

// The plugin's part of an attempt with 5,000 nodes, of which kube-scheduler evaluates 500, for pods
// that are bound one by one.
func BenchmarkAttempt(b *testing.B) {
	const nodes, sampled = 5000, 500
	var objects []runtime.Object
	for i := range nodes {
		for j := range 6 {
			pod := podNamed(fmt.Sprintf("p%d-%d", i, j), map[string]string{"app": fmt.Sprint(j)})
			pod.Spec.NodeName = fmt.Sprintf("n%d", i)
			pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "app:1"}}
			objects = append(objects, pod)
		}
	}
	s := schedule(b, nodes, `profiles: [{policies: [{type: PodLimit, config: {max: 20, selector: {matchLabels: {app: web}}}}, {type: ImageLocality}]}]`, objects...)
	for _, object := range objects {
		pod := object.(*corev1.Pod)
		var i, j int
		fmt.Sscanf(pod.Name, "p%d-%d", &i, &j)
		s.assume(pod, i)
	}
	var all []fwk.NodeInfo
	for _, info := range s.infos {
		all = append(all, info)
	}
	for _, arm := range []struct {
		name                string
		templates, inFlight int
	}{{"OneTemplate", 1, 0}, {"ManyTemplates", 100, 0}, {"InFlight", 1, 500}} {
		b.Run(arm.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range arm.inFlight {
				pod, st := podNamed(fmt.Sprint("in flight ", i), web), &state{}
				s.PreFilter(b.Context(), st, pod, all)
				s.Reserve(b.Context(), st, pod, all[i*7].Node().Name)
				defer s.Unreserve(b.Context(), st, pod, "")
			}
			for i := range b.N {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new", UID: "new", ResourceVersion: fmt.Sprint(i), Labels: web}}
				pod.Spec.Containers = []corev1.Container{{Name: "c", Image: fmt.Sprintf("app:%d", i%arm.templates)}}
				b.StopTimer()
				touch()
				b.StartTimer()
				s.play(b.Context(), pod, all, i*sampled%nodes, sampled)
			}
		})
	}
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
