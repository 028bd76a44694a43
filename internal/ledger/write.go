package ledger

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// maxRejections is how often the API server may reject a valid change of the ledger just read before the Keeper gives up.
const maxRejections = 3

// writing is the write of operations to one ledger. It is a value without client, clock or goroutine: next returns the following state, and
// a Keeper performs the request of each state.
//
//	readCache     ── the operations succeed on the latest known ledger ───► putLedger
//	              ── one fails, or nothing changes: it may be stale ──────► readLedger
//	readLedger    ── the operations succeed ──────────────────────────────► putLedger
//	              ── one fails: other claims may be no longer needed ─────► examineClaims
//	              ── nothing changes ─────────────────────────────────────► end
//	examineClaims ── these claims are released, and the rest is written ──► putLedger
//	              ── nothing changes ─────────────────────────────────────► end
//	putLedger     ── written ─────────────────────────────────────────────► end
//	              ── another writer was faster: the cache is newer ───────► as after readCache
//	              ── another writer was faster: the cache is not newer ───► readLedger
//	              ── invalid ─────────────────────────────────────────────► readLedger; from the second time on, one operation at a time
//	any           ── denied, not served, or the time of the write ended ──► end
//	              ── the outcome is unknown, as after a lost response ────► pause ──► readLedger
//
// The API server accepts a change only if the version that it was made from is current. So if the response to an
// attempt is lost, the write is repeated after reading: either the first attempt was written, and its claims are in the
// ledger; or it was not, and if it arrives later, the API server rejects it.
//
// testdata/writing.txtar has a history of each transition.
type writing struct {
	key        snapshot.LedgerKey
	operations []operation // which are written together
	rest       []operation // which are written one by one after these
	outcomes   []outcome   // of the operations before these
	object     *Object     // the latest known ledger; nil: unknown
	read       bool        // object was read from the API server during this write
	refusals   int         // how often the API server found the change invalid
	proposed   []outcome   // if the request to put the ledger succeeds
	failure    error       // why the write pauses
	request    request
}

// request is what a writing needs next.
type request struct {
	kind   requestKind
	object *Object       // putLedger: the changed ledger
	claims []examination // examineClaims
}

type requestKind string

const (
	readCache     requestKind = "" // only the time and the cached ledger
	readLedger    requestKind = "readLedger"
	examineClaims requestKind = "examineClaims"
	putLedger     requestKind = "putLedger"
	pause         requestKind = "pause"
	written       requestKind = "written" // the end: there is an outcome for each operation
)

// response is the response to a request.
type response struct {
	now    time.Time
	cached *Object       // the ledger in the cache; nil: none
	ended  bool          // the time of the write has ended
	object *Object       // as read or put
	claims []examination // which have ended
	err    error         // from the API server
}

// next returns the state after the response to the request.
func (w writing) next(r response) writing {
	if notServed(w.request.object, r.err) {
		return w.giveUp(fmt.Errorf("%w (%w)", ErrNotServed, r.err))
	}
	switch w.request.kind {
	case readCache:
		if w.object = newest(r.cached, w.object); w.object == nil {
			w.object = newObject(w.key)
		}
	case readLedger:
		w.object, w.read = r.object, true
		switch {
		case apierrors.IsNotFound(r.err):
			w.object = newObject(w.key)
		case r.err != nil:
			return w.fail(r, fmt.Errorf("reading: %w", r.err))
		case r.object.Spec.Key() != w.key:
			return w.giveUp(fmt.Errorf("the object with the ledger's name is for another resource or node: resource %q on node %q", r.object.Spec.Resource, r.object.Spec.Node))
		}
	case examineClaims:
	case putLedger:
		newer := newest(r.cached, w.object)
		switch {
		case r.err == nil:
			return w.end(w.proposed, r.object)
		case r.ended, !outdated(w.request.object, r.err):
			return w.fail(r, r.err)
		case newer == w.object:
			return w.reread()
		}
		w.object, w.read = newer, false // the cache has what the other writer wrote
	case pause:
		if r.ended {
			return w.giveUp(w.failure)
		}
		return w.reread()
	default:
		panic("ledger: a response to a write that has ended")
	}
	return w.propose(r)
}

