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

// API is what a Keeper needs of the API server. Its errors are those of client-go: what it says is told apart with the
// functions of k8s.io/apimachinery/pkg/api/errors, and anything else leaves open what has happened.
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

// Cache is what is known about the cluster without asking. It may be behind.
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

// Options are the parts of a Keeper. API and Cache are required.
type Options struct {
	API   API
	Cache Cache
	// ReclaimAfter is how long a claim of a pod that is not bound stays, at least. It must be longer than the API server may
	// take to answer. Default 5 min.
	ReclaimAfter time.Duration
	// SweepInterval is the time between two looks for claims that nobody needs any more. Default 5 s.
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
	// Registerer gets the metrics. Nil: none.
	Registerer prometheus.Registerer
}

// Keeper writes claims into ledgers. Any number of Keepers, in any number of processes, may work on the same ledgers. Its
// methods may be called concurrently.
type Keeper struct {
	options Options
	metrics *metrics

	mu      sync.Mutex
	queues  map[string]*writeQueue // by name; those with something to do, or written by us
	missing []missingPermission    // of the latest sweep; never written to
}

// book is one ledger and what is to be done to it. Its fields are guarded by Keeper.mu.
type writeQueue struct {
	key     snapshot.LedgerKey
	pending []*request
	writing bool    // somebody works on it
	written *Object // by us, or read, most recently; nil if it is not known how it is
	missing bool    // a sweep since then did not find it in the cache
}

// request is an operation somebody waits for.
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

// Release takes back a claim that only the caller relies on; one that others rely on, too, stays. Call it only when the
// caller's Binding is certain not to be, and not to come, into effect.
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
var errNotBegun = errors.New("it was not written: it still waited for the writes before it")

// do waits until the operation is done, or ctx ends: then one that has not begun is left out.
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
		return outcome{}, fmt.Errorf("not known whether it was written: %w", context.Cause(ctx))
	}
}

// enqueue has the operation done after those that wait for the ledger already. Operations on one ledger that come while one
// is written are written together next, so that many pods can be bound to one node in the time of a few writes.
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

// leaveOut takes a request that waits off the book, and says whether it still did.
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

// work does what waits, until nothing does. Only one goroutine works on a book.
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
