package search

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/snapshot"
)

// preemption is what a kube-scheduler does to make room for one pod. It decides when it calls preempt, and does the rest later: it evicts
// pods, and writes the nomination. The zero value is nothing.
type preemption struct {
	filtered  filtered // the latest filter call, until the preempt call that follows it, or another attempt
	evicts    []int    // the pods that it has yet to evict
	nominates bool     // it has yet to write that the pod is nominated to the node; "": to none
	node      string
}

// filtered is a filter call that has rejected the pod on all nodes.
type filtered struct {
	by   int // the replica, plus 1; 0: there is none
	view *snapshot.View
	pod  *corev1.Pod
}

// expectation is what a replica has responded to a preempt call, until it does not expect a nomination any more.
type expectation struct {
	pod    int
	nodes  []string // to one of which the pod will be nominated
	was    string   // to which node it was nominated then, as far as the replica knew
	seen   bool     // the watch had shown the pod then
	number int      // of the Nominate, which may depend on all of these
}

// lower reports whether pod v has a lower priority than pod p.
func (s *Scope) lower(v, p int) bool {
	return s.preemptor(p) && !s.preemptor(v)
}

// bindVictims binds the first pods before anything else happens, each to another node.
func (w *World) bindVictims() {
	progress := []moveKind{showPod, showLedger, arrive, respond, work}
	for v := range w.scope.Victims {
		w.tried[v] = w.scope.Calls
		w.begin(&w.replicas[0], v, v%len(w.nodes))
		for {
			moves := slices.DeleteFunc(w.Moves(), func(m Move) bool { return !slices.Contains(progress, m.kind) })
			if len(moves) == 0 {
				break
			}
			w.move(moves[0])
		}
	}
}

// nominateFirst nominates pods to the first node before anything else happens.
func (w *World) nominateFirst() {
	for p := w.scope.Victims; p < w.scope.Victims+w.scope.Nominated; p++ {
		changed := *w.pods[p]
		changed.Status.NominatedNodeName = w.nodes[0].Name
		w.setPod(p, &changed)
	}
	for i := range w.replicas {
		for len(w.replicas[i].podEvents) > 0 {
			w.showPod(&w.replicas[i])
		}
	}
}

// candidates returns, for each node, the pods that a kube-scheduler that sees the current state could evict there for pod p; if it is unaware,
// it also sees pods that are gone.
func (w *World) candidates(p int, unaware bool) [][]int {
	on := make([][]int, len(w.nodes))
	for n, node := range w.nodes {
		for v, pod := range w.pods {
			if unaware && pod == nil {
				pod = w.was[v]
			}
			if pod != nil && pod.Spec.NodeName == node.Name && w.scope.lower(v, p) {
				on[n] = append(on[n], v)
			}
		}
	}
	return on
}

// nominatedTo returns the index of the node to which the API server has pod p nominated; -1 if there is none.
func (w *World) nominatedTo(p int) int {
	pod := w.pods[p]
	if pod == nil || pod.Spec.NodeName != "" {
		return -1
	}
	return slices.IndexFunc(w.nodes, func(node *corev1.Node) bool { return node.Name == pod.Status.NominatedNodeName })
}

// preempts reports whether a kube-scheduler may call preempt for pod p now: not while pods that it has evicted for the pod terminate.
func (w *World) preempts(p int) bool {
	if w.preemptions[p].filtered.by == 0 || w.preempted >= w.scope.Preemptions || w.pods[p] == nil || w.pods[p].Spec.NodeName != "" {
		return false
	}
	n, on := w.nominatedTo(p), w.candidates(p, false)
	if n >= 0 && slices.ContainsFunc(on[n], func(v int) bool { return w.pods[v].DeletionTimestamp != nil }) {
		return false
	}
	return n >= 0 || anyVictim(on)
}

func anyVictim(on [][]int) bool {
	return slices.ContainsFunc(on, func(victims []int) bool { return len(victims) > 0 })
}

// preemptsUnaware reports whether a kube-scheduler that does not know yet which pods are gone may call preempt for pod p, and would evict one.
func (w *World) preemptsUnaware(p int) bool {
	return w.unaware < w.scope.Unaware && w.preemptions[p].filtered.by != 0 && w.preempted < w.scope.Preemptions && w.pods[p] != nil &&
		w.pods[p].Spec.NodeName == "" && slices.Contains(w.pods[:w.scope.Victims], nil) && anyVictim(w.candidates(p, true))
}

// retriesEarly reports whether a kube-scheduler retries pod p without being asked: it is nominated, and the evicted pods are gone.
func (w *World) retriesEarly(p int) bool {
	n := w.nominatedTo(p)
	return n >= 0 && len(w.candidates(p, false)[n]) == 0
}

