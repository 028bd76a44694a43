package ledger_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

const reclaimAfter = 5 * time.Minute

// world is a cluster with two nodes of two devices, some replicas, and schedulers that bind through
// them.
type world struct {
	server   *server
	api      ledger.API // of new replicas
	replicas []*replica
	capacity map[snapshot.LedgerKey][]policy.Capacity
	attempts []*attempt
	pods     int
	now      time.Time
}

type replica struct {
	cache   *cache
	keeper  *ledger.Keeper
	sweeper ledger.Sweeper
}

// attempt is one bind call between its allocation and its Binding. The process may be suspended there
// for any time.
type attempt struct {
	replica *replica
	key     snapshot.LedgerKey
	version string // of the pod, as read before the allocation
	held    snapshot.LedgerPod
}

func newWorld(_ testing.TB, replicas int) *world {
	w := &world{server: newServer(), capacity: map[snapshot.LedgerKey][]policy.Capacity{}, now: time.Now()}
	w.api = w.server
	for _, node := range []string{"a", "b"} {
		w.capacity[snapshot.LedgerKey{Resource: "gpu", Node: node}] = []policy.Capacity{{Unit: "0", Capacity: 10}, {Unit: "1", Capacity: 10}}
	}
	for range replicas {
		w.replicas = append(w.replicas, w.newReplica())
	}
	return w
}

