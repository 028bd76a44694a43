package binder_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// The planned annotations are those that Bind would write, and planning allocates nothing.
func TestPlanned(t *testing.T) {
	allocationOf := func(pod string) *snapshot.Ledger {
		return &snapshot.Ledger{
			Resource: unit, Node: "a", Pods: []snapshot.LedgerPod{{UID: types.UID(pod), Node: "a", Annotations: map[string]string{unit: "held"}}},
			Units: []snapshot.LedgerUnit{{Name: "0", Capacity: 1, Allocations: []snapshot.LedgerAllocation{{Pod: types.UID(pod), Amount: 1}}}},
		}
	}
	for _, tc := range []struct {
		name        string
		needs       string
		ledger      *snapshot.Ledger
		unusable    bool
		want        string // the annotation: "", "held" or "new"
		allocations bool
	}{
		{"needs nothing", "nothing", nil, false, "", false},
		{"no ledger", "a unit", nil, false, "new", true},
		{"holds an allocation", "a unit", allocationOf("u"), false, "held", true},
		{"holds an allocation that cannot be used", "a unit", allocationOf("u"), true, "new", true},
		{"nothing is left", "a unit", allocationOf("other"), false, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b snapshot.Builder
			b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
			if tc.ledger != nil {
				b.SetLedger(tc.ledger)
			}
			view := b.View()
			e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "OneUnit", Policy: &oneUnit{unusable: func() bool { return tc.unusable }}}}})
			if err != nil {
				t.Fatal(err)
			}
			pod := newPod()
			pod.Labels = map[string]string{"needs": tc.needs}
			planned, allocations := e.Planned(view, pod, view.Node("a"), time.Now())
			got := planned.Annotations[unit]
			if strings.HasPrefix(got, "20") { // a time
				got = "new"
			}
			if got != tc.want || allocations != tc.allocations || pod.Annotations != nil {
				t.Errorf("got annotation %q and allocations %v, want %q and %v", planned.Annotations[unit], allocations, tc.want, tc.allocations)
			}
		})
	}
}
