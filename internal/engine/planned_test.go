package engine_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// firstUnit allocates the first of the units 0 and 1 of a node that no pod there has by its
// annotation, and none by an allocation.
type firstUnit struct{}

func (firstUnit) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return nil, nil
}

func (firstUnit) Ledgers(_ *corev1.Pod, n *snapshot.Node) ([]snapshot.LedgerKey, error) {
	return []snapshot.LedgerKey{{Resource: "unit", Node: n.Name}}, nil
}

func (firstUnit) Reserve(ask policy.ReserveRequest) (policy.Allocation, policy.Verdict) {
	for _, unit := range []string{"0", "1"} {
		taken := func(p *corev1.Pod) bool { return p.Annotations["unit"] == unit }
		if !slices.ContainsFunc(ask.Node.Pods, taken) && ask.Ledger.Unit(unit).Used() == 0 {
			return policy.Allocation{Annotations: map[string]string{"unit": unit}}, policy.Verdict{}
		}
	}
	return policy.Allocation{}, policy.Verdict{Reason: &policy.Reason{Code: "Full", Text: "full"}}
}

// A nominated pod is planned to get what the pods have that terminate; if none does yet, it could
// get what any less important pod has. It does not get what is planned for a pod that comes before
// it.
func TestNominatedPodIsPlannedInPlaceOfItsVictims(t *testing.T) {
	e := newEngine(t, engine.WeightedPolicy{Name: "P", Policy: firstUnit{}})
	for name, tc := range map[string]struct {
		terminate     []string // the units of pods that terminate
		first, second string
	}{
		"one terminates":   {[]string{"1"}, "1", "0"},
		"both terminate":   {[]string{"0", "1"}, "0", "1"},
		"none does so far": {nil, "0", "1"},
	} {
		var b snapshot.Builder
		b.SetNode(object("a"))
		for _, unit := range []string{"0", "1"} {
			pod := nominee("pod-"+unit, 0, "")
			pod.Spec.NodeName, pod.Annotations = "a", map[string]string{"unit": unit}
			if slices.Contains(tc.terminate, unit) {
				pod.DeletionTimestamp = new(metav1.Now())
			}
			b.SetPod(pod)
		}
		b.SetPod(nominee("high", 10, "a"))
		b.SetPod(nominee("second", 10, "a"))
		view := b.View()
		for pod, want := range map[types.UID]string{"high": tc.first, "second": tc.second} {
			if got := e.PlannedNominated(view, view.Node("a"), pod).Annotations["unit"]; got != want {
				t.Errorf("%s: planned unit %s for pod %s, want %s", name, got, pod, want)
			}
		}
	}
}

// A nominated pod is planned beside allocations of pods that are not on the node yet. Other pods, and
// pods on other nodes, are not planned.
func TestNominatedPodIsPlannedBesideAllocations(t *testing.T) {
	e := newEngine(t, engine.WeightedPolicy{Name: "P", Policy: firstUnit{}})
	var b snapshot.Builder
	b.SetNode(object("a"))
	b.SetNode(object("b"))
	allocations := []snapshot.LedgerAllocation{{Pod: "coming", Amount: 1}}
	b.SetLedger(&snapshot.Ledger{
		Resource: "unit", Node: "a", Pods: []snapshot.LedgerPod{{UID: "coming"}},
		Units: []snapshot.LedgerUnit{{Name: "0", Capacity: 1, Allocations: allocations}},
	})
	b.SetPod(nominee("high", 10, "a"))
	view := b.View()
	if got := e.PlannedNominated(view, view.Node("a"), "high"); got.Annotations["unit"] != "1" {
		t.Errorf("planned as %v, want unit 1", got.Annotations)
	}
	if e.PlannedNominated(view, view.Node("b"), "high") != nil || e.PlannedNominated(view, view.Node("a"), "other") != nil {
		t.Error("another pod is planned, or on another node")
	}
}
