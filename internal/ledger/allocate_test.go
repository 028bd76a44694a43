package ledger_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// allocationOf is the pod's allocation in the ledger of gpuOnA, or nil.
func (w *world) allocationOf(uid types.UID) *snapshot.LedgerPod {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	o := w.server.ledgers[ledger.Name(gpuOnA)]
	if o == nil {
		return nil
	}
	return o.Spec.Pod(uid)
}

// An allocation whose write failed with an unknown outcome is released even if the cache does not show it
// yet.
func TestAllocationWhoseWriteFailedIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		k := keep(t, w.server, w.server, func(o *ledger.Options) { o.RetryPause = time.Hour })
		w.server.faults = []fault{lostAfter}
		if _, err := k.Allocate(t.Context(), gpuOnA, w.server.addPod("p"), "a", choose(w.capacity[gpuOnA], 3)); !errors.Is(err, errLost) {
			t.Fatalf("got error %v, want that of the lost response", err)
		}
		synctest.Wait()
		if left := w.allocationOf("p"); left != nil {
			t.Errorf("the ledger has %+v, on which no attempt relies", *left)
		}
	})
}

// A request that ends while its allocation waits, or is being written, leaves no allocation, because no
// attempt relies on it.
func TestAllocationGivenUpLeavesNothing(t *testing.T) {
	w := newWorld(t, 1)
	k := w.replicas[0].keeper
	w.server.block = make(chan struct{})
	answered := map[string]chan error{}
	cancels := map[string]context.CancelFunc{}
	for _, name := range []string{"writing", "waiting", "stays"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answered[name], cancels[name] = make(chan error, 1), cancel
		pod := w.server.addPod(types.UID(name))
		go func() {
			_, err := k.Allocate(ctx, gpuOnA, pod, "a", choose(w.capacity[gpuOnA], 1))
			answered[name] <- err
		}()
		for name == "writing" && !k.Busy(gpuOnA) || name == "waiting" && k.Waiting(gpuOnA) < 1 || name == "stays" && k.Waiting(gpuOnA) < 2 {
			time.Sleep(time.Millisecond)
		}
	}
	for _, name := range []string{"writing", "waiting"} {
		cancels[name]()
		if err := <-answered[name]; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	close(w.server.block)
	if err := <-answered["stays"]; err != nil {
		t.Error(err)
	}
	// Operations on one ledger run in order, so none is pending after this one.
	if err := k.Release(t.Context(), gpuOnA, snapshot.LedgerPod{UID: "nobody"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[types.UID]bool{"writing": false, "waiting": false, "stays": true} {
		if got := w.allocationOf(name) != nil; got != want {
			t.Errorf("%s: the ledger holds an allocation: %v, want %v", name, got, want)
		}
	}
}
