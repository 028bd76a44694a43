package ledger_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// roundTrip is how long a remote takes to respond.
const roundTrip = 20 * time.Millisecond

// remote is a server that takes a while to respond. Its watch is as fast as its responses.
type remote struct {
	*server
	caches []*cache

	mu     sync.Mutex
	random *rand.Rand
}

// oneWay returns the time of a message to or from the server.
func (r *remote) oneWay() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return roundTrip/2 + time.Duration(r.random.Int64N(int64(roundTrip/10)))
}

// between returns a random time between two of the events that happen at that rate per second.
func (r *remote) between(rate int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(r.random.ExpFloat64() * float64(time.Second) / float64(rate))
}

func (r *remote) GetLedger(ctx context.Context, name string) (*ledger.Object, error) {
	time.Sleep(r.oneWay())
	o, err := r.server.GetLedger(ctx, name)
	time.Sleep(r.oneWay())
	return o, err
}

func (r *remote) PutLedger(ctx context.Context, o *ledger.Object) (*ledger.Object, error) {
	time.Sleep(r.oneWay())
	stored, err := r.server.PutLedger(ctx, o)
	for _, c := range r.caches {
		time.AfterFunc(r.oneWay(), c.look)
	}
	time.Sleep(r.oneWay())
	return stored, err
}

// hold makes allocations at that rate per second, keeps each for a moment, and returns how long they
// took to be written, in order.
func (r *remote) hold(t *testing.T, k *ledger.Keeper, replica, count, rate int) []time.Duration {
	key := snapshot.LedgerKey{Resource: "example.com/license"}
	var capacity []policy.Capacity
	for unit := range 8 {
		capacity = append(capacity, policy.Capacity{Unit: fmt.Sprint(unit), Capacity: snapshot.MaxLedgerPods})
	}
	waits := make([]time.Duration, count)
	var allocations sync.WaitGroup
	for i := range waits {
		time.Sleep(r.between(rate))
		pod := r.addPod(types.UID(fmt.Sprintf("%d-%d", replica, i)))
		allocations.Go(func() {
			began := time.Now()
			held, err := k.Allocate(t.Context(), key, pod, "a", choose(capacity, 1))
			waits[i] = time.Since(began)
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(50 * time.Millisecond)
			if err := k.Release(t.Context(), key, held); err != nil {
				t.Error(err)
			}
		})
	}
	allocations.Wait()
	slices.Sort(waits)
	return waits
}

// Replicas that write one ledger all the time take turns: no allocation waits for many writes of another
// replica.
func TestWritersOfALedgerTakeTurns(t *testing.T) {
	for replicas := 1; replicas <= 3; replicas++ {
		for _, rate := range []int{50, 100} {
			t.Run(fmt.Sprintf("%d replicas make %d allocations per second each", replicas, rate), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := &remote{server: newServer(), random: rand.New(rand.NewPCG(uint64(replicas), uint64(rate)))}
					waits := make([][]time.Duration, replicas)
					var allocations sync.WaitGroup
					for i := range waits {
						api.caches = append(api.caches, newCache(api.server))
						k := ledger.New(ledger.Options{API: api, Cache: api.caches[i]})
						allocations.Go(func() { waits[i] = api.hold(t, k, i, 5*rate, rate) })
					}
					allocations.Wait()
					for i, w := range waits {
						n := len(w)
						t.Logf("replica %d: half of its allocations waited up to %v, 99%% up to %v, all up to %v", i, w[n/2], w[n*99/100], w[n-1])
						if p99 := w[n*99/100]; p99 > 40*roundTrip {
							t.Errorf("1%% of the allocations of replica %d waited longer than %v, which is more than 40 times as long as the API server takes to respond", i, p99)
						}
					}
				})
			})
		}
	}
}
