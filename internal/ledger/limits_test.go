package ledger_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// A ledger takes as many units, pods and annotations of an allocation as its limits say. One more is an
// error that names the limit, and nothing is written.
func TestLedgerIsLimited(t *testing.T) {
	units := func(n int, capacity int64) (all []policy.Capacity) {
		for i := range n {
			all = append(all, policy.Capacity{Unit: fmt.Sprint("u", i), Capacity: capacity})
		}
		return all
	}
	annotations := func(n int) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprint("a", i)] = "x"
		}
		return all
	}
	// on returns an allocation of one of a unit.
	on := func(unit int, of []policy.Capacity, annotations map[string]string) policy.Allocation {
		return policy.Allocation{Units: of, Amounts: []policy.Amount{{Unit: fmt.Sprint("u", unit), Amount: 1}}, Annotations: annotations}
	}
	for name, tc := range map[string]struct {
		pods       int                                   // that have allocations
		allocation func(pod, over int) policy.Allocation // of the pod; over is 1 for the one beyond the limit
		want       string
	}{
		"units":       {0, func(_, over int) policy.Allocation { return on(0, units(64+over, 9), nil) }, "65 units, the limit of a ledger is 64"},
		"pods":        {511, func(int, int) policy.Allocation { return on(0, units(2, 1000), nil) }, "512 pods have allocations, the limit of a ledger"},
		"annotations": {0, func(_, over int) policy.Allocation { return on(0, units(1, 9), annotations(16+over)) }, "an allocation with 17 annotations, the limit is 16"},
	} {
		t.Run(name, func(t *testing.T) {
			l := snapshot.Ledger{Resource: "example.com/d", Node: "n"}
			add := func(pod, over int) (snapshot.Ledger, error) {
				next, _, err := ledger.Allocate(l, snapshot.LedgerPod{UID: types.UID(fmt.Sprint("p", pod)), Token: "t"}, func(*snapshot.Ledger, time.Time) (policy.Allocation, error) {
					return tc.allocation(pod, over), nil
				}, time.Unix(1e9, 0))
				return next, err
			}
			for pod := range tc.pods + 1 { // the last one reaches the limit
				next, err := add(pod, 0)
				if err != nil {
					t.Fatalf("pod %d: %v", pod, err)
				}
				l = next
			}
			next, err := add(tc.pods+1, 1)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("beyond the limit: %v, want %q", err, tc.want)
			}
			if len(next.Pods) != len(l.Pods) || len(next.Units) != len(l.Units) {
				t.Errorf("the ledger has changed to %d pods and %d units", len(next.Pods), len(next.Units))
			}
		})
	}
}
