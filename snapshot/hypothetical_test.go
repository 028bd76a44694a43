package snapshot_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// Pools yields the ledgers of the whole cluster in order of resource.
func TestPools(t *testing.T) {
	var b snapshot.Builder
	b.SetLedger(&snapshot.Ledger{Resource: "licenses/b"})
	b.SetLedger(&snapshot.Ledger{Resource: "licenses/a"})
	var names []string
	for l := range b.View().Pools() {
		names = append(names, l.Resource)
	}
	if !slices.Equal(names, []string{"licenses/a", "licenses/b"}) {
		t.Errorf("the pools are %q", names)
	}
}

// Facts of a node with another object are those of this object, and the node itself keeps its own.
func TestNodeWithObject(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	n := b.View().Node("a")
	cordoned := snapshot.NewObjectFact(func(object *corev1.Node) bool { return object.Spec.Unschedulable })
	whole := snapshot.NewFact(func(n *snapshot.Node) bool { return n.Object.Spec.Unschedulable })
	if *cordoned.Of(n) || *whole.Of(n) {
		t.Fatal("the node is cordoned")
	}
	object := n.Object.DeepCopy()
	object.Spec.Unschedulable = true
	changed := n.WithObject(object)
	if !*cordoned.Of(changed) || !*whole.Of(changed) || *cordoned.Of(n) || changed.Row() != n.Row() {
		t.Errorf("changed: %v, %v, row %d; the node itself: %v", *cordoned.Of(changed), *whole.Of(changed), changed.Row(), *cordoned.Of(n))
	}
}
