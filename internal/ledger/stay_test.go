package ledger_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// The ledger of a node that exists stays without allocations, and so does that of a pool.
func TestEmptyLedgersStay(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	for _, key := range []snapshot.LedgerKey{gpuOnA, {Resource: "seats"}} {
		w := newWorld(t, 1)
		r, now := w.replicas[0], time.Now()
		r.cache.view = b.View()
		if _, err := r.keeper.Allocate(t.Context(), key, w.server.addPod("p"), "a", choose(w.capacity[gpuOnA], 3)); err != nil {
			t.Fatal(err)
		}
		delete(w.server.pods, "p")
		for range 5 {
			r.cache.look()
			r.sweeper.Sweep(t.Context(), now)
			now = now.Add(2 * reclaimAfter)
		}
		if o := w.server.ledgers[ledger.Name(key)]; o == nil || len(o.Spec.Pods) > 0 {
			t.Errorf("the ledger %+v is %v", key, o)
		}
	}
}
