package snapshot

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Builder collects the state of the cluster and publishes it as Views. Events may come in any
// order: a pod may come before its node, and a deleted node may come back. The zero Builder is an
// empty cluster, ready to use. A Builder keeps the objects passed to it; the caller must not change
// them afterwards.
//
// A Builder is not safe for concurrent use. What always holds between two calls:
//
//   - What a View has is never changed: objects, maps and slices in it are replaced.
//   - nodes has the names for which there is something, and only those that have an object have a
//     row, which no other name has.
//   - A pod in pods is in the state of its node, and in no other one.
//   - rows has the Nodes of the current View. They are what nodes says, except those in dirty.
type Builder struct {
	nodes     map[string]*nodeState
	pods      map[types.UID]placedPod        // the pods on a node, by UID
	nominated map[types.UID]*corev1.Pod      // by UID
	budgets   map[string][]*DisruptionBudget // by namespace, in order of name; slices are only replaced
	pools     map[string]*Ledger             // cluster-wide ledgers, by resource; only replaced
	signals   map[string]*Signal             // by name; only replaced
	devices   devices

	// What differs from the last View, current:
	dirty          map[string]struct{} // names of nodes to build anew
	budgetsDirty   bool                // then no View has the map
	setChanged     bool                // a node was added or deleted
	objectsChanged bool                // a Node object has changed
	nominatedDirty bool
	claimsDirty    bool
	othersDirty    bool // pools, signals, DeviceClasses, or the number of devices
	current        *View

	rows     []*Node // of current
	freeRows []int32
	journal  journal
}

// placedPod is a pod on a node.
type placedPod struct {
	pod  *corev1.Pod
	node string
}

// nodeState is the state of one node name. object is nil while only other parts of the node exist.
type nodeState struct {
	object  *corev1.Node
	pods    []*corev1.Pod // ordered by comparePods
	ledgers []*Ledger     // ordered by resource; immutable
	// configMaps are immutable; nil: none.
	configMaps map[ConfigMapSource]map[string]string
	pools      map[poolKey]int // how many ResourceSlices of each pool name the node
	// devices are the complete ones of the pools, as of the last View, unless devicesDirty is true.
	// They are immutable.
	devices      []DevicePool
	devicesDirty bool
	facts        *facts // of object
	row          int32  // -1 while object is nil
}

// SetNode adds the node, or replaces the one with the same name. It ignores a node that differs
// from the current one only in its resourceVersion.
func (b *Builder) SetNode(object *corev1.Node) {
	state := b.state(object.Name)
	if state.object == nil {
		state.row = b.takeRow()
		b.setChanged = true
	} else if same(state.object, object) {
		return
	}
	state.object, state.facts = object, new(facts)
	b.objectsChanged = true
	b.touch(object.Name)
}

// DeleteNode removes the node. The Builder keeps its pods; they are on the node again if it comes
// back. DeleteNode ignores an unknown name.
func (b *Builder) DeleteNode(name string) {
	state := b.nodes[name]
	if state == nil || state.object == nil {
		return
	}
	b.freeRows = append(b.freeRows, state.row)
	b.rows[state.row] = nil
	state.object, state.facts, state.row = nil, nil, -1
	b.setChanged, b.objectsChanged = true, true
	delete(b.dirty, name)
	b.dropIfEmpty(name)
}

// SetPod adds the pod to the node in its spec.nodeName, or replaces the pod with the same UID. A
// pod that has no node, or has ended, is on no node; a pod without a node may be nominated to one,
// see [View.Nominated]. SetPod ignores a pod that differs from the current one only in its
// resourceVersion.
func (b *Builder) SetPod(pod *corev1.Pod) {
	if Ended(pod) {
		b.DeletePod(pod.UID)
		return
	}
	b.journal.came(pod)
	b.place(pod, pod.Spec.NodeName)
}

// AssumePod is like SetPod, for a pod that is decided to be on the node, and that the API server
// has not shown there. Its spec.nodeName is the node if the pod is bound, and else "". The History
// does not get the pod.
func (b *Builder) AssumePod(pod *corev1.Pod, node string) {
	nominated := b.nominated[pod.UID]
	leaves := b.pods[pod.UID].pod != nil || nominated != nil && nominated.Status.NominatedNodeName != node
	if leaves || b.current == nil {
		b.place(pod, node)
		return
	}
	freed := b.View().freed // with what has changed before
	b.place(pod, node)
	b.View().freed = freed // a View in which a node has one more pod frees nothing
}

