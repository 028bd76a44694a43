package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// API is the part of the API server that a Keeper uses. Its errors are those of client-go: the functions of
// k8s.io/apimachinery/pkg/api/errors classify them, and after any other error the outcome is unknown.
type API interface {
	// GetLedger reads the current Ledger from the API server. Not found is an error.
	GetLedger(ctx context.Context, name string) (*Object, error)
	// PutLedger creates the Ledger if it has no resourceVersion, and replaces exactly that version otherwise. It does
	// not change the object; it returns the object as stored by the API server.
	PutLedger(ctx context.Context, o *Object) (*Object, error)
	// DeleteLedger deletes exactly that version of the Ledger.
	DeleteLedger(ctx context.Context, o *Object) error
	// LivePod reads the current pod from the API server. Nil if it is gone; a pod of that name with another UID does
	// not count.
	LivePod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error)
	// TouchPod changes the resourceVersion of the pod, and returns the changed pod. Nil if it is gone.
	TouchPod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error)
}

// Cache is the watched state of the cluster. It may be stale.
type Cache interface {
	// Ledger returns the object with the name in its latest known state, or nil.
	Ledger(name string) *Object
	// Ledgers returns all Ledgers.
	Ledgers() []*Object
	// PodByUID returns the pod in its latest known state, or nil.
	PodByUID(uid types.UID) *corev1.Pod
	// View returns the latest view.
	View() *snapshot.View
}

// Options configure a Keeper. API and Cache are required.
type Options struct {
	API   API
	Cache Cache
	// ReclaimAfter is how long a claim of a pod that is not bound stays, at least. It must be longer than the API
	// server takes to respond. Default 5 min.
	ReclaimAfter time.Duration
	// SweepInterval is the time between two sweeps for claims that no pod needs. Default 5 s.
	SweepInterval time.Duration
	// WriteTimeout bounds the time of one change of a ledger, all attempts together. Default 20 s.
	WriteTimeout time.Duration
	// RetryPause is the pause before the first retry if the API server does not respond. It doubles with each retry.
	// Default 20 ms.
	RetryPause time.Duration
	// Now is the time of claims: the API server's time, which all replicas share, or a later time (see Clock.Latest).
	// time.Now if nil.
	Now func() time.Time
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
	// Registerer receives the metrics. Nil: none.
	Registerer prometheus.Registerer
}

// Keeper writes claims into ledgers. Any number of Keepers, in any number of processes, may write the same ledgers. Its
// methods are safe for concurrent use.
type Keeper struct {
	options Options
	metrics *metrics
	// roundTrip is how long the API server took for the latest accepted write, in nanoseconds.
	roundTrip atomic.Int64

	mu      sync.Mutex
	queues  map[string]*writeQueue // by ledger name; those with pending operations, or written by this Keeper
	missing []missingPermission    // of the latest sweep; immutable
}

// writeQueue holds the pending operations on one ledger. Keeper.mu guards its fields.
type writeQueue struct {
	key     snapshot.LedgerKey
	pending []*request
	writing bool    // a goroutine writes it
	written *Object // the latest version written or read by this Keeper; nil: unknown
	missing bool    // a sweep since then did not find it in the cache
}

// request is an operation that a caller waits for.
type request struct {
	operation
	done chan outcome // capacity 1
}

// New returns a Keeper.
func New(o Options) (*Keeper, error) {
	if o.API == nil || o.Cache == nil {
		return nil, errors.New("ledger: API and Cache are required")
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&o.ReclaimAfter, 5 * time.Minute}, {&o.SweepInterval, 5 * time.Second}, {&o.WriteTimeout, 20 * time.Second}, {&o.RetryPause, 20 * time.Millisecond}} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	k := &Keeper{options: o, metrics: newMetrics(), queues: map[string]*writeQueue{}}
	if o.Registerer != nil {
		if err := o.Registerer.Register(k.metrics); err != nil {
			return nil, fmt.Errorf("ledger: %w", err)
		}
	}
	return k, nil
}

// Claim makes sure that the ledger holds a claim of the pod for the node, and returns it: the existing one, or else the
// one that choose returns. choose is pure; Claim calls it with the current ledger, and again if another writer was
// faster. If the ledger holds a claim of the pod, made at the time passed to choose, choose decides whether this claim
// can be used, and Claim ignores the other results of choose. If choose returns an error, Claim returns it, together
// with the existing claim, if any, and changes nothing. The same holds for ErrNotServed. After any other error, a claim
// may have been written, but no caller may rely on it: it is released when the API server responds, or by Run.
func (k *Keeper) Claim(ctx context.Context, key snapshot.LedgerKey, pod *corev1.Pod, node string, choose func(l *snapshot.Ledger, at time.Time) (policy.Claim, error)) (snapshot.LedgerPod, error) {
	entry := snapshot.LedgerPod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: node, Token: rand.Text()}
	result, err := k.submit(ctx, key, operation{claim: &claimOperation{pod: entry, choose: choose, created: pod.CreationTimestamp.Time}})
	k.metrics.claim(result.err, err)
	if err != nil {
		if !errors.Is(err, errNotBegun) && !errors.Is(err, ErrNotServed) {
			k.enqueue(key, operation{release: &releaseOperation{entry.UID, entry.Token, false}})
		}
		return snapshot.LedgerPod{}, fmt.Errorf("ledger %s: %w", Name(key), err)
	}
	return result.held, result.err
}

