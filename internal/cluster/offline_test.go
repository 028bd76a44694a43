package cluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// An event is in the next View at once.
func TestOffline(t *testing.T) {
	o := NewOffline()
	o.SetComplete()
	node, pod := exampleNode(0), examplePod(0, "p")
	claims := &ledger.Object{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: snapshot.Ledger{Resource: "gpu", Node: node.Name}}
	for _, event := range []struct {
		name string
		show func()
		is   func(*Offline) bool
	}{
		{"a node comes", func() { o.ShowNode(node) }, func(o *Offline) bool { return o.View().Node(node.Name) != nil }},
		{"a pod comes", func() { o.ShowPod(pod) }, func(o *Offline) bool { return len(o.View().Node(node.Name).Pods) == 1 }},
		{"a ledger comes", func() { o.ShowLedger(claims) }, func(o *Offline) bool { return o.View().Node(node.Name).Ledger("gpu") != nil }},
		{"the pod is gone", func() { o.ShowNoPod(pod) }, func(o *Offline) bool { return len(o.View().Node(node.Name).Pods) == 0 }},
	} {
		if event.show(); !event.is(o) {
			t.Errorf("%s: the view does not show it", event.name)
		}
	}
}
