package equality

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// world is a cluster that all sides of a comparison observe in the same state.
type world struct {
	builder   snapshot.Builder
	nodes     []*corev1.Node               // as the API server has them, in order of name
	pods      map[types.UID]*corev1.Pod    // as the API server has them
	signals   map[string]*snapshot.Signal  // by name
	unusable  map[string]map[string]string // the data of the ConfigMap of unhealthy GPUs, by node
	allocated ledgers
	now       time.Time
}

// unhealthyGPUs is where the gpushare device plugin reports unhealthy GPUs.
var unhealthyGPUs = snapshot.ConfigMapSource{Namespace: "kube-system", Prefix: "unhealthy-gpu-"}

// world draws a cluster.
func (d draw) world() *world {
	w := &world{
		pods: map[types.UID]*corev1.Pod{}, signals: map[string]*snapshot.Signal{}, unusable: map[string]map[string]string{}, allocated: ledgers{}, now: d.start,
	}
	for i := range pick(d, "nodes", 2, 1, 5, 8, 12, 20, 30) {
		w.setNode(d.node(i))
	}
	for i, node := range w.nodes {
		for j := range pick(d, "pods", 0, 1, 2, 4) {
			w.setPod(d.running(fmt.Sprintf("running-%02d-%d", i, j), node))
		}
		if d.chance(10, "nominated") {
			w.setPod(d.nominated(fmt.Sprintf("nominated-%02d", i), node.Name))
		}
		if d.chance(20, "ConfigMap") {
			w.setUnhealthy(node.Name, map[string]string{"gpus": pick(d, "unhealthy", "", "0", "1,x")})
		}
	}
	for _, name := range nodeSignals() {
		var keys []string
		for _, node := range w.nodes {
			keys = append(keys, node.Name)
		}
		w.setSignal(d.signal(name, keys))
	}
	for _, name := range keySignals() {
		w.setSignal(d.signal(name, signalKeys()[name]))
	}
	return w
}

// signal draws numbers of some of the keys, some of them stale.
func (d draw) signal(name string, keys []string) *snapshot.Signal {
	values := map[string]snapshot.Value{}
	for _, key := range keys {
		if !d.chance(80, "known") {
			continue
		}
		v := snapshot.Value{Number: pick(d, name, 0, 0.2, 0.75, 1, 3, 12, 60, 90, 4e9), Stale: d.chance(15, "stale")}
		v.At = d.start.Add(-time.Duration(d.between(0, 120, "seconds ago")) * time.Second)
		if v.Stale {
			v.At = v.At.Add(-2 * maxAge)
		}
		values[key] = v
	}
	return snapshot.NewSignal(name, values)
}

func (w *world) setNode(node *corev1.Node) {
	i, known := slices.BinarySearchFunc(w.nodes, node.Name, func(n *corev1.Node, name string) int { return compare(n.Name, name) })
	if known {
		w.nodes[i] = node
	} else {
		w.nodes = slices.Insert(w.nodes, i, node)
	}
	trimmed := node.DeepCopy()
	snapshot.TrimNode(trimmed)
	w.builder.SetNode(trimmed)
}

func (w *world) deleteNode(name string) {
	w.nodes = slices.DeleteFunc(slices.Clone(w.nodes), func(n *corev1.Node) bool { return n.Name == name })
	w.builder.DeleteNode(name)
}

func (w *world) setPod(pod *corev1.Pod) {
	w.pods[pod.UID] = pod
	w.builder.SetPod(trimmed(pod))
}

func (w *world) deletePod(uid types.UID) {
	delete(w.pods, uid)
	w.builder.DeletePod(uid)
	w.release(uid)
}

// release releases all allocations of the pod.
func (w *world) release(uid types.UID) {
	for _, key := range w.allocated.keys() {
		l := w.allocated[key]
		w.setLedger(*l.Without(func(other types.UID) bool { return other == uid }))
	}
}

func (w *world) setSignal(s *snapshot.Signal) {
	w.signals[s.Name()] = s
	w.builder.SetSignal(s)
}

func (w *world) setUnhealthy(node string, data map[string]string) {
	w.unusable[node] = data
	w.builder.SetConfigMap(unhealthyGPUs, node, data)
}

func (w *world) setLedger(l snapshot.Ledger) {
	w.allocated[l.Key()] = l
	w.builder.SetLedger(&l)
}

// podsInOrder are the pods in order of UID.
func (w *world) podsInOrder() []*corev1.Pod {
	return slices.SortedFunc(maps.Values(w.pods), func(a, b *corev1.Pod) int { return compare(a.UID, b.UID) })
}

