package snapshot_test

import (
	"fmt"
	"testing"

	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/measure"
)

func viewOf(nodes int) (*snapshot.Builder, *snapshot.View) {
	b := &snapshot.Builder{}
	for i := range nodes {
		b.SetNode(node(fmt.Sprintf("node-%04d", i)))
	}
	return b, b.View()
}

// find returns the nodes of the view with these names.
func find(v *snapshot.View, names [][]byte) []*snapshot.Node {
	rows := make([]int32, len(names))
	v.Find(rows, func(i int) []byte { return names[i] })
	nodes := make([]*snapshot.Node, len(names))
	for i, row := range rows {
		nodes[i] = v.At(int(row))
	}
	return nodes
}

// One pod changes in a cluster of 5,000 nodes; then one node is added and removed.
func BenchmarkPublish(b *testing.B) {
	b.Run("pod", func(b *testing.B) {
		builder, _ := viewOf(5000)
		b.ReportAllocs()
		since := measure.Used()
		for i := 0; b.Loop(); i++ {
			builder.SetPod(pod("p", fmt.Sprintf("node-%04d", i%5000)))
			builder.View()
		}
		b.ReportMetric((measure.Used()-since)/float64(b.N), "cpu-µs/op")
	})
	b.Run("node", func(b *testing.B) {
		builder, _ := viewOf(5000)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i%2 == 0 {
				builder.DeleteNode("node-2500")
			} else {
				builder.SetNode(node("node-2500"))
			}
			builder.View()
		}
	})
}
