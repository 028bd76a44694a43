package search

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// replica is the state of one replica.
type replica struct {
	cluster *offline
	changes []func(*offline) // of which the cluster is the result; another World may call them too
	owned   bool             // no other World has the cluster, so that it can change
	shown   *shown           // nil: the cluster has changed since
	freed   uint64           // of the last View for which the rejected pods were evaluated, or unevaluated

	podEvents    []event[*corev1.Pod]
	ledgerEvents []event[*ledger.Object]
	nodeEvents   []event[*corev1.Node]
	writers      []writer // one for each ledger
	calls        []call
	sweep        *sweep   // at most one at a time
	confirm      *confirm // the same

	// What the checks compare with: what the watches have shown, and what the replica has decided and learned meanwhile.
	pods    []*corev1.Pod // nil: deleted, or not shown yet
	ledgers []*ledger.Object
	nodes   []*corev1.Node
	decided []string // the node on which a bind call for the pod that has not ended has assumed it last; "": none
	bound   []bool   // the API server has said that the pod is bound, and the watch has shown it neither bound nor gone
	gone    []bool   // the API server or the watch has said that the pod is gone
	omitted [][]bool // for each pod and ledger: the watch has shown that the pod is gone while it had an allocation there, which the views omit
}

// unevaluated is no freed of a View.
const unevaluated = math.MaxUint64

// event is a change that a watch will show. Each resource has one watch, which shows changes in their order.
type event[T any] struct {
	index int // of the pod, ledger or node
	now   T
}

// shown is what the cluster of a replica shows. It is immutable.
type shown struct {
	view   *snapshot.View
	others []*snapshot.View // for each pod, for its own evaluation
	part   part             // the state of the cluster
}

// writer is what [ledger.Keeper] knows of one ledger.
type writer struct {
	queue       ledger.Queue
	writing     bool
	batch       []*ledger.Submission
	write       ledger.Writing
	request     *request
	allocations []ledger.Examination // while the write examines allocations: those so far
}

// call is a bind call. It waits for a response or for the outcome of an operation. With the plugin, it begins with Reserve.
type call struct {
	pod      int
	node     int
	target   binder.Target
	assumed  bool // the pod is assumed
	permit   bool // the plugin has reserved the pod, and does not bind it yet
	protocol binder.Protocol
	task     binder.Task
	number   int // of the Bind; 0: none
	sending  cluster.Sending
	request  *request
	waits    *ledger.Submission
	ledger   int // for which it waits
}

// sweep is the examination of one allocation by a sweep.
type sweep struct {
	ledger     int
	allocation ledger.Examination
	request    *request
	waits      *ledger.Submission
}

// confirm is a read of a pod that counts as bound and that the watch does not show there.
type confirm struct {
	pod     int
	assumed *corev1.Pod
	request *request
}

// started returns a replica that has just read everything.
func (w *World) started() replica {
	r := replica{
		cluster: newOffline(), owned: true,
		pods: slices.Clone(w.pods), ledgers: slices.Clone(w.ledgers), nodes: slices.Clone(w.nodes),
		decided: make([]string, len(w.pods)), bound: make([]bool, len(w.pods)), gone: make([]bool, len(w.pods)), omitted: make([][]bool, len(w.pods)),
		writers: make([]writer, len(w.ledgers)),
	}
	for _, node := range r.nodes {
		r.change(func(c *offline) { c.SetNode(node) })
	}
	for p, pod := range r.pods {
		if pod != nil {
			r.change(func(c *offline) { c.SetPod(pod) })
			r.pods[p], r.gone[p] = existing(pod), existing(pod) == nil
		}
	}
	for l, o := range r.ledgers {
		r.writers[l].queue.Key = w.scope.keys[l]
		if o != nil {
			r.change(func(c *offline) { c.SetLedger(o) })
		}
	}
	r.change(func(c *offline) { c.SetComplete() })
	r.freed = r.cluster.View().FreedGeneration()
	r.look(w.scope)
	return r
}

// clone returns a copy that shares only what is immutable, and the cluster until it changes.
func (r *replica) clone() replica {
	c := *r
	c.owned, c.changes = false, slices.Clip(r.changes)
	c.pods, c.ledgers, c.nodes = slices.Clone(r.pods), slices.Clone(r.ledgers), slices.Clone(r.nodes)
	c.podEvents, c.ledgerEvents, c.nodeEvents = slices.Clone(r.podEvents), slices.Clone(r.ledgerEvents), slices.Clone(r.nodeEvents)
	c.decided, c.bound, c.gone, c.omitted = slices.Clone(r.decided), slices.Clone(r.bound), slices.Clone(r.gone), slices.Clone(r.omitted)
	c.calls = slices.Clone(r.calls)
	c.writers = slices.Clone(r.writers)
	if r.sweep != nil {
		s := *r.sweep
		c.sweep = &s
	}
	if r.confirm != nil {
		f := *r.confirm
		c.confirm = &f
	}
	return c
}

