package schedplugin

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// nodeInfo is the part of a NodeInfo that the plugin reads.
type nodeInfo struct {
	fwk.NodeInfo
	node       *corev1.Node
	pods       []fwk.PodInfo
	generation int64

	allocatable, requested resources // of the node, and by pods that are assumed
}

func (n *nodeInfo) Node() *corev1.Node     { return n.node }
func (n *nodeInfo) GetPods() []fwk.PodInfo { return n.pods }
func (n *nodeInfo) GetGeneration() int64   { return n.generation }

// GetAllocatable and GetRequested have what the test needs of them: the number of pods, and CPU. As in kube-scheduler, they return pointers.
func (n *nodeInfo) GetAllocatable() fwk.Resource {
	if n.allocatable.pods == 0 {
		n.allocatable = resources{pods: int(n.node.Status.Allocatable.Pods().Value()), milliCPU: n.node.Status.Allocatable.Cpu().MilliValue()}
	}
	return &n.allocatable
}

func (n *nodeInfo) GetRequested() fwk.Resource { return &n.requested }

type resources struct {
	fwk.Resource
	pods     int
	milliCPU int64
}

func (r resources) GetAllowedPodNumber() int   { return r.pods }
func (r resources) GetMilliCPU() int64         { return r.milliCPU }
func (r resources) GetMemory() int64           { return 0 }
func (r resources) GetEphemeralStorage() int64 { return 0 }

func (i podInfo) GetPod() *corev1.Pod { return i.pod }
func numbered(n int, node string) *corev1.Pod {
	name := fmt.Sprintf("p%d", n)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: node}}
}

type podInfo struct {
	fwk.PodInfo
	pod *corev1.Pod
}

// A node has exactly the pods of the NodeInfo, whatever the view shows. The plugin uses the view's
// node if both have the same pods, and otherwise makes one node for each generation.
func TestNodesHaveThePodsOfTheNodeInfo(t *testing.T) {
	e, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		var b snapshot.Builder
		b.SetNode(object)
		some := rapid.SliceOfNDistinct(rapid.IntRange(0, 40), 0, 40, rapid.ID[int])
		shown := some.Draw(t, "shown")
		for _, n := range shown {
			b.SetPod(numbered(n, "n"))
		}
		view := b.View()
		generation := int64(0)
		info := &nodeInfo{node: object}
		table := (*infoTable)(nil).with(view, []fwk.NodeInfo{info})
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			generation++
			here := some.Draw(t, "here")
			if rapid.Bool().Draw(t, "same") {
				here = shown
			}
			info.generation, info.pods = generation, nil
			for _, n := range here {
				info.pods = append(info.pods, podInfo{pod: numbered(n, "n")})
			}
			node := nodeOf(e, view, table.slot(info), info)
			var got []int
			for _, pod := range node.Pods {
				var n int
				fmt.Sscanf(pod.Name, "p%d", &n)
				got = append(got, n)
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(here))
			if !slices.Equal(got, want) {
				t.Fatalf("the node has the pods %v, want %v", got, want)
			}
			if slices.Equal(want, slices.Sorted(slices.Values(shown))) && node != view.Node("n") {
				t.Fatal("the node is not that of the view, although the pods are the same")
			}
			if again := nodeOf(e, view, table.slot(info), info); again != node {
				t.Fatal("the plugin makes the node again for the same generation")
			}
		}
	})
}

// The table finds the NodeInfos of the snapshot with the rows of their nodes, and no copies and no nodes that the View does not have,
// while nodes are added and deleted. It keeps the nodes of NodeInfos that stay.
func TestTableOfNodeInfos(t *testing.T) {
	e, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		var b snapshot.Builder
		var table *infoTable
		infos := map[int]*nodeInfo{}
		some := rapid.SliceOfNDistinct(rapid.IntRange(0, 60), 0, 60, rapid.ID[int])
		var listed, shown []int
		for i := range rapid.IntRange(1, 4).Draw(t, "snapshots") {
			var all []fwk.NodeInfo
			if i == 0 || rapid.Bool().Draw(t, "lists other nodes") {
				listed = some.Draw(t, "listed")
			}
			for _, n := range listed {
				if infos[n] == nil || rapid.IntRange(0, 9).Draw(t, "made again") == 0 {
					infos[n] = &nodeInfo{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n)}}, generation: int64(n)}
				}
				all = append(all, infos[n])
			}
			if i == 0 || rapid.Bool().Draw(t, "shows other nodes") {
				shown = some.Draw(t, "shown")
			}
			for n := range 61 {
				if slices.Contains(shown, n) {
					b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n)}})
				} else {
					b.DeleteNode(fmt.Sprint("n", n))
				}
			}
			view := b.View()
			if table = table.with(view, all); table != table.with(view, all) {
				t.Fatal("the table is made again although no node was added or deleted")
			}
			for _, info := range all {
				slot, node := table.slot(info), view.Node(info.Node().Name)
				if (slot != nil) != (node != nil) || slot != nil && int(slot.row) != node.Row() {
					t.Fatalf("%s: the slot is %+v, want row %v", info.Node().Name, slot, node)
				}
				if slot != nil && nodeOf(e, view, slot, info) != node {
					t.Fatalf("%s: the node is not that of the View", info.Node().Name)
				}
				duplicate := *info.(*nodeInfo)
				if table.slot(&duplicate) != nil {
					t.Fatalf("%s: the table finds a copy", info.Node().Name)
				}
			}
		}
	})
}
