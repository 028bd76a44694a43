package search

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"outboard.dev/outboard/internal/cluster/assumption"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// reasonOf classifies an error of the API server as ledgers and binders do.
func reasonOf(err error) byte {
	switch {
	case apierrors.IsNotFound(err):
		return 1
	case apierrors.IsConflict(err):
		return 2
	case apierrors.IsAlreadyExists(err):
		return 3
	}
	return 0
}

// Move is one thing that can happen next.
type Move struct {
	kind moveKind
	// replica, and what of it or of the API server: the meaning depends on the kind.
	replica, a, b, c int8
}

type moveKind int8

const (
	try              moveKind = iota // kube-scheduler tries pod a at the replica, and binds it to node b; b is -1 if none fits
	work                             // the replica begins to write ledger a
	arrive                           // the request of sender a, b arrives at the API server; c is 1 if it arrives twice
	respond                          // its response arrives at the sender
	lose                             // the sender gives up waiting for it; c is 1 if the time of the write has ended, and 2 if it was not sent
	giveUp                           // call a gives up waiting for an operation
	arriveLate                       // request a, which nobody waits for, arrives
	showPod                          // the watch shows the replica the next change of a pod
	showLedger                       // the watch shows the replica the next change of a ledger
	sweepAllocation                  // the replica's sweep examines allocation b of ledger a; c is 1 if its time has ended
	crash                            // the replica is killed, and starts again
	createPod                        // the next pod is created
	changePod                        // pod a is changed by somebody else
	deletePod                        // pod a is deleted; if it is on a node, it terminates
	endPod                           // pod a, which is bound, has ended
	showNode                         // the watch shows the replica the next change of a node
	replaceDevice                    // the device of node a is replaced
	confirmPod                       // the replica reads the a-th pod that it counts as bound and that its watch does not show there
	proceed                          // the plugin binds the pod that call a has reserved
	unreserve                        // the plugin does not bind it
	preempt                          // kube-scheduler asks the replica which pods to evict for pod a, and chooses the b-th node; c is 1 if it does not know which pods are gone
	evict                            // kube-scheduler evicts the b-th of the pods that it has chosen for pod a
	nominate                         // kube-scheduler nominates pod a
	restartScheduler                 // the kube-scheduler of pod a is killed, and starts again
	terminate                        // pod a, which terminates, is gone
)

// The senders of requests: in Move, a is one of these, and b the index of the call or the ledger.
const (
	ofCall int8 = iota
	ofWrite
	ofSweep
	ofConfirm
)

// request returns the outstanding request of a sender; nil if there is none.
func (r *replica) request(sender, i int8) *request {
	switch sender {
	case ofCall:
		return r.calls[i].request
	case ofWrite:
		return r.writers[i].request
	case ofSweep:
		if r.sweep != nil {
			return r.sweep.request
		}
	case ofConfirm:
		if r.confirm != nil {
			return r.confirm.request
		}
	}
	return nil
}

// sending is who sends a request.
type sending struct{ sender, index int8 }

// requests returns the senders of LivePod and TouchPod that have no response yet.
func (r *replica) requests() (all []sending) {
	for i := range r.calls {
		all = append(all, sending{ofCall, int8(i)})
	}
	for l := range r.writers {
		all = append(all, sending{ofWrite, int8(l)})
	}
	all = append(all, sending{ofSweep, 0})
	return slices.DeleteFunc(all, func(s sending) bool { return r.request(s.sender, s.index) == nil })
}

func (r *replica) setRequest(sender, i int8, to *request) {
	switch sender {
	case ofCall:
		r.calls[i].request = to
	case ofWrite:
		r.writers[i].request = to
	case ofSweep:
		r.sweep.request = to
	default:
		r.confirm.request = to
	}
}

