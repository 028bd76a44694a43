package devices_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/policies/devices"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// Units has what pods hold of each unit, and no node without units. Nothing can be allocated without the device plugin.
func TestUnits(t *testing.T) {
	p := policytest.Build(t, devices.Type(), shared)
	w := world{node: naming("a,b", "")}
	w.allocation(t, p, asking("one", 3))
	var b snapshot.Builder
	b.SetNode(w.node)
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "without"}})
	down := naming("a", "")
	down.Name, down.Status.Capacity, down.Status.Allocatable = "o", list(1), list(0)
	b.SetNode(down)
	b.SetPod(w.bind(asking("one", 3)))
	b.SetLedger(w.ledger)
	got := p.(policy.UnitLister).Units(b.View())
	want := policy.UnitList{Resource: fpga, Title: fpga, Nodes: []policy.NodeUnits{
		{Node: "n", Units: []policy.Unit{{Name: "a", Capacity: 4, Used: 3}, {Name: "b", Capacity: 4}}},
		{Node: "o", Units: []policy.Unit{{Name: "a", Capacity: 4, Unhealthy: true}}},
	}}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}