// place puts the pod on the node; "": on none.
func (b *Builder) place(pod *corev1.Pod, node string) {
	b.setNomination(pod, node)
	if old := b.pods[pod.UID]; old.node == node && node != "" && same(old.pod, pod) {
		return
	}
	b.removePod(pod.UID)
	if node == "" {
		return
	}
	if b.pods == nil {
		b.pods = map[types.UID]placedPod{}
	}
	b.pods[pod.UID] = placedPod{pod, node}
	state := b.state(node)
	i, _ := slices.BinarySearchFunc(state.pods, pod, comparePods)
	state.pods = slices.Insert(state.pods, i, pod)
	b.touch(node)
}

// DeletePod removes the pod from its node, or its nomination. It ignores an unknown UID.
func (b *Builder) DeletePod(uid types.UID) {
	b.endNomination(uid)
	b.removePod(uid)
	b.journal.gone(uid)
}

func (b *Builder) removePod(uid types.UID) {
	placed, ok := b.pods[uid]
	if !ok {
		return
	}
	delete(b.pods, uid)
	state := b.nodes[placed.node]
	if i, ok := slices.BinarySearchFunc(state.pods, placed.pod, comparePods); ok {
		state.pods = slices.Delete(state.pods, i, i+1)
	}
	b.touch(placed.node)
	b.dropIfEmpty(placed.node)
}

// Pod returns the pod with the UID if it is on a node, or nil.
func (b *Builder) Pod(uid types.UID) *corev1.Pod { return b.pods[uid].pod }

// SetLedger adds the ledger, or replaces the one with the same key.
func (b *Builder) SetLedger(l *Ledger) {
	if l.Node == "" {
		b.pools = maps.Clone(b.pools)
		put(&b.pools, l.Resource, l)
		b.othersDirty = true
		return
	}
	state := b.state(l.Node)
	i, replace := slices.BinarySearchFunc(state.ledgers, l.Resource, compareLedger)
	next := slices.Clone(state.ledgers)
	if replace {
		next[i] = l
	} else {
		next = slices.Insert(next, i, l)
	}
	state.ledgers = next
	b.touch(l.Node)
}

// DeleteLedger removes the ledger. It ignores an unknown one.
func (b *Builder) DeleteLedger(key LedgerKey) {
	if key.Node == "" {
		b.pools = maps.Clone(b.pools)
		delete(b.pools, key.Resource)
		b.othersDirty = true
		return
	}
	state := b.nodes[key.Node]
	if state == nil {
		return
	}
	if i, ok := slices.BinarySearchFunc(state.ledgers, key.Resource, compareLedger); ok {
		state.ledgers = slices.Delete(slices.Clone(state.ledgers), i, i+1)
		b.touch(key.Node)
		b.dropIfEmpty(key.Node)
	}
}

// SetConfigMap adds the data of the node's ConfigMap of the family, or replaces it; nil removes it.
// The caller must not change the data afterwards.
func (b *Builder) SetConfigMap(source ConfigMapSource, node string, data map[string]string) {
	state := b.nodes[node]
	if state == nil {
		if data == nil {
			return
		}
		state = b.state(node)
	}
	if old, ok := state.configMaps[source]; ok == (data != nil) && maps.Equal(old, data) {
		return
	}
	next := maps.Clone(state.configMaps)
	switch {
	case data == nil:
		delete(next, source)
	case next == nil:
		next = map[ConfigMapSource]map[string]string{source: data}
	default:
		next[source] = data
	}
	if len(next) == 0 {
		next = nil
	}
	state.configMaps = next
	b.touch(node)
	b.dropIfEmpty(node)
}

// SetSignal adds the signal, or replaces the one with the same name.
func (b *Builder) SetSignal(s *Signal) {
	b.signals = maps.Clone(b.signals)
	put(&b.signals, s.name, s)
	b.othersDirty = true
}

// DeleteSignal removes the signal. It ignores an unknown name.
func (b *Builder) DeleteSignal(name string) {
	if _, ok := b.signals[name]; ok {
		b.signals = maps.Clone(b.signals)
		delete(b.signals, name)
		b.othersDirty = true
	}
}

