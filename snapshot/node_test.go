package snapshot_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

var now = metav1.NewTime(time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC))

func TestWithout(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(node("a"))
	for _, name := range []string{"p", "q", "r"} {
		b.SetPod(pod(name, "a"))
	}
	n := b.View().Node("a")

	if n.Without(func(*corev1.Pod) bool { return false }) != n {
		t.Error("no pod leaves, but Without returns another node")
	}
	less := n.Without(func(p *corev1.Pod) bool { return p.Name == "q" })
	if len(less.Pods) != 2 || less.Pods[0].Name != "p" || less.Pods[1].Name != "r" {
		t.Errorf("pods without q: %v", less.Pods)
	}
	if less.Name != n.Name || less.Object != n.Object || less.Row() != n.Row() {
		t.Errorf("got %s at row %d", less.Name, less.Row())
	}
	if len(n.Pods) != 3 {
		t.Error("the receiver changed")
	}
	count := snapshot.NewFact(func(n *snapshot.Node) int { return len(n.Pods) })
	if with, without := *count.Of(n), *count.Of(less); with != 3 || without != 2 {
		t.Errorf("the fact is %d with and %d without", with, without)
	}
	if none := n.Without(func(*corev1.Pod) bool { return true }); len(none.Pods) != 0 {
		t.Errorf("%d pods are left when all leave", len(none.Pods))
	}
}

func TestWith(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(node("a"))
	b.SetPod(pod("p", "a"))
	b.SetPod(pod("r", "a"))
	n := b.View().Node("a")

	over := pod("over", "a")
	over.Status.Phase = corev1.PodFailed
	if n.With() != n || n.With(pod("p", "a"), over) != n {
		t.Error("no pod is added, but With returns another node")
	}
	more := n.With(pod("q", ""), pod("p", ""), pod("q", ""))
	if len(more.Pods) != 3 || more.Pods[0].Name != "p" || more.Pods[1].Name != "q" || more.Pods[2].Name != "r" {
		t.Errorf("pods with q: %v", more.Pods)
	}
	if len(n.Pods) != 2 || more.Row() != n.Row() || more.Object != n.Object {
		t.Error("the receiver changed, or the node is not the same")
	}
}

// A fact of the object stays valid after changes of the pods, and after no other changes.
func TestObjectFact(t *testing.T) {
	var computed int
	labels := snapshot.NewObjectFact(func(n *corev1.Node) int { computed++; return len(n.Labels) })
	var b snapshot.Builder
	b.SetNode(node("a"))
	n := b.View().Node("a")
	labels.Of(n)
	b.SetPod(pod("p", "a"))
	bound := b.View().Node("a")
	if bound == n {
		t.Fatal("the node did not change")
	}
	labels.Of(bound)
	labels.Of(bound.With(pod("q", "")))
	labels.Of(bound.Without(func(*corev1.Pod) bool { return true }))
	if computed != 1 {
		t.Errorf("computed %d times for one object", computed)
	}
	changed := node("a")
	changed.Labels = map[string]string{"x": "1", "y": "2"}
	b.SetNode(changed)
	if got := *labels.Of(b.View().Node("a")); got != 2 || computed != 2 {
		t.Errorf("the changed object has %d labels, computed %d times", got, computed)
	}
	labels.Of(snapshot.NewNode(changed))
	if computed != 3 {
		t.Error("a node outside the view shares facts with one in it")
	}
}

func TestFactIsComputedOncePerNode(t *testing.T) {
	var computed atomic.Int32
	count := snapshot.NewFact(func(n *snapshot.Node) int { computed.Add(1); return len(n.Pods) })
	var b snapshot.Builder
	b.SetNode(node("a"))
	b.SetNode(node("b"))
	for n := range b.View().All() {
		count.Of(n)
		count.Of(n)
	}
	if got := computed.Load(); got != 2 {
		t.Fatalf("computed %d times for 2 nodes", got)
	}
	b.SetPod(pod("p", "a"))
	v := b.View()
	if a, b := *count.Of(v.Node("a")), *count.Of(v.Node("b")); a != 1 || b != 0 {
		t.Errorf("the fact is %d pods on a and %d on b", a, b)
	}
	if got := computed.Load(); got != 3 {
		t.Errorf("computed %d times, want once more for the node that changed", got)
	}
}

