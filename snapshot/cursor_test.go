package snapshot_test

import (
	"fmt"
	"sync"
	"testing"

	"outboard.dev/outboard/snapshot"
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

// Whatever a Cursor has learnt from earlier sequences, it finds what the view
// holds and nothing else.
func TestCursorFindsWhatTheViewHolds(t *testing.T) {
	b, _ := viewOf(50)
	b.DeleteNode("node-0000") // row 0 is free: the guess of a fresh index points there
	v := b.View()
	all := names(v)
	rotated := append(append([][]byte{}, all[17:]...), all[:17]...)
	var reversed, mixed [][]byte
	for i := range all {
		reversed = append(reversed, all[len(all)-1-i])
		mixed = append(mixed, all[i], []byte("unknown"), nil, all[(i*7)%len(all)], all[i], []byte("node-0000"))
	}
	for _, sequence := range [][][]byte{all, rotated, rotated, reversed, mixed, mixed, all} {
		cursor := v.Cursor()
		for _, name := range sequence {
			if got, want := v.At(cursor.Find(name)), v.Node(string(name)); got != want {
				t.Fatalf("Find(%q) is %v, want %v", name, got, want)
			}
		}
	}
}

// Views with the same set of nodes share what Cursors learn, but each answers
// with its own nodes.
func TestCursorAnswersFromItsOwnView(t *testing.T) {
	b, before := viewOf(3)
	for _, name := range names(before) {
		c := before.Cursor()
		c.Find(name)
	}
	b.SetPod(pod("p", "node-0001"))
	after := b.View()
	old, cur := before.Cursor(), after.Cursor()
	for _, name := range names(after) {
		if o, c := before.At(old.Find(name)), after.At(cur.Find(name)); o != before.Node(string(name)) || c != after.Node(string(name)) {
			t.Errorf("%s: a cursor answered from another view", name)
		}
	}
}

func TestCursorsConcurrently(t *testing.T) {
	_, v := viewOf(200)
	all := names(v)
	var wg sync.WaitGroup
	for asker := range 8 {
		wg.Go(func() {
			for round := range 20 {
				cursor := v.Cursor()
				for i := range all {
					name := all[(i*(asker+1)+round)%len(all)]
					if n := v.At(cursor.Find(name)); n == nil || n.Name != string(name) {
						t.Errorf("Find(%s) is %v", name, n)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestRequestPathAllocatesNothing(t *testing.T) {
	_, v := viewOf(500)
	all := names(v)
	scrambled := make([][]byte, len(all))
	for i := range all {
		scrambled[i] = all[(i*7)%len(all)]
	}
	pods := snapshot.NewFact(func(n *snapshot.Node) int { return len(n.Pods) })
	other := snapshot.NewFact(func(n *snapshot.Node) int { return n.Row() })
	for n := range v.All() {
		pods.Of(n)
		other.Of(n)
	}
	unknown := []byte("not-a-node")
	sum := 0
	if got := testing.AllocsPerRun(20, func() {
		for _, sequence := range [][][]byte{all, scrambled} {
			cursor := v.Cursor()
			for _, name := range sequence {
				n := v.At(cursor.Find(name))
				sum += *pods.Of(n) + *other.Of(n)
				cursor.Find(unknown)
			}
		}
	}); got != 0 {
		t.Errorf("finding nodes and reading their facts allocates %v times", got)
	}
}

func BenchmarkCursorFind(b *testing.B) {
	_, v := viewOf(5000)
	all := names(v)
	b.ReportAllocs()
	for b.Loop() {
		cursor := v.Cursor()
		for _, name := range all {
			if cursor.Find(name) < 0 {
				b.Fatal("not found")
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(all)), "ns/name")
}

// One pod changes in a cluster of 5,000 nodes; then one node comes and goes.
func BenchmarkPublish(b *testing.B) {
	b.Run("pod", func(b *testing.B) {
		builder, _ := viewOf(5000)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			builder.SetPod(pod("p", fmt.Sprintf("node-%04d", i%5000)))
			builder.View()
		}
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