// propose applies the operations to the ledger, after the releases of claims that turned out to be unneeded. A claim whose pod could not be
// read may be unneeded, too, unless the permission is missing: then it stays, and sweeps report it.
func (w writing) propose(r response) writing {
	var releases []operation
	var unknown error
	for _, e := range r.claims {
		if e.request == releaseClaim {
			releases = append(releases, e.release())
		} else if e.err != nil && !apierrors.IsForbidden(e.err) {
			unknown = fmt.Errorf("reading pod %s/%s, which has a claim: %w", e.claim.Namespace, e.claim.Name, e.err)
		}
	}
	next, outcomes := apply(w.object.Spec, append(releases, w.operations...), r.now)
	outcomes = outcomes[len(releases):]
	rejected := slices.ContainsFunc(outcomes, func(o outcome) bool { return o.err != nil })
	unchanged := reflect.DeepEqual(next, clone(w.object.Spec))
	switch {
	case (rejected || unchanged) && !w.read:
		return w.reread()
	case rejected && w.request.kind != examineClaims:
		w.request = request{kind: examineClaims}
		for i := range w.object.Spec.Pods { // at any age, but only pods that cannot be bound anymore
			e := examination{ledger: &w.object.Spec, claim: &w.object.Spec.Pods[i], age: cacheDelay, limit: math.MaxInt64}
			w.request.claims = append(w.request.claims, e)
		}
	case rejected && unknown != nil:
		return w.fail(r, unknown)
	case unchanged:
		return w.end(outcomes, w.object)
	default:
		object := w.object.DeepCopyObject().(*Object)
		object.Spec = next
		object.summarize()
		w.proposed, w.request = outcomes, request{kind: putLedger, object: object}
	}
	return w
}

// reread reads the ledger, which is unknown.
func (w writing) reread() writing {
	w.object, w.request = nil, request{kind: readLedger}
	return w
}

// fail tries again, or gives up.
func (w writing) fail(r response, err error) writing {
	invalid, final := apierrors.IsInvalid(err), apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsBadRequest(err)
	switch {
	case r.ended, final, invalid && w.refusals == maxRejections:
		return w.giveUp(err)
	case invalid && w.refusals > 0 && len(w.operations) > 1:
		w.rest = w.operations // so that an invalid one does not fail the others
		return w.end(nil, nil)
	case invalid:
		w.refusals++
		return w.reread()
	}
	w.object, w.failure, w.request = nil, err, request{kind: pause}
	return w
}

// giveUp ends the operations with this failure.
func (w writing) giveUp(err error) writing {
	return w.end(slices.Repeat([]outcome{{failure: err}}, len(w.operations)), nil)
}

// end ends the operations with these outcomes, and begins with the next one. The ledger is as given, or unknown if nil.
func (w writing) end(outcomes []outcome, object *Object) writing {
	w.outcomes = slices.Concat(w.outcomes, outcomes)
	w.object, w.read, w.refusals, w.request = object, false, 0, request{kind: written}
	if len(w.rest) > 0 {
		w.operations, w.rest, w.request.kind = w.rest[:1], w.rest[1:], readCache
	}
	return w
}

// newest returns the ledger as it probably is: the API server rejects a write to an older version.
func newest(cached, written *Object) *Object {
	switch {
	case cached == nil:
		return written
	case written == nil, written.UID != cached.UID, written.Generation < cached.Generation:
		return cached
	}
	return written
}

// outdated reports whether the API server rejected the object because another writer was faster.
func outdated(o *Object, err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) && !notServed(o, err)
}

// ErrNotServed means that the API server does not have the Ledger resource.
var ErrNotServed = fmt.Errorf("the API server does not serve %s: install the Ledger CRD: kubectl apply -f deploy/chart/crds/ledgers.yaml", Resource.GroupResource())

// notServed reports whether an error of reading a ledger, or of putting the object, is about the resource, and not about one object: the API
// server does not serve the resource, or is deleting its definition.
func notServed(o *Object, err error) bool {
	return apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) &&
		(apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) || o != nil && o.ResourceVersion == "") // no missing object can prevent creating one
}
