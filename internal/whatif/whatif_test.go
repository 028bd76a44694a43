package whatif_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/whatif"
	"outboard.dev/outboard/snapshot"
)

// gpuNode returns a node with one GPU of 80 GiB.
func gpuNode(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"zone": "a"}}}
	n.Status.Allocatable = corev1.ResourceList{
		"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("10"),
		gpuMemory: resource.MustParse("80"), "aliyun.com/gpu-count": resource.MustParse("1"),
	}
	n.Status.Capacity = n.Status.Allocatable
	for _, c := range change {
		c(n)
	}
	return n
}

// gpuPod returns a pod that requests GPU memory; it is on the node, unless that is "".
func gpuPod(name, node string, priority int32, gib string, change ...func(*corev1.Pod)) *corev1.Pod {
	list := corev1.ResourceList{gpuMemory: resource.MustParse(gib)}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{NodeName: node, Priority: &priority, Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Requests: list, Limits: list},
		}}},
	}
	if node != "" {
		pod.Annotations = map[string]string{"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": gib, "ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

const gpuOnly = `apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies:
  - {type: GPUMemory, config: {}}
  - {type: PodLimit, config: {max: 1, selector: {matchLabels: {app: web}}}}
  - {type: Licenses, config: {features: [{name: cad, seats: 3}]}}
`

func find(t *testing.T, w *world, pod *corev1.Pod) []string {
	t.Helper()
	found, err := whatif.Find(t.Context(), whatif.Cluster{Engine: engineOf(t, members(t, gpuOnly)), View: w.view()}, pod)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for i := range found {
		texts = append(texts, found[i].String())
	}
	return texts
}

// Each kind of change is described as the end of a sentence that begins with "It would fit".
func TestTexts(t *testing.T) {
	web := func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "web"} }
	taint := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "reserved", Effect: corev1.TaintEffectNoSchedule}}
	}
	cordon := func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
	}
	for name, tc := range map[string]struct {
		w    *world
		pod  *corev1.Pod
		want []string
	}{
		"it fits": {&world{nodes: []*corev1.Node{gpuNode("n1")}}, gpuPod("new", "", 0, "60"), nil},
		"GPU memory": {
			&world{nodes: []*corev1.Node{gpuNode("n1"), gpuNode("n2")}, pods: []*corev1.Pod{gpuPod("a", "n1", 0, "25"), gpuPod("b", "n2", 10, "30")}},
			gpuPod("new", "", 10, "60"),
			[]string{
				"with 55 GiB of aliyun.com/gpu-mem instead of 60 GiB, on n1 (with 56 GiB it would not)",
				"if pod team/a on n1 ended; preemption can evict it",
			},
		},
		"a round number": {
			&world{nodes: []*corev1.Node{gpuNode("n1")}}, gpuPod("new", "", 0, "3000"),
			[]string{"with 80 GiB of aliyun.com/gpu-mem instead of 3000 GiB, on n1 (with 81 GiB it would not)"},
		},
		"the holder is terminating": {
			&world{nodes: []*corev1.Node{gpuNode("n1")}, pods: []*corev1.Pod{gpuPod("a", "n1", 20, "25", func(p *corev1.Pod) {
				p.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)}
			})}},
			gpuPod("new", "", 10, "60"),
			[]string{
				"with 55 GiB of aliyun.com/gpu-mem instead of 60 GiB, on n1 (with 56 GiB it would not)",
				"if pod team/a (terminating until 2026-03-01T12:00:30Z) on n1 ended",
			},
		},
		"a limit of pods": {
			&world{nodes: []*corev1.Node{gpuNode("n1"), gpuNode("n2")}, pods: []*corev1.Pod{gpuPod("a", "n1", 0, "8", web), gpuPod("b", "n2", 0, "8", web)}},
			gpuPod("new", "", 0, "60", web),
			[]string{
				"if pod team/a on n1 ended; preemption cannot evict it, because its priority is not lower",
			},
		},
		"two pods": {
			&world{nodes: []*corev1.Node{gpuNode("n1")}, pods: []*corev1.Pod{gpuPod("a", "n1", -1, "39"), gpuPod("b", "n1", 0, "39")}},
			gpuPod("new", "", 0, "80"),
			[]string{
				"with 2 GiB of aliyun.com/gpu-mem instead of 80 GiB, on n1 (with 3 GiB it would not)",
				"if 2 pods on n1 ended: team/a, team/b; preemption cannot evict them, because the priority of some is not lower",
			},
		},
		"a taint":         {&world{nodes: []*corev1.Node{gpuNode("n1", taint)}}, gpuPod("new", "", 0, "60"), []string{"on node n1 if it tolerated the taint gpu=reserved:NoSchedule"}},
		"cordoned nodes":  {&world{nodes: []*corev1.Node{gpuNode("n1", cordon), gpuNode("n2", cordon)}}, gpuPod("new", "", 0, "60"), []string{"on 2 nodes if these were not cordoned"}},
		"a cordoned node": {&world{nodes: []*corev1.Node{gpuNode("n1", cordon)}}, gpuPod("new", "", 0, "60"), []string{"on node n1 if that were not cordoned"}},
		"a selector": {
			&world{nodes: []*corev1.Node{gpuNode("n1")}}, gpuPod("new", "", 0, "60", func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"zone": "b"} }),
			[]string{"on node n1 if its nodeSelector did not require zone=b"},
		},
	} {
		if got := find(t, tc.w, tc.pod); !slices.Equal(got, tc.want) {
			t.Errorf("%s: it would fit\n\t%s\nwant\n\t%s", name, strings.Join(got, "\n\t"), strings.Join(tc.want, "\n\t"))
		}
	}
}