func trimmed(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	snapshot.TrimPod(pod)
	return pod
}

// bound is the pod after the Binding has taken effect.
func (w *world) bound(pod *corev1.Pod, node string, annotations map[string]string) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName, pod.ResourceVersion = node, pod.ResourceVersion+"0"
	if len(annotations) > 0 && pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, annotations)
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now)})
	return pod
}

// ledgers are those of the API server, with the rules of package ledger.
type ledgers map[snapshot.LedgerKey]snapshot.Ledger

func (l ledgers) keys() []snapshot.LedgerKey {
	return slices.SortedFunc(maps.Keys(l), func(a, b snapshot.LedgerKey) int {
		return compare(a.Resource+"\x00"+a.Node, b.Resource+"\x00"+b.Node)
	})
}

// list is the contents of the ledgers, in order of key.
func (k *keeper) list() []snapshot.Ledger {
	var all []snapshot.Ledger
	for _, key := range k.all.keys() {
		all = append(all, k.all[key])
	}
	return all
}

func compare[T ~string](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// keeper implements engine.Ledgers: the ledgers of a world with the changes of one side of a comparison.
type keeper struct {
	mu  sync.Mutex
	all ledgers
	now time.Time
}

// begin resets the ledgers to the current ones of the world.
func (k *keeper) begin(w *world) { k.all, k.now = maps.Clone(w.allocated), w.now }

// Allocation implements engine.Ledgers.
func (k *keeper) Allocate(_ context.Context, key snapshot.LedgerKey, pod *corev1.Pod, node string, choose engine.Choose) (snapshot.LedgerPod, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, known := k.all[key]
	if !known {
		l = snapshot.Ledger{Resource: key.Resource, Node: key.Node}
	}
	entry := snapshot.LedgerPod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: node, Token: "t"}
	next, held, err := ledger.Allocate(l, entry, choose, k.now)
	if err == nil {
		k.all[key] = next
	}
	return held, err
}

// Release implements engine.Ledgers.
func (k *keeper) Release(_ context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.all[key]
	k.all[key] = *l.Without(func(uid types.UID) bool { return uid == held.UID })
	return nil
}

// Revoke implements engine.Ledgers.
func (k *keeper) Revoke(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	return k.Release(ctx, key, held)
}

// apiServer implements extender.Cluster: a world that has been read, which records its Bindings.
type apiServer struct {
	*world
	view    atomic.Pointer[snapshot.View]
	bound   *binder.Binding // the latest one
	pending *corev1.Pod     // the pod that is being placed, once observed; nil: not yet
	live    *corev1.Pod     // the same pod, as the API server has it
}

// publish updates the observed state to the current world.
func (a *apiServer) publish() { a.view.Store(a.builder.View()) }

func (a *apiServer) View() *snapshot.View                      { return a.view.Load() }
func (a *apiServer) ViewFor(types.UID) *snapshot.View          { return a.View() }
func (a *apiServer) Assume(*corev1.Pod, string) func()         { return func() {} } // one pod is bound at a time
func (a *apiServer) Assumed(types.UID) string                  { return "" }
func (a *apiServer) Superseded(*snapshot.View) <-chan struct{} { return nil }
func (a *apiServer) Synced() error                             { return nil }

func (a *apiServer) Pod(uid types.UID, resourceVersion string) *corev1.Pod {
	if p := a.PodByUID(uid); p != nil && p.ResourceVersion == resourceVersion {
		return p
	}
	return nil
}

func (a *apiServer) LatestPod(uid types.UID) *corev1.Pod { return a.PodByUID(uid) }

func (a *apiServer) PodByUID(uid types.UID) *corev1.Pod {
	if a.pending != nil && a.pending.UID == uid {
		return trimmed(a.pending)
	}
	if p := a.pods[uid]; p != nil {
		return trimmed(p)
	}
	return nil
}

func (a *apiServer) LivePod(context.Context, string, string, types.UID) (*corev1.Pod, error) {
	return trimmed(a.live), nil
}

func (a *apiServer) TouchPod(context.Context, string, string, types.UID) (*corev1.Pod, error) {
	return trimmed(a.live), nil
}

func (a *apiServer) Throttle(ctx context.Context) (context.Context, error) { return ctx, nil }

func (a *apiServer) Bind(_ context.Context, b binder.Binding) error {
	a.bound = &b
	return nil
}
