package schedplugin

import (
	"reflect"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/snapshot"
)

// infoTable finds the NodeInfos of kube-scheduler's snapshot, which keeps the NodeInfo of a node for as long as the node exists: finding
// a node by its name takes several times as long. It is an open-addressing table by the address of the NodeInfo. Its size is a power
// of two, and at least a quarter of its slots are free. Only converted and score change. It may be used concurrently, except that
// PreScore sets the scores before Score reads them.
type infoTable struct {
	index *snapshot.NodeIndex
	slots []infoSlot
	infos int
}

// infoSlot is empty, or holds a NodeInfo and the row of its node. It caches the node for the latest state of the NodeInfo.
type infoSlot struct {
	info      fwk.NodeInfo
	row       int32
	score     int32 // of the latest attempt, if the node fits
	converted atomic.Pointer[converted]
}

// converted is a node with the pods of the NodeInfo, made from the node of the View with the version.
type converted struct {
	generation int64 // of the NodeInfo; changes whenever the NodeInfo does
	version    uint64
	node       *snapshot.Node
	same       bool // node is that of the View
}

// with returns a table of all NodeInfos of the snapshot: the receiver, which may be nil, while no node is added or deleted.
func (t *infoTable) with(view *snapshot.View, infos []fwk.NodeInfo) *infoTable {
	if t != nil && t.index == view.NodeIndex() && t.infos >= len(infos) {
		return t
	}
	size := 2
	for 3*size < 4*len(infos) {
		size *= 2
	}
	next := &infoTable{index: view.NodeIndex(), slots: make([]infoSlot, size), infos: len(infos)}
	for _, info := range infos {
		n := view.Node(info.Node().Name)
		at, ok := next.home(info)
		if n == nil || !ok {
			continue
		}
		for next.slots[at].info != nil {
			at = next.after(at)
		}
		slot := &next.slots[at]
		slot.info, slot.row = info, int32(n.Row())
		if t == nil {
			continue
		}
		if former := t.find(info); former != nil {
			slot.converted.Store(former.converted.Load())
		}
	}
	return next
}

// find returns the slot of the NodeInfo, or nil: the framework also evaluates copies, and nodes that the View does not have yet.
func (t *infoTable) find(info fwk.NodeInfo) *infoSlot {
	at, ok := t.home(info)
	for ; ok && t.slots[at].info != nil; at = t.after(at) {
		if t.slots[at].info == info {
			return &t.slots[at]
		}
	}
	return nil
}

// home is the first slot to search for the NodeInfo, and after is the next one.
func (t *infoTable) home(info fwk.NodeInfo) (slot int, ok bool) {
	v := reflect.ValueOf(info)
	if v.Kind() != reflect.Pointer {
		return 0, false
	}
	const golden = 0x9e3779b97f4a7c15 // spreads addresses, whose low bits are equal
	return int(uint64(v.Pointer())*golden>>32) & (len(t.slots) - 1), true
}

func (t *infoTable) after(slot int) int { return (slot + 1) & (len(t.slots) - 1) }

// latest returns what the slot caches if neither the NodeInfo nor the View's node has changed; else nil.
func (s *infoSlot) latest(view *snapshot.View) *converted {
	c := s.converted.Load()
	if c == nil || c.generation != s.info.GetGeneration() || c.version != view.Version(int(s.row)) {
		return nil
	}
	return c
}

// nodeOf returns the node with the pods of the NodeInfo, and everything else as in the View. slot is that of the NodeInfo, or nil.
func nodeOf(e *engine.Engine, view *snapshot.View, slot *infoSlot, info fwk.NodeInfo) *snapshot.Node {
	var base *snapshot.Node
	if slot != nil {
		if c := slot.latest(view); c != nil {
			return c.node
		}
		base = view.At(int(slot.row))
	} else {
		base = view.Node(info.Node().Name)
	}
	if base == nil { // the View does not show it yet
		return snapshot.NewNode(snapshot.TrimmedNode(info.Node()), podsOf(info)...)
	}
	generation := info.GetGeneration()
	node := withPodsOf(base, info, func(pod *corev1.Pod) *corev1.Pod {
		if planned := e.PlannedNominated(view, base, pod.UID); planned != nil {
			return planned
		}
		return snapshot.TrimmedPod(pod)
	})
	if slot != nil {
		slot.converted.Store(&converted{generation, view.Version(base.Row()), node, node == base})
	}
	return node
}

// manyPods is the number of pods from which a map is faster than a scan.
const manyPods = 16

// withPodsOf returns the node with the pods of the NodeInfo: the base itself if it has the same. other returns
// the trimmed pod for a pod that the base does not have.
func withPodsOf(base *snapshot.Node, info fwk.NodeInfo, other func(*corev1.Pod) *corev1.Pod) *snapshot.Node {
	infos := info.GetPods()
	onBase := base.Has
	if len(base.Pods) > manyPods {
		set := make(map[types.UID]struct{}, len(base.Pods))
		for _, pod := range base.Pods {
			set[pod.UID] = struct{}{}
		}
		onBase = func(uid types.UID) bool { _, has := set[uid]; return has }
	}
	shared := 0
	var more []*corev1.Pod
	for _, pod := range infos {
		if onBase(pod.GetPod().UID) {
			shared++
		} else {
			more = append(more, other(pod.GetPod()))
		}
	}
	if shared < len(base.Pods) {
		base = base.Without(func(pod *corev1.Pod) bool {
			return !slices.ContainsFunc(infos, func(i fwk.PodInfo) bool { return i.GetPod().UID == pod.UID })
		})
	}
	return base.With(more...)
}

func podsOf(info fwk.NodeInfo) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range info.GetPods() {
		pods = append(pods, snapshot.TrimmedPod(pod.GetPod()))
	}
	return pods
}