// preemptMoves returns what kube-schedulers and kubelets can do next about preemption.
func (w *World) preemptMoves(moves []Move) []Move {
	for p := range w.preemptions {
		k := &w.preemptions[p]
		for unaware, may := range []bool{w.preempts(p), w.preemptsUnaware(p)} {
			for i := 0; may && i < len(w.replicas); i++ {
				for n := range w.nodes {
					moves = append(moves, Move{preempt, int8(i), int8(p), int8(n), int8(unaware)})
				}
			}
		}
		for i := range k.evicts {
			moves = append(moves, Move{kind: evict, a: int8(p), b: int8(i)})
		}
		if k.nominates {
			moves = append(moves, Move{kind: nominate, a: int8(p)})
		}
		if w.faults < w.scope.Faults && (k.nominates || len(k.evicts) > 0) {
			moves = append(moves, Move{kind: restartScheduler, a: int8(p)})
		}
	}
	for p, pod := range w.pods {
		if pod != nil && pod.DeletionTimestamp != nil {
			moves = append(moves, Move{kind: terminate, a: int8(p)})
		}
	}
	return moves
}

// preempt has a kube-scheduler call preempt of the replica for pod p. Of the nodes in the response, which are equally good, it chooses one,
// by the number.
func (w *World) preempt(i, p, number int, unaware bool) {
	r, k := &w.replicas[i], &w.preemptions[p]
	before := k.filtered
	k.filtered = filtered{}
	w.preempted++
	if unaware {
		w.unaware++
	}
	on := w.candidates(p, unaware)
	if !anyVictim(on) {
		k.nominates, k.node = true, "" // it does not call an extender
		w.choose(p, nil)
		return
	}
	pod := before.pod
	if before.by != i+1 {
		before = filtered{}
	}
	w.forgetful(r, pod)
	kept := w.callPreempt(r, pod, before, on)
	if len(kept) == 0 {
		return
	}
	n := w.nominatedTo(p)
	if before.by != 0 && n >= 0 && before.pod.Status.NominatedNodeName == w.nodes[n].Name && w.scope.reserves(before.view, p, w.nodes[n].Name) && w.roomOn(r, p, n) {
		w.broken = fmt.Errorf("pod %s is nominated to %s and fits there, and the preempt call evicts pods on other nodes", w.scope.pod(p), w.nodes[n].Name)
	}
	if n = kept[number%len(kept)]; w.scope.Started {
		n = slices.MaxFunc(kept, func(a, b int) int { return cmp.Compare(slices.Max(on[a]), slices.Max(on[b])) })
	}
	k.nominates, k.node, k.evicts = true, w.nodes[n].Name, on[n]
	w.choose(p, r)
}

// forgetful notes that neither the replica nor kube-scheduler, which has the pod, knows yet to which node the pod is nominated: then the watch
// will show this nomination as if it followed the preempt call.
func (w *World) forgetful(r *replica, pod *corev1.Pod) {
	p := w.scope.index(pod.UID)
	switch now := w.pods[p].Status.NominatedNodeName; {
	case now == "", now == pod.Status.NominatedNodeName, r.pods[p] == nil, now == r.own(p):
	case slices.ContainsFunc(r.awaited, func(e expectation) bool { return e.pod == p && slices.Contains(e.nodes, now) }):
	default:
		r.late[p] = true
	}
}

// choose records that a kube-scheduler has chosen a node for pod p from what the replica has kept; nil: that it has chosen none, or has forgotten
// it.
func (w *World) choose(p int, r *replica) {
	for i := range w.replicas {
		w.replicas[i].chosen[p] = ""
	}
	if r != nil && !r.late[p] {
		r.chosen[p] = w.preemptions[p].node
	}
}

// roomOn reports whether pod p fits on the node if those pods are gone that are gone, and that the replica knows to have been evicted. Other pods
// need room there that are nominated to this node alone.
func (w *World) roomOn(r *replica, p, n int) bool {
	view := r.look(w.scope).others[p]
	nominated := slices.IndexFunc(view.Nominated(), func(n *snapshot.Nomination) bool { return n.Pod.UID == w.scope.uid(p) })
	if nominated < 0 {
		return false
	}
	to, ok := view.Nominated()[nominated].Node(w.nodes[n].Name)
	for _, other := range view.Nominated() {
		if other.Pod.UID != w.scope.uid(p) && len(other.Nodes) == 1 && other.Nodes[0].Name == w.nodes[n].Name {
			return false
		}
	}
	for _, pod := range view.Node(w.nodes[n].Name).Pods {
		evicted := pod.DeletionTimestamp != nil || slices.Contains(to.Victims, pod.UID)
		ok = ok && evicted && w.pods[w.scope.index(pod.UID)] == nil
	}
	return ok
}

