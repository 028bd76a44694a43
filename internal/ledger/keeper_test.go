package ledger_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

var gpuOnA = snapshot.LedgerKey{Resource: "gpu", Node: "a"}

func TestAllocationErrors(t *testing.T) {
	w := newWorld(t, 1)
	k := w.replicas[0].keeper
	pod := w.server.addPod("p")
	units := []policy.Capacity{{Unit: "0", Capacity: 4}}
	for name, tc := range map[string]struct {
		allocation policy.Allocation
		want       string
	}{
		"of nothing":        {policy.Allocation{Units: units}, "the allocation has no amounts"},
		"of no unit":        {policy.Allocation{Units: units, Amounts: []policy.Amount{{Unit: "1", Amount: 1}}}, `the allocation names unit "1", which does not exist`},
		"of 0":              {policy.Allocation{Units: units, Amounts: []policy.Amount{{Unit: "0"}}}, "an allocation of 0 of unit"},
		"of less":           {policy.Allocation{Units: units, Amounts: []policy.Amount{{Unit: "0", Amount: -1}}}, "an allocation of -1 of unit"},
		"of one unit twice": {policy.Allocation{Units: units, Amounts: []policy.Amount{{Unit: "0", Amount: 1}, {Unit: "0", Amount: 1}}}, "a second allocation of unit"},
	} {
		_, err := k.Allocate(t.Context(), gpuOnA, pod, "a", func(*snapshot.Ledger, time.Time) (policy.Allocation, error) { return tc.allocation, nil })
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("an allocation %s: %v, want %s", name, err, tc.want)
		}
	}
	if len(w.server.ledgers) != 0 {
		t.Error("the Keeper wrote the ledger")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Allocate(ctx, gpuOnA, pod, "a", choose(units, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that has ended: %v", err)
	}
}

// The units of a pod that is gone are free immediately, before any sweep, and no other pod loses
// its allocation.
func TestAllocationsOfPodsThatAreGoneMakeRoom(t *testing.T) {
	w := newWorld(t, 1)
	r := w.replicas[0]
	units := []policy.Capacity{{Unit: "0", Capacity: 10}}
	allocation := func(uid types.UID, amount int64) error {
		_, err := r.keeper.Allocate(t.Context(), gpuOnA, w.server.pods[uid], "a", choose(units, amount))
		return err
	}
	for _, uid := range []types.UID{"ended", "deleted", "runs", "new"} {
		w.server.addPod(uid)
	}
	for _, uid := range []types.UID{"ended", "deleted", "runs"} {
		if err := allocation(uid, 3); err != nil {
			t.Fatal(err)
		}
		w.server.pods[uid].Spec.NodeName = "a"
	}
	if err := allocation("new", 4); !errors.Is(err, errNoRoom) {
		t.Errorf("all run: %v", err)
	}
	w.server.pods["ended"].Status.Phase = corev1.PodSucceeded
	delete(w.server.pods, "deleted")
	if err := allocation("new", 7); err != nil {
		t.Errorf("two are gone: %v", err)
	}
	spec := w.server.ledgers[ledger.Name(gpuOnA)].Spec
	if spec.Pod("runs") == nil || spec.Pod("ended") != nil || spec.Pod("deleted") != nil {
		t.Errorf("remaining allocations: %v", spec.Pods)
	}
}

// The ledger of a node that has not existed for a long time is deleted once it has no allocations, and
// not before.
func TestLedgersOfNodesThatAreGone(t *testing.T) {
	w := newWorld(t, 1)
	r := w.replicas[0]
	pod := w.server.addPod("p")
	if _, err := r.keeper.Allocate(t.Context(), gpuOnA, pod, "a", choose(w.capacity[gpuOnA], 3)); err != nil {
		t.Fatal(err)
	}
	w.server.pods["p"].Spec.NodeName = "a"
	now := time.Now()
	for step, want := range []bool{true, true, true, true, false} {
		r.cache.look()
		r.sweeper.Sweep(t.Context(), now)
		if got := w.server.ledgers[ledger.Name(gpuOnA)] != nil; got != want {
			t.Fatalf("step %d: the ledger exists: %v, want %v", step, got, want)
		}
		if step == 1 {
			delete(w.server.pods, "p")
		}
		now = now.Add(2 * reclaimAfter)
	}
}

func TestNames(t *testing.T) {
	names := map[string]snapshot.LedgerKey{}
	for _, key := range []snapshot.LedgerKey{
		{Resource: "aliyun.com/gpu-mem", Node: "node-1"}, {Resource: "aliyun.com/gpu-mem"}, {Resource: "gpu-mem", Node: "node-1.aliyun.com"},
		{Resource: "License/MATLAB", Node: ""}, {Resource: "license/matlab", Node: ""}, {Resource: "ä/ö", Node: ""}, {Resource: "-", Node: "n"},
		{Resource: "-a.b-/-.c-", Node: "n"},
		{Resource: strings.Repeat("r", 300), Node: strings.Repeat("n", 253)}, {Resource: strings.Repeat("r", 300), Node: strings.Repeat("n", 252)},
	} {
		name := ledger.Name(key)
		if other, taken := names[name]; taken {
			t.Errorf("%v and %v are both %q", key, other, name)
		}
		names[name] = key
		if len(name) > 253 || len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Errorf("%v is %q: %v", key, name, validation.IsDNS1123Subdomain(name))
		}
	}
	if got := ledger.Name(snapshot.LedgerKey{Resource: "aliyun.com/gpu-mem", Node: "node-1"}); !strings.HasPrefix(got, "node-1.aliyun.com-gpu-mem-") {
		t.Errorf("name %q is not readable", got)
	}
	if got := ledger.Name(snapshot.LedgerKey{Resource: "license/MATLAB"}); !strings.HasPrefix(got, "license-matlab-") {
		t.Errorf("name %q is not readable", got)
	}
}

// A copy of a list shares nothing with it that can be changed.
func TestCopyOfAList(t *testing.T) {
	list := &ledger.ObjectList{Items: make([]ledger.Object, 1)}
	list.RemainingItemCount = new(int64(7))
	copied := list.DeepCopyObject().(*ledger.ObjectList)
	*list.RemainingItemCount, list.Items[0].Name = 8, "changed"
	if *copied.RemainingItemCount != 7 || copied.Items[0].Name != "" {
		t.Errorf("the copy changes with the list: %d, %q", *copied.RemainingItemCount, copied.Items[0].Name)
	}
}
