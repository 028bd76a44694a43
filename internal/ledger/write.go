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

// maxRejections is how often the API server may reject a valid change of the ledger just read
// before the Keeper gives up.
const maxRejections = 3

// Writing is the write of operations to one ledger. It is a value without client, clock or
// goroutine: Next returns the following state, and a Keeper performs the request of each state.
//
//	ReadCache     ── the operations succeed on the latest known ledger ───► PutLedger
//	              ── one fails, or nothing changes: it may be stale ──────► ReadLedger
//	ReadLedger    ── the operations succeed ──────────────────────────────► PutLedger
//	              ── one fails: other allocations may be no longer needed ─────► ExamineAllocations
//	              ── nothing changes ─────────────────────────────────────► end; if an earlier request may be late ──► PutLedger
//	ExamineAllocations ── these allocations are released, and the rest is written ──► PutLedger
//	              ── nothing changes ─────────────────────────────────────► end
//	PutLedger     ── written ─────────────────────────────────────────────► end
//	              ── another writer was faster: the cache is newer ───────► as after ReadCache
//	              ── another writer was faster: the cache is not newer ───► ReadLedger
//	              ── invalid ─────────────────────────────────────────────► ReadLedger; from the second time on, one operation at a time
//	any           ── denied, not served, or the time of the write ended ──► end
//	              ── the outcome is unknown, as after a lost response ────► Pause ──► ReadLedger
//
// The API server accepts a change only if the version that it was made from is current. So if the
// response to an attempt is lost, the write is repeated after reading: either the first attempt was
// written, and its allocations are in the ledger; or it was not, and if it arrives later, the API
// server rejects it. If the time of the write ends first, the next write changes the ledger in any
// case, so that the API server rejects what is late.
//
// What always holds:
//   - A ledger is put only if all operations were applied to exactly the version that it replaces.
//   - An operation is rejected only by a ledger that was read during this write, after all of its
//     allocations were examined.
//   - The end has one outcome for each operation, in their order.
//   - While late is set, the API server may still write it, and no outcome relies on a version
//     that it can replace.
//
// testdata/writing.txtar has a history of each transition.
type Writing struct {
	key        snapshot.LedgerKey
	operations []Operation // which are written together
	rest       []Operation // which are written one by one after these
	Outcomes   []Outcome   // of the operations before these
	Object     *Object     // the latest known ledger; nil: unknown
	read       bool        // object was read from the API server during this write
	refusals   int         // how often the API server found the change invalid
	late       *Object     // the request to put this ledger has no response, and may still arrive; nil: there is none
	proposed   []Outcome   // if the request to put the ledger succeeds
	failure    error       // why the write pauses
	Request    Request
}

// Request is what a Writing needs next.
type Request struct {
	Kind        RequestKind
	Object      *Object       // PutLedger: the changed ledger
	Allocations []Examination // ExamineAllocations
}

type RequestKind string

const (
	ReadCache          RequestKind = "" // only the time and the cached ledger
	ReadLedger         RequestKind = "readLedger"
	ExamineAllocations RequestKind = "examineAllocations"
	PutLedger          RequestKind = "putLedger"
	Pause              RequestKind = "pause"
	Written            RequestKind = "written" // the end: there is an outcome for each operation
)

// Response is the response to a request.
type Response struct {
	Now         time.Time
	Cached      *Object       // the ledger in the cache; nil: none
	Ended       bool          // the time of the write has ended
	Object      *Object       // as read or put
	Allocations []Examination // which have ended
	Err         error         // from the API server
}

// Next returns the state after the response to the request.
func (w Writing) Next(r Response) Writing {
	if notServed(w.Request.Object, r.Err) {
		return w.giveUp(fmt.Errorf("%w (%w)", ErrNotServed, r.Err))
	}
	switch w.Request.Kind {
	case ReadCache:
		if w.Object = newest(r.Cached, w.Object); w.Object == nil {
			w.Object = newObject(w.key)
		}
	case ReadLedger:
		w.Object, w.read = r.Object, true
		if w.late != nil && r.Err == nil && w.late.ResourceVersion != r.Object.ResourceVersion {
			w.late = nil
		}
		switch {
		case apierrors.IsNotFound(r.Err):
			w.Object = newObject(w.key)
		case r.Err != nil:
			return w.fail(r, fmt.Errorf("reading: %w", r.Err))
		case r.Object.Spec.Key() != w.key:
			return w.giveUp(fmt.Errorf("the object with the ledger's name is for another resource or node: resource %q on node %q", r.Object.Spec.Resource, r.Object.Spec.Node))
		}
	case ExamineAllocations:
	case PutLedger:
		newer := newest(r.Cached, w.Object)
		switch {
		case r.Err == nil:
			w.late = nil
			return w.end(w.proposed, r.Object)
		case r.Ended, !outdated(w.Request.Object, r.Err):
			return w.fail(r, r.Err)
		case newer == w.Object:
			return w.reread()
		}
		w.Object, w.read = newer, false // the cache has what the other writer wrote
	case Pause:
		if r.Ended {
			return w.giveUp(w.failure)
		}
		return w.reread()
	default:
		panic("ledger: a response to a write that has ended")
	}
	return w.propose(r)
}

