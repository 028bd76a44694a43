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

// made makes a claim at the time, and expects no error.
func made(t *testing.T, l snapshot.Ledger, uid types.UID, node string, at time.Time, claim policy.Claim) (snapshot.Ledger, snapshot.LedgerPod) {
	t.Helper()
	next, held, err := ledger.Claim(l, snapshot.LedgerPod{UID: uid, Token: string(uid) + " on " + node, Node: node}, always(claim), at)
	if err != nil {
		t.Fatal(err)
	}
	return next, held
}

func always(claim policy.Claim) func(*snapshot.Ledger, time.Time) (policy.Claim, error) {
	return func(*snapshot.Ledger, time.Time) (policy.Claim, error) { return claim, nil }
}

func amountOfUnit(unit string, amount int64, units ...policy.Capacity) policy.Claim {
	return policy.Claim{Units: units, Amounts: []policy.Amount{{Unit: unit, Amount: amount}}}
}

var (
	emptyOnA = snapshot.Ledger{Resource: "gpu", Node: "a"}
	noon     = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

// A claim of more than what is left is an error, also if the sum with the other claims is too large
// for a number.
func TestClaimOfMoreThanIsLeft(t *testing.T) {
	unit := policy.Capacity{Unit: "0", Capacity: 4}
	l, _ := made(t, emptyOnA, "first", "a", noon, amountOfUnit("0", 3, unit))
	for _, amount := range []int64{2, math.MaxInt64} {
		next, _, err := ledger.Claim(l, snapshot.LedgerPod{UID: "second"}, always(amountOfUnit("0", amount, unit)), noon)
		if err == nil || !strings.Contains(err.Error(), "3 of 4 are claimed already") || next.Units[0].Used() != 3 {
			t.Errorf("a claim of %d: %v, and %d are claimed", amount, err, next.Units[0].Used())
		}
	}
	if l, _ = made(t, l, "second", "a", noon, amountOfUnit("0", 1, unit)); l.Units[0].Used() != 4 {
		t.Errorf("%d are claimed, want all 4", l.Units[0].Used())
	}
}

// A unit that its node does not have any more stays in the ledger only while a pod has a claim of
// it, and nobody gets more of it.
func TestUnitThatIsGoneKeepsItsClaims(t *testing.T) {
	all := []policy.Capacity{{Unit: "0", Capacity: 4}, {Unit: "1", Capacity: 4}, {Unit: "2", Capacity: 4}}
	l, _ := made(t, emptyOnA, "first", "a", noon, amountOfUnit("1", 3, all...))
	l, _ = made(t, l, "second", "a", noon, amountOfUnit("0", 1, all[:1]...))
	if u := l.Unit("1"); u == nil || u.Amount("first") != 3 || u.Capacity != 0 {
		t.Errorf("the unit with a claim of a pod is %+v, want it with capacity 0", u)
	}
	if u := l.Unit("2"); u != nil {
		t.Errorf("the unit without a claim is still in the ledger: %+v", u)
	}
}

// Each claim of a node is later than the one before, even at the same time, or after a clock was
// ahead for hours. Claims of a pool do not follow a clock that was ahead for more than an hour.
func TestTimesOfClaims(t *testing.T) {
	unit := policy.Capacity{Unit: "0", Capacity: 9}
	for node, ahead := range map[string]bool{"a": true, "": false} {
		l, first := made(t, snapshot.Ledger{Resource: "gpu", Node: node}, "first", "a", noon, amountOfUnit("0", 1, unit))
		l, second := made(t, l, "second", "a", noon, amountOfUnit("0", 1, unit))
		if first.At != noon || second.At != noon.Add(time.Microsecond) {
			t.Errorf("node %q: claims at %v and %v", node, first.At, second.At)
		}
		l, _ = made(t, l, "third", "a", noon.Add(2*time.Hour), amountOfUnit("0", 1, unit))
		if _, last := made(t, l, "fourth", "a", noon.Add(time.Minute), amountOfUnit("0", 1, unit)); last.At.After(noon.Add(2*time.Hour)) != ahead {
			t.Errorf("node %q: after a claim of two hours later, one at %v", node, last.At)
		}
	}
}

// If a later attempt selects another node, a pod keeps its claim of a pool, which then names that
// node.
func TestClaimOfAPoolMovesToAnotherNode(t *testing.T) {
	unit := policy.Capacity{Unit: "0", Capacity: 1}
	l, _ := made(t, snapshot.Ledger{Resource: "seats"}, "pod", "a", noon, amountOfUnit("0", 1, unit))
	l, held := made(t, l, "pod", "b", noon, amountOfUnit("0", 1, unit))
	if held.Node != "b" || l.Pod("pod").Node != "b" || l.Units[0].Used() != 1 {
		t.Errorf("the claim is for node %q, and that in the ledger for %q; %d are claimed", held.Node, l.Pod("pod").Node, l.Units[0].Used())
	}
}