// Moves returns what can happen next.
func (w *World) Moves() []Move {
	var moves []Move
	for i := range w.replicas {
		moves = w.movesOf(moves, int8(i))
	}
	for i := range w.late {
		moves = append(moves, Move{kind: arriveLate, a: int8(i)})
	}
	if w.created < w.scope.Creations && !(w.scope.Again && w.holds(w.scope.pod(0))) {
		moves = append(moves, Move{kind: createPod})
	}
	if w.changes < w.scope.Changes {
		for p, pod := range w.pods {
			if pod != nil && pod.Spec.NodeName == "" {
				moves = append(moves, Move{kind: changePod, a: int8(p)})
			}
		}
	}
	if w.deletions < w.scope.Deletions {
		for p, pod := range w.pods {
			if pod != nil && pod.DeletionTimestamp == nil {
				moves = append(moves, Move{kind: deletePod, a: int8(p)})
			}
		}
	}
	if w.endings < w.scope.Endings {
		for p, pod := range w.pods {
			if assumption.OnNode(pod) {
				moves = append(moves, Move{kind: endPod, a: int8(p)})
			}
		}
	}
	if w.replacements < w.scope.Replacements {
		for n := range w.nodes {
			moves = append(moves, Move{kind: replaceDevice, a: int8(n)})
		}
	}
	return w.preemptMoves(moves)
}

func (w *World) movesOf(moves []Move, i int8) []Move {
	r := &w.replicas[i]
	add := func(kind moveKind, a, b, c int8) { moves = append(moves, Move{kind, i, a, b, c}) }
	for p := range r.pods {
		pod := w.queued(r, p)
		if pod != nil && pod.Spec.NodeName == "" && (w.rejected[p] == 0 || w.retriesEarly(p)) && w.tried[p] < w.scope.Calls && !(w.scope.Plugin && r.has(p)) {
			nodes := w.fitting(r, p)
			for _, n := range nodes {
				add(try, int8(p), int8(n), 0)
			}
			if len(nodes) == 0 {
				add(try, int8(p), -1, 0)
			}
		}
	}
	if len(r.podEvents) > 0 {
		add(showPod, 0, 0, 0)
	}
	if len(r.ledgerEvents) > 0 {
		add(showLedger, 0, 0, 0)
	}
	if len(r.nodeEvents) > 0 {
		add(showNode, 0, 0, 0)
	}
	send := func(sender, j int8) {
		request := r.request(sender, j)
		switch {
		case request == nil:
			return
		case request.arrived:
			add(respond, sender, j, 0)
		default:
			add(arrive, sender, j, 0)
			if w.duplicates < w.scope.Duplicates && !w.futile(request) {
				add(arrive, sender, j, 1)
			}
		}
		if w.faults < w.scope.Faults && !(request.arrived && request.reads()) { // to lose what was read is to lose the request
			add(lose, sender, j, 0)
			switch {
			case sender == ofWrite:
				add(lose, sender, j, 1)
			case request.verb == bindPod && !request.arrived:
				add(lose, sender, j, 2)
			}
		}
	}
	for c := range r.calls {
		send(ofCall, int8(c))
		if r.calls[c].waits != nil && w.faults < w.scope.Faults {
			add(giveUp, int8(c), 0, 0)
		}
		if r.calls[c].permit {
			add(proceed, int8(c), 0, 0)
			add(unreserve, int8(c), 0, 0)
		}
	}
	for l := range r.writers {
		send(ofWrite, int8(l))
		if !r.writers[l].writing && r.writers[l].queue.Pending() > 0 {
			add(work, int8(l), 0, 0)
		}
		if o := r.ledger(w.scope, l); o != nil && r.sweep == nil {
			for c := range o.Spec.Pods {
				for expired := range int8(2) {
					if (expired == 0 || w.expiries < w.scope.Expiries) && w.suspects(r, l, c, expired) {
						add(sweepAllocation, int8(l), int8(c), expired)
					}
				}
			}
		}
	}
	send(ofSweep, 0)
	send(ofConfirm, 0)
	if w.confirms < w.scope.Confirms && r.confirm == nil {
		for c := range r.unconfirmed() {
			add(confirmPod, int8(c), 0, 0)
		}
	}
	if w.crashes < w.scope.Crashes {
		add(crash, 0, 0, 0)
	}
	return moves
}

// ledger returns the ledger in the replica's cache.
func (r *replica) ledger(s *Scope, l int) *ledger.Object {
	return r.cluster.Ledger(ledger.Name(s.keys[l]))
}

// examination returns the examination of an allocation in the replica's cache by a sweep, after the first step.
func (r *replica) examination(w *World, l, c int, expired int8) ledger.Examination {
	o := r.ledger(w.scope, l)
	e := ledger.Examination{Ledger: &o.Spec, Allocation: &o.Spec.Pods[c], Age: time.Minute, Limit: time.Hour}
	if expired == 1 {
		e.Limit = 0
	}
	return e.Next(r.cluster.PodByUID(e.Allocation.UID), nil)
}