func compareLedger(l *Ledger, resource string) int { return cmp.Compare(l.Resource, resource) }

// View publishes the current state. It returns the same View while nothing changes. Its cost is
// that of the changed nodes, plus copying 64 rows for each of them and one pointer for each 64
// nodes.
func (b *Builder) View() *View {
	if b.current != nil && !b.changed() {
		return b.current
	}
	next := new(View)
	if b.current != nil {
		*next = *b.current
	}
	next.generation, next.freed = next.generation+1, next.freed+1
	// Build in order of row: then the nodes that a request reads one after the other are near each
	// other in memory, which is most of the cost of reading a node.
	var changed []*Node
	for _, name := range slices.SortedFunc(maps.Keys(b.dirty), b.compareRows) {
		if state := b.nodes[name]; state != nil && state.object != nil {
			if state.devicesDirty {
				state.devices, state.devicesDirty = b.devicePools(name), false
			}
			pods := slices.Clone(state.pods)
			n := &Node{Name: name, Object: state.object, Pods: pods, Ledgers: state.ledgers, configMaps: state.configMaps, devices: state.devices, version: versions.Add(1), row: state.row, objectFacts: state.facts, podFacts: podFacts(pods, b.rows[state.row])}
			b.rows[state.row] = n
			changed = append(changed, n)
		}
	}
	clear(b.dirty)
	if b.setChanged || b.current == nil {
		next.rows = newRowTable(b.rows)
	} else {
		next.rows = b.current.rows.with(changed)
	}
	if b.setChanged || next.index == nil {
		next.index = newNodeIndex(b.rows)
		b.setChanged = false
	}
	if b.objectsChanged || next.objects == nil {
		next.objects = new(NodeObjects)
		b.objectsChanged = false
	}
	next.budgets, b.budgetsDirty = b.budgets, false
	if b.nominatedDirty {
		next.nominated = b.nominations()
		b.nominatedDirty = false
	}
	if b.claimsDirty {
		next.claims = new(b.devices.claims)
		for at := range b.devices.shared {
			b.devices.shared[at] = true
		}
		b.claimsDirty = false
	}
	next.pools, next.signals, next.classes, next.devices = b.pools, b.signals, b.devices.classes, b.devices.count
	b.othersDirty = false
	next.history = b.journal.history(next.Len(), &b.devices)
	b.current = next
	return next
}

// changed reports whether the next View differs from the current one.
func (b *Builder) changed() bool {
	return len(b.dirty) > 0 || b.setChanged || b.budgetsDirty ||
		b.nominatedDirty || b.claimsDirty || b.othersDirty
}

// compareRows orders names of nodes by their rows; names without a node come first.
func (b *Builder) compareRows(x, y string) int {
	row := func(name string) int32 {
		if state := b.nodes[name]; state != nil {
			return state.row
		}
		return -1
	}
	return cmp.Compare(row(x), row(y))
}

func (b *Builder) state(name string) *nodeState {
	state := b.nodes[name]
	if state == nil {
		if b.nodes == nil {
			b.nodes = map[string]*nodeState{}
		}
		state = &nodeState{row: -1}
		b.nodes[name] = state
	}
	return state
}

func (b *Builder) touch(name string) {
	if state := b.nodes[name]; state.object == nil {
		return
	}
	if b.dirty == nil {
		b.dirty = map[string]struct{}{}
	}
	b.dirty[name] = struct{}{}
}

func (b *Builder) dropIfEmpty(name string) {
	if state := b.nodes[name]; state.object == nil && len(state.pods) == 0 && len(state.ledgers) == 0 && state.configMaps == nil && len(state.pools) == 0 {
		delete(b.nodes, name)
	}
}

func (b *Builder) takeRow() int32 {
	if n := len(b.freeRows); n > 0 {
		row := b.freeRows[n-1]
		b.freeRows = b.freeRows[:n-1]
		return row
	}
	b.rows = append(b.rows, nil)
	return int32(len(b.rows) - 1)
}

// same reports whether two versions of an object differ in nothing but their resourceVersions.
func same[T any, O interface {
	*T
	metav1.Object
}](a, b O) bool {
	if a == b {
		return true
	}
	other := *b
	O(&other).SetResourceVersion(a.GetResourceVersion())
	return equality.Semantic.DeepEqual(a, &other)
}