// After many configurations a node still returns facts, and has dropped those of earlier configurations.
func TestFactsOfEarlierConfigurations(t *testing.T) {
	n := snapshot.NewNode(node("a"))
	first := snapshot.NewFact(func(*snapshot.Node) int { return 7 })
	first.Of(n)
	var earlier []weak.Pointer[[64]int]
	for i := range 100 {
		value := snapshot.NewFact(func(*snapshot.Node) [64]int { return [64]int{i} }).Of(n)
		if value[0] != i {
			t.Fatalf("fact %d is %d", i, value[0])
		}
		earlier = append(earlier, weak.Make(value))
	}
	runtime.GC() // frees the facts
	last := snapshot.NewFact(func(*snapshot.Node) int { return 8 })
	if *last.Of(n) != 8 || *first.Of(n) != 7 {
		t.Errorf("facts in use are %d and %d", *last.Of(n), *first.Of(n))
	}
	runtime.GC() // frees their values
	for i, value := range earlier {
		if value.Value() != nil {
			t.Fatalf("the value of fact %d is still in memory", i)
		}
	}
	runtime.KeepAlive(n)
}

// Two goroutines that both compute a fact get the value that was stored first.
func TestFactComputedTwiceAtOnce(t *testing.T) {
	n := snapshot.NewNode(node("a"))
	var both sync.WaitGroup
	both.Add(2)
	fact := snapshot.NewFact(func(n *snapshot.Node) int {
		both.Done()
		both.Wait()
		return len(n.Pods)
	})
	var got [2]*int
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = fact.Of(n) })
	}
	wg.Wait()
	if got[0] != got[1] {
		t.Error("the fact has two values")
	}
}

// A pod that asks is not on its node, and keeps its allocations there. Nothing else changes.
func TestWithoutPod(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(node("a"))
	b.SetNode(node("b"))
	b.SetPod(pod("p", "a"))
	b.SetPod(pod("q", "a"))
	b.SetLedger(&snapshot.Ledger{Resource: "r", Node: "a", Pods: []snapshot.LedgerPod{{UID: "p"}}})
	view := b.View()
	got := view.WithoutPod("a", "p")
	if n := got.Node("a"); n.Has("p") || !n.Has("q") || n.Ledger("r").Pod("p") == nil {
		t.Errorf("the node has %d pods, and the ledger %v", len(n.Pods), n.Ledger("r"))
	}
	if got.Node("b") != view.Node("b") || !view.Node("a").Has("p") {
		t.Error("another node or the receiver changed")
	}
	for _, node := range []string{"b", "unknown"} {
		if view.WithoutPod(node, "p") != view {
			t.Errorf("without a pod that is not on node %s, the View is another one", node)
		}
	}
}

// A pod that is assumed makes no freed, and every other change may.
func TestRoom(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(node("a"))
	b.SetNode(node("b"))
	b.SetPod(pod("before", ""))
	nominated := func(name, node string) *corev1.Pod {
		p := pod(name, "")
		p.Status.NominatedNodeName = node
		return p
	}
	last := b.View()
	for _, step := range []struct {
		what   string
		change func()
		freed  bool
	}{
		{"a pod is assumed", func() { b.AssumePod(pod("p", ""), "a") }, false},
		{"another is assumed", func() { b.AssumePod(pod("q", ""), "a") }, false},
		{"it is assumed on another node", func() { b.AssumePod(pod("q", ""), "b") }, true},
		{"it is bound with other annotations", func() { p := pod("q", "b"); p.Annotations = map[string]string{"a": "b"}; b.AssumePod(p, "b") }, true},
		{"the API server shows it", func() { p := pod("p", "a"); p.Labels = map[string]string{"a": "b"}; b.SetPod(p) }, true},
		{"it ends", func() { b.DeletePod("p") }, true},
		{"the other is forgotten", func() { b.SetPod(pod("q", "")) }, true},
		{"a pod is nominated", func() { b.SetPod(nominated("s", "a")) }, true},
		{"it is assumed on its node", func() { b.AssumePod(nominated("s", "a"), "a") }, false},
		{"another is nominated", func() { b.SetPod(nominated("t", "a")) }, true},
		{"it is assumed on another node, and leaves the freed for it", func() { b.AssumePod(nominated("t", "a"), "b") }, true},
		{"a node changes while a pod is assumed", func() { b.SetNode(node("c")); b.AssumePod(pod("r", ""), "a") }, true},
	} {
		step.change()
		next := b.View()
		if next.Generation() <= last.Generation() || (next.FreedGeneration() > last.FreedGeneration()) != step.freed {
			t.Errorf("%s: View %d with freed %d, then View %d with freed %d", step.what, last.Generation(), last.FreedGeneration(), next.Generation(), next.FreedGeneration())
		}
		last = next
	}
}
