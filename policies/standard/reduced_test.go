package standard_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// boundPods draws pods on nodes around the sizes at which they are reduced.
func boundPods(t *rapid.T) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range rapid.IntRange(1, 8).Draw(t, "pods") {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint("pod-", i)), Labels: map[string]string{}, Annotations: map[string]string{}},
			Spec:       corev1.PodSpec{NodeName: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "node"), Priority: new(int32(rapid.IntRange(-2, 0).Draw(t, "priority")))},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		}
		for key, values := range map[string][]string{"app": {"", "web", "db"}, "tier": {"", "front"}} {
			if value := rapid.SampledFrom(values).Draw(t, key); value != "" {
				pod.Labels[key] = value
			}
		}
		for key, values := range map[string][]string{
			"ALIYUN_COM_GPU_MEM_IDX": {"", "0", "1,2", "x"}, "ALIYUN_COM_GPU_MEM_ASSIGNED": {"", "true", "false"}, "outboard.dev/licenses": {"", "solver", "solver=3", "?"},
			"scheduler.framework.gpushare.allocation": {"", `{"0":{"1":8,"3":8}}`}, corev1.MirrorPodAnnotationKey: {"", "x"},
		} {
			if value := rapid.SampledFrom(values).Draw(t, key); value != "" {
				pod.Annotations[key] = value
			}
		}
		for k := range rapid.SampledFrom([]int{0, 10, 25}).Draw(t, "other labels") {
			pod.Labels[fmt.Sprint("label-", k)] = "x"
		}
		pod.Annotations["other"] = strings.Repeat("x", rapid.SampledFrom([]int{0, 1 << 10, 8 << 10, 70 << 10}).Draw(t, "other annotation"))
		container := func(asks corev1.ResourceList) corev1.Container {
			return corev1.Container{Name: fmt.Sprint(len(pod.Spec.Containers)), Image: "image", Resources: corev1.ResourceRequirements{Requests: asks, Limits: asks}}
		}
		cores := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("1Mi"), "example.com/other": resource.MustParse("1")}
		for range rapid.SampledFrom([]int{1, 2, 50}).Draw(t, "containers") {
			pod.Spec.Containers = append(pod.Spec.Containers, container(cores))
		}
		always := corev1.ContainerRestartPolicyAlways
		for range rapid.SampledFrom([]int{0, 2, 20}).Draw(t, "init containers") {
			c := container(cores)
			if rapid.Bool().Draw(t, "sidecar") {
				c.RestartPolicy = &always
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
		for _, name := range []corev1.ResourceName{"aliyun.com/gpu-mem", "aliyun.com/gpu-count", "example.com/fpga"} {
			if n := rapid.SampledFrom([]int64{0, 0, 1, 16}).Draw(t, string(name)); n > 0 {
				asks := corev1.ResourceList{name: *resource.NewQuantity(n, resource.DecimalSI)}
				pod.Spec.Containers = append(pod.Spec.Containers, container(asks))
			}
		}
		pods = append(pods, pod)
	}
	return pods
}

// Decisions about a pod are the same, whether the pods on the nodes are reduced or not.
func TestReducedPodsCount(t *testing.T) {
	c := loadAll(t)
	resources := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("110"),
		"aliyun.com/gpu-mem": resource.MustParse("64"), "aliyun.com/gpu-count": resource.MustParse("4"), "example.com/fpga": resource.MustParse("4"),
	}
	reduced := 0
	rapid.Check(t, func(t *rapid.T) {
		var whole, part snapshot.Builder
		for _, b := range []*snapshot.Builder{&whole, &part} {
			for _, name := range []string{"a", "b", "c"} {
				b.SetNode(&corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "z"}}, Status: corev1.NodeStatus{Capacity: resources, Allocatable: resources},
				})
			}
			b.SetDisruptionBudget(&policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "front"},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "front"}}},
			})
		}
		for _, pod := range boundPods(t) {
			snapshot.TrimPod(pod)
			whole.SetPod(pod)
			less := pod.DeepCopy()
			if !snapshot.ReducePod(less) {
				t.Errorf("the cache lacks a part of a pod with %d labels", len(pod.Labels))
			}
			if snapshot.IsReduced(less) {
				reduced++
			}
			part.SetPod(less)
		}
		next := busyPod(1)
		if rapid.Bool().Draw(t, "it preempts") {
			next.Spec.Priority = new(int32(1))
		}
		decide := func(view *snapshot.View) string {
			e, err := engine.New(engine.Options{Policies: members(c)})
			if err != nil {
				t.Fatal(err)
			}
			nodes := slices.Collect(view.All())
			var r engine.Result
			req := engine.Request{Pod: next, View: view, Nodes: nodes}
			err = e.Filter(t.Context(), req, &r)
			text := fmt.Sprintf("%v %+v\n", r.Kept, r.Record.Rejections)
			err = errors.Join(err, e.Score(t.Context(), req, &r))
			text += fmt.Sprintln(r.Totals)
			var candidates []engine.Candidate
			for _, n := range nodes {
				if len(n.Pods) > 0 {
					candidates = append(candidates, engine.Candidate{Node: n, Name: n.Name, Victims: []types.UID{n.Pods[0].UID}})
				}
			}
			kept, failed := e.Preempt(t.Context(), engine.PreemptRequest{Request: req, Candidates: candidates}, &r)
			for _, c := range kept {
				text += fmt.Sprintln(c.Name, c.Victims, c.PDBViolations)
			}
			if err = errors.Join(err, failed); err != nil {
				t.Fatal(err)
			}
			return text
		}
		if diff := cmp.Diff(decide(whole.View()), decide(part.View())); diff != "" {
			t.Errorf("with reduced pods (+) other decisions than with whole ones (-):\n%s", diff)
		}
	})
	if reduced == 0 {
		t.Error("no pod was reduced")
	}
}
