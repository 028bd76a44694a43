package ledger

import (
	"cmp"
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
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// API is the part of the API server that a Keeper uses. Its errors are those of client-go: the
// functions of k8s.io/apimachinery/pkg/api/errors classify them, and after any other error the
// outcome is unknown.
type API interface {
	// GetLedger reads the current Ledger from the API server. Not found is an error.
	GetLedger(ctx context.Context, name string) (*Object, error)
	// PutLedger creates the Ledger if it has no resourceVersion, and replaces exactly that version
	// otherwise. It does not change the object; it returns the object as stored by the API server.
	PutLedger(ctx context.Context, o *Object) (*Object, error)
	// DeleteLedger deletes exactly that version of the Ledger.
	DeleteLedger(ctx context.Context, o *Object) error
	// LivePod reads the current pod from the API server. Nil if it is gone; a pod of that name with
	// another UID does not count.
	LivePod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error)
	// TouchPod changes the resourceVersion of the pod, and returns the changed pod. Nil if it is
	// gone.
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
	// ReclaimAfter is how long an allocation of a pod that is not bound stays, at least. It must be
	// longer than the API server takes to respond. Default 5 min.
	ReclaimAfter time.Duration
	// RetryPause is the pause before the first retry if the API server does not respond. It doubles
	// with each retry. Default 20 ms.
	RetryPause time.Duration
	// Now is the time of allocations: the API server's time, which all replicas share, or a later
	// time (see Clock.Latest). time.Now if nil.
	Now func() time.Time
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
	// Registerer receives the metrics; it has none of these names. Nil: none.
	Registerer prometheus.Registerer
}

// Keeper writes allocations into ledgers. Any number of Keepers, in any number of processes, may
// write the same ledgers. Its methods are safe for concurrent use.
type Keeper struct {
	options Options
	metrics *metrics
	// roundTrip is how long the API server took for the latest accepted write, in nanoseconds.
	roundTrip atomic.Int64

	mu      sync.Mutex
	queues  map[string]*Queue // by ledger name; those with pending operations, or written by this Keeper
	missing missing           // of the latest sweep; immutable
}

// New returns a Keeper.
func New(o Options) *Keeper {
	o.ReclaimAfter, o.RetryPause = cmp.Or(o.ReclaimAfter, 5*time.Minute), cmp.Or(o.RetryPause, 20*time.Millisecond)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Keeper{options: o, metrics: newMetrics(o.Registerer), queues: map[string]*Queue{}}
}

// Allocate implements engine.Ledgers. After ErrNotServed, nothing is allocated. After any other
// error, an allocation that may have been written is released when the API server responds, or by
// Run.
func (k *Keeper) Allocate(ctx context.Context, key snapshot.LedgerKey, pod *corev1.Pod, node string, choose func(l *snapshot.Ledger, at time.Time) (policy.Allocation, error)) (snapshot.LedgerPod, error) {
	result, err := k.submit(ctx, key, AllocationFor(pod, node, rand.Text(), choose))
	k.metrics.allocation(result.Err, err)
	if err != nil {
		return snapshot.LedgerPod{}, fmt.Errorf("ledger %s: %w", Name(key), err)
	}
	return result.Held, result.Err
}

// Release implements engine.Ledgers.
func (k *Keeper) Release(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	return k.release(ctx, key, ReleaseOf(held, false))
}

// Revoke implements engine.Ledgers.
func (k *Keeper) Revoke(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	return k.release(ctx, key, ReleaseOf(held, true))
}

func (k *Keeper) release(ctx context.Context, key snapshot.LedgerKey, o Operation) error {
	if _, err := k.submit(ctx, key, o); err != nil {
		return fmt.Errorf("ledger %s: %w", Name(key), err)
	}
	return nil
}

// submit queues the operation and waits until it is written or ctx ends. After an error, the queue
// withdraws the operation.
func (k *Keeper) submit(ctx context.Context, key snapshot.LedgerKey, o Operation) (Outcome, error) {
	s := &Submission{Operation: o, done: make(chan Outcome, 1)}
	k.change(key, func(q *Queue) { q.Add(s) })
	select {
	case result := <-s.done:
		if err := result.Failure; err != nil && !errors.Is(err, ErrNotServed) {
			k.change(key, func(q *Queue) { _ = q.Withdraw(s) })
		}
		return result, result.Failure
	case <-ctx.Done():
		var known error
		k.change(key, func(q *Queue) { known = q.Withdraw(s) })
		return Outcome{}, fmt.Errorf("%w: %w", known, context.Cause(ctx))
	}
}

