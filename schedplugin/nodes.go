package schedplugin

import (
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/snapshot"
)

// nodes converts the NodeInfos of kube-scheduler to nodes for policies. It caches the node for the latest NodeInfo, whose generation
// changes whenever the NodeInfo does. It may be used concurrently. The zero value is ready to use.
type nodes struct {
	byRow atomic.Pointer[[]atomic.Pointer[converted]]
	rows  atomic.Pointer[rowsOfInfos]
}

// rowsOfInfos are the rows of the NodeInfos of kube-scheduler's snapshot, which keeps the NodeInfo of a node for as long as the node
// exists: finding a row by its name takes several times as long.
type rowsOfInfos struct {
	index *snapshot.NodeIndex
	rows  map[fwk.NodeInfo]int32
}

// learn stores the rows of all NodeInfos of the snapshot.
func (ns *nodes) learn(view *snapshot.View, infos []fwk.NodeInfo) {
	known := ns.rows.Load()
	if known != nil && known.index == view.NodeIndex() && len(known.rows) >= len(infos) {
		return
	}
	next := &rowsOfInfos{index: view.NodeIndex(), rows: make(map[fwk.NodeInfo]int32, len(infos))}
	for _, info := range infos {
		if n := view.Node(info.Node().Name); n != nil {
			next.rows[info] = int32(n.Row())
		}
	}
	ns.rows.Store(next)
}

// base returns the node of the View, or nil if there is none.
func (ns *nodes) base(view *snapshot.View, info fwk.NodeInfo) *snapshot.Node {
	if known := ns.rows.Load(); known != nil && known.index == view.NodeIndex() {
		if row, ok := known.rows[info]; ok {
			return view.At(int(row))
		}
	}
	return view.Node(info.Node().Name)
}

// converted is a node with the generation of its NodeInfo and the node of the View that it was made from.
type converted struct {
	generation int64
	base, node *snapshot.Node
}

// of returns the node with the pods of the NodeInfo, and everything else as in the View.
func (ns *nodes) of(e *engine.Engine, view *snapshot.View, info fwk.NodeInfo) *snapshot.Node {
	base := ns.base(view, info)
	if base == nil { // the View does not show it yet
		return snapshot.NewNode(snapshot.TrimmedNode(info.Node()), podsOf(info)...)
	}
	slot := ns.slot(view, base.Row())
	generation := info.GetGeneration()
	if last := slot.Load(); last != nil && last.generation == generation && last.base == base {
		return last.node
	}
	node := withPodsOf(base, info, func(pod *corev1.Pod) *corev1.Pod {
		if planned := e.PlannedNominated(view, base, pod.UID); planned != nil {
			return planned
		}
		return snapshot.TrimmedPod(pod)
	})
	slot.Store(&converted{generation, base, node})
	return node
}

func (ns *nodes) slot(view *snapshot.View, row int) *atomic.Pointer[converted] {
	rows := ns.byRow.Load()
	for rows == nil || row >= len(*rows) {
		larger := make([]atomic.Pointer[converted], max(view.Rows(), row+1)*5/4)
		ns.byRow.CompareAndSwap(rows, &larger) // the former cache entries are computed again
		rows = ns.byRow.Load()
	}
	return &(*rows)[row]
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
