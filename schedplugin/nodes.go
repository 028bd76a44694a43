package schedplugin

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// infoTable finds the NodeInfos of kube-scheduler's snapshot, which keeps the NodeInfo of a node
// for as long as the node exists: finding a node by its name takes several times as long. It may be
// used concurrently for different NodeInfos.
type infoTable struct {
	index *snapshot.NodeIndex
	// slots are in the order of the snapshot, in which the framework evaluates the nodes, so that
	// most of them are in the processor's caches before they are needed.
	slots []infoSlot
	rows  []int32 // of the slots
	// homes is an open-addressing table by the address of the NodeInfo. It has the position in
	// slots plus 1, or 0. Its size is a power of two, and at least half of it is free.
	homes []int32
	infos []fwk.NodeInfo // of the snapshot
}

// infoSlot holds a NodeInfo and the row of its node. It caches the node for the latest state of the
// NodeInfo.
type infoSlot struct {
	info fwk.NodeInfo
	// node has the pods of the NodeInfo with the generation, which changes whenever the NodeInfo
	// does, and is made from the node of the View with the version; nil: none yet.
	node       *snapshot.Node
	generation int64
	version    uint64
	row        int32
	score      int16 // of the latest attempt, if the node fits
	same       bool  // node is that of the View
}

// with returns a table of all NodeInfos of the snapshot: the receiver, which may be nil, while no
// node is added or deleted. kube-scheduler makes another list when it adds or deletes a node, which
// may be before or after the View does.
func (t *infoTable) with(view *snapshot.View, infos []fwk.NodeInfo) *infoTable {
	if t != nil && t.index == view.NodeIndex() && startsWith(t.infos, infos) {
		return t
	}
	size := 2
	for size < 2*len(infos) {
		size *= 2
	}
	next := &infoTable{index: view.NodeIndex(), slots: make([]infoSlot, 0, len(infos)), homes: make([]int32, size), infos: infos}
	for _, info := range infos {
		n := view.Node(info.Node().Name)
		at, ok := next.home(info)
		if n == nil || !ok {
			continue
		}
		for next.homes[at] != 0 {
			at = next.after(at)
		}
		slot := infoSlot{info: info}
		if t != nil {
			if former := t.slot(info); former != nil {
				slot = *former
			}
		}
		slot.row = int32(n.Row())
		next.slots, next.rows = append(next.slots, slot), append(next.rows, slot.row)
		next.homes[at] = int32(len(next.slots))
	}
	return next
}

// startsWith reports whether part is the same list as whole, or the first part of that.
func startsWith(whole, part []fwk.NodeInfo) bool {
	return len(part) == 0 || len(part) <= len(whole) && &part[0] == &whole[0]
}

// slot returns the slot of the NodeInfo, or nil: the framework also evaluates copies, and nodes
// that the View does not have yet.
func (t *infoTable) slot(info fwk.NodeInfo) *infoSlot {
	at, ok := t.home(info)
	for ; ok && t.homes[at] != 0; at = t.after(at) {
		if s := &t.slots[t.homes[at]-1]; s.info == info {
			return s
		}
	}
	return nil
}

// home is the first position to search for the NodeInfo, and after is the next one.
func (t *infoTable) home(info fwk.NodeInfo) (position int, ok bool) {
	v := reflect.ValueOf(info)
	if v.Kind() != reflect.Pointer {
		return 0, false
	}
	const golden = 0x9e3779b97f4a7c15 // spreads addresses, whose low bits are equal
	return int(uint64(v.Pointer())*golden>>32) & (len(t.homes) - 1), true
}

func (t *infoTable) after(position int) int { return (position + 1) & (len(t.homes) - 1) }

// isLatest reports whether neither the NodeInfo nor the View's node has changed since the slot
// cached the node.
func (s *infoSlot) isLatest(view *snapshot.View) bool {
	return s.node != nil && s.generation == s.info.GetGeneration() && s.version == view.Version(int(s.row))
}

// nodeOf returns the node with the pods of the NodeInfo, and everything else as in the View. slot
// is that of the NodeInfo, or nil.
func nodeOf(e *engine.Engine, view *snapshot.View, slot *infoSlot, info fwk.NodeInfo) *snapshot.Node {
	var base *snapshot.Node
	if slot != nil {
		if slot.isLatest(view) {
			return slot.node
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
		slot.node, slot.generation, slot.version, slot.same = node, generation, view.Version(base.Row()), node == base
	}
	return node
}

// withPodsOf returns the node with the pods of the NodeInfo: the base itself if it has the same.
// other returns the trimmed pod for a pod that the base does not have.
func withPodsOf(base *snapshot.Node, info fwk.NodeInfo, other func(*corev1.Pod) *corev1.Pod) *snapshot.Node {
	leaving := make(map[types.UID]bool, len(base.Pods))
	for _, pod := range base.Pods {
		leaving[pod.UID] = true
	}
	var coming []*corev1.Pod
	for _, i := range info.GetPods() {
		if pod := i.GetPod(); leaving[pod.UID] {
			delete(leaving, pod.UID)
		} else {
			coming = append(coming, other(pod))
		}
	}
	if len(leaving) > 0 {
		base = base.Without(func(pod *corev1.Pod) bool { return leaving[pod.UID] })
	}
	return base.With(coming...)
}

func podsOf(info fwk.NodeInfo) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range info.GetPods() {
		pods = append(pods, snapshot.TrimmedPod(pod.GetPod()))
	}
	return pods
}