// suspects reports whether a sweep would do more than look at the caches. One of an expired allocation that does the same as one of another
// allocation is no move.
func (w *World) suspects(r *replica, l, c int, expired int8) bool {
	keeps := r.examination(w, l, c, 0).Request == ledger.KeepAllocation
	return keeps == (expired == 1) && (!keeps || r.examination(w, l, c, 1).Request != ledger.KeepAllocation)
}

// After returns the World after the move.
func (w *World) After(m Move) *World {
	next := w.clone()
	next.move(m)
	next.reduce()
	for i := range next.replicas {
		next.replicas[i].look(next.scope)
		next.requeue(i)
	}
	return next
}

// reduce removes what has no effect any more, so that Worlds are the same that differ in nothing else: late requests that the API server will
// reject, responses that have no effect any more, and versions of a pod that is not bound, if no replica will read one
// from its cache to bind the pod.
func (w *World) reduce() {
	if w.scope.Unreduced {
		return
	}
	w.late = slices.DeleteFunc(w.late, w.futile)
	for i := range w.replicas {
		r := &w.replicas[i]
		w.answerInVain(r)
		if w.scope.Changes > 0 { // a sweep may read a version from the cache, too
			continue
		}
		waits := func(pod *corev1.Pod) bool { return pod != nil && pod.Spec.NodeName == "" }
		last := slices.Clone(r.pods)
		r.podEvents = slices.DeleteFunc(r.podEvents, func(e event[*corev1.Pod]) bool {
			same := w.tried[e.index] >= w.scope.Calls && waits(last[e.index]) && waits(e.now) &&
				last[e.index].Status.NominatedNodeName == e.now.Status.NominatedNodeName
			last[e.index] = e.now
			return same
		})
		for p, pod := range r.pods {
			if w.tried[p] >= w.scope.Calls && waits(pod) && waits(w.pods[p]) && pod != w.pods[p] &&
				!slices.ContainsFunc(r.podEvents, func(e event[*corev1.Pod]) bool { return e.index == p }) {
				r.pods[p] = w.pods[p]
				current := w.pods[p]
				r.change(func(c *offline) { c.SetPod(current) })
			}
		}
	}
}