// handlers are Handlers, with the cluster that each has.
var handlers = sync.Pool{New: func() any {
	cluster := new(caller)
	return &handler{cluster, extender.New(extender.Options{
		Profile: "/", Cluster: cluster, Log: decision.NewLog(1), Metrics: callmetrics.New(prometheus.NewRegistry()),
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})}
}}

type handler struct {
	cluster *caller
	*extender.Handler
}

// caller is the cluster of a replica during a call.
type caller struct {
	*cluster.Offline
	world    *World
	replica  *replica
	view     *snapshot.View
	nominate func(pod *corev1.Pod, nodes []snapshot.NominatedNode)
}

func (*caller) Synced() error                      { return nil }
func (c *caller) ViewFor(types.UID) *snapshot.View { return c.view }
func (c *caller) Nominate(_ context.Context, pod *corev1.Pod, nodes []snapshot.NominatedNode) error {
	c.nominate(pod, nodes)
	return nil
}
func (c *caller) LivePod(_ context.Context, _, _ string, uid types.UID) (*corev1.Pod, error) {
	if c.world.scope.Mutation == EvictedFromCache {
		return c.PodByUID(uid), nil
	}
	done := c.world.ask(c.replica, getPod, c.world.scope.index(uid))
	done.pod = c.world.pods[done.object]
	c.world.answer(c.replica, done)
	c.Offline = c.replica.cluster
	return done.pod, nil
}

// callPreempt calls preempt of a replica for the pod, as kube-scheduler has it, after the filter call if that was one of the same replica, and
// returns the nodes that it keeps.
func (w *World) callPreempt(r *replica, pod *corev1.Pod, before filtered, candidates [][]int) (kept []int) {
	p := w.scope.index(pod.UID)
	h := handlers.Get().(*handler)
	defer handlers.Put(h)
	h.Engine = w.scope.engine
	*h.cluster = caller{Offline: r.cluster, world: w, replica: r, view: before.view, nominate: func(pod *corev1.Pod, nodes []snapshot.NominatedNode) {
		w.expect(r, p, pod, nodes)
	}}
	if before.by != 0 {
		var names []string
		for _, node := range w.nodes {
			names = append(names, node.Name)
		}
		h.post(decision.Filter, map[string]any{"Pod": before.pod, "NodeNames": names}, nil)
	}
	type victims struct{ Pods []map[string]string }
	given, response := map[string]victims{}, struct{ NodeNameToMetaVictims map[string]any }{}
	for n, evicted := range candidates {
		for _, v := range evicted {
			of := given[w.nodes[n].Name]
			of.Pods = append(of.Pods, map[string]string{"UID": string(w.scope.uid(v))})
			given[w.nodes[n].Name] = of
		}
	}
	h.cluster.view = r.look(w.scope).others[p]
	h.post(decision.Preempt, map[string]any{"Pod": pod, "NodeNameToMetaVictims": given}, &response)
	for n, node := range w.nodes {
		if _, ok := response.NodeNameToMetaVictims[node.Name]; ok {
			kept = append(kept, n)
		}
	}
	return kept
}

// post calls the verb.
func (h *handler) post(verb decision.Verb, args, response any) {
	body, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	recorder := httptest.NewRecorder()
	h.Verb(verb).ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(body))))
	if strings.Contains(recorder.Body.String(), `"Error":"`) && !strings.Contains(recorder.Body.String(), `"Error":""`) {
		panic(recorder.Body.String())
	}
	if response == nil {
		return
	}
	if err := json.Unmarshal(recorder.Body.Bytes(), response); err != nil {
		panic(err)
	}
}

// expect counts pod p on the nodes to one of which it will be nominated.
func (w *World) expect(r *replica, p int, pod *corev1.Pod, nodes []snapshot.NominatedNode) {
	if len(nodes) == 0 {
		return
	}
	live := w.pods[p]
	if r.pods[p] == nil && live != nil {
		r.unshown[p] = live.Status.NominatedNodeName
	}
	if w.scope.Mutation == UnseenNotNominated {
		live = nil
	}
	e := expectation{pod: p, was: r.own(p), seen: r.pods[p] != nil}
	e.number = r.numbered(func(c *cluster.Offline) int { return c.Nominate(pod, live, nodes) })
	for _, n := range nodes {
		e.nodes = append(e.nodes, n.Name)
	}
	r.awaited = append(r.awaited, e)
}

// expire ends the oldest expectation of the replica. From then on, the watch may show a nomination as if it followed a later preempt call.
func (w *World) expire(r *replica) {
	first := r.awaited[0]
	r.awaited = r.awaited[1:]
	if first.number == 0 || w.scope.Mutation == NominationKept {
		return
	}
	r.change(func(c *cluster.Offline) { c.EndNominate(first.number) })
	own := r.own(first.pod)
	if r.pods[first.pod] == nil || own == first.was {
		r.late[first.pod], r.chosen[first.pod] = true, ""
	}
	if own != r.chosen[first.pod] && !slices.ContainsFunc(r.awaited, func(e expectation) bool { return e.pod == first.pod }) {
		r.chosen[first.pod] = ""
	}
}

