package requeue

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/measure"
)

// fullCluster has nodes whose GPUs are all allocated, and pods that need one.
type fullCluster struct {
	builder snapshot.Builder
	view    *snapshot.View
	pods    map[types.UID]*corev1.Pod
}

func (c *fullCluster) View() *snapshot.View                      { return c.view }
func (c *fullCluster) Superseded(*snapshot.View) <-chan struct{} { return nil }
func (c *fullCluster) PodByUID(uid types.UID) *corev1.Pod        { return c.pods[uid] }
func (c *fullCluster) RetryPod(context.Context, string, string, types.UID) (bool, error) {
	return true, nil
}

func quantities(memory, count string) corev1.ResourceList {
	return corev1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse(memory), "aliyun.com/gpu-count": resource.MustParse(count)}
}

func benchPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "1"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse("16")},
		}}}},
	}
}

// crowd returns a Requeuer with pods that need one of the nodes' GPUs.
func crowd(tb testing.TB, pods, nodes int) (*Requeuer, *fullCluster, func(engine.Request, bool, []string, *decision.Rejection)) {
	tb.Helper()
	p, err := gpumemory.New(gpumemory.Defaults())
	if err != nil {
		tb.Fatal(err)
	}
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "GPUMemory", Policy: p, Weight: 1}}})
	if err != nil {
		tb.Fatal(err)
	}
	c := &fullCluster{pods: map[types.UID]*corev1.Pod{}}
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		c.builder.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Capacity: quantities("128", "8")}})
		for k := range 8 {
			pod := benchPod(fmt.Sprintf("%s-%d", name, k))
			pod.Spec.NodeName = name
			pod.Annotations = map[string]string{
				"ALIYUN_COM_GPU_MEM_IDX": fmt.Sprint(k), "ALIYUN_COM_GPU_MEM_POD": "6", "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
			}
			c.builder.SetPod(pod)
		}
	}
	c.view = c.builder.View()
	w := New(Options{Cluster: c})
	w.Use(map[string]*engine.Engine{"/": e})
	observe := w.Observer("/", e)
	all := slices.Collect(c.view.All())
	for i := range pods {
		pod := benchPod(fmt.Sprintf("waits-%04d", i))
		c.pods[pod.UID] = pod
		observe(engine.Request{Pod: pod, View: c.view, Nodes: all}, false, nil, nil)
	}
	return w, c, observe
}

// BenchmarkEvaluate evaluates 1,000 pending pods on 500 nodes each, after one node has changed, and after one more pod is assumed.
func BenchmarkEvaluate(b *testing.B) {
	for name, change := range map[string]func(c *fullCluster, round int){
		"node": func(c *fullCluster, round int) {
			node := c.view.Node("node-0000").Object.DeepCopy()
			node.Labels = map[string]string{"round": fmt.Sprint(round)}
			c.builder.SetNode(node)
		},
		"assumed": func(c *fullCluster, round int) {
			c.builder.AssumePod(benchPod(fmt.Sprint("assumed-", round)), fmt.Sprintf("node-%04d", round%500))
		},
	} {
		b.Run(name, func(b *testing.B) {
			w, c, _ := crowd(b, 1000, 500)
			since := measure.Used()
			for round := 0; b.Loop(); round++ {
				change(c, round)
				c.view = c.builder.View()
				if found, _ := w.nextFitting(b.Context(), time.Now()); found != nil {
					b.Fatalf("%s fits", found.name)
				}
			}
			b.ReportMetric((measure.Used()-since)/float64(b.N), "cpu-µs/op")
		})
	}
}

// BenchmarkFiltered measures what 1,000 pending pods add to the cost of a filter call of 500 nodes.
func BenchmarkFiltered(b *testing.B) {
	_, c, observe := crowd(b, 1000, 500)
	req := engine.Request{Pod: c.pods["waits-0000"], View: c.view, Nodes: slices.Collect(c.view.All())}
	other := engine.Request{Pod: benchPod("other"), View: c.view, Nodes: req.Nodes}
	b.Run("fits", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			observe(other, true, nil, nil)
		}
	})
	b.Run("rejected", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			observe(req, false, nil, nil)
		}
	})
}

// Filtered allocates nothing for a call that finds a node, and the same for any number of nodes for a call that finds none.
func TestAllocations(t *testing.T) {
	for _, nodes := range []int{10, 1000} {
		_, c, observe := crowd(t, 100, nodes)
		req := engine.Request{Pod: benchPod("other"), View: c.view, Nodes: slices.Collect(c.view.All())}
		if got := testing.AllocsPerRun(100, func() { observe(req, true, nil, nil) }); got > 0 {
			t.Errorf("%v allocations for a pod that fits", got)
		}
		req.Pod = c.pods["waits-0000"]
		if got := testing.AllocsPerRun(100, func() { observe(req, false, nil, nil) }); got > 3 {
			t.Errorf("%v allocations for a pod that fits on none of %d nodes", got, nodes)
		}
	}
}
