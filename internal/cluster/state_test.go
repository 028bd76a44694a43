package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/cluster/assumption"
	"outboard.dev/outboard/snapshot"
)

// world is an API server with a history, as a state observes it: through a watch that lags, lists of any moment since the last
// observed one, and Bindings whose responses come late or never.
type world struct {
	moments  []moment // all moments since the last restore or start
	at       int      // the moment that the watch has shown
	relist   bool     // the watch must list again
	uids     int
	versions int
	restores int

	state    *State
	watch    store[*corev1.Pod]
	attempts []*try
	lookups  []lookup
	promised map[types.UID]promise
	gone     map[types.UID]bool // the watch has shown their deletion
}

// moment is the state of the API server between two writes.
type moment struct {
	pods  map[string]*corev1.Pod // by name
	event func()                 // the event of the write that led to this moment
}

// try is a Bind call in progress.
type try struct {
	uid     types.UID
	call    int
	forget  func() // nil: Bind without Assume
	name    string
	node    string
	sent    bool
	success bool
	already bool // the pod was bound to the node before
	begun   int  // restores before the call
}

type lookup struct{ assumed, truth *corev1.Pod }

// promise is a pod for which Bind has returned success: it must be counted on the node while it exists.
type promise struct {
	node     string
	restores int
}

func (w *world) now() map[string]*corev1.Pod { return w.moments[len(w.moments)-1].pods }

func (w *world) write(name string, pod *corev1.Pod, event func()) {
	pods := maps.Clone(w.now())
	if pod == nil {
		delete(pods, name)
	} else {
		pods[name] = pod
	}
	w.moments = append(w.moments, moment{pods, event})
}

// put writes the pod, new or changed.
func (w *world) put(pod *corev1.Pod) {
	w.versions++
	pod.ResourceVersion = strconv.Itoa(w.versions)
	shown := pod.DeepCopy() // the watch decodes its own copy
	w.write(pod.Name, pod, func() {
		if snapshot.Ended(shown) {
			w.remove(shown)
		} else {
			_ = w.watch.Add(shown)
		}
	})
}

// remove is the event of a pod that was deleted or has ended.
func (w *world) remove(pod *corev1.Pod) {
	_ = w.watch.Delete(pod)
	w.gone[pod.UID] = true
}

func (w *world) change(name string, apply func(*corev1.Pod)) {
	pod := w.now()[name].DeepCopy()
	apply(pod)
	w.put(pod)
}

func (w *world) byUID(uid types.UID) *corev1.Pod {
	for _, pod := range w.now() {
		if pod.UID == uid {
			return pod
		}
	}
	return nil
}

// deliver shows the next event of the watch, if any.
func (w *world) deliver() bool {
	if w.relist {
		w.list(len(w.moments) - 1)
		return true
	}
	if w.at == len(w.moments)-1 {
		return false
	}
	w.at++
	w.moments[w.at].event()
	return true
}

func (w *world) list(at int) {
	for _, pod := range w.state.Pods() {
		w.gone[pod.UID] = true
	}
	var pods []any
	for _, name := range slices.Sorted(maps.Keys(w.moments[at].pods)) {
		if pod := w.moments[at].pods[name]; !snapshot.Ended(pod) {
			pods = append(pods, pod.DeepCopy())
			delete(w.gone, pod.UID)
		}
	}
	_ = w.watch.Replace(pods, "")
	w.at, w.relist = at, false
}

// serve is the API server's part of a Bind call.
func (w *world) serve(try *try) {
	try.sent = true
	pod := w.byUID(try.uid)
	switch {
	case pod == nil || pod.Name != try.name:
	case pod.Spec.NodeName == "" && !snapshot.Ended(pod):
		try.success = true
		w.change(try.name, func(p *corev1.Pod) { p.Spec.NodeName = try.node })
	case pod.Spec.NodeName == try.node:
		try.success, try.already = true, true
	}
}