// expireInVain ends expectations that have no effect any more.
func (w *World) expireInVain(r *replica) {
	for len(r.awaited) > 0 && (!r.waits(r.awaited[0].pod) || r.resolved(r.awaited[0].pod)) {
		w.expire(r)
	}
}

// waits reports whether the replica knows pod p as one that is on no node, and stays.
func (r *replica) waits(p int) bool {
	pod := r.pods[p]
	return r.decided[p] == "" && (pod == nil && !r.gone[p] || pod != nil && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil)
}

// own returns the node to which pod p is nominated, as far as the replica knows from the API server; "" if to none.
func (r *replica) own(p int) string {
	if pod := r.pods[p]; pod != nil {
		return pod.Status.NominatedNodeName
	}
	return r.unshown[p]
}

// resolved reports whether the watch has shown the nomination that follows the one preempt call for pod p that the replica remembers.
func (r *replica) resolved(p int) bool {
	calls, was := 0, ""
	for _, e := range r.awaited {
		if e.pod == p {
			calls, was = calls+1, e.was
		}
	}
	own := r.own(p)
	return calls == 1 && r.pods[p] != nil && own != "" && own != was && own == r.chosen[p] && !r.late[p]
}

// reserves reports whether pod p is nominated to the node, or, if it is "", to any, in the view.
func (s *Scope) reserves(view *snapshot.View, p int, node string) bool {
	return slices.ContainsFunc(view.Nominated(), func(n *snapshot.Nomination) bool {
		_, ok := n.Node(node)
		return n.Pod.UID == s.uid(p) && (ok || node == "")
	})
}

// checkNominations checks to which nodes the view of the replica has pods nominated: to the one that kube-scheduler has chosen, and otherwise
// only to those that the watch or a preempt call has named; after one call, once the watch shows the nomination, to no other one.
func (w *World) checkNominations(r *replica, view *snapshot.View) error {
	for p := range w.pods {
		var got []string
		for _, n := range view.Nominated() {
			if n.Pod.UID == w.scope.uid(p) {
				if shown := r.pods[p]; shown != nil && shown.Annotations[asksForSeat] != n.Pod.Annotations[asksForSeat] {
					return fmt.Errorf("the view has nominated pod %s as it was before somebody else changed it", w.scope.pod(p))
				}
				for _, to := range n.Nodes {
					got = append(got, to.Name)
				}
			}
		}
		slices.Sort(got)
		own, may, waits := r.own(p), []string(nil), r.waits(p)
		for _, e := range r.awaited {
			if e.pod == p && !r.resolved(p) {
				may = append(may, e.nodes...)
			}
		}
		if chosen := r.chosen[p]; waits && chosen != "" && !slices.Contains(got, chosen) && w.pods[p] != nil && w.pods[p].Spec.NodeName == "" {
			return fmt.Errorf("the view has pod %s nominated to %v, and kube-scheduler has chosen %s", w.scope.pod(p), got, chosen)
		}
		if waits && r.pods[p] != nil && own != "" && !slices.Contains(got, own) {
			return fmt.Errorf("the view has pod %s nominated to %v, and the watch has shown that it is nominated to %s", w.scope.pod(p), got, own)
		}
		for _, name := range got {
			if !waits || name != own && !slices.Contains(may, name) {
				return fmt.Errorf("the view has pod %s nominated to %v, and it should be to one of %v at most", w.scope.pod(p), got, append(may, own))
			}
		}
	}
	return nil
}

// preemptMove takes a move of [World.preemptMoves], or ends an expectation.
func (w *World) preemptMove(m Move) {
	k := &w.preemptions[m.a]
	switch m.kind {
	case preempt:
		w.preempt(int(m.replica), int(m.a), int(m.b), m.c == 1)
	case evict:
		v := k.evicts[m.b]
		k.evicts = slices.Delete(slices.Clone(k.evicts), int(m.b), int(m.b)+1)
		w.delete(v)
	case nominate:
		if pod := w.pods[m.a]; pod != nil && pod.Spec.NodeName == "" && pod.Status.NominatedNodeName != k.node {
			changed := *pod
			changed.Status.NominatedNodeName = k.node
			w.setPod(int(m.a), &changed)
		}
		k.nominates, k.node = false, ""
	case restartScheduler:
		w.faults++
		*k = preemption{}
		w.rejected[m.a] = 0
		w.choose(int(m.a), nil)
	case terminate:
		w.setPod(int(m.a), nil)
	case expireNomination:
		w.expire(&w.replicas[m.replica])
	}
}
