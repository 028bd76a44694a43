package snapshot_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// Each step changes the Builder; want is the View after it, and publishes is whether that View is new.
func TestBuilder(t *testing.T) {
	type step struct {
		do        func(*snapshot.Builder)
		want      string
		publishes bool
	}
	labelled := node("a", "zone=east")
	for name, steps := range map[string][]step{
		"nodes come and go": {
			{func(b *snapshot.Builder) { b.SetNode(node("b")); b.SetNode(node("a")) }, "a[] b[]", true},
			{func(b *snapshot.Builder) { b.DeleteNode("a") }, "b[]", true},
			{func(b *snapshot.Builder) { b.DeleteNode("a") }, "b[]", false},
			{func(b *snapshot.Builder) { b.DeleteNode("never-seen") }, "b[]", false},
			{func(b *snapshot.Builder) { b.SetNode(node("a")) }, "a[] b[]", true},
		},
		"a pod arrives before its node": {
			{func(b *snapshot.Builder) { b.SetPod(pod("p", "a")) }, "", false},
			{func(b *snapshot.Builder) { b.SetNode(node("a")) }, "a[p]", true},
		},
		"pods stay known while their node is away": {
			{func(b *snapshot.Builder) { b.SetNode(node("a")); b.SetPod(pod("p", "a")) }, "a[p]", true},
			{func(b *snapshot.Builder) { b.DeleteNode("a") }, "", true},
			{func(b *snapshot.Builder) { b.SetPod(pod("q", "a")); b.DeletePod("p") }, "", false},
			{func(b *snapshot.Builder) { b.SetNode(node("a")) }, "a[q]", true},
		},
		"a node that came and went between two views is not in the second": {
			{func(b *snapshot.Builder) { b.SetNode(node("a")); b.DeleteNode("a"); b.SetNode(node("b")) }, "b[]", true},
		},
		"pods are in order of namespace and name": {
			{func(b *snapshot.Builder) {
				b.SetNode(node("a"))
				other := pod("a-first-by-name", "a")
				other.Namespace = "zz"
				b.SetPod(other)
				b.SetPod(pod("r", "a"))
				b.SetPod(pod("p", "a"))
				b.SetPod(pod("q", "a"))
			}, "a[p q r a-first-by-name]", true},
		},
		"a pod that has ended or has no node is on no node": {
			{func(b *snapshot.Builder) { b.SetNode(node("a")) }, "a[]", true},
			{func(b *snapshot.Builder) { b.SetPod(phase(pod("p", "a"), corev1.PodSucceeded)) }, "a[]", false},
			{func(b *snapshot.Builder) { b.SetPod(pod("p", "")) }, "a[]", false},
			{func(b *snapshot.Builder) { b.SetPod(phase(pod("p", "a"), corev1.PodRunning)) }, "a[p]", true},
			{func(b *snapshot.Builder) { b.SetPod(phase(pod("p", "a"), corev1.PodFailed)) }, "a[]", true},
			{func(b *snapshot.Builder) { b.DeletePod("p") }, "a[]", false},
		},
		"a pod being deleted is still there": {
			{func(b *snapshot.Builder) {
				b.SetNode(node("a"))
				leaving := pod("p", "a")
				leaving.DeletionTimestamp = &now
				b.SetPod(leaving)
			}, "a[p]", true},
			{func(b *snapshot.Builder) { b.DeletePod("p") }, "a[]", true},
		},
		"a pod that is suddenly on another node is on that one alone": {
			{func(b *snapshot.Builder) {
				b.SetNode(node("a"))
				b.SetNode(node("b"))
				b.SetPod(pod("p", "a"))
			}, "a[p] b[]", true},
			{func(b *snapshot.Builder) { b.SetPod(pod("p", "b")) }, "a[] b[p]", true},
			{func(b *snapshot.Builder) { b.SetPod(pod("p", "")) }, "a[] b[]", true},
		},
		"two pods with one name and different UIDs": {
			{func(b *snapshot.Builder) {
				b.SetNode(node("a"))
				b.SetPod(pod("p", "a"))
				again := pod("p", "a")
				again.UID = "p-2"
				b.SetPod(again)
			}, "a[p p]", true},
			{func(b *snapshot.Builder) { b.DeletePod("p") }, "a[p]", true},
			{func(b *snapshot.Builder) { b.DeletePod("p-2") }, "a[]", true},
		},
		"a new resourceVersion alone is no change": {
			{func(b *snapshot.Builder) {
				b.SetNode(withVersion(node("a", "zone=east"), "1"))
				b.SetPod(withVersion(pod("p", "a"), "2"))
			}, "a[p]", true},
			{func(b *snapshot.Builder) { b.SetNode(withVersion(node("a", "zone=east"), "3")) }, "a[p]", false},
			{func(b *snapshot.Builder) { b.SetPod(withVersion(pod("p", "a"), "4")) }, "a[p]", false},
			{func(b *snapshot.Builder) { b.SetNode(withVersion(node("a", "zone=west"), "5")) }, "a[p]", true},
			{func(b *snapshot.Builder) { b.SetPod(withVersion(phase(pod("p", "a"), corev1.PodRunning), "6")) }, "a[p]", true},
		},
		"the same object again is no change": {
			{func(b *snapshot.Builder) { b.SetNode(labelled) }, "a[]", true},
			{func(b *snapshot.Builder) { b.SetNode(labelled) }, "a[]", false},
		},
		"budgets": {
			{func(b *snapshot.Builder) {
				b.SetDisruptionBudget(budget("b", "a"))
				b.SetDisruptionBudget(budget("a", "z"))
				b.SetDisruptionBudget(budget("a", "b"))
			}, "a/b a/z b/a", true},
			{func(b *snapshot.Builder) { b.DeleteDisruptionBudget(types.NamespacedName{Namespace: "a", Name: "z"}) }, "a/b b/a", true},
			{func(b *snapshot.Builder) { b.DeleteDisruptionBudget(types.NamespacedName{Namespace: "a", Name: "z"}) }, "a/b b/a", false},
			{func(b *snapshot.Builder) {
				newer := budget("a", "b")
				newer.ResourceVersion = "newer"
				b.SetDisruptionBudget(newer)
			}, "a/b b/a", false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b snapshot.Builder
			before := b.View()
			for i, step := range steps {
				step.do(&b)
				after := b.View()
				if got := show(after); got != step.want {
					t.Errorf("step %d: got view %q, want %q", i, got, step.want)
				}
				if published := after != before; published != step.publishes {
					t.Errorf("step %d: published a new view: %v, want %v", i, published, step.publishes)
				}
				if grown := after.Generation() - before.Generation(); (grown == 1) != step.publishes || grown > 1 {
					t.Errorf("step %d: generation grew by %d", i, grown)
				}
				before = after
			}
		})
	}
}