// finish is the client's part of a Bind call after the response. Without a response the outcome is unknown.
func (w *world) finish(t *rapid.T, try *try, answered, lookupWorks bool) {
	uid := try.uid
	if try.forget != nil {
		defer try.forget()
	}
	if !try.success || !answered {
		w.state.EndRequest(uid, try.call, nil, time.Now())
		return
	}
	var bound *corev1.Pod
	switch seen := w.state.PodByUID(uid); {
	case try.already:
		bound = w.byUID(uid).DeepCopy()
	case seen != nil:
		bound = seen.DeepCopy()
		bound.Spec.NodeName = try.node
	case lookupWorks:
		bound = w.byUID(uid).DeepCopy()
	default:
		bound = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: try.name, UID: uid}}
		bound.Spec.NodeName = try.node
	}
	w.state.EndRequest(uid, try.call, bound, time.Now())
	if pod := w.byUID(uid); assumption.OnNode(pod) && pod.Spec.NodeName == try.node && try.begun == w.restores && !w.relist {
		w.promised[uid] = promise{try.node, w.restores}
		if got := w.counted()[uid]; got != try.node {
			t.Fatalf("when Bind returns, pod %s is on %q in the view, not on %s", uid, got, try.node)
		}
	}
}

// counted are the pods of the published view, as node by UID.
func (w *world) counted() map[types.UID]string {
	counted := map[types.UID]string{}
	for node := range w.state.View().All() {
		for _, pod := range node.Pods {
			counted[pod.UID] = node.Name
		}
	}
	return counted
}

// check publishes a view, and checks the invariants.
func (w *world) check(t *rapid.T) {
	w.state.Publish()
	counted := w.counted()
	for uid := range w.gone {
		if counted[uid] != "" {
			t.Fatalf("pod %s is gone, but still counted on %s", uid, counted[uid])
		}
	}
	for uid := range w.state.assumed {
		if on := w.state.Assumed(uid); on != "" && counted[uid] != on {
			t.Fatalf("pod %s is decided to be on %s, and is counted on %q", uid, on, counted[uid])
		}
		if !slices.ContainsFunc(w.attempts, func(try *try) bool { return try.uid == uid }) && !w.state.assumed[uid].Bound {
			t.Fatalf("pod %s is assumed, and no call has to end", uid)
		}
	}
	for uid, promise := range w.promised {
		pod := w.byUID(uid)
		if pod == nil || snapshot.Ended(pod) || promise.restores != w.restores {
			delete(w.promised, uid)
			continue
		}
		if counted[uid] != promise.node {
			t.Fatalf("pod %s was bound to %s, and is counted on %q", uid, promise.node, counted[uid])
		}
	}
}

