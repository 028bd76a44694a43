package ledger

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

const (
	// lastPause is the longest pause between two attempts.
	lastPause = time.Second
	// maxRejections is how often the API server may reject a valid change of the ledger just read before the Keeper gives up.
	maxRejections = 3
)

// write makes the operations in one write, and returns their outcomes and the ledger as it is now, or nil if that is unknown.
//
// The API server accepts a change only if the version that it was made from is current. So if the response to an
// attempt is lost, the write is repeated after reading: either the first attempt was written, and its claims are in the
// ledger; or it was not, and if it arrives later, the API server rejects it.
func (k *Keeper) write(ctx context.Context, name string, key snapshot.LedgerKey, operations []operation, written *Object) ([]outcome, *Object) {
	base := k.newest(name, written)
	if base == nil {
		base = newObject(key)
	}
	read, refusals, pause := false, 0, k.options.RetryPause
	for {
		var err error
		if base == nil {
			if base, err = k.read(ctx, name, key); err == nil {
				read = true
			}
		}
		if err == nil {
			next, outcomes := apply(base.Spec, operations, k.options.Now())
			if anyRejected(outcomes) && !read {
				base = nil // the cached ledger may be stale
				continue
			}
			if anyRejected(outcomes) {
				var drops []operation
				drops, err = k.finishedClaims(ctx, base)
				next, outcomes = apply(base.Spec, append(drops, operations...), k.options.Now())
				outcomes = outcomes[len(drops):]
			}
			if !anyRejected(outcomes) {
				err = nil // what is unknown about other claims does not matter
			}
			if err == nil && reflect.DeepEqual(next, clone(base.Spec)) {
				return outcomes, base
			}
			if err == nil {
				var object *Object
				if object, err = k.put(ctx, base, next); err == nil {
					return outcomes, object
				}
			}
		}
		tried := base
		base = nil
		switch {
		case errors.Is(err, ErrNotServed):
			return failed(operations, err), nil
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
			k.metrics.conflicts.Inc() // another writer was faster
			if newest := k.newest(name, tried); newest != tried {
				base, read = newest, false // the cache has what the other writer wrote
			}
		case apierrors.IsInvalid(err) && len(operations) > 1 && refusals > 0:
			return k.writeEach(ctx, name, key, operations) // so that an invalid one does not fail the others
		case apierrors.IsInvalid(err) && refusals < maxRejections:
			refusals++
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsBadRequest(err), errors.Is(err, errForeign):
			return failed(operations, err), nil
		default:
			select {
			case <-ctx.Done():
				return failed(operations, err), nil
			case <-time.After(pause):
				pause = min(2*pause, lastPause)
			}
		}
		if ctx.Err() != nil {
			return failed(operations, err), nil
		}
	}
}

// writeEach makes the operations one by one.
func (k *Keeper) writeEach(ctx context.Context, name string, key snapshot.LedgerKey, operations []operation) (outcomes []outcome, written *Object) {
	for _, o := range operations {
		var one []outcome
		one, written = k.write(ctx, name, key, []operation{o}, written)
		outcomes = append(outcomes, one...)
	}
	return outcomes, written
}

// ErrNotServed means that the API server does not have the Ledger resource.
var ErrNotServed = fmt.Errorf("the API server does not serve %s: install the Ledger CRD: kubectl apply -f deploy/chart/crds/ledgers.yaml", Resource.GroupResource())

// notServed reports whether an error is about the resource, and not about one object: the API server does not serve the
// resource, or is deleting its definition.
func notServed(err error) bool {
	return apierrors.IsMethodNotSupported(err) ||
		apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// errForeign means that the object with the name of a ledger has another key.
var errForeign = errors.New("the object with the ledger's name is for another resource or node")

// read returns the ledger from the API server, or a new one if it does not exist.
func (k *Keeper) read(ctx context.Context, name string, key snapshot.LedgerKey) (*Object, error) {
	object, err := k.options.API.GetLedger(ctx, name)
	if notServed(err) {
		return nil, fmt.Errorf("%w (%w)", ErrNotServed, err)
	}
	if apierrors.IsNotFound(err) {
		return newObject(key), nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	if object.Spec.Key() != key {
		return nil, fmt.Errorf("%w: resource %q on node %q", errForeign, object.Spec.Resource, object.Spec.Node)
	}
	return object, nil
}

func (k *Keeper) put(ctx context.Context, base *Object, next snapshot.Ledger) (*Object, error) {
	object := base.DeepCopyObject().(*Object)
	object.Spec = next
	object.summarize()
	started := time.Now()
	written, err := k.options.API.PutLedger(ctx, object)
	took := time.Since(started)
	k.metrics.write(took, err)
	if err == nil {
		k.roundTrip.Store(int64(took))
	}
	if notServed(err) || apierrors.IsNotFound(err) && object.ResourceVersion == "" { // no missing object can prevent creating one
		return nil, fmt.Errorf("%w (%w)", ErrNotServed, err)
	}
	return written, err
}

// anyRejected reports whether an operation failed.
func anyRejected(outcomes []outcome) bool {
	for _, o := range outcomes {
		if o.err != nil {
			return true
		}
	}
	return false
}

func failed(operations []operation, err error) []outcome {
	outcomes := make([]outcome, len(operations))
	for i := range outcomes {
		outcomes[i].err = &writeError{err}
	}
	return outcomes
}
