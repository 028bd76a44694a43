package gpumemory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/internal/placement/strategy"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

func sharingNode(name, model string, count, size int64) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(32, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(64<<30, resource.BinarySI),
		memoryResource: *resource.NewQuantity(count*size, resource.DecimalSI), countResource: *resource.NewQuantity(count, resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"nvidia.com/gpu.product": model}},
		Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}

func sharingPod(name string, cpu, memory, count int64, models string) *corev1.Pod {
	asked := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI)}
	if memory > 0 {
		asked[memoryResource] = *resource.NewQuantity(memory, resource.DecimalSI)
	}
	if count > 0 {
		asked[countResource] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	if models != "" {
		pod.Annotations = map[string]string{"outboard.dev/gpu-models": models}
	}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: asked, Requests: asked}}}
	return pod
}

func strategic(t testing.TB, score policy.ScoringStrategyType) *gpuMemory {
	t.Helper()
	config := Defaults()
	config.ScoringStrategy.Type = score
	p, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return p.(*gpuMemory)
}

// randomPod has one of a few shapes.
func randomPod(rng *rand.Rand, name string) *corev1.Pod {
	switch rng.IntN(6) {
	case 0:
		return sharingPod(name, 2, 0, 0, "")
	case 1:
		return sharingPod(name, 1, 6, 0, "")
	case 2:
		return sharingPod(name, 1, 10, 0, "")
	case 3:
		return sharingPod(name, 2, 4, 0, "P100")
	case 4:
		return sharingPod(name, 4, 0, 2, "")
	}
	return sharingPod(name, 1, 16, 0, "")
}

// A policy that has seen a sequence of views decides as a new policy does: nodes appear and
// disappear, pods are created, placed and deleted, and the workload model changes several times.
func TestWhatIsKeptChangesNoDecision(t *testing.T) {
	for name, ranked := range map[string]func() *gpuMemory{
		"LeastWaste":     func() *gpuMemory { return strategic(t, LeastWaste) },
		"without prices": func() *gpuMemory { return withoutPrices(t) },
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, uint64(len(name))))
			old := ranked()
			var b snapshot.Builder
			for i := range 12 {
				b.SetNode(sharingNode(fmt.Sprintf("n%02d", i), []string{"T4", "P100"}[i%2], int64(1+i%4), 16))
			}
			var running []*corev1.Pod
			models, kinds, decided := map[string]bool{}, 0, 0
			for step := range 220 {
				pod := randomPod(rng, fmt.Sprintf("p%03d", step))
				b.SetPod(pod)
				switch rng.IntN(25) {
				case 0:
					b.DeleteNode(fmt.Sprintf("n%02d", rng.IntN(12)))
					kinds++
				case 1:
					i := rng.IntN(12)
					b.SetNode(sharingNode(fmt.Sprintf("n%02d", i), "T4", int64(1+rng.IntN(4)), 16))
					kinds++
				}
				view := b.View()
				if rng.IntN(4) > 0 { // it does not see every View
					compareDecisions(t, old, ranked(), view, pod)
					models[fmt.Sprint(kinds, learned(t, old, view))] = true
				}
				if node, gpu := place(t, old, view, pod); node != nil {
					decided++
					bound := pod.DeepCopy()
					bound.Spec.NodeName, bound.Status.Phase = node.Name, corev1.PodRunning
					bound.Annotations = map[string]string{indexKey: gpu}
					b.SetPod(bound)
					running = append(running, bound)
				}
				if len(running) > 10 && rng.IntN(2) == 0 {
					i := rng.IntN(len(running))
					b.DeletePod(running[i].UID)
					running = slices.Delete(running, i, i+1)
				}
			}
			if decided < 100 || len(models) < 6 {
				t.Errorf("the policies placed %d pods with %d models", decided, len(models))
			}
		})
	}
}

