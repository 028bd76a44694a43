package ledger_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// slowResponse is how long a slow API server takes for each request.
const slowResponse = 100 * time.Millisecond

// slow is a server that takes slowResponse for each request, and counts requests that are under way
// at the same time.
type slow struct {
	*server
	mu            sync.Mutex
	running, most int
}

func (s *slow) respond() {
	s.mu.Lock()
	s.running++
	s.most = max(s.most, s.running)
	s.mu.Unlock()
	time.Sleep(slowResponse)
	s.mu.Lock()
	s.running--
	s.mu.Unlock()
}

func (s *slow) PutLedger(ctx context.Context, o *ledger.Object) (*ledger.Object, error) {
	s.respond()
	return s.server.PutLedger(ctx, o)
}

func (s *slow) DeleteLedger(ctx context.Context, o *ledger.Object) error {
	s.respond()
	return s.server.DeleteLedger(ctx, o)
}

func (s *slow) LivePod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	s.respond()
	return s.server.LivePod(ctx, namespace, name, uid)
}

func (s *slow) TouchPod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	s.respond()
	return s.server.TouchPod(ctx, namespace, name, uid)
}

// allocations gives each of 100 pods an allocation of a tenth of a unit, in the ledgers of that many nodes,
// and shows everything to the replica.
func (w *world) allocations(t *testing.T, nodes int) {
	t.Helper()
	r := w.replicas[0]
	for i := range 100 {
		key := snapshot.LedgerKey{Resource: "gpu", Node: fmt.Sprint(i % nodes)}
		var units []policy.Capacity
		for unit := range 10 {
			units = append(units, policy.Capacity{Unit: fmt.Sprint(unit), Capacity: 10})
		}
		pod := w.server.addPod(types.UID(fmt.Sprint(i)))
		if _, err := r.keeper.Allocate(t.Context(), key, pod, key.Node, choose(units, 1)); err != nil {
			t.Fatal(err)
		}
	}
	r.cache.look()
}

// A sweep of 100 allocations takes a fraction of the time of 100 requests to a slow API server, and few
// writes for each ledger. The time is that of the synctest bubble.
func TestSweepOfASlowAPIServer(t *testing.T) {
	for _, tt := range []struct {
		name    string
		nodes   int
		deleted bool // else the pods are not bound
		writes  int  // at most
		limit   time.Duration
	}{
		{"deleted pods of 100 ledgers", 100, true, 100, 26 * slowResponse}, // 13 rounds of reads and as many of writes, of 8 each
		{"deleted pods of one ledger", 1, true, 2, 20 * slowResponse},
		{"unbound pods of 10 ledgers", 10, false, 20, 40 * slowResponse}, // each pod is read and changed
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 0)
				api := &slow{server: w.server}
				w.api = api
				w.replicas = append(w.replicas, w.newReplica())
				w.allocations(t, tt.nodes)
				now, r := time.Now(), w.replicas[0]
				if tt.deleted {
					clear(w.server.pods)
					r.cache.look()
				}
				r.sweeper.Sweep(t.Context(), now) // it sees the allocations for the first time
				if w.count() != 100 {
					t.Fatalf("after the first sweep there are %d allocations, want 100", w.count())
				}
				w.server.puts, api.most = 0, 0
				began := time.Now()
				r.sweeper.Sweep(t.Context(), now.Add(reclaimAfter))
				took := time.Since(began)
				t.Logf("%v, with %d writes and at most %d requests at the same time", took, w.server.puts, api.most)
				if w.count() != 0 || took > tt.limit || w.server.puts > tt.writes || api.most > 8 {
					t.Errorf("%d allocations are left after %v, %d writes, and up to %d requests at the same time; want none after %v, %d and 8", w.count(), took, w.server.puts, api.most, tt.limit, tt.writes)
				}
				r.cache.look()
				r.sweeper.Sweep(t.Context(), now.Add(2*reclaimAfter)) // sees empty ledgers of nodes that do not exist
				began = time.Now()
				r.sweeper.Sweep(t.Context(), now.Add(3*reclaimAfter))
				if took := time.Since(began); len(w.server.ledgers) != 0 || took > 13*slowResponse {
					t.Errorf("%d ledgers are left after %v", len(w.server.ledgers), took)
				}
			})
		})
	}
}

// count returns the number of allocations in all ledgers.
func (w *world) count() int {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	n := 0
	for _, o := range w.server.ledgers {
		n += len(o.Spec.Pods)
	}
	return n
}
