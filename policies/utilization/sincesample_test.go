package utilization_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policies/utilization"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// machine is a node of unequal size and use.
type machine struct {
	name  string
	cores float64
	used  float64 // of the cores
}

var machines = []machine{
	{"a", 16, 0.10}, {"b", 16, 0.50}, {"c", 32, 0.30}, {"d", 64, 0.40}, {"e", 8, 0.00}, {"f", 32, 0.90},
}

// TestPodsBoundSinceTheSampleCount: 200 pods are bound before the next sample. They fill all nodes below one level up to
// that level.
func TestPodsBoundSinceTheSampleCount(t *testing.T) {
	const pods, cores = 200, 0.3 // each requests 200m, and is predicted to use 1.5 times that
	counted := fill(t, `{cpu: {signal: cpu, unit: Fraction}}`, pods)
	level := waterLevel(pods * cores)
	for _, m := range machines {
		got := m.used + cores*float64(counted[m.name])/m.cores
		want := max(m.used, level)
		// A score is a whole percent, so nodes within one percent tie; and pods are not divisible.
		if tolerance := 0.01 + cores/m.cores; math.Abs(got-want) > tolerance {
			t.Errorf("%s is filled to %.3f by %d pods, want %.3f ± %.3f", m.name, got, counted[m.name], want, tolerance)
		}
	}
}

// waterLevel is the use of the nodes after cores are divided among them continuously: the level at
// which Σ max(0, level - used) × size is cores.
func waterLevel(poured float64) float64 {
	sorted := slices.Clone(machines)
	slices.SortFunc(sorted, func(a, b machine) int { return int(math.Copysign(1, a.used-b.used)) })
	var size, volume float64
	for i, m := range sorted {
		size, volume = size+m.cores, volume+m.used*m.cores
		level := (poured + volume) / size
		if i+1 == len(sorted) || level <= sorted[i+1].used {
			return level
		}
	}
	return 0
}

// fill places the pods one by one, each on the best node, and returns how many each node got.
func fill(t *testing.T, config string, pods int) map[string]int {
	t.Helper()
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "Utilization", Policy: policytest.Build(t, utilization.Type(), config), Weight: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	var b snapshot.Builder
	use := map[string]snapshot.Value{}
	for _, m := range machines {
		b.SetNode(node(m.name, fmt.Sprint(m.cores), ""))
		use[m.name] = snapshot.Value{Number: m.used, At: policytest.Now}
	}
	b.SetSignal(snapshot.NewSignal("cpu", use))
	got := map[string]int{}
	var result engine.Result
	for i := range pods {
		pod := podOf(container(amounts("200m", ""), nil))
		pod.Name, pod.UID = fmt.Sprint("pod-", i), types.UID(fmt.Sprint(i))
		view := b.View()
		request := engine.Request{Pod: pod, View: view, Nodes: slices.Collect(view.All())}
		if err := e.Score(t.Context(), request, &result); err != nil {
			t.Fatal(err)
		}
		best := slices.Index(result.Totals, slices.Max(result.Totals))
		got[request.Nodes[best].Name]++
		b.SetPod(boundTo(pod, request.Nodes[best].Name))
	}
	return got
}

func boundTo(pod *corev1.Pod, name string) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = name
	return pod
}