// change changes the queue of the ledger. A goroutine writes the operations that are pending then.
func (k *Keeper) change(key snapshot.LedgerKey, f func(q *Queue)) {
	name := Name(key)
	k.mu.Lock()
	defer k.mu.Unlock()
	q := k.queues[name]
	if q == nil {
		q = &Queue{Key: key}
		k.queues[name] = q
	}
	f(q)
	if !q.writing && len(q.pending) > 0 {
		q.writing = true
		go k.work(q)
	}
}

const (
	// sweepInterval is the time between two sweeps for allocations that no pod needs.
	sweepInterval = 5 * time.Second
	// writeTimeout bounds the time of one change of a ledger, all attempts together.
	writeTimeout = 20 * time.Second
	// longestYield bounds how long a writer yields if the API server is slow.
	longestYield = 250 * time.Millisecond
	// lastPause is the longest pause between two attempts.
	lastPause = time.Second
)

// work writes the pending operations until there are none. Only one goroutine works on a queue.
//
// After each write, it lets other replicas write the ledger before this Keeper writes it again. A
// writer whose version is current would otherwise be faster each time than a writer that has to
// learn the new version first. Meanwhile, more operations arrive, which are then written together.
// The random part prevents two writers from yielding at the same time each time.
func (k *Keeper) work(q *Queue) {
	for {
		k.mu.Lock()
		batch, w := q.Take()
		k.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		w = k.write(w)
		k.mu.Lock()
		more := q.Wrote(w)
		k.mu.Unlock()
		for i, s := range batch {
			s.done <- w.Outcomes[i]
		}
		if more {
			time.Sleep(min(longestYield, time.Duration((0.5+mathrand.Float64())*float64(k.roundTrip.Load()))))
		}
	}
}

// write performs the requests of a writing until it has ended.
func (k *Keeper) write(w Writing) Writing {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	name, wait := Name(w.key), k.options.RetryPause
	for w.Request.Kind != Written {
		var r Response
		switch w.Request.Kind {
		case ReadLedger:
			r.Object, r.Err = k.options.API.GetLedger(ctx, name)
		case ExamineAllocations:
			r.Allocations = slices.Clone(w.Request.Allocations)
			k.examine(ctx, r.Allocations)
		case PutLedger:
			started := time.Now()
			r.Object, r.Err = k.options.API.PutLedger(ctx, w.Request.Object)
			took := time.Since(started)
			k.metrics.write(took, outdated(w.Request.Object, r.Err), r.Err)
			if r.Err == nil {
				k.roundTrip.Store(int64(took))
			}
		case Pause:
			select {
			case <-ctx.Done():
			case <-time.After(wait):
				wait = min(2*wait, lastPause)
			}
		}
		r.Now, r.Cached, r.Ended = k.options.Now(), k.options.Cache.Ledger(name), ctx.Err() != nil
		w = w.Next(r)
	}
	return w
}

// examine reads and changes the pods of allocations until each examination has ended.
func (k *Keeper) examine(ctx context.Context, allocations []Examination) {
	inParallel(len(allocations), func(i int) {
		for e := &allocations[i]; e.Err == nil; {
			var pod *corev1.Pod
			var err error
			switch e.Request {
			case ReadCachedPod:
				pod = k.options.Cache.PodByUID(e.Allocation.UID)
			case ReadPod:
				pod, err = k.options.API.LivePod(ctx, e.Allocation.Namespace, e.Allocation.Name, e.Allocation.UID)
			case TouchPod:
				pod, err = k.options.API.TouchPod(ctx, e.Allocation.Namespace, e.Allocation.Name, e.Allocation.UID)
			default:
				return
			}
			*e = e.Next(pod, err)
		}
	})
}

// maxParallel bounds how many pods are read, or ledgers written, at the same time. A bind call that
// waits for the client-side rate limit waits for at most that many of these requests.
const maxParallel = 8

// inParallel calls f with 0 to n-1, at most maxParallel of them at the same time, and returns when
// all have returned.
func inParallel(n int, f func(i int)) {
	var group errgroup.Group
	group.SetLimit(maxParallel)
	for i := range n {
		group.Go(func() error {
			f(i)
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
}