// What a pod requests in annotations is an amount, too. Other annotations with numbers are none.
func TestAnnotations(t *testing.T) {
	const memory, limit = "nvidia.com/container.main.gpu-memory.request", "nvidia.com/container.main.gpu-memory.limit"
	annotated := func(name, node string, annotations map[string]string) *corev1.Pod {
		pod := gpuPod(name, node, 0, "1")
		pod.Spec.Containers[0].Resources, pod.Annotations = corev1.ResourceRequirements{}, annotations
		return pod
	}
	n := gpuNode("n1", func(n *corev1.Node) {
		n.Labels = map[string]string{"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "16384"}
	})
	held := annotated("a", "n1", map[string]string{memory: "4Gi", "nvidia.cdi.k8s.io/container.main": "nvidia.com/gpu=0"})
	e := engineOf(t, members(t, strings.Replace(gpuOnly, "config: {}", "config: {nodeAgent: ContainerToolkit}", 1)))
	for what, tc := range map[string]struct {
		annotations map[string]string
		want        []string
	}{
		"memory":           {map[string]string{memory: "20Gi", "prometheus.io/port": "8080"}, []string{"with the annotation " + memory + ": 16Gi instead of 20Gi, on n1"}},
		"bytes":            {map[string]string{limit: "20G"}, []string{"with the annotation " + limit + ": 16Gi instead of 20G, on n1"}},
		"above the limit":  {map[string]string{memory: "18Gi", limit: "20Gi"}, []string{"with the annotation " + memory + ": 16Gi instead of 18Gi, on n1"}},
		"memory of 2 GPUs": {map[string]string{memory: "14Gi", "outboard.dev/gpus": "2"}, []string{"with the annotation " + memory + ": 12Gi instead of 14Gi, on n1", "with the annotation outboard.dev/gpus: 1 instead of 2, on n1"}},
		"whole GPUs":       {map[string]string{"outboard.dev/whole-gpus": "8"}, []string{"with the annotation outboard.dev/whole-gpus: 1 instead of 8, on n1"}},
	} {
		found, err := whatif.Find(t.Context(), whatif.Cluster{Engine: e, View: (&world{nodes: []*corev1.Node{n}, pods: []*corev1.Pod{held}}).view()}, annotated("new", "", tc.annotations))
		if err != nil {
			t.Fatal(err)
		}
		found = slices.DeleteFunc(found, func(r whatif.Remedy) bool { return r.Kind != whatif.Request })
		if got := texts(found); !slices.Equal(got, tc.want) {
			t.Errorf("%s: it would fit\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(tc.want, "\n\t"))
		}
	}
}

// Preemption can evict the pods only as kube-scheduler and the policies do.
func TestPreemption(t *testing.T) {
	never := corev1.PreemptNever
	labeled := func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "db"} }
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "db"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}},
	}
	cpus := func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("5") }
	ignored := []corev1.ResourceName{gpuMemory}
	for name, tc := range map[string]struct {
		holder, pod *corev1.Pod
		want        whatif.Preemption
		ignored     []corev1.ResourceName
	}{
		"lower priority":                      {gpuPod("a", "n1", 0, "60"), gpuPod("new", "", 1, "60"), whatif.Possible, nil},
		"same priority":                       {gpuPod("a", "n1", 1, "60"), gpuPod("new", "", 1, "60"), whatif.PriorityNotLower, nil},
		"never preempts":                      {gpuPod("a", "n1", 0, "60"), gpuPod("new", "", 1, "60", func(pod *corev1.Pod) { pod.Spec.PreemptionPolicy = &never }), whatif.NeverPreempts, nil},
		"a budget":                            {gpuPod("a", "n1", 0, "60", labeled), gpuPod("new", "", 1, "60"), whatif.ViolatesBudget, nil},
		"ending already":                      {gpuPod("a", "n1", 1, "60", func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: start} }), gpuPod("new", "", 1, "60"), whatif.Unnecessary, nil},
		"another namespace":                   {gpuPod("a", "n1", 0, "60", labeled, func(pod *corev1.Pod) { pod.Namespace = "other" }), gpuPod("new", "", 1, "60"), whatif.Possible, nil},
		"without any priority":                {gpuPod("a", "n1", 0, "60", func(pod *corev1.Pod) { pod.Spec.Priority = nil }), gpuPod("new", "", 1, "60"), whatif.Possible, nil},
		"ignored by kube-scheduler":           {gpuPod("a", "n1", 0, "60"), gpuPod("new", "", 1, "60"), whatif.LacksNothing, ignored},
		"ignored, but the CPU is lacking too": {gpuPod("a", "n1", 0, "60", cpus), gpuPod("new", "", 1, "60", cpus), whatif.Possible, ignored},
		"ignored, and the same priority":      {gpuPod("a", "n1", 1, "60"), gpuPod("new", "", 1, "60"), whatif.PriorityNotLower, ignored},
	} {
		var b snapshot.Builder
		b.SetNode(gpuNode("n1"))
		b.SetPod(tc.holder)
		b.SetDisruptionBudget(budget)
		found, err := whatif.Find(t.Context(), whatif.Cluster{Engine: engineOf(t, members(t, gpuOnly)), View: b.View(), Ignored: tc.ignored}, tc.pod)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(found, func(r whatif.Remedy) bool { return r.Kind == whatif.End })
		if i < 0 || found[i].Preemption != tc.want {
			t.Errorf("%s: %+v, want %s", name, found, tc.want)
		}
	}
}