// offline is a cluster whose State changes by calls alone.
type offline struct {
	cluster.Cluster
	confirming *corev1.Pod // as beginConfirm found it
}

func newOffline() *offline { return &offline{Cluster: cluster.Cluster{State: cluster.NewState()}} }

// beginConfirm begins to read a pod that counts as bound.
func (o *offline) beginConfirm(uid types.UID) { o.confirming = o.counted(uid) }

// confirms reports whether confirm would change how the pod counts: it counts as it did when beginConfirm was called.
func (o *offline) confirms() bool { return o.counted(o.confirming.UID) == o.confirming }

// confirm says how the API server has the pod of beginConfirm; nil: it is gone.
func (o *offline) confirm(truth *corev1.Pod, now time.Time) { o.Confirm(o.confirming, truth, now) }

// counted returns the pod as it counts as bound; nil: it does not.
func (o *offline) counted(uid types.UID) *corev1.Pod {
	for _, pod := range o.Unconfirmed(epoch.Add(time.Hour)) {
		if pod.UID == uid {
			return pod
		}
	}
	return nil
}

// change changes the cluster.
func (r *replica) change(f func(*offline)) {
	r.numbered(func(c *offline) int { f(c); return 0 })
}

// numbered changes the cluster, and returns the number that it gives.
func (r *replica) numbered(f func(*offline) int) int {
	if !r.owned {
		r.cluster, r.owned = newOffline(), true
		for _, before := range r.changes {
			before(r.cluster)
		}
	}
	r.shown, r.changes = nil, append(r.changes, func(c *offline) { f(c); c.Publish() })
	number := f(r.cluster)
	r.cluster.Publish()
	return number
}

// look returns what the cluster shows.
func (r *replica) look(s *Scope) *shown {
	if r.shown != nil {
		return r.shown
	}
	of := &shown{view: s.canonical(r.cluster.View()), others: make([]*snapshot.View, len(r.pods))}
	for p := range of.others {
		of.others[p] = s.canonical(r.cluster.ViewFor(s.uid(p)))
	}
	of.part.cluster(r.cluster)
	of.part.view(of.view)
	r.shown = of
	return of
}

// unconfirmed returns the pods that the replica may confirm, in order of name.
func (r *replica) unconfirmed() []*corev1.Pod {
	pods := r.cluster.Unconfirmed(epoch.Add(time.Hour))
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return pods
}

// unseen returns the pod as it was created, if the watch has yet to show that; nil if not.
func (r *replica) unseen(p int) *corev1.Pod {
	if r.pods[p] != nil {
		return nil
	}
	if i := slices.IndexFunc(r.podEvents, func(e event[*corev1.Pod]) bool { return e.index == p }); i >= 0 {
		return r.podEvents[i].now
	}
	return nil
}

// allocations reports whether the pod has an allocation in the ledger, as the watch has shown it.
func (r *replica) allocations(s *Scope, p, l int) bool {
	o := r.ledgers[l]
	return o != nil && o.Spec.Pod(s.uid(p)) != nil
}

// omits reports whether the views omit the allocation of the pod in the ledger.
func (r *replica) omits(p, l int) bool { return r.omitted[p] != nil && r.omitted[p][l] }

// has reports whether a bind call for the pod has assumed it and has not ended.
func (r *replica) has(p int) bool {
	return slices.ContainsFunc(r.calls, func(c call) bool { return c.pod == p && c.assumed })
}

// checkReader checks what everyone who reads from the replica sees: the pods in their views, the allocations, and the freed that is left.
func (w *World) checkReader(i int) error {
	r := &w.replicas[i]
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("replica %d: %s", i, fmt.Sprintf(format, args...))
	}
	view := r.cluster.View()
	held := make([]string, len(w.pods)) // the node on which each pod should be, and is
	for p := range w.pods {
		want, bound := r.expected(p)
		held[p] = want
		for n := range w.scope.nodes {
			pod := podOn(view, w.scope, n, p)
			switch name := w.scope.nodes[n].Name; {
			case pod == nil && name == want:
				return wrong("the view does not have pod %s on %s", w.scope.pod(p), name)
			case pod == nil:
			case name != want:
				return wrong("the view has pod %s on %s, and it should be on %q", w.scope.pod(p), name, want)
			case (pod.Spec.NodeName != "") != bound:
				return wrong("the view has pod %s on %s, bound: %t", w.scope.pod(p), name, !bound)
			case bound && pod.Annotations[annotation] != w.was[p].Annotations[annotation]:
				return wrong("the view has pod %s with device %q, and it has %q", w.scope.pod(p), pod.Annotations[annotation], w.was[p].Annotations[annotation])
			case w.scope.Request.devices() && pod.Annotations[annotation] == "":
				return wrong("the view has pod %s on %s without a device", w.scope.pod(p), name)
			}
		}
		if err := w.checkLookups(r, p, want, bound); err != nil {
			return wrong("%v", err)
		}
	}
	for l, o := range r.ledgers {
		if got := r.cluster.Ledger(ledger.Name(w.scope.keys[l])); got != o {
			return wrong("the ledger of %s is not the one that the watch has shown", w.scope.ledger(l))
		}
		want := ""
		if o != nil {
			want = holders(o.Spec.Without(func(uid types.UID) bool { return r.omits(w.scope.index(uid), l) }))
		}
		if got := holders(view.Ledger(w.scope.keys[l])); got != want {
			return wrong("the view has allocations in the ledger of %s of%s, want%s", w.scope.ledger(l), got, want)
		}
	}
	if err := w.checkNominations(r, view); err != nil {
		return wrong("%v", err)
	}
	for n := range w.scope.nodes {
		if want := !w.occupied(r, held, n); w.scope.fits(r.look(w.scope).view, w.scope.podWith(probe), n) != want {
			return wrong("another pod fits on %s: %t, want %t", w.scope.nodes[n].Name, !want, want)
		}
	}
	return nil
}

