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
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/snapshot"
)

// preemption is what a kube-scheduler does to make room for one pod. It decides when it calls preempt, and does the rest later: it evicts
// pods, and writes the nomination. The zero value is nothing.
type preemption struct {
	filtered  *corev1.Pod // as the latest filter call rejected it on all nodes, until the preempt call that follows, or another attempt; nil: none
	evicts    []int       // the pods that it has yet to evict
	nominates bool        // it has yet to write that the pod is nominated to the node; "": to none
	node      string
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
	if w.preemptions[p].filtered == nil || w.preempted >= w.scope.Preemptions || w.pods[p] == nil || w.pods[p].Spec.NodeName != "" {
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
	return w.unaware < w.scope.Unaware && w.preemptions[p].filtered != nil && w.preempted < w.scope.Preemptions && w.pods[p] != nil &&
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
	pod := k.filtered
	k.filtered = nil
	w.preempted++
	if unaware {
		w.unaware++
	}
	on := w.candidates(p, unaware)
	if !anyVictim(on) {
		k.nominates, k.node = true, "" // it does not call an extender
		return
	}
	retry := w.nominatedTo(p)
	if retry >= 0 && (pod.Status.NominatedNodeName != w.nodes[retry].Name || !w.roomOn(r, p, retry)) {
		retry = -1
	}
	kept := w.callPreempt(r, pod, on)
	if len(kept) == 0 {
		return
	}
	if retry >= 0 {
		w.broken = fmt.Errorf("pod %s is nominated to %s and fits there, and the preempt call evicts pods on other nodes", w.scope.pod(p), w.nodes[retry].Name)
	}
	n := kept[number%len(kept)]
	if w.scope.Started {
		n = slices.MaxFunc(kept, func(a, b int) int { return cmp.Compare(slices.Max(on[a]), slices.Max(on[b])) })
	}
	k.nominates, k.node, k.evicts = true, w.nodes[n].Name, on[n]
}

// roomOn reports whether pod p fits on the node because pods are gone that the replica shows as terminating there. No other pod is nominated to the
// node.
func (w *World) roomOn(r *replica, p, n int) bool {
	view := r.look(w.scope).others[p]
	for _, other := range view.Nominated() {
		if other.UID != w.scope.uid(p) && other.Status.NominatedNodeName == w.nodes[n].Name {
			return false
		}
	}
	pods := view.Node(w.nodes[n].Name).Pods
	stays := func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp == nil || w.pods[w.scope.index(pod.UID)] != nil
	}
	return len(pods) > 0 && !slices.ContainsFunc(pods, stays)
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
	*offline
	world   *World
	replica *replica
}

func (*caller) Synced() error { return nil }
func (c *caller) ViewFor(pod types.UID) *snapshot.View {
	return c.replica.look(c.world.scope).others[c.world.scope.index(pod)]
}
func (c *caller) LivePod(_ context.Context, _, _ string, uid types.UID) (*corev1.Pod, error) {
	if c.world.scope.Mutation == EvictedFromCache {
		return c.PodByUID(uid), nil
	}
	done := c.world.ask(c.replica, getPod, c.world.scope.index(uid))
	done.pod = c.world.pods[done.object]
	c.world.answer(c.replica, done)
	c.offline = c.replica.cluster
	return done.pod, nil
}

// callPreempt calls preempt of a replica for the pod, as kube-scheduler has it, and returns the nodes that it keeps.
func (w *World) callPreempt(r *replica, pod *corev1.Pod, candidates [][]int) (kept []int) {
	h := handlers.Get().(*handler)
	defer handlers.Put(h)
	h.Engine = w.scope.engine
	*h.cluster = caller{r.cluster, w, r}
	type victims struct{ Pods []map[string]string }
	given, response := map[string]victims{}, struct{ NodeNameToMetaVictims map[string]any }{}
	for n, evicted := range candidates {
		for _, v := range evicted {
			of := given[w.nodes[n].Name]
			of.Pods = append(of.Pods, map[string]string{"UID": string(w.scope.uid(v))})
			given[w.nodes[n].Name] = of
		}
	}
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
	if err := json.Unmarshal(recorder.Body.Bytes(), response); err != nil {
		panic(err)
	}
}

// waits reports whether the replica knows pod p as one that is on no node, and stays.
func (r *replica) waits(p int) bool {
	pod := r.pods[p]
	return r.decided[p] == "" && (pod == nil && !r.gone[p] || pod != nil && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil)
}

// reserves reports whether pod p is nominated to the node, or, if it is "", to any, in the view.
func (s *Scope) reserves(view *snapshot.View, p int, node string) bool {
	return slices.ContainsFunc(view.Nominated(), func(pod *corev1.Pod) bool {
		return pod.UID == s.uid(p) && (node == "" || pod.Status.NominatedNodeName == node)
	})
}

// checkNominations checks that the view of the replica has those pods nominated that the watch has shown so, as it has shown them.
func (w *World) checkNominations(r *replica, view *snapshot.View) error {
	for p := range w.pods {
		own := ""
		if pod := r.pods[p]; pod != nil && r.waits(p) {
			own = pod.Status.NominatedNodeName
		}
		got := ""
		for _, pod := range view.Nominated() {
			if pod.UID == w.scope.uid(p) {
				got = pod.Status.NominatedNodeName
				if r.pods[p] != nil && r.pods[p].Annotations[asksForSeat] != pod.Annotations[asksForSeat] {
					return fmt.Errorf("the view has nominated pod %s as it was before somebody else changed it", w.scope.pod(p))
				}
			}
		}
		if got != own {
			return fmt.Errorf("the view has pod %s nominated to %q, and the watch has shown that it is nominated to %q", w.scope.pod(p), got, own)
		}
	}
	return nil
}

// preemptMove takes a move of [World.preemptMoves].
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
	case terminate:
		w.setPod(int(m.a), nil)
	}
}
