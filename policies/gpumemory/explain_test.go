package gpumemory

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// onGPU is a running pod.
func onGPU(node, name string, memory int64, gpu string) *corev1.Pod {
	pod := sharingPod(name, 0, memory, 0, "")
	pod.Spec.NodeName, pod.Status.Phase, pod.Annotations = node, corev1.PodRunning, map[string]string{indexKey: gpu}
	return pod
}

// past is pods that were created and never got a node.
func past(count int, cpu, memory, gpus int64, models string) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range count {
		pods = append(pods, sharingPod(fmt.Sprintf("past-%d-%d-%s-%d", memory, gpus, models, i), cpu, memory, gpus, models))
	}
	return pods
}

func TestExplain(t *testing.T) {
	nodes := []*corev1.Node{
		sharingNode("shared", "T4", 2, 16), sharingNode("large", "T4", 8, 16), sharingNode("scarce", "P100", 2, 16),
		sharingNode("down", "T4", 2, 23), sharingNode("uncounted", "T4", 65, 16), sharingNode("mib", "T4", 2, 24187),
	}
	nodes[3].Status.Allocatable = corev1.ResourceList{}
	running := []*corev1.Pod{onGPU("shared", "a", 10, "0"), onGPU("shared", "b", 12, "1")}
	usual := append(past(100, 1, 6, 0, ""), past(100, 1, 10, 0, "")...)
	tests := []struct {
		name     string
		strategy policy.ScoringStrategyType
		came     []*corev1.Pod
		pod      *corev1.Pod
		node     string // "": about the pod
		want     string // part of the explanation; "" is none; ellipses separate several parts
	}{
		{"BinPack: the GPU", policy.BinPack, nil, sharingPod("p", 1, 4, 0, ""), "shared", "the pod: would get GPU 1 (free: 4 of 16 GiB)"},
		{"BinPack: no room", policy.BinPack, nil, sharingPod("p", 1, 8, 0, ""), "shared", "the node: GPU 0 (free: 6 of 16 GiB; held by ns/a (10)), GPU 1 (free: 4 of 16 GiB; held by ns/b (12))"},
		{"BinPack: whole GPUs", policy.BinPack, nil, sharingPod("p", 1, 0, 2, ""), "scarce", "the pod: would get GPU 0 (free: 16 of 16 GiB), GPU 1 (free: 16 of 16 GiB)"},
		{"BinPack: another model", policy.BinPack, nil, sharingPod("p", 1, 8, 0, "V100，T4"), "shared",
			`the node: has "T4" (label nvidia.com/gpu.product) the pod: allows "V100，T4" (annotation outboard.dev/gpu-models)`},
		{"BinPack: no plugin", policy.BinPack, nil, sharingPod("p", 1, 8, 0, ""), "down", "the node: allocatable 0 of 46 aliyun.com/gpu-mem"},
		{"BinPack: too many", policy.BinPack, nil, sharingPod("p", 1, 8, 0, ""), "uncounted", "the node: has aliyun.com/gpu-count 65, and that must be 1 to 64"},
		{"BinPack: another unit", policy.BinPack, nil, sharingPod("p", 1, 8, 0, ""), "mib",
			"the node: has a GPU with 24187 GiB, and no GPU has so much: the device plugin seems to count in MiB"},
		{"BinPack: nothing learned", policy.BinPack, usual, sharingPod("p", 1, 8, 0, ""), "", ""},
		{"BinPack: has it already", policy.BinPack, nil, running[0], "shared", "the pod: already has its GPUs"},
		{"LeastWaste: no room is not rated", LeastWaste, usual, sharingPod("p", 2, 8, 0, ""), "shared", "the node: GPU 0 (free: 6 of 16 GiB; held by ns/a (10)), GPU 1 (free: 4 of 16 GiB; held by ns/b (12))…!cost of the pod"},
		{"LeastWaste: loses nothing", LeastWaste, usual, sharingPod("p", 1, 6, 0, ""), "shared", "GPU 0 (free: 6 of 16 GiB)…(the lowest is best)…waste: -0.002 GPUs…node's position"},
		{"LeastWaste: leaves a rest", LeastWaste, usual, sharingPod("p", 1, 12, 0, ""), "scarce", "could no longer be allocated to the usual pods"},
		{"LeastWaste: what was learned", LeastWaste, usual, sharingPod("p", 1, 4, 0, ""), "", "LeastWaste: workload model of the first 156 pods"},
		{"LeastWaste: the scarce model", LeastWaste, append(past(100, 1, 16, 0, "P100"), usual...), sharingPod("p", 1, 6, 0, ""), "scarce",
			`with a probability of 0.94, pods that can use no other model than "P100" will request`},
		{"LeastWaste: another model is not", LeastWaste, append(past(100, 1, 16, 0, "P100"), usual...), sharingPod("p", 1, 6, 0, ""), "large", "cost of the pod: …!scarcity"},
		{"LeastWaste: a place for eight", LeastWaste, append(past(50, 1, 0, 8, ""), usual...), sharingPod("p", 1, 6, 0, ""), "large",
			"uses up 1 of the cluster's 1 free slots for pods with 8 whole GPUs"},
		{"LeastWaste: eight take their own", LeastWaste, append(past(50, 1, 0, 8, ""), usual...), sharingPod("p", 1, 0, 8, ""), "large", "cost of the pod: …!uses up"},
		{"LeastWaste: cores of a place for eight", LeastWaste, append(past(50, 20, 0, 8, ""), usual...), sharingPod("p", 16, 0, 0, ""), "large",
			"slots for pods with 8 whole GPUs and 20 cores"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b snapshot.Builder
			for _, n := range nodes {
				b.SetNode(n)
			}
			for _, pod := range append(append([]*corev1.Pod{}, running...), tt.came...) {
				b.SetPod(pod)
			}
			view := b.View()
			cycle, err := strategic(t, tt.strategy).Prepare(t.Context(), tt.pod, view)
			if err != nil {
				t.Fatal(err)
			}
			said := strings.Join(cycle.(policy.Explainer).Explain(view.Node(tt.node)), " ")
			if tt.want == "" && said != "" {
				t.Errorf("the explanation is %q", said)
			}
			rest := said
			for part := range strings.SplitSeq(tt.want, "…") {
				if absent, ok := strings.CutPrefix(part, "!"); ok {
					if strings.Contains(rest, absent) {
						t.Errorf("the explanation %q contains %q", said, absent)
					}
					continue
				}
				_, after, found := strings.Cut(rest, part)
				if !found {
					t.Errorf("the explanation %q does not contain %q", said, part)
				}
				rest = after
			}
		})
	}
}