// With any budget, every remedy is true, and the same budget gives the same remedies.
func TestBudget(t *testing.T) {
	all := members(t, several)
	e, others := engineOf(t, all), engineOf(t, members(t, several))
	r := rand.New(rand.NewPCG(*seed, 6))
	for range 60 {
		w, pod := random(t, r, others)
		b := brute{t, w, all, others, pod}
		for _, budget := range []int{1, 30, 100, 300, 1000, 3000} {
			c := whatif.Cluster{Engine: e, View: w.view(), Budget: budget}
			found, err := whatif.Find(t.Context(), c, pod)
			if err != nil {
				t.Fatal(err)
			}
			again, err := whatif.Find(t.Context(), c, pod)
			if err != nil || fmt.Sprint(texts(found)) != fmt.Sprint(texts(again)) {
				t.Fatalf("budget %d: %q, then %q, %v", budget, texts(found), texts(again), err)
			}
			for i := range found {
				b.judge(&found[i])
			}
		}
	}
}

// Whoever creates pods determines what is in them: none of it multiplies the work of a search.
func TestWorkIsBounded(t *testing.T) {
	resources := func(list corev1.ResourceList) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
		}
	}
	manyResources, manySelectors, terms := corev1.ResourceList{gpuMemory: resource.MustParse("1")}, map[string]string{}, new(corev1.NodeSelector)
	for i := range 8000 {
		name := fmt.Sprintf("a.b/r%05d", i)
		manyResources[corev1.ResourceName(name)], manySelectors[name] = resource.MustParse("1"), "v"
		exists := []corev1.NodeSelectorRequirement{{Key: name, Operator: corev1.NodeSelectorOpExists}}
		terms.NodeSelectorTerms = append(terms.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: exists})
	}
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"memory":    {change: resources(corev1.ResourceList{gpuMemory: resource.MustParse("4611686018427387904")}), want: "with 40 GiB of aliyun.com/gpu-mem instead of 4611686018427387904 GiB"},
		"bytes":     {change: resources(corev1.ResourceList{"memory": resource.MustParse("9223372036854775807")}), want: "with 8Gi of memory instead of 9223372036854775807"},
		"cpu":       {change: resources(corev1.ResourceList{"cpu": resource.MustParse("9223372036854775807")}), want: "with 8 of cpu instead of 9223372036854775807"},
		"resources": {change: resources(manyResources)},
		"selectors": {change: func(pod *corev1.Pod) { pod.Spec.NodeSelector = manySelectors }},
		"terms": {change: func(pod *corev1.Pod) {
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			twoGPUs := func(n *corev1.Node) { n.Status.Allocatable["aliyun.com/gpu-count"] = resource.MustParse("2") }
			w := &world{nodes: []*corev1.Node{gpuNode("n0", twoGPUs), gpuNode("n1", twoGPUs)}}
			c, pod := whatif.Cluster{Engine: engineOf(t, members(t, gpuOnly)), View: w.view()}, gpuPod("p", "", 0, "1", tt.change)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			found, err := whatif.Find(t.Context(), c, pod)
			if got := strings.Join(texts(found), "; "); err != nil || !strings.HasPrefix(got, tt.want) {
				t.Errorf("%q, %v", got, err)
			}
			runtime.ReadMemStats(&after)
			if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > 100 { // many times as much as a copy of the pod
				t.Errorf("allocated %d MiB", allocated)
			}
		})
	}
}

func texts(found []whatif.Remedy) []string {
	var all []string
	for i := range found {
		all = append(all, found[i].String())
	}
	return all
}

// A search changes no response about the pod, and ends with its context.
func TestFindDisturbsNothing(t *testing.T) {
	w := &world{nodes: []*corev1.Node{gpuNode("n1")}, pods: []*corev1.Pod{gpuPod("a", "n1", 0, "25")}}
	e, view, pod := engineOf(t, members(t, gpuOnly)), w.view(), gpuPod("new", "", 1, "60")
	pod.ResourceVersion = "7"
	var result engine.Result
	for i := range 2 {
		req := engine.Request{Pod: pod, View: view, Nodes: slices.Collect(view.All())}
		if err := e.Filter(t.Context(), req, &result); err != nil || len(result.Kept) > 0 {
			t.Fatalf("filter call %d: %v, keeps %d", i, err, len(result.Kept))
		}
		found, err := whatif.Find(t.Context(), whatif.Cluster{Engine: e, View: view}, pod)
		if err != nil || len(found) != 2 {
			t.Fatalf("%+v, %v", found, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := whatif.Find(ctx, whatif.Cluster{Engine: e, View: view}, pod); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context ended: %v", err)
	}
}