// complete completes all calls and events, and compares the result with the API server.
func (w *world) complete(t *rapid.T) {
	for _, try := range w.attempts {
		w.finish(t, try, true, true)
	}
	for w.deliver() {
	}
	for _, late := range w.lookups {
		w.state.Confirm(late.assumed, late.truth, time.Now())
	}
	for _, assumed := range w.state.Unconfirmed(time.Now().Add(time.Hour)) {
		w.state.Confirm(assumed, w.byUID(assumed.UID).DeepCopy(), time.Now())
	}
	w.state.Publish()
	wantCounted, wantNames := map[types.UID]string{}, []string{}
	known := 0
	for _, pod := range w.now() {
		if snapshot.Ended(pod) {
			continue
		}
		known++
		wantNames = append(wantNames, fmt.Sprintf("%s=%s@%s", pod.Name, pod.UID, pod.Spec.NodeName))
		if pod.Spec.NodeName != "" {
			wantCounted[pod.UID] = pod.Spec.NodeName
		}
		seen := w.state.PodByUID(pod.UID)
		if seen == nil || seen.Spec.NodeName != pod.Spec.NodeName || seen.Labels["v"] != pod.Labels["v"] {
			t.Fatalf("pod %s is %v, but the state has %v", pod.UID, pod, seen)
		}
	}
	if got := w.counted(); !maps.Equal(got, wantCounted) {
		t.Fatalf("the state counts %v, the API server has %v", got, wantCounted)
	}
	var names []string
	for _, pod := range w.now() {
		p := w.state.PodByName(pod.Namespace, pod.Name)
		if p == nil {
			continue
		}
		names = append(names, fmt.Sprintf("%s=%s@%s", p.Name, p.UID, p.Spec.NodeName))
	}
	slices.Sort(names)
	slices.Sort(wantNames)
	if !slices.Equal(names, wantNames) {
		t.Fatalf("the state has names %v, the API server has %v", names, wantNames)
	}
	unbound := slices.DeleteFunc(w.state.Pods(), func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" })
	byUID := func(a, b *corev1.Pod) int { return cmp.Compare(a.UID, b.UID) }
	slices.SortFunc(unbound, byUID)
	if got := w.state.Unbound(); !slices.Equal(slices.SortedFunc(slices.Values(got), byUID), unbound) {
		t.Fatalf("the state has %d pods without a node, want %d of its pods", len(got), len(unbound))
	}
	if w.state.CountPods() != known || len(w.state.assumed) != 0 {
		t.Fatalf("the state has %d counted pods, %d pods and %d assumptions", w.state.CountPods(), known, len(w.state.assumed))
	}
}

func TestPodsConvergeToTheAPIServer(t *testing.T) {
	for range 10 { // failures need several steps of a few kinds in one order
		rapid.Check(t, checkConvergence)
	}
}

func checkConvergence(t *rapid.T) {
	w := &world{state: NewState(), promised: map[types.UID]promise{}, gone: map[types.UID]bool{}, moments: []moment{{pods: map[string]*corev1.Pod{}}}}
	w.watch = store[*corev1.Pod]{feed: &feed{done: func() {}}, set: w.state.SetPod, remove: w.state.RemovePod, known: map[identity]struct{}{}}
	for _, name := range []string{"a", "b"} {
		w.state.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	w.state.SetComplete()
	nodes := rapid.SampledFrom([]string{"a", "b"})
	present := func(t *rapid.T) string {
		names := slices.Sorted(maps.Keys(w.now()))
		if len(names) == 0 {
			t.Skip("no pod")
		}
		return rapid.SampledFrom(names).Draw(t, "pod")
	}
	anyTry := func(t *rapid.T, sent bool) int {
		var which []int
		for i, try := range w.attempts {
			if try.sent == sent {
				which = append(which, i)
			}
		}
		if len(which) == 0 {
			t.Skip("no attempt")
		}
		return rapid.SampledFrom(which).Draw(t, "attempt")
	}
	deliver := func(t *rapid.T) {
		for range rapid.IntRange(1, 3).Draw(t, "events") {
			w.deliver()
		}
	}
	begin := func(t *rapid.T) {
		name := present(t)
		try := &try{uid: w.now()[name].UID, name: name, node: nodes.Draw(t, "node"), begun: w.restores}
		if pod := w.state.PodByUID(try.uid); rapid.Bool().Draw(t, "assume") && pod != nil {
			try.forget = w.state.Assume(pod, try.node)
			if got := w.counted()[try.uid]; !assumption.OnNode(pod) && got != try.node && w.state.Assumed(try.uid) == try.node {
				t.Fatalf("when Assume returns, pod %s is on %q in the view, not on %s", try.uid, got, try.node)
			}
		}
		try.call = w.state.BeginRequest(try.uid)
		w.attempts = append(w.attempts, try)
	}
	serve := func(t *rapid.T) { w.serve(w.attempts[anyTry(t, false)]) }
	finish := func(t *rapid.T) {
		i := anyTry(t, true)
		w.finish(t, w.attempts[i], rapid.IntRange(0, 3).Draw(t, "answered") > 0, rapid.IntRange(0, 3).Draw(t, "lookup works") > 0)
		w.attempts = slices.Delete(w.attempts, i, i+1)
	}
	t.Repeat(map[string]func(*rapid.T){
		"create": func(t *rapid.T) {
			name := rapid.SampledFrom([]string{"p", "q"}).Draw(t, "name")
			if w.now()[name] != nil {
				t.Skip("exists")
			}
			w.uids++
			w.put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(fmt.Sprintf("uid-%d", w.uids))}})
		},
		"label": func(t *rapid.T) {
			w.change(present(t), func(p *corev1.Pod) {
				p.Labels = map[string]string{"v": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "v")}
			})
		},
		"end": func(t *rapid.T) {
			w.change(present(t), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		},
		"delete": func(t *rapid.T) {
			name := present(t)
			gone := w.now()[name].DeepCopy()
			w.write(name, nil, func() { w.remove(gone) })
		},
		"bound by another": func(t *rapid.T) {
			name := present(t)
			if w.now()[name].Spec.NodeName != "" {
				t.Skip("bound")
			}
			node := nodes.Draw(t, "node")
			w.change(name, func(p *corev1.Pod) { p.Spec.NodeName = node })
		},
		"deliver":  deliver,
		"deliver2": deliver,
		"relist": func(t *rapid.T) {
			if w.relist {
				w.deliver()
			} else {
				w.list(rapid.IntRange(w.at, len(w.moments)-1).Draw(t, "moment"))
			}
		},
		"finish binding": func(t *rapid.T) { // another client has bound the pod
			for _, try := range w.attempts {
				if pod := w.byUID(try.uid); try.forget != nil && assumption.OnNode(pod) && pod.Spec.NodeName == try.node && w.state.Assumed(try.uid) == try.node {
					w.state.FinishBinding(try.uid, time.Now())
				}
			}
		},
		"begin":   begin,
		"begin2":  begin,
		"serve":   serve,
		"serve2":  serve,
		"finish":  finish,
		"finish2": finish,
		"ask": func(t *rapid.T) {
			for _, assumed := range w.state.Unconfirmed(time.Now().Add(time.Hour)) {
				w.lookups = append(w.lookups, lookup{assumed, w.byUID(assumed.UID).DeepCopy()})
			}
		},
		"answer": func(t *rapid.T) {
			for _, l := range w.lookups {
				w.state.Confirm(l.assumed, l.truth, time.Now())
			}
			w.lookups = nil
		},
		"restore": func(t *rapid.T) {
			if rapid.IntRange(0, 2).Draw(t, "really") > 0 {
				t.Skip("rarely")
			}
			at := rapid.IntRange(0, len(w.moments)-1).Draw(t, "moment")
			w.moments = w.moments[:at+1]
			w.relist = true
			w.restores++
			clear(w.gone)
		},
		"publish":  w.check,
		"publish2": w.check,
	})
	w.complete(t)
}

// A History can be requested at any time, and includes pending pods.
func TestHistoryBeginsWithThePodsThereAre(t *testing.T) {
	s := NewState()
	c := &Cluster{State: s}
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	s.SetPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "waits", UID: "1"}})
	s.SetPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "runs", UID: "2"}, Spec: corev1.PodSpec{NodeName: "a"}})
	s.SetComplete()
	if h := s.View().History(); h != nil {
		t.Errorf("got a History of %d pods without a request", h.Came)
	}
	for keep, want := range map[bool]int{true: 2, false: 0} {
		c.KeepHistory(keep)
		s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("keep-%v", keep)}})
		s.Publish()
		came := 0
		if h := s.View().History(); h != nil {
			came = h.Came
		}
		if came != want {
			t.Errorf("keep: %v: the History has %d pods, want %d", keep, came, want)
		}
	}
}