// propose applies the operations to the ledger, and asks for what the result needs.
func (w Writing) propose(r Response) Writing {
	releases, unknown := unneeded(r.Allocations)
	next, outcomes := apply(w.Object.Spec, slices.Concat(releases, w.operations), r.Now)
	outcomes = outcomes[len(releases):]
	rejected := slices.ContainsFunc(outcomes, func(o Outcome) bool { return o.Err != nil })
	unchanged := reflect.DeepEqual(next, clone(w.Object.Spec))
	if unchanged && w.read && w.late != nil { // now the API server rejects the late request
		next.LastAt, unchanged = timeOfAllocation(&next, time.Time{}, r.Now), false
	}
	switch {
	case (rejected || unchanged) && !w.read: // the ledger may be stale
		return w.reread()
	case rejected && w.Request.Kind != ExamineAllocations: // it may have allocations that are not needed
		return w.examineAllocations()
	case rejected && unknown != nil:
		return w.fail(r, unknown)
	case unchanged:
		return w.end(outcomes, w.Object)
	}
	object := w.Object.DeepCopyObject().(*Object)
	object.Spec = next
	object.summarize()
	w.proposed, w.Request = outcomes, Request{Kind: PutLedger, Object: object}
	return w
}

// unneeded returns the releases of the allocations that turned out to be unneeded, and why another
// allocation may be, too: its pod could not be read. If the permission is missing, the allocation
// stays, and sweeps report it.
func unneeded(examined []Examination) (releases []Operation, unknown error) {
	for _, e := range examined {
		switch {
		case e.Request == ReleaseAllocation:
			releases = append(releases, e.Release())
		case e.Err != nil && !apierrors.IsForbidden(e.Err):
			unknown = fmt.Errorf("reading pod %s/%s, which has an allocation: %w", e.Allocation.Namespace, e.Allocation.Name, e.Err)
		}
	}
	return releases, unknown
}

// examineAllocations examines allocations of any age, but releases only those of pods that cannot
// be bound anymore.
func (w Writing) examineAllocations() Writing {
	w.Request = Request{Kind: ExamineAllocations}
	spec := &w.Object.Spec
	for i := range spec.Pods {
		e := Examination{Ledger: spec, Allocation: &spec.Pods[i], Age: cacheDelay, Limit: math.MaxInt64}
		w.Request.Allocations = append(w.Request.Allocations, e)
	}
	return w
}

// reread reads the ledger, which is unknown.
func (w Writing) reread() Writing {
	w.Object, w.Request = nil, Request{Kind: ReadLedger}
	return w
}

// fail tries again, or gives up.
func (w Writing) fail(r Response, err error) Writing {
	invalid, final := apierrors.IsInvalid(err), apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsBadRequest(err)
	if w.Request.Kind == PutLedger && !invalid && !final && !outdated(w.Request.Object, err) {
		w.late = w.Request.Object
	}
	switch {
	case r.Ended, final, invalid && w.refusals == maxRejections:
		return w.giveUp(err)
	case invalid && w.refusals > 0 && len(w.operations) > 1:
		w.rest = w.operations // so that an invalid one does not fail the others
		return w.end(nil, nil)
	case invalid:
		w.refusals++
		return w.reread()
	}
	w.Object, w.failure, w.Request = nil, err, Request{Kind: Pause}
	return w
}

// giveUp ends the operations with this failure.
func (w Writing) giveUp(err error) Writing {
	return w.end(slices.Repeat([]Outcome{{Failure: err}}, len(w.operations)), nil)
}

// end ends the operations with these outcomes, and begins with the next one. The ledger is as
// given, or unknown if nil.
func (w Writing) end(outcomes []Outcome, object *Object) Writing {
	w.Outcomes = slices.Concat(w.Outcomes, outcomes)
	w.Object, w.read, w.refusals, w.Request = object, false, 0, Request{Kind: Written}
	if len(w.rest) > 0 {
		w.operations, w.rest, w.Request.Kind = w.rest[:1], w.rest[1:], ReadCache
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
var ErrNotServed = fmt.Errorf("the API server does not serve %s: install the Ledger CRD: kubectl apply --server-side --force-conflicts -f deploy/chart/crds/ledgers.yaml", Resource.GroupResource())

// notServed reports whether an error of reading a ledger, or of putting the object, is about the
// resource, and not about one object: the API server does not serve the resource, or is deleting
// its definition.
func notServed(o *Object, err error) bool {
	return apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) &&
		(apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) || o != nil && o.ResourceVersion == "") // no missing object can prevent creating one
}