// Beside what is free of each GPU of a node that is too full, the explanation names the pods that hold it, the largest first.
func TestExplainNamesHolders(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(sharingNode("n", "T4", 2, 16))
	ends := onGPU("n", "ends", 9, "0")
	ends.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)}
	b.SetPod(ends)
	for i, memory := range []int64{2, 3, 4, 5, 1} {
		b.SetPod(onGPU("n", fmt.Sprint("p", i), memory, "1"))
	}
	view := b.View()
	cycle, err := strategic(t, policy.BinPack).Prepare(t.Context(), sharingPod("p", 1, 8, 0, ""), view)
	if err != nil {
		t.Fatal(err)
	}
	got := cycle.(policy.Explainer).Explain(view.Node("n"))
	want := "the node: GPU 0 (free: 7 of 16 GiB; held by ns/ends (9, terminating until 2026-03-01T12:00:30Z)), GPU 1 (free: 1 of 16 GiB; held by ns/p3 (5), ns/p2 (4), ns/p1 (3), ns/p0 (2), ns/p4 (1))"
	if len(got) != 1 || got[0] != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The parts in the explanation add up to the cost that ranks the node.
func TestExplainedPartsAddUp(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(sharingNode("n", "P100", 8, 16))
	b.SetNode(sharingNode("other", "T4", 8, 16))
	b.SetPod(onGPU("other", "a", 10, "3"))
	for _, pod := range append(append(past(100, 1, 10, 0, "P100"), past(40, 2, 6, 0, "")...), past(20, 1, 0, 8, "")...) {
		b.SetPod(pod)
	}
	b.View()
	for i := range 30 { // so that there is a turnover
		ended := onGPU("other", fmt.Sprint("past-6-0--", i), 6, "0")
		b.SetPod(ended)
		b.DeletePod(ended.UID)
	}
	b.SetNode(sharingNode("n", "P100", 8, 16))
	for _, pod := range past(60, 1, 3, 0, "") { // for another model
		b.SetPod(pod)
	}
	view := b.View()
	told := ""
	for _, pod := range []*corev1.Pod{sharingPod("p", 1, 3, 0, ""), sharingPod("p", 1, 12, 0, "P100"), sharingPod("p", 1, 0, 3, ""), sharingPod("p", 32, 0, 0, "")} {
		cycle, err := strategic(t, LeastWaste).Prepare(t.Context(), pod, view)
		if err != nil {
			t.Fatal(err)
		}
		score := cycle.(policy.Score).Score(view.Node("n"))
		var total, sum float64
		for _, text := range cycle.(policy.Explainer).Explain(view.Node("n")) {
			told += text
			var part float64
			if _, err := fmt.Sscanf(text, "cost of the pod: %f GPUs", &total); err == nil {
				continue
			}
			_, value, _ := strings.Cut(text, ": ")
			if _, err := fmt.Sscanf(value, "%f GPUs", &part); err == nil {
				sum += part
			}
		}
		if want := -float64(score) / 1e6; want == 0 || total-want > 0.0006 || want-total > 0.0006 || sum-total > 0.003 || total-sum > 0.003 {
			t.Errorf("the cost is %f; the explanation has %f, and parts with the sum %f", want, total, sum)
		}
	}
	for _, part := range []string{"could no longer be allocated", "crowding", "scarcity", "uses up"} {
		if !strings.Contains(told, part) {
			t.Errorf("no part of a cost contains %q", part)
		}
	}
}