// withoutPrices is a policy that ranks places only by the value of what they leave of a GPU for
// usual pods.
func withoutPrices(t *testing.T) *gpuMemory {
	t.Helper()
	p, err := NewWith(Defaults(), strategy.Strategy{Name: "test", RemembersAll: true, Rater: func(mix *placement.Mix, nodes []placement.Kind) strategy.Rater {
		return strategy.Rater{Rate: placement.NewWaste(mix, nodes).Rate}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p.(*gpuMemory)
}

// learned returns the explanation of the pods from which the policy has computed its model.
func learned(t *testing.T, p *gpuMemory, view *snapshot.View) string {
	t.Helper()
	cycle, err := p.Prepare(t.Context(), sharingPod("any", 1, 6, 0, ""), view)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(cycle.(policy.Explainer).Explain(nil), " ")
}

// compareDecisions compares the decisions of both policies.
func compareDecisions(t *testing.T, a, b *gpuMemory, view *snapshot.View, pod *corev1.Pod) {
	t.Helper()
	scores := func(p *gpuMemory) []int64 {
		cycle, err := p.Prepare(t.Context(), pod, view)
		if err != nil {
			t.Fatal(err)
		}
		var all []int64
		for n := range view.All() {
			all = append(all, cycle.(policy.Score).Score(n))
		}
		return all
	}
	together := func(p *gpuMemory) []int64 {
		cycle, err := p.Prepare(t.Context(), pod, view)
		if err != nil {
			t.Fatal(err)
		}
		var rows []int32
		for n := range view.All() {
			rows = append(rows, int32(n.Row()))
		}
		all := make([]int64, len(rows))
		cycle.(policy.ScoreRows).ScoreRows(rows, all)
		return all
	}
	x, y := scores(a), scores(b)
	if !slices.Equal(x, y) {
		t.Fatalf("pod %s: the scores are %v, and of a new policy %v", pod.Name, x, y)
	}
	if z := together(a); !slices.Equal(z, y) {
		t.Fatalf("pod %s: the scores together are %v, and of a new policy %v", pod.Name, z, y)
	}
	for n := range view.All() {
		ask := policy.ReserveRequest{Pod: pod, Node: n, Ledger: &snapshot.Ledger{}, View: view}
		x, _ := a.Reserve(ask)
		if y, _ := b.Reserve(ask); !slices.Equal(x.Amounts, y.Amounts) {
			t.Fatalf("pod %s on node %s gets %v, and from a new policy %v", pod.Name, n.Name, x.Amounts, y.Amounts)
		}
	}
}

// place returns the best node for the pod, and its GPU there.
func place(t *testing.T, p *gpuMemory, view *snapshot.View, pod *corev1.Pod) (best *snapshot.Node, gpu string) {
	t.Helper()
	cycle, err := p.Prepare(t.Context(), pod, view)
	if err != nil {
		t.Fatal(err)
	}
	score := int64(0)
	for n := range view.All() {
		if f, ok := cycle.(policy.Filter); ok && !f.Filter(n).Fits() {
			continue
		}
		if s := cycle.(policy.Score).Score(n); best == nil || s > score {
			best, score = n, s
		}
	}
	if r, _ := p.request(pod); best == nil || r == nil {
		return best, ""
	}
	allocation, verdict := p.Reserve(policy.ReserveRequest{Pod: pod, Node: best, Ledger: &snapshot.Ledger{}, View: view})
	if !verdict.Fits() {
		t.Fatalf("pod %s: it fits on node %s, and Reserve rejects it: %s", pod.Name, best.Name, verdict.Reason.Text)
	}
	return best, allocation.Annotations[indexKey]
}

// Pods have requested 6 and 8 of 16. A pod with 8 gets the GPU with 14, where a pod with 6 then
// fits, and not the GPU with 13, which has less free; a pod with 6 gets the GPU with 13.
func TestLeastWasteLearns(t *testing.T) {
	p := strategic(t, LeastWaste)
	var b snapshot.Builder
	b.SetNode(sharingNode("n", "T4", 4, 16))
	put := func(name string, memory int64, gpu string) {
		pod := sharingPod(name, 0, memory, 0, "")
		pod.Spec.NodeName, pod.Status.Phase, pod.Annotations = "n", corev1.PodRunning, map[string]string{indexKey: gpu}
		b.SetPod(pod)
	}
	put("full-0", 16, "0")
	put("full-2", 16, "2")
	put("a", 3, "1")
	put("b", 2, "3")
	if _, gpu := place(t, p, b.View(), sharingPod("eight", 0, 8, 0, "")); gpu != "1" {
		t.Errorf("without a model the pod gets GPU %s, not the first with room", gpu)
	}
	for i := range 200 {
		b.SetPod(sharingPod(fmt.Sprintf("past-%d", i), 0, []int64{6, 8}[i%2], 0, ""))
	}
	b.SetConfigMap(unhealthyGPUs, "n", map[string]string{}) // for a new view
	for memory, want := range map[int64]string{6: "1", 8: "3"} {
		if node, gpu := place(t, p, b.View(), sharingPod("new", 0, memory, 0, "")); node == nil || node.Name != "n" || gpu != want {
			t.Errorf("a pod with %d gets GPU %s of %s, want %s", memory, gpu, node.Name, want)
		}
	}
}

var _ policy.Precomputer = (*gpuMemory)(nil)

// A policy without a strategy has nothing to precompute.
func TestPrecomputeWithoutAStrategy(t *testing.T) {
	strategic(t, policy.BinPack).Precompute(new(snapshot.View))
}