// expected returns the node on which the views of the replica should have the pod, and whether it should be bound there.
func (r *replica) expected(p int) (node string, bound bool) {
	if pod := r.pods[p]; pod != nil && pod.Spec.NodeName != "" {
		return pod.Spec.NodeName, true
	}
	return r.decided[p], r.bound[p]
}

// checkLookups checks what the replica finds by the name or UID of the pod.
func (w *World) checkLookups(r *replica, p int, node string, bound bool) error {
	name, uid, watched := w.scope.pod(p), w.scope.uid(p), r.pods[p]
	switch got := r.cluster.PodByUID(uid); {
	case (got == nil) != (watched == nil), got != nil && got.Spec.NodeName != watched.Spec.NodeName,
		got != nil && got.Spec.NodeName == "" && got.ResourceVersion != watched.ResourceVersion:
		return fmt.Errorf("pod %s is not found by its UID as the watch has shown it", name)
	}
	if got := slices.ContainsFunc(r.cluster.Unbound(), func(pod *corev1.Pod) bool { return pod.UID == uid }); got != (watched != nil && watched.Spec.NodeName == "") {
		return fmt.Errorf("pod %s is one of the unbound pods: %t", name, got)
	}
	on := ""
	if bound {
		on = node
	}
	switch got := r.cluster.PodByName(namespace, w.scope.name(p)); {
	case got != nil && got.UID != uid:
		if other := w.scope.index(got.UID); watched != nil || r.pods[other] == nil && !r.bound[other] {
			return fmt.Errorf("pod %s is not found by its name, but pod %s", name, got.UID)
		}
	case (got == nil) != (watched == nil && !bound) || got != nil && got.Spec.NodeName != on,
		got != nil && on == "" && got.ResourceVersion != watched.ResourceVersion:
		return fmt.Errorf("pod %s is not found by its name as it is counted", name)
	}
	assumed := ""
	if !bound {
		assumed = node
	}
	if got := r.cluster.Assumed(uid); got != assumed {
		return fmt.Errorf("pod %s is assumed on %q, want %q", name, got, assumed)
	}
	for n := range w.scope.nodes {
		if got := podOn(r.cluster.ViewFor(uid), w.scope, n, p) != nil; got != (bound && w.scope.nodes[n].Name == node) {
			return fmt.Errorf("the view for pod %s has it on %s: %t", name, w.scope.nodes[n].Name, got)
		}
	}
	return nil
}

// probe is the UID of a pod that does not exist.
const probe types.UID = "z"

// occupied reports whether pods hold the device of the node or all seats, as far as the replica knows.
func (w *World) occupied(r *replica, held []string, n int) bool {
	for l, o := range r.ledgers {
		node, count := w.scope.keys[l].Node, int64(0)
		if node != "" && node != w.scope.nodes[n].Name || !w.scope.asks(w.scope.podWith(probe), l) {
			continue
		}
		for p := range w.pods {
			if held[p] != "" && (node == "" || held[p] == node) || w.scope.reserves(r.look(w.scope).view, p, node) || o != nil && o.Spec.Pod(w.scope.uid(p)) != nil && !r.omits(p, l) {
				count++
			}
		}
		if count >= w.scope.capacity(l) {
			return true
		}
	}
	return false
}

func podOn(view *snapshot.View, s *Scope, n, p int) *corev1.Pod {
	for _, pod := range view.Node(s.nodes[n].Name).Pods {
		if pod.UID == s.uid(p) {
			return pod
		}
	}
	return nil
}

// holders describes the allocations in a ledger.
func holders(l *snapshot.Ledger) string {
	text := ""
	if l != nil {
		for _, u := range l.Units {
			for _, c := range u.Allocations {
				text += fmt.Sprintf(" %s: %d of %s", c.Pod, c.Amount, u.Name)
			}
		}
	}
	return text
}