// Release releases a claim that only the caller relies on; a claim that others rely on, too, stays. Call it only when the
// caller's Binding certainly has, and will have, no effect.
func (k *Keeper) Release(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	return k.release(ctx, key, releaseOperation{held.UID, held.Token, false})
}

// Revoke removes a claim, unless another attempt has relied on it since held was returned. Call it only when the pod
// was changed after that and is not bound: Bindings sent before, by any replica, fail from then on.
func (k *Keeper) Revoke(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	return k.release(ctx, key, releaseOperation{held.UID, held.Token, true})
}

func (k *Keeper) release(ctx context.Context, key snapshot.LedgerKey, o releaseOperation) error {
	if _, err := k.submit(ctx, key, operation{release: &o}); err != nil {
		return fmt.Errorf("ledger %s: %w", Name(key), err)
	}
	return nil
}

// errNotBegun means that an operation was canceled before anything was written.
var errNotBegun = errors.New("the claim was not written: it was still queued behind other writes")

// submit queues the operation and waits until it is written or ctx ends. If ctx ends, it cancels an operation that has
// not begun.
func (k *Keeper) submit(ctx context.Context, key snapshot.LedgerKey, o operation) (outcome, error) {
	q, r := k.enqueue(key, o)
	select {
	case result := <-r.done:
		var failed *writeError
		if errors.As(result.err, &failed) {
			return outcome{}, failed.err
		}
		return result, nil
	case <-ctx.Done():
		if k.cancel(q, r) {
			return outcome{}, fmt.Errorf("%w: %w", errNotBegun, context.Cause(ctx))
		}
		return outcome{}, fmt.Errorf("it is unknown whether the claim was written: %w", context.Cause(ctx))
	}
}

// enqueue adds the operation behind the pending ones of the ledger. Operations that arrive during a write are written together
// next, so that many pods can be bound to one node in the time of a few writes.
func (k *Keeper) enqueue(key snapshot.LedgerKey, o operation) (*writeQueue, *request) {
	r := &request{operation: o, done: make(chan outcome, 1)}
	name := Name(key)
	k.mu.Lock()
	defer k.mu.Unlock()
	q := k.queues[name]
	if q == nil {
		q = &writeQueue{key: key}
		k.queues[name] = q
	}
	q.pending = append(q.pending, r)
	if !q.writing {
		q.writing = true
		go k.work(name, q)
	}
	return q, r
}

// cancel removes a pending request from the queue, and reports whether it was still pending.
func (k *Keeper) cancel(q *writeQueue, r *request) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.Index(q.pending, r)
	if i >= 0 {
		q.pending = slices.Delete(q.pending, i, i+1)
	}
	return i >= 0
}

// writeError is a failure to write, as opposed to what choose returned.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }

// work writes the pending operations until there are none. Only one goroutine works on a writeQueue.
func (k *Keeper) work(name string, q *writeQueue) {
	for {
		k.mu.Lock()
		batch := q.pending
		q.pending = nil
		if len(batch) == 0 {
			q.writing = false
			k.mu.Unlock()
			return
		}
		written := q.written
		k.mu.Unlock()

		ctx, cancel := context.WithTimeout(context.Background(), k.options.WriteTimeout)
		operations := make([]operation, len(batch))
		for i, r := range batch {
			operations[i] = r.operation
		}
		outcomes, object := k.write(ctx, name, q.key, operations, written)
		cancel()

		k.mu.Lock()
		q.written, q.missing = object, false
		k.mu.Unlock()
		for i, r := range batch {
			r.done <- outcomes[i]
		}
		k.yield(q)
	}
}

// longestYield bounds how long a writer yields if the API server is slow.
const longestYield = 250 * time.Millisecond

// yield lets other replicas write the ledger before this Keeper writes it again. A writer whose version is current would
// otherwise be faster each time than a writer that has to learn the new version first. Meanwhile, more operations arrive,
// which are then written together. The random part prevents two writers from yielding at the same time each time.
func (k *Keeper) yield(q *writeQueue) {
	k.mu.Lock()
	waiting := len(q.pending) > 0
	k.mu.Unlock()
	if waiting {
		time.Sleep(min(longestYield, time.Duration((0.5+mathrand.Float64())*float64(k.roundTrip.Load()))))
	}
}

// newest returns the ledger as it probably is: the API server rejects a write to an older version.
func (k *Keeper) newest(name string, written *Object) *Object {
	cached := k.options.Cache.Ledger(name)
	switch {
	case cached == nil:
		return written
	case written == nil, written.UID != cached.UID, written.Generation < cached.Generation:
		return cached
	}
	return written
}