func TestBuilderKnowsPodsOnNodes(t *testing.T) {
	var b snapshot.Builder
	first := withVersion(pod("p", "a"), "1")
	b.SetPod(first)
	b.SetPod(withVersion(pod("p", "a"), "2"))
	if got := b.Pod("p"); got != first {
		t.Errorf("Pod returned %p, want the object that was kept, %p", got, first)
	}
	b.SetPod(phase(pod("p", "a"), corev1.PodSucceeded))
	if got := b.Pod("p"); got != nil {
		t.Errorf("Pod returned %v for a pod that has ended", got)
	}
	if got := b.Pod("never-seen"); got != nil {
		t.Errorf("Pod returned %v for an unknown UID", got)
	}
}

// Views share what has not changed, and published Views never change.
func TestViewsShareUnchangedNodes(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(node("a"))
	b.SetNode(node("b"))
	b.SetPod(pod("p", "a"))
	before := b.View()
	b.SetPod(pod("q", "a"))
	after := b.View()

	if before.Node("b") != after.Node("b") {
		t.Error("a node that did not change was replaced")
	}
	if before.Node("a") == after.Node("a") {
		t.Error("a node whose pods changed was not replaced")
	}
	b.DeletePod("p")
	b.SetPod(pod("o", "a"))
	b.DeleteNode("b")
	b.View()
	if got := show(before); got != "a[p] b[]" {
		t.Errorf("the first view changed to %q", got)
	}
	if got := show(after); got != "a[p q] b[]" {
		t.Errorf("the second view changed to %q", got)
	}
}

func TestRows(t *testing.T) {
	var b snapshot.Builder
	for _, name := range []string{"a", "b", "c"} {
		b.SetNode(node(name))
	}
	v := b.View()
	rowOfC := v.Node("c").Row()
	b.DeleteNode("a")
	b.SetPod(pod("p", "c"))
	v = b.View()
	if got := v.Node("c").Row(); got != rowOfC {
		t.Errorf("the row of c moved from %d to %d", rowOfC, got)
	}
	if v.Len() != 2 || v.Rows() != 3 {
		t.Errorf("Len %d, Rows %d, want 2 and 3", v.Len(), v.Rows())
	}
	b.SetNode(node("d")) // takes the free row
	v = b.View()
	if v.Len() != 3 || v.Rows() != 3 {
		t.Errorf("Len %d, Rows %d, want 3 and 3", v.Len(), v.Rows())
	}
	for n := range v.All() {
		if v.At(n.Row()) != n {
			t.Errorf("At(%d) is not node %s", n.Row(), n.Name)
		}
	}
	for _, row := range []int{-1, 3, 1 << 40} {
		if v.At(row) != nil {
			t.Errorf("At(%d) is a node", row)
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

func TestAllStops(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(node("a"))
	b.SetNode(node("b"))
	seen := 0
	for range b.View().All() {
		seen++
		break
	}
	if seen != 1 {
		t.Errorf("got %d nodes after break", seen)
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

// Each change of what belongs to a node makes a new View, which has it.
func TestBuilderShowsWhatBelongsToANode(t *testing.T) {
	var b snapshot.Builder
	b.AssumePod(pod("early", ""), "a") // before there is a View
	b.SetNode(node("a"))
	last := b.View()
	if !last.Node("a").Has(pod("early", "").UID) {
		t.Error("a pod that was assumed before the first View is not on its node")
	}
	source, ledger := snapshot.ConfigMapSource{Namespace: "n", Prefix: "p-"}, ledgerOf("a")
	for _, step := range []struct {
		what   string
		change func()
		data   string
		ledger bool
	}{
		{"a ConfigMap comes", func() { b.SetConfigMap(source, "a", map[string]string{"key": "one"}) }, "one", false},
		{"it changes", func() { b.SetConfigMap(source, "a", map[string]string{"key": "two"}) }, "two", false},
		{"a ledger comes", func() { b.SetLedger(ledger) }, "two", true},
		{"the ledger is gone", func() { b.DeleteLedger(ledger.Key()) }, "two", false},
		{"the ConfigMap is gone", func() { b.SetConfigMap(source, "a", nil) }, "", false},
	} {
		step.change()
		next := b.View()
		n := next.Node("a")
		if next == last || n.ConfigMap(source)["key"] != step.data || (n.Ledger(ledger.Resource) != nil) != step.ledger {
			t.Errorf("%s: the View is new: %t; it has %q and the ledger %v", step.what, next != last, n.ConfigMap(source), n.Ledger(ledger.Resource))
		}
		last = next
	}
}
