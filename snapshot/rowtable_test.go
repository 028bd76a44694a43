package snapshot_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/snapshot"
)

// Views of many nodes return, at each row, the node as it was at publication, regardless of later changes.
func TestViewsOfManyNodesStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b snapshot.Builder
		count := rapid.SampledFrom([]int{1, 63, 64, 65, 200}).Draw(t, "nodes")
		for i := range count {
			b.SetNode(node(fmt.Sprintf("n%03d", i)))
		}
		var views []*snapshot.View
		var wanted [][]*snapshot.Node // of each view, by row
		versions := nodeVersions{}
		for step := range rapid.IntRange(1, 8).Draw(t, "views") {
			for range rapid.IntRange(0, 3).Draw(t, "changes") {
				name := fmt.Sprintf("n%03d", rapid.IntRange(0, count-1).Draw(t, "node"))
				b.SetPod(pod(fmt.Sprintf("p%d", step), name))
			}
			view := b.View()
			if rapid.Bool().Draw(t, "with") {
				n := view.At(rapid.IntRange(0, count-1).Draw(t, "row"))
				view = view.WithNodes(n.With(pod("more", n.Name)))
				view = view.WithNodes(view.At(n.Row()).Without(func(p *corev1.Pod) bool { return p.Name == "p0" }))
			}
			rows := make([]*snapshot.Node, count)
			for n := range view.All() {
				rows[n.Row()] = n
			}
			views, wanted = append(views, view), append(wanted, rows)
		}
		for i, view := range views {
			versions.check(t, view)
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
			var changed []*snapshot.Node
			for row := range count {
				if views[i].At(row) != views[i+1].At(row) {
					changed = append(changed, views[i+1].At(row))
				}
			}
			if len(changed) > 5 {
				t.Fatalf("%d nodes differ between two views", len(changed))
			}
			if got := slices.Collect(views[i+1].ChangedSince(views[i])); !slices.Equal(got, changed) {
				t.Fatalf("%d nodes have changed since the view before, want %d, or others", len(got), len(changed))
			}
		}
	})
}

// nodeVersions are the nodes with each version.
type nodeVersions map[uint64]*snapshot.Node

// check fails the test unless the versions of the nodes in the view belong to no other nodes.
func (vs nodeVersions) check(t interface{ Fatalf(string, ...any) }, view *snapshot.View) {
	for row := range view.Rows() {
		n, version := view.At(row), view.Version(row)
		if (n == nil) != (version == 0) {
			t.Fatalf("row %d holds %v and has the version %d", row, n, version)
		}
		if n == nil {
			continue
		}
		if other := vs[version]; other != nil && other != n {
			t.Fatalf("%s with %d pods, and %s with %d pods, both have the version %d", other.Name, len(other.Pods), n.Name, len(n.Pods), version)
		}
		vs[version] = n
	}
	for _, row := range []int{-1, view.Rows()} {
		if version := view.Version(row); version != 0 {
			t.Fatalf("row %d of %d has the version %d", row, view.Rows(), version)
		}
	}
}
