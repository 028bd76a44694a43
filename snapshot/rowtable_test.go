package snapshot_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"outboard.dev/outboard/snapshot"
)

// Views of many nodes hold, at each row, the node as it was when they were published, whatever changes afterwards.
func TestViewsOfManyNodesStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b snapshot.Builder
		count := rapid.SampledFrom([]int{1, 63, 64, 65, 200}).Draw(t, "nodes")
		for i := range count {
			b.SetNode(node(fmt.Sprintf("n%03d", i)))
		}
		var views []*snapshot.View
		var wanted [][]*snapshot.Node // of each view, by row
		for step := range rapid.IntRange(1, 8).Draw(t, "views") {
			for range rapid.IntRange(0, 3).Draw(t, "changes") {
				name := fmt.Sprintf("n%03d", rapid.IntRange(0, count-1).Draw(t, "node"))
				b.SetPod(pod(fmt.Sprintf("p%d", step), name))
			}
			view := b.View()
			if rapid.Bool().Draw(t, "with") {
				n := view.At(rapid.IntRange(0, count-1).Draw(t, "row"))
				view = view.WithNodes(n.With(pod("more", n.Name)))
			}
			rows := make([]*snapshot.Node, count)
			for n := range view.All() {
				rows[n.Row()] = n
			}
			views, wanted = append(views, view), append(wanted, rows)
		}
		for i, view := range views {
			for row, n := range wanted[i] {
				if n == nil || view.At(row) != n || view.Node(n.Name) != n {
					t.Fatalf("row %d of view %d of %d holds %v, want %v", row, i, len(views), view.At(row), n)
				}
			}
			if view.At(count) != nil || view.At(-1) != nil || view.Rows() != count {
				t.Fatalf("a view of %d nodes has %d rows", count, view.Rows())
			}
		}
		for i := range views[1:] {
			changed := 0
			for row := range count {
				if views[i].At(row) != views[i+1].At(row) {
					changed++
				}
			}
			if changed > 5 {
				t.Fatalf("%d nodes differ between two views", changed)
			}
		}
	})
}

// What a view takes depends on what has changed, and hardly on the number of nodes.
func TestViewsAreSmall(t *testing.T) {
	const nodes, views, most = 5000, 50, 4000 // bytes for each view; a pointer for each node takes 40,000
	var b snapshot.Builder
	for i := range nodes {
		b.SetNode(node(fmt.Sprint("n", i)))
	}
	all := make([]*snapshot.View, 0, views+1)
	all = append(all, b.View())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range views {
		b.SetPod(pod(fmt.Sprint("p", i), fmt.Sprint("n", 97*i)))
		all = append(all, b.View())
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / views; each > most {
		t.Errorf("a view takes %d bytes, want at most %d", each, most)
	}
	if slices.Contains(all[1:], all[0]) {
		t.Error("views are not made")
	}
}
