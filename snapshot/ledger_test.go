package snapshot_test

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

func ledgerOf(node string) *snapshot.Ledger {
	return &snapshot.Ledger{
		Resource: "gpu", Node: node,
		Units: []snapshot.LedgerUnit{
			{Name: "0", Capacity: 10, Allocations: []snapshot.LedgerAllocation{{Pod: "a", Amount: 6}, {Pod: "b", Amount: 3}}},
			{Name: "1", Capacity: 10, Allocations: []snapshot.LedgerAllocation{{Pod: "b", Amount: 4}}},
		},
		Pods: []snapshot.LedgerPod{{UID: "b", Name: "b"}, {UID: "a", Name: "a"}},
	}
}

func TestLedger(t *testing.T) {
	l := ledgerOf("n")
	if l.Key() != (snapshot.LedgerKey{Resource: "gpu", Node: "n"}) {
		t.Errorf("got key %v", l.Key())
	}
	if got := l.Unit("0").Used(); got != 9 {
		t.Errorf("got %d used", got)
	}
	if got := l.Unit("1").Amount("b"); got != 4 {
		t.Errorf("got amount %d", got)
	}
	if p := l.Pod("a"); p == nil || p.Name != "a" || l.Pod("c") != nil {
		t.Errorf("got pod %v", p)
	}
	var none *snapshot.Ledger
	if none.Pod("a") != nil || none.Unit("0").Used() != 0 || none.Unit("0").Amount("a") != 0 || none.Without(func(types.UID) bool { return true }) != nil {
		t.Error("a nil ledger is not empty")
	}
	huge := &snapshot.LedgerUnit{Allocations: []snapshot.LedgerAllocation{{Pod: "a", Amount: math.MaxInt64}, {Pod: "b", Amount: 2}}}
	if got := huge.Used(); got != math.MaxInt64 {
		t.Errorf("a sum beyond int64 is %d", got)
	}
}

// A node without some of its pods is also without their allocations, and keeps the allocations of pods in flight.
func TestNodeWithoutPodsIsWithoutTheirAllocations(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(node("n"))
	onNode := pod("b", "n")
	onNode.UID = "b"
	b.SetPod(onNode)
	b.SetLedger(ledgerOf("n"))
	n := b.View().Node("n")
	rest := n.Without(func(p *corev1.Pod) bool { return true })
	if rest.Ledger("gpu").Pod("b") != nil || rest.Ledger("gpu").Pod("a") == nil {
		t.Errorf("got remaining allocations %v", rest.Ledger("gpu").Pods)
	}
	if n.Ledger("gpu").Pod("b") == nil || n.Ledger("seat") != nil {
		t.Error("the node changed")
	}
}