func (w *World) move(m Move) {
	r := &w.replicas[m.replica]
	switch m.kind {
	case try:
		if m.b < 0 {
			w.rejected[m.a] = int(m.replica) + 1
			if w.preempted < w.scope.Preemptions && w.scope.preemptor(int(m.a)) {
				w.preemptions[m.a].filtered = w.rejectedAs(r, int(m.a))
			}
			return
		}
		w.rejected[m.a], w.preemptions[m.a].filtered = 0, nil
		w.tried[m.a]++
		w.begin(r, int(m.a), int(m.b))
	case work:
		q := &r.writers[m.a]
		q.batch, q.write = q.queue.Take()
		q.writing = true
		w.next(r, int(m.a), ledger.Response{})
	case arrive:
		if m.c == 1 {
			w.duplicates++
			w.serve(*r.request(m.a, m.b))
		}
		r.setRequest(m.a, m.b, w.serve(*r.request(m.a, m.b)))
	case respond:
		w.responded(r, m, r.request(m.a, m.b))
	case lose:
		w.faults++
		lost := *r.request(m.a, m.b)
		if m.c != 2 {
			w.abandon(&lost)
		}
		lost.pod, lost.ledger, lost.err = nil, nil, errLost
		w.responded(r, m, &lost)
	case giveUp:
		w.faults++
		w.finish(r, int(m.a), ledger.Outcome{Failure: errLost})
	case arriveLate:
		late := w.late[m.a]
		w.late = slices.Delete(w.late, int(m.a), int(m.a)+1)
		w.serve(*late)
	case showPod:
		w.showPod(r)
	case showLedger:
		l := r.ledgerEvents[0]
		r.ledgerEvents = r.ledgerEvents[1:]
		r.ledgers[l.index] = l.now
		for p := range r.omitted {
			if r.omits(p, l.index) && !r.allocations(w.scope, p, l.index) {
				r.omitted[p] = slices.Clone(r.omitted[p]) // another World has the same
				r.omitted[p][l.index] = false
			}
		}
		r.change(func(c *offline) { c.SetLedger(l.now) })
	case showNode:
		n := r.nodeEvents[0]
		r.nodeEvents = r.nodeEvents[1:]
		r.nodes[n.index] = n.now
		r.change(func(c *offline) { c.SetNode(n.now) })
	case sweepAllocation:
		w.expiries += int(m.c)
		r.sweep = &sweep{ledger: int(m.a)}
		r.sweep.allocation, r.sweep.request = w.examine(r, r.examination(w, int(m.a), int(m.b), m.c))
	case crash:
		w.crash(int(m.replica))
	case createPod:
		p := w.scope.Pods - w.scope.Creations + w.created
		w.created++
		w.setPod(p, w.scope.newPod(p))
	case changePod:
		w.changes++
		changed := annotated(w.pods[m.a], changes, strconv.Itoa(w.changes))
		if w.scope.Request == Later {
			changed = annotated(changed, asksForSeat, tool)
		}
		w.setPod(int(m.a), changed)
	case deletePod:
		w.deletions++
		w.delete(int(m.a))
	case endPod:
		w.endings++
		changed := *w.pods[m.a]
		changed.Status.Phase = corev1.PodSucceeded
		w.setPod(int(m.a), &changed)
	case replaceDevice:
		w.replace(int(m.a))
	case confirmPod:
		w.confirms++
		assumed := r.unconfirmed()[m.a]
		r.change(func(c *offline) { c.beginConfirm(assumed.UID) })
		p := w.scope.index(assumed.UID)
		r.confirm = &confirm{p, assumed, &request{verb: getPod, object: p}}
	case proceed:
		w.proceed(r, int(m.a))
	case unreserve:
		w.end(r, int(m.a), errLost)
	default:
		w.preemptMove(m)
	}
}

func (w *World) responded(r *replica, m Move, done *request) {
	switch m.a {
	case ofCall:
		w.respond(r, int(m.b), done, m.c != 2)
	case ofWrite:
		w.written(r, int(m.b), done, m.c == 1)
	case ofSweep:
		w.swept(r, done)
	default:
		w.confirmed(r, done)
	}
}

// abandon keeps a request, for whose response nobody waits, if it may still have an effect.
func (w *World) abandon(r *request) {
	if r != nil && !r.arrived {
		late := *r
		late.number = 0 // nobody waits for the response
		w.late = append(w.late, &late)
	}
}

// showPod shows the replica the next change of a pod.
func (w *World) showPod(r *replica) {
	p, shown := r.podEvents[0].index, r.podEvents[0].now
	r.podEvents = r.podEvents[1:]
	former, pod := r.pods[p], existing(shown)
	r.pods[p] = pod
	if former == nil {
		r.freed = unevaluated
	}
	if pod == nil {
		r.omitted[p], r.gone[p] = make([]bool, len(r.ledgers)), true
		for l := range r.ledgers {
			r.omitted[p][l] = r.allocations(w.scope, p, l)
		}
	}
	if shown == nil {
		last := cmp.Or(former, w.was[p])
		r.change(func(c *offline) { c.RemovePod(last) })
	} else {
		r.change(func(c *offline) { c.SetPod(shown) })
	}
	if pod == nil || pod.Spec.NodeName != "" {
		r.decided[p], r.bound[p] = "", false
	}
}

// existing returns the pod; nil if it has ended, which is the same to replicas as being gone.
func existing(pod *corev1.Pod) *corev1.Pod {
	if pod != nil && snapshot.Ended(pod) {
		return nil
	}
	return pod
}

// crash kills the replica. It starts again, and kube-scheduler retries the pods that it has rejected.
func (w *World) crash(i int) {
	w.crashes++
	r := &w.replicas[i]
	for c := range r.calls {
		w.abandon(r.calls[c].request)
	}
	for l := range r.writers {
		w.abandon(r.writers[l].request)
	}
	w.abandon(r.request(ofSweep, 0)) // a read of a pod has no effect
	w.replicas[i] = w.started()
	for p := range w.rejected {
		if w.rejected[p] == i+1 {
			w.rejected[p] = 0
		}
	}
}
