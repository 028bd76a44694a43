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

func names(v *snapshot.View) [][]byte {
	var all [][]byte
	for n := range v.All() {
		all = append(all, []byte(n.Name))
	}
	return all
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

// Also nodes whose hashes collide are found, and names that no node has are not.
func TestFindManyNames(t *testing.T) {
	_, v := viewOf(3000)
	var asked [][]byte
	for i := range 6000 {
		asked = append(asked, fmt.Appendf(nil, "node-%04d", i))
	}
	for i, n := range find(v, asked) {
		if name := string(asked[i]); n != v.Node(name) || (n != nil) != (i < 3000) || n != nil && n.Name != name {
			t.Fatalf("found %v for %s", n, name)
		}
	}
}

func TestRequestPathAllocatesNothing(t *testing.T) {
	_, v := viewOf(500)
	all, unknown := names(v), []byte("not-a-node, and too long for a buffer on the stack")
	rows := make([]int32, 2*len(all))
	name := func(i int) []byte {
		if i%2 == 0 {
			return unknown
		}
		return all[(i*7)%len(all)]
	}
	pods := snapshot.NewFact(func(n *snapshot.Node) int { return len(n.Pods) })
	other := snapshot.NewFact(func(n *snapshot.Node) int { return n.Row() })
	for n := range v.All() {
		pods.Of(n)
		other.Of(n)
	}
	sum := 0
	if got := testing.AllocsPerRun(20, func() {
		v.Find(rows, name)
		for _, row := range rows {
			if n := v.At(int(row)); n != nil {
				sum += *pods.Of(n) + *other.Of(n)
			}
		}
	}); got != 0 {
		t.Errorf("finding nodes and reading their facts allocates %v times", got)
	}
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
