package allocations_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/snapshot"
)

func pod(uid types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + string(uid), UID: uid}}
}

func nodeWith(uids ...types.UID) *snapshot.Node {
	var pods []*corev1.Pod
	for _, uid := range uids {
		pods = append(pods, pod(uid))
	}
	return snapshot.NewNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, pods...)
}

var ledger = &snapshot.Ledger{
	Units: []snapshot.LedgerUnit{
		{Name: "0", Capacity: 9, Allocations: []snapshot.LedgerAllocation{{Pod: "bound", Amount: 2}, {Pod: "coming", Amount: 3}}},
		{Name: "1", Capacity: 9, Allocations: []snapshot.LedgerAllocation{{Pod: "bound", Amount: 4}, {Pod: "huge", Amount: math.MaxInt64}}},
		{Name: "2", Capacity: 9, Allocations: []snapshot.LedgerAllocation{{Pod: "huge", Amount: 1}}},
	},
	Pods: []snapshot.LedgerPod{{UID: "bound", Name: "pod-bound"}, {UID: "coming", Name: "pod-coming"}, {UID: "nothing"}},
}

// Pods with allocations in the ledger hold these, whether they are on the node or only the ledger has
// their names; all other pods are unallocated, also one in the ledger without amounts.
func TestOn(t *testing.T) {
	end := &metav1.Time{Time: time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)}
	n := nodeWith("other", "bound", "", "nothing")
	n.Pods[slices.IndexFunc(n.Pods, func(p *corev1.Pod) bool { return p.UID == "bound" })].DeletionTimestamp = end
	allocated, unallocated := allocations.On(n, ledger)
	got := ""
	for _, c := range allocated {
		got += fmt.Sprintf("%s of %s (%d in total), entry %t, pod %t\n", allocations.Held{Holder: c.Holder, Amount: c.Amount}, c.Unit, c.Total,
			c.Entry != nil && c.Entry.UID == c.UID, c.Index >= 0 && n.Pods[c.Index].UID == c.UID)
	}
	const all = math.MaxInt64
	if want := fmt.Sprintf(`/pod-bound (2, terminating until 2026-03-01T12:00:30Z) of 0 (6 in total), entry true, pod true
/pod-coming (3) of 0 (3 in total), entry true, pod false
/pod-bound (4, terminating until 2026-03-01T12:00:30Z) of 1 (6 in total), entry true, pod true
pod huge (%d) of 1 (%d in total), entry false, pod false
pod huge (1) of 2 (%d in total), entry false, pod false
`, all, all, all); got != want {
		t.Errorf("allocated:\n%s, want\n%s", got, want)
	}
	names := ""
	for _, i := range unallocated {
		names += n.Pods[i].Name + " "
	}
	if names != "pod- pod-nothing pod-other " {
		t.Errorf("unallocated: %s", names)
	}
	for _, empty := range []*snapshot.Ledger{nil, {}} {
		if allocated, unallocated := allocations.On(nodeWith("other"), empty); len(allocated) != 0 || len(unallocated) != 1 {
			t.Errorf("without allocations: %v, %v", allocated, unallocated)
		}
	}
}

func TestOf(t *testing.T) {
	for uid, want := range map[types.UID]string{"bound": "map[0:2 1:4]", "huge": "map[]", "nothing": "map[]", "": "map[]"} {
		if got := fmt.Sprint(maps.Collect(allocations.Of(ledger, uid))); got != want {
			t.Errorf("%q has %s, want %s", uid, got, want)
		}
	}
	if got := maps.Collect(allocations.Of(nil, "bound")); len(got) != 0 {
		t.Errorf("without a ledger: %v", got)
	}
	for unit := range allocations.Of(ledger, "bound") {
		if unit != "0" {
			t.Error("the iteration continues after a break")
		}
		break
	}
}

// The requesting pod is not counted against itself; a pod without a UID matches no allocation.
func TestOthers(t *testing.T) {
	ask := policy.ReserveRequest{Pod: pod("bound"), Node: nodeWith("bound", "other"), Ledger: ledger}
	n, l := allocations.Others(ask)
	if n.Has("bound") || !n.Has("other") || l.Pod("bound") != nil || l.Unit("0").Used() != 3 || ledger.Unit("0").Used() != 5 {
		t.Errorf("got remaining %v and %v", n.Pods, l)
	}
	ask.Pod, ask.Node = pod(""), nodeWith("", "other")
	if n, l := allocations.Others(ask); n != ask.Node || l != ledger {
		t.Error("a pod without a UID removes other pods")
	}
	if l := allocations.Without(ledger, "coming"); l.Unit("0").Used() != 2 || l.Unit("1").Amount("bound") != 4 {
		t.Errorf("without a pod: %v", l)
	}
}

// Holders are a set.
func TestHolders(t *testing.T) {
	uids := rapid.SliceOfN(rapid.StringMatching(`[ab]{0,3}`), 0, 8)
	rapid.Check(t, func(t *rapid.T) {
		var h allocations.Holders
		all := map[types.UID]bool{}
		for _, uid := range uids.Draw(t, "uids") {
			h.Add(types.UID(uid))
			all[types.UID(uid)] = uid != ""
		}
		for _, uid := range append(uids.Draw(t, "others"), "", "a", "b") {
			if got := h.Has(types.UID(uid)); got != all[types.UID(uid)] {
				t.Errorf("%q is in the set: %t", uid, got)
			}
		}
	})
	var h allocations.Holders
	h.Add("a")
	if n := testing.AllocsPerRun(100, func() { h.Has("b") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
