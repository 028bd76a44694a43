package snapshot_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// What changes nothing, or nothing but a resourceVersion, makes no new View.
func TestViewsWithoutAChange(t *testing.T) {
	var b snapshot.Builder
	b.AssumePod(pod("early", ""), "a") // before there is a View
	b.SetNode(withVersion(node("a", "zone=east"), "1"))
	b.SetPod(withVersion(pod("p", "a"), "2"))
	b.SetDisruptionBudget(budget("a", "b"))
	first := b.View()
	if got := show(first); got != "a[early p] a/b" {
		t.Errorf("at first: %s", got)
	}
	newer := budget("a", "b")
	newer.ResourceVersion = "newer"
	for i, change := range []func(){
		func() { b.SetNode(withVersion(node("a", "zone=east"), "3")) },
		func() { b.SetPod(withVersion(pod("p", "a"), "4")) },
		func() { b.SetDisruptionBudget(newer) },
		func() { b.SetPod(pod("q", "")) },
		func() { b.SetPod(pod("q", "never-seen")) },
		func() { b.DeletePod("q") },
		func() { b.DeleteNode("never-seen") },
		func() { b.DeleteDisruptionBudget(types.NamespacedName{Namespace: "a", Name: "z"}) },
	} {
		if change(); b.View() != first {
			t.Errorf("step %d makes a View", i)
		}
	}
}

func TestZeroView(t *testing.T) {
	var v snapshot.View
	rows := []int32{0}
	v.Find(rows, func(int) []byte { return []byte("a") })
	if v.Len() != 0 || v.Rows() != 0 || v.Generation() != 0 || v.Node("a") != nil || v.At(0) != nil ||
		rows[0] != -1 || show(&v) != "" {
		t.Error("the zero View is not empty")
	}
}

// Views have the same NodeObjects while no Node object changes, regardless of other changes.
func TestNodeObjects(t *testing.T) {
	var b snapshot.Builder
	last := b.View().NodeObjects()
	for i, step := range []struct {
		change func()
		same   bool
	}{
		{func() { b.SetNode(node("a")) }, false},
		{func() { b.SetPod(pod("p", "a")) }, true},
		{func() { b.SetNode(node("a")) }, true},
		{func() {
			n := node("a")
			n.Labels = map[string]string{"new": ""}
			b.SetNode(n)
		}, false},
		{func() { b.DeletePod(pod("p", "a").UID) }, true},
		{func() { b.DeleteNode("unknown") }, true},
		{func() { b.DeleteNode("a") }, false},
		{func() { b.SetNode(node("b")) }, false},
	} {
		step.change()
		objects := b.View().NodeObjects()
		if (objects == last) != step.same {
			t.Errorf("step %d: got the same: %v, want %v", i, objects == last, step.same)
		}
		last = objects
	}
	var other snapshot.Builder
	other.SetNode(node("b"))
	if other.View().NodeObjects() == last {
		t.Error("two Builders have the same NodeObjects")
	}
}
