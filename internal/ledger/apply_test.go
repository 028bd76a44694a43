package ledger_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// made makes an allocation at the time, and expects no error.
func made(t *testing.T, l snapshot.Ledger, uid types.UID, node string, at time.Time, allocation policy.Allocation) (snapshot.Ledger, snapshot.LedgerPod) {
	t.Helper()
	next, held, err := ledger.Allocate(l, snapshot.LedgerPod{UID: uid, Token: string(uid) + " on " + node, Node: node}, always(allocation), at)
	if err != nil {
		t.Fatal(err)
	}
	return next, held
}

func always(allocation policy.Allocation) func(*snapshot.Ledger, time.Time) (policy.Allocation, error) {
	return func(*snapshot.Ledger, time.Time) (policy.Allocation, error) { return allocation, nil }
}

func amountOfUnit(unit string, amount int64, units ...policy.Capacity) policy.Allocation {
	return policy.Allocation{Units: units, Amounts: []policy.Amount{{Unit: unit, Amount: amount}}}
}

var (
	emptyOnA = snapshot.Ledger{Resource: "gpu", Node: "a"}
	noon     = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

// An allocation of more than what is left is an error, also if the sum with the other allocations is too large
// for a number.
func TestAllocationOfMoreThanIsLeft(t *testing.T) {
	unit := policy.Capacity{Unit: "0", Capacity: 4}
	l, _ := made(t, emptyOnA, "first", "a", noon, amountOfUnit("0", 3, unit))
	for _, amount := range []int64{2, math.MaxInt64} {
		next, _, err := ledger.Allocate(l, snapshot.LedgerPod{UID: "second"}, always(amountOfUnit("0", amount, unit)), noon)
		if err == nil || !strings.Contains(err.Error(), "3 of 4 are allocated already") || next.Units[0].Used() != 3 {
			t.Errorf("an allocation of %d: %v, and %d are allocated", amount, err, next.Units[0].Used())
		}
	}
	if l, _ = made(t, l, "second", "a", noon, amountOfUnit("0", 1, unit)); l.Units[0].Used() != 4 {
		t.Errorf("%d are allocated, want all 4", l.Units[0].Used())
	}
}

// A unit that its node does not have any more stays in the ledger only while a pod has an allocation of
// it, and nobody gets more of it.
func TestUnitThatIsGoneKeepsItsAllocations(t *testing.T) {
	all := []policy.Capacity{{Unit: "0", Capacity: 4}, {Unit: "1", Capacity: 4}, {Unit: "2", Capacity: 4}}
	l, _ := made(t, emptyOnA, "first", "a", noon, amountOfUnit("1", 3, all...))
	l, _ = made(t, l, "second", "a", noon, amountOfUnit("0", 1, all[:1]...))
	if u := l.Unit("1"); u == nil || u.Amount("first") != 3 || u.Capacity != 0 {
		t.Errorf("the unit with an allocation of a pod is %+v, want it with capacity 0", u)
	}
	if u := l.Unit("2"); u != nil {
		t.Errorf("the unit without an allocation is still in the ledger: %+v", u)
	}
}

// Each allocation of a node is later than the one before, even at the same time, or after a clock was
// ahead for hours. Allocations of a pool do not follow a clock that was ahead for more than an hour.
func TestTimesOfAllocations(t *testing.T) {
	unit := policy.Capacity{Unit: "0", Capacity: 9}
	for node, ahead := range map[string]bool{"a": true, "": false} {
		l, first := made(t, snapshot.Ledger{Resource: "gpu", Node: node}, "first", "a", noon, amountOfUnit("0", 1, unit))
		l, second := made(t, l, "second", "a", noon, amountOfUnit("0", 1, unit))
		if first.At != noon || second.At != noon.Add(time.Microsecond) {
			t.Errorf("node %q: allocations at %v and %v", node, first.At, second.At)
		}
		l, _ = made(t, l, "third", "a", noon.Add(2*time.Hour), amountOfUnit("0", 1, unit))
		if _, last := made(t, l, "fourth", "a", noon.Add(time.Minute), amountOfUnit("0", 1, unit)); last.At.After(noon.Add(2*time.Hour)) != ahead {
			t.Errorf("node %q: after an allocation of two hours later, one at %v", node, last.At)
		}
	}
}

// If a later attempt selects another node, a pod keeps its allocation of a pool, which then names that
// node.
func TestAllocationOfAPoolMovesToAnotherNode(t *testing.T) {
	unit := policy.Capacity{Unit: "0", Capacity: 1}
	l, _ := made(t, snapshot.Ledger{Resource: "seats"}, "pod", "a", noon, amountOfUnit("0", 1, unit))
	l, held := made(t, l, "pod", "b", noon, amountOfUnit("0", 1, unit))
	if held.Node != "b" || l.Pod("pod").Node != "b" || l.Units[0].Used() != 1 {
		t.Errorf("the allocation is for node %q, and that in the ledger for %q; %d are allocated", held.Node, l.Pod("pod").Node, l.Units[0].Used())
	}
}
