package snapshot_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// WithPool replaces one pool in a copy of the View, and Pools yields those of the copy.
func TestViewWithPool(t *testing.T) {
	var b snapshot.Builder
	b.SetLedger(&snapshot.Ledger{Resource: "licenses/b"})
	b.SetLedger(&snapshot.Ledger{Resource: "licenses/a", Pods: []snapshot.LedgerPod{{UID: "u"}}})
	view := b.View()
	other := &snapshot.Ledger{Resource: "licenses/a"}
	with := view.WithPool(other)
	if with.Ledger(other.Key()) != other || len(view.Ledger(other.Key()).Pods) != 1 {
		t.Errorf("the copy has %v, and the View %v", with.Ledger(other.Key()), view.Ledger(other.Key()))
	}
	var names []string
	for l := range with.Pools() {
		names = append(names, l.Resource)
	}
	if !slices.Equal(names, []string{"licenses/a", "licenses/b"}) {
		t.Errorf("the pools are %q", names)
	}
	if l := new(snapshot.View).WithPool(other).Ledger(other.Key()); l != other {
		t.Errorf("an empty View with a pool has %v", l)
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