// newReplica returns a replica that has just started.
func (w *world) newReplica() *replica {
	r := &replica{cache: newCache(w.server)}
	r.cache.look()
	r.keeper = ledger.New(ledger.Options{
		API: w.api, Cache: r.cache, ReclaimAfter: reclaimAfter, RetryPause: time.Microsecond, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	r.sweeper = r.keeper.NewSweeper()
	return r
}

// choose allocates from the unit with the least free capacity that suffices. It accepts any allocation that
// the pod holds.
func choose(units []policy.Capacity, amount int64) func(l *snapshot.Ledger, at time.Time) (policy.Allocation, error) {
	return func(l *snapshot.Ledger, at time.Time) (policy.Allocation, error) {
		if slices.ContainsFunc(l.Pods, func(p snapshot.LedgerPod) bool { return p.At.Equal(at) }) {
			return policy.Allocation{}, nil
		}
		best, least := "", int64(0)
		for _, u := range units {
			if left := u.Capacity - l.Unit(u.Unit).Used(); left >= amount && (best == "" || left < least) {
				best, least = u.Unit, left
			}
		}
		if best == "" {
			return policy.Allocation{}, errNoRoom
		}
		return policy.Allocation{
			Units: units, Amounts: []policy.Amount{{Unit: best, Amount: amount}},
			Annotations: map[string]string{"unit": best, "amount": fmt.Sprint(amount), "at": at.Format(time.RFC3339Nano)},
		}, nil
	}
}

var errNoRoom = fmt.Errorf("no room")

// amountOf is the amount that a pod requests.
func amountOf(uid types.UID) int64 { return int64(len(uid)%4) + 3 }

// check checks the invariants: bound pods never use more of a device than its capacity, no two
// allocations of a ledger have the same time, and every bound pod has an allocation for what it uses.
func (w *world) check(t *rapid.T) {
	used := map[string]int64{}
	for uid, p := range w.server.pods {
		if p.Spec.NodeName == "" {
			continue
		}
		key := snapshot.LedgerKey{Resource: "gpu", Node: p.Spec.NodeName}
		used[p.Spec.NodeName+"/"+p.Annotations["unit"]] += amountOf(uid)
		o := w.server.ledgers[ledger.Name(key)]
		if o == nil || o.Spec.Unit(p.Annotations["unit"]).Amount(uid) != amountOf(uid) {
			t.Fatalf("pod %s is bound to %s without an allocation of unit %s", uid, p.Spec.NodeName, p.Annotations["unit"])
		}
	}
	for device, sum := range used {
		if sum > 10 {
			t.Fatalf("pods use device %s with %d of 10", device, sum)
		}
	}
	for _, o := range w.server.ledgers {
		last := time.Time{}
		for _, p := range o.Spec.Pods {
			if !p.At.After(last) {
				t.Fatalf("ledger %s: an allocation at %s follows one at %s", o.Name, p.At, last)
			}
			last = p.At
		}
	}
}

// With replicas that are killed, suspended and behind, an API server that loses, delays, repeats
// and reorders requests, pods that come and go, and capacities that shrink and grow: nothing is
// allocated twice, and in the end nothing is leaked.
func TestLedgerAgainstWorld(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { runWorld(t, rt) })
}

func runWorld(t *testing.T, rt *rapid.T) {
	w := newWorld(t, 2)
	ctx := context.Background()
	faults := rapid.SliceOfN(rapid.SampledFrom([]fault{none, lostBefore, lostAfter, delayed, twice}), 0, 3)
	anyReplica := func(rt *rapid.T) *replica { return rapid.SampledFrom(w.replicas).Draw(rt, "replica") }
	begin := func(rt *rapid.T) {
		r := anyReplica(rt)
		w.server.faults = faults.Draw(rt, "faults")
		var waiting []types.UID
		for i := range w.pods {
			if p := r.cache.pods[types.UID(fmt.Sprint(i))]; p != nil && p.Spec.NodeName == "" {
				waiting = append(waiting, p.UID)
			}
		}
		if len(waiting) == 0 {
			return
		}
		pod := r.cache.pods[rapid.SampledFrom(waiting).Draw(rt, "pod")]
		key := snapshot.LedgerKey{Resource: "gpu", Node: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "node")}
		held, err := r.keeper.Allocate(ctx, key, pod, key.Node, choose(w.capacity[key], amountOf(pod.UID)))
		if err == nil {
			w.attempts = append(w.attempts, &attempt{r, key, pod.ResourceVersion, held})
		}
	}
	take := func(rt *rapid.T) *attempt {
		if len(w.attempts) == 0 {
			return nil
		}
		i := rapid.IntRange(0, len(w.attempts)-1).Draw(rt, "attempt")
		a := w.attempts[i]
		w.attempts = append(w.attempts[:i:i], w.attempts[i+1:]...)
		return a
	}
	finish := func(rt *rapid.T) {
		a := take(rt)
		if a == nil {
			return
		}
		w.server.faults = faults.Draw(rt, "faults")
		if err := w.server.bind(a.held.UID, a.version, a.key.Node, a.held.Annotations); err != nil {
			_ = a.replica.keeper.Release(ctx, a.key, a.held)
		}
	}
	withdraw := func(rt *rapid.T) { // so that no earlier Binding can arrive
		a := take(rt)
		if a == nil {
			return
		}
		w.server.faults = faults.Draw(rt, "faults")
		if pod, err := w.server.TouchPod(ctx, "", "", a.held.UID); err == nil && pod != nil && pod.Spec.NodeName == "" {
			_ = a.replica.keeper.Revoke(ctx, a.key, a.held)
		}
	}
	rt.Repeat(map[string]func(*rapid.T){
		"new pod": func(rt *rapid.T) { w.server.addPod(types.UID(fmt.Sprint(w.pods))); w.pods++ },
		"begin":   begin, "begin2": begin, "begin3": begin,
		"finish": finish, "finish2": finish, "withdraw": withdraw,
		"kill": func(rt *rapid.T) {
			take(rt)
			w.replicas[rapid.IntRange(0, 1).Draw(rt, "which")] = w.newReplica()
		},
		"look": func(rt *rapid.T) { anyReplica(rt).cache.look() }, "look2": func(rt *rapid.T) { anyReplica(rt).cache.look() },
		"sweep": func(rt *rapid.T) {
			w.server.faults = faults.Draw(rt, "faults")
			anyReplica(rt).sweeper.Sweep(ctx, w.now)
		},
		"long pause": func(rt *rapid.T) { // long enough for the removal of allocations
			w.server.faults = faults.Draw(rt, "faults")
			r := anyReplica(rt)
			r.cache.look()
			r.sweeper.Sweep(ctx, w.now)
			w.now = w.now.Add(2 * reclaimAfter)
			r.sweeper.Sweep(ctx, w.now)
		},
		"arrive": func(rt *rapid.T) {
			w.server.deliver(func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "late") })
		},
		"pod ends": func(rt *rapid.T) {
			uid := types.UID(fmt.Sprint(rapid.IntRange(0, max(0, w.pods-1)).Draw(rt, "uid")))
			delete(w.server.pods, uid)
		},
		"hardware": func(rt *rapid.T) {
			key := snapshot.LedgerKey{Resource: "gpu", Node: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "node")}
			units := []policy.Capacity{{Unit: "0", Capacity: rapid.SampledFrom([]int64{0, 4, 10}).Draw(rt, "capacity")}}
			if rapid.Bool().Draw(rt, "second") {
				units = append(units, policy.Capacity{Unit: "1", Capacity: 10})
			}
			w.capacity[key] = units
		},
		"": w.check,
	})
	// All attempts end, no process is suspended, and no request is lost.
	w.server.faults = nil
	w.server.deliver(func(int) int { return 0 })
	w.attempts = nil
	for range 3 {
		for _, r := range w.replicas {
			r.cache.look()
			r.sweeper.Sweep(ctx, w.now)
		}
		w.now = w.now.Add(2 * reclaimAfter)
	}
	w.check(rt)
	for _, o := range w.server.ledgers {
		for _, p := range o.Spec.Pods {
			if pod := w.server.pods[p.UID]; pod == nil || pod.Spec.NodeName != o.Spec.Node {
				rt.Fatalf("ledger %s still has an allocation of pod %s: %v", o.Name, p.UID, pod)
			}
		}
	}
}
