package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
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
	// GetLedger reads a Ledger from the API server, as it is now. Not found is an error.
	GetLedger(ctx context.Context, name string) (*Object, error)
	// PutLedger creates the Ledger if it has no resourceVersion, and else replaces exactly that version of it. The object is
	// not changed; what the API server has made of it is returned.
	PutLedger(ctx context.Context, o *Object) (*Object, error)
	// DeleteLedger deletes exactly that version of the Ledger.
	DeleteLedger(ctx context.Context, o *Object) error
	// LivePod reads a pod from the API server, as it is now. Nil if it is gone; a pod of that name with another UID does not
	// count.
	LivePod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error)
	// TouchPod gives the pod a new resourceVersion, and returns it as it is then. Nil if it is gone.
	TouchPod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error)
}

// Cache is the watched state of the cluster. It may be stale.
type Cache interface {
	// Ledger returns the object with the name as last seen, or nil.
	Ledger(name string) *Object
	// Ledgers are all of them.
	Ledgers() []*Object
	// PodByUID returns the pod as last seen, or nil.
	PodByUID(uid types.UID) *corev1.Pod
	// View is what is true now.
	View() *snapshot.View
}

// Options configure a Keeper. API and Cache are required.
type Options struct {
	API   API
	Cache Cache
	// ReclaimAfter is how long a claim of a pod that is not bound stays, at least. It must be longer than the API server may
	// take to answer. Default 5 min.
	ReclaimAfter time.Duration
	// SweepInterval is the time between two sweeps for claims that are no longer needed. Default 5 s.
	SweepInterval time.Duration
	// WriteTimeout bounds the time that one change of a ledger may take, all attempts together. Default 20 s.
	WriteTimeout time.Duration
	// RetryPause is the pause before an attempt is made again that the API server did not answer. It doubles from attempt to
	// attempt. Default 20 ms.
	RetryPause time.Duration
	// Now is the time of claims: that of the API server, which all replicas have in common, or later (see Clock.Latest).
	// time.Now if nil.
	Now func() time.Time
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
	// Registerer receives the metrics. Nil: none.
	Registerer prometheus.Registerer
}

// Keeper writes claims into ledgers. Any number of Keepers, in any number of processes, may work on the same ledgers. Its
// methods may be called concurrently.
type Keeper struct {
	options Options
	metrics *metrics

	mu      sync.Mutex
	queues  map[string]*writeQueue // by ledger name; those with pending operations, or written by this Keeper
	missing []missingPermission    // of the latest sweep; never written to
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

// Claim makes sure that the ledger holds a claim of the pod for the node, and returns it: one that it holds already, or else
// what choose chooses. choose is pure, and is called again when somebody else was faster. It is given the ledger as it is. If
// that holds a claim of the pod, made at the time that choose is given, the question is whether this claim can be used: what
// choose returns beside its error is ignored. Its error is what Claim returns, together with the claim that the pod holds, if
// any; then Claim changes nothing. So it is with ErrNotServed. After any other error nobody may rely on a claim that was made
// all the same: it is taken back when the API server answers, or else by Run.
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

// Revoke takes back a claim unless somebody has come to rely on it since held was returned. Call it only when the pod was
// changed after that and is not bound: no Binding that was sent before can come into effect then, whoever sent it.
func (k *Keeper) Revoke(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	return k.release(ctx, key, releaseOperation{held.UID, held.Token, true})
}

func (k *Keeper) release(ctx context.Context, key snapshot.LedgerKey, o releaseOperation) error {
	if _, err := k.submit(ctx, key, operation{release: &o}); err != nil {
		return fmt.Errorf("ledger %s: %w", Name(key), err)
	}
	return nil
}

// errNotBegun says that an operation was given up before anything was written.
var errNotBegun = errors.New("the claim was not written: it was still queued behind other writes")

// submit queues the operation and waits until it is written, or ctx ends: then it cancels one that has not begun.
func (k *Keeper) submit(ctx context.Context, key snapshot.LedgerKey, o operation) (outcome, error) {
	b, r := k.enqueue(key, o)
	select {
	case result := <-r.done:
		var failed *writeError
		if errors.As(result.err, &failed) {
			return outcome{}, failed.err
		}
		return result, nil
	case <-ctx.Done():
		if k.cancel(b, r) {
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
	b := k.queues[name]
	if b == nil {
		b = &writeQueue{key: key}
		k.queues[name] = b
	}
	b.pending = append(b.pending, r)
	if !b.writing {
		b.writing = true
		go k.work(name, b)
	}
	return b, r
}

// cancel removes a pending request from the queue, and reports whether it was still pending.
func (k *Keeper) cancel(b *writeQueue, r *request) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.Index(b.pending, r)
	if i >= 0 {
		b.pending = slices.Delete(b.pending, i, i+1)
	}
	return i >= 0
}

// writeError is a failure to write, as opposed to what choose returned.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }

// work writes the pending operations until there are none. Only one goroutine works on a writeQueue.
func (k *Keeper) work(name string, b *writeQueue) {
	for {
		k.mu.Lock()
		batch := b.pending
		b.pending = nil
		if len(batch) == 0 {
			b.writing = false
			k.mu.Unlock()
			return
		}
		written := b.written
		k.mu.Unlock()

		ctx, cancel := context.WithTimeout(context.Background(), k.options.WriteTimeout)
		operations := make([]operation, len(batch))
		for i, r := range batch {
			operations[i] = r.operation
		}
		outcomes, object := k.write(ctx, name, b.key, operations, written)
		cancel()

		k.mu.Lock()
		b.written, b.missing = object, false
		k.mu.Unlock()
		for i, r := range batch {
			r.done <- outcomes[i]
		}
	}
}

// newest returns the ledger as it probably is: a version that is older than the API server's is refused there.
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
